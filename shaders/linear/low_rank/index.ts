import { limitError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import segmentsWgsl from '../../lib/segments.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { type Segments, segmentRange } from '../segments.js';
import lowRankWgsl from './low_rank.wgsl?raw';

export interface LowRankProblem {
  /** Most rows of a step. */
  readonly rows: number;
  /** 'down': x by A, in pieces; 'bias': what a linear kernel is to add; 'add': that to each segment's sums. */
  readonly part: 'down' | 'bias' | 'add';
  /** 'down': the most that an adapter has of A x; otherwise of the matrix. */
  readonly outFeatures: number;
  /** How the matrix's contraction is summed, and the segments of it that are here. */
  readonly segments: Segments;
  readonly modelInFeatures: number;
  /** Elements from row to row. */
  readonly xStride: number;
  /** Of 'down': element of a row of x that the contraction starts at; default 0. */
  readonly xOffset?: number;
  readonly outStride: number;
  /**
   * Instead of segments, of 'down' and 'add': a product of `modelInFeatures` for each of so many parts of a row of x, or of out, that lie
   * `stride` apart. `shared`: by the same factor; otherwise each by columns or rows of its own.
   */
  readonly groups?: { readonly count: number; readonly stride: number; readonly shared: boolean };
  /**
   * Of 'down' and 'bias': a row has `topK` products, by experts of its own, of which `count` from `first` on are here. x is [rows][topK]
   * with `xPerSlot`.
   */
  readonly experts?: {
    readonly topK: number;
    readonly first: number;
    readonly count: number;
    readonly xPerSlot: boolean;
  };
  /** Of 'down', in place of x: a row's x has a one where its token's id & `mask` says, and zeros. One segment. */
  readonly lookup?: { readonly mask: number };
  /** Of 'bias': the matrix has one. */
  readonly bias?: boolean;
}

const THREADS = 64;
/** Of a row without experts. */
const ONE_PRODUCT = { topK: 1, first: 0, count: 1, xPerSlot: true };

/** An output's entry of `LowRank` tables: numbers of adapters that have none are beyond every table. */
export const NO_PLACE = 0xffffffff;

export const lowRank = defineKernel({
  name: 'low_rank',
  bindings: {
    x: 'read',
    factors: 'read',
    table: 'read',
    row_info: 'read',
    places: 'read',
    ids: 'read',
    bias: 'read',
    out: 'read_write',
  },
  params: {
    rows: 'u32',
    out_features: 'u32',
    factor_stride: 'u32',
    model_in_features: 'u32',
    segment_total: 'u32',
    segment_align: 'u32',
    segment_first: 'u32',
    x_stride: 'u32',
    x_offset: 'u32',
    out_stride: 'u32',
    factor_group: 'u32',
    group_stride: 'u32',
    top_k: 'u32',
    x_divisor: 'u32',
    expert_first: 'u32',
    expert_count: 'u32',
    id_mask: 'u32',
  },
  plan({ part, segments, modelInFeatures, groups, experts, lookup, ...problem }: LowRankProblem, { limits }) {
    const { rows, outFeatures, xStride, xOffset = 0, outStride, bias = false } = problem;
    const { total, align, first = 0, count = total - first } = segments;
    const { start, end } = segmentRange(modelInFeatures, segments);
    const width = part === 'down' ? end - start : outFeatures;
    const own = groups && !groups.shared;
    const { topK, ...each } = experts ?? ONE_PRODUCT;
    const most = limits.maxComputeWorkgroupsPerDimension;
    if (rows * topK > most)
      throw limitError(`low_rank: ${rows} rows of ${topK} experts each exceed ${most} workgroups: use smaller steps`);
    return {
      wgsl: [segmentsWgsl, stepsWgsl, lowRankWgsl],
      constants: {
        DOWN: part === 'down',
        ADDS: part === 'add',
        BIAS: bias,
        GROUPED: groups !== undefined,
        EXPERTS: experts !== undefined,
        LOOKUP: lookup !== undefined,
      },
      params: {
        rows,
        out_features: outFeatures,
        factor_stride: own ? groups.count * width : width,
        model_in_features: modelInFeatures,
        segment_total: total,
        segment_align: align,
        segment_first: first,
        x_stride: xStride,
        x_offset: xOffset,
        out_stride: outStride,
        factor_group: own ? width : 0,
        group_stride: groups?.stride ?? 0,
        top_k: topK,
        x_divisor: each.xPerSlot ? 1 : topK,
        expert_first: each.first,
        expert_count: each.count,
        id_mask: lookup?.mask ?? 0,
      },
      grid: (step) => [
        part === 'down' ? outFeatures : ceilDiv(outFeatures, THREADS),
        Math.min(step.rows, rows) * topK,
        groups?.count ?? count,
      ],
    };
  },
});
