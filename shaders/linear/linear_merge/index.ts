import { SplitkvError } from '../../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import siluWgsl from '../../lib/silu.wgsl?raw';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { CHUNK_TOKENS } from '../../cache/kv_cache.js';
import { decodesBytes, rowBytes } from '../fast/fast.js';
import { CONTRACT_TUNINGS, planContract, contractWgsl } from '../contract.js';
import swigluWgsl from '../linear/swiglu.wgsl?raw';
import outputsWgsl from '../outputs.wgsl?raw';
import { LINEAR_PARAMS, type LinearProblem, planLinear, someActivations } from '../problem.js';
import xMergedWgsl from '../x_merged.wgsl?raw';
import source from './linear_merge.wgsl?raw';

/** Chunks that are merged where they are projected: more, times all the workgroups that read them, would cost more than a dispatch. */
export const MOST_MERGED_CHUNKS = 4;

/** The chunks of a row's heads. */
export interface MergedChunks {
  /** That partial_o and partial_ml have room for. */
  readonly partials: number;
  /** As attention_merge's. */
  readonly slidingWindow?: number | undefined;
}

/** Of a lone row: heads of headDim elements are what is contracted. */
export interface LinearMergeProblem extends MergedChunks, Omit<LinearProblem, 'rows' | 'xStride' | 'xOffset'> {
  readonly headDim: number;
  /** Element of gate by whose sigmoid the first merged one is multiplied, a multiple of 4; no gate where left out. */
  readonly gateOffset?: number | undefined;
  readonly epilogue: 'none' | 'residual';
}

/** The most chunks of a head that a row sees. */
export const mostChunks = ({ partials, slidingWindow = Infinity }: MergedChunks): number =>
  Math.min(partials, ceilDiv(slidingWindow - 1, CHUNK_TOKENS) + 1);

const stagedBytes = (inFeatures: number): number => alignUp(inFeatures, 32) * 4;

/** Whether `inFeatures` of attention's output fit the workgroup memory, beside the sums of so many segments. */
export const canMerge = (inFeatures: number, segments: number, traits: DeviceTraits): boolean =>
  stagedBytes(inFeatures) + (decodesBytes(traits, 'q8') ? rowBytes(inFeatures) : 0) + Math.max(32, segments) * 32 <=
  traits.limits.maxComputeWorkgroupStorageSize;

/**
 * attention_merge ('all'), output_gate and linear in one, bit for bit: for a lone row that sees at most MOST_MERGED_CHUNKS chunks. On
 * every adapter planned as for a GPU.
 * @throws SplitkvError `limit` where `canMerge` says so
 */
export const linearMerge = defineKernel({
  name: 'linear_merge',
  bindings: {
    partial_o: 'read',
    partial_ml: 'read',
    row_info: 'read',
    weight: 'read',
    scale: 'read',
    bias: 'read',
    gate: 'read',
    out: 'read_write',
  },
  params: { ...LINEAR_PARAMS, partials: 'u32', gate_start4: 'u32' },
  tunings: CONTRACT_TUNINGS,
  contents: ({ inFeatures, headDim, partials }: LinearMergeProblem) => ({
    partial_o: someActivations(inFeatures * partials),
    partial_ml: someActivations((inFeatures / headDim) * partials * 2),
  }),
  plan(problem: LinearMergeProblem, traits) {
    const { inFeatures, outFeatures, type, epilogue, headDim, partials, slidingWindow = 0, gateOffset } = problem;
    const xStride = alignUp(inFeatures, 32);
    const linear = { ...problem, rows: 1, xStride };
    const planned = planLinear('linear_merge', linear, epilogue, traits, true);
    const { segments, params, fragments, constants, fast } = planned;
    if (inFeatures % headDim !== 0 || headDim % 4 !== 0) {
      throw new SplitkvError('internal', `linear_merge: inFeatures ${inFeatures} aren't heads of ${headDim}`);
    }
    if (!canMerge(inFeatures, segments.count, traits)) {
      throw new SplitkvError(
        'limit',
        `linear_merge: inFeatures ${inFeatures} and ${segments.count} segments don't fit this adapter's ` +
          `maxComputeWorkgroupStorageSize of ${traits.limits.maxComputeWorkgroupStorageSize}; use attention_merge and linear`,
      );
    }
    const contract = planContract(
      {
        type,
        outFeatures,
        inFeatures,
        tileRows: 1,
        matrices: 1,
        segments,
        cut: !segments.aligned,
        staged: stagedBytes(inFeatures),
        rowBytes: planned.rowBytes,
      },
      traits,
    );
    return {
      wgsl: [
        stepsWgsl,
        ...fragments,
        siluWgsl,
        softmaxState,
        xMergedWgsl,
        swigluWgsl,
        contractWgsl,
        outputsWgsl,
        source,
      ],
      constants: {
        ...constants,
        ...contract.constants,
        GELU: false,
        SEGMENT_TOTAL: segments.total,
        HEAD_UNITS: headDim / 4,
        STAGED: xStride / 4,
        MERGED: inFeatures / 4,
        MOST_CHUNKS: Math.min(MOST_MERGED_CHUNKS, mostChunks(problem)),
        WINDOW: slidingWindow,
        GATED: gateOffset !== undefined,
      },
      params: { ...params, partials, gate_start4: (gateOffset ?? 0) / 4 },
      ...(fast && { fast }),
      grid: (step) => [contract.tiles, Math.min(step.rows, 1), 1],
    };
  },
});
