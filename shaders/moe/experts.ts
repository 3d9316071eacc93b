/**
 * Room: mixtures of experts: `moe_route` chooses, `moe_sort` groups rows by expert, `expert_linear` multiplies,
 * `moe_combine` adds up. Here is what the kernels that multiply are told.
 */

import { limitError, SplitkvError } from '../../src/base/errors.js';
import { alignUp, ceilDiv } from '../../src/base/math.js';
import type { DeviceTraits } from '../../src/gpu/device.js';
import type { ParamTypes } from '../../src/gpu/kernel.js';
import geluWgsl from '../lib/gelu.wgsl?raw';
import type { Activation } from '../linear/problem.js';
import { weightsWgsl } from '../linear/weights_wgsl.js';
import { blockElements, packedLayout, type MatrixType, UNIT_ELEMENTS } from '../linear/pack.js';
import expertOutputWgsl from './expert_output.wgsl?raw';

/** What the kernels that multiply rows by their experts' weights are told. */
export interface ExpertProblem {
  /** Most rows of a step. */
  readonly rows: number;
  /** Experts of a row; (row, slot) is row * topK + slot in every tensor that has both axes. */
  readonly topK: number;
  /** Of the layer. */
  readonly experts: number;
  readonly inFeatures: number;
  /** Outputs of one expert; with 'swiglu' its intermediate size. */
  readonly outFeatures: number;
  readonly type: MatrixType;
  /**
   * 'swiglu': an expert's weight is its gate rows, then its up rows, each padded to 32. 'gate', 'up': the same by two weights of a
   * dispatch each; 'up' finds the gates in `out`.
   */
  readonly epilogue: 'swiglu' | 'gate' | 'up' | 'none';
  /** Of the gate; 'silu' where left out. */
  readonly activation?: Activation | undefined;
  /** Of 'swiglu': g = min(gate, limit), u = clamp(up, -limit, limit), out = (u + 1) g sigmoid(alpha g). */
  readonly clamped?: { readonly alpha: number; readonly limit: number } | undefined;
  /** Every output has a bias; a matrix's follow each other as its rows do, with their padding, those of gate and up as of 'swiglu'. */
  readonly bias?: boolean;
  /** With `bias`: each (row, slot) has its own, [rows][topK][rows of the matrix with their padding]. */
  readonly rowBias?: boolean;
  /** Of the experts in the bias buffer, the first that is in the weight buffer; default 0. */
  readonly biasFirst?: number;
  /** Elements between rows of x: a multiple of 4, at least inFeatures aligned to 32; the padding is zero. */
  readonly xStride: number;
  /** x is [rows][topK][xStride] (the down projection), not [rows][xStride] (gate and up). */
  readonly xPerSlot: boolean;
  /** Elements between rows of out, which is [rows][topK][outStride]. */
  readonly outStride: number;
  /** The experts that the weight buffer holds, where a layer is in several: one dispatch a shard. Default: all. */
  readonly expertFirst?: number;
  readonly expertCount?: number;
}

export const EXPERT_PARAMS = {
  rows: 'u32',
  x_divisor: 'u32',
  top_k: 'u32',
  expert_first: 'u32',
  expert_count: 'u32',
  tiles: 'u32',
  matrices: 'u32',
  units: 'u32',
  used_units: 'u32',
  x_stride4: 'u32',
  out_features: 'u32',
  out_stride: 'u32',
  bias_first: 'u32',
  alpha: 'f32',
  limit: 'f32',
} as const satisfies ParamTypes;

/** Packed sizes of one expert; expert e of a buffer starts at e times them. */
export interface ExpertLayout {
  /** Tiles of 32 rows. */
  readonly tiles: number;
  readonly weightBytes: number;
  /** 0 for f32 and f16. */
  readonly scaleBytes: number;
}

export type ExpertShape = Pick<ExpertProblem, 'type' | 'inFeatures' | 'outFeatures' | 'epilogue'>;

/** Of weights [outFeatures, inFeatures], twice that with 'swiglu' (gate tiles, then up tiles). */
export function expertLayout({ type, inFeatures, outFeatures, epilogue }: ExpertShape): ExpertLayout {
  const matrices = epilogue === 'swiglu' ? 2 : 1;
  const { tiles, weightBytes, scaleBytes } = packedLayout(type, outFeatures, inFeatures);
  return { tiles: tiles * matrices, weightBytes: weightBytes * matrices, scaleBytes: scaleBytes * matrices };
}

/** Of expert_output.wgsl. */
const HALF = { gate: 0, up: 1, swiglu: 2, none: 2 } as const;

/** The parts of a plan that both kernels share. */
export function planExperts(kernel: string, problem: ExpertProblem, traits: DeviceTraits) {
  const { rows, topK, experts, inFeatures, outFeatures, type, epilogue, xStride, xPerSlot, outStride } = problem;
  const { expertFirst = 0, expertCount = experts - expertFirst, clamped, bias = false, biasFirst = 0 } = problem;
  const bad = (what: string): SplitkvError => new SplitkvError('internal', `${kernel}: ${what}`);
  if (topK < 1 || topK > experts) throw bad(`topK is ${topK}, expected 1 to ${experts} (experts)`);
  if (xStride % 4 !== 0 || xStride < alignUp(inFeatures, 32)) {
    throw bad(
      `xStride is ${xStride}, expected a multiple of 4 from ${alignUp(inFeatures, 32)} on (inFeatures ${inFeatures})`,
    );
  }
  if (outFeatures < 1 || outFeatures > outStride)
    throw bad(`outFeatures is ${outFeatures}, expected 1 to ${outStride} (outStride)`);
  if (expertFirst < 0 || expertCount < 1 || expertFirst + expertCount > experts) {
    throw bad(
      `experts ${expertFirst} to ${expertFirst + expertCount - 1} in the shard, expected some of 0 to ${experts - 1}`,
    );
  }
  const weights = weightsWgsl(type, traits);
  const { tiles } = packedLayout(type, outFeatures, inFeatures);
  const matrices: 1 | 2 = epilogue === 'swiglu' ? 2 : 1;
  const unit = UNIT_ELEMENTS[type];
  return {
    expertCount,
    tiles,
    matrices,
    weights,
    fragments: [weights, geluWgsl, expertOutputWgsl],
    constants: {
      SWIGLU: matrices === 2,
      HALF: HALF[epilogue],
      GELU: problem.activation === 'gelu_tanh',
      ERF: false,
      CLAMPED: clamped !== undefined,
      BIASED: bias,
      ROW_BIAS: problem.rowBias === true,
    },
    params: {
      rows,
      x_divisor: xPerSlot ? 1 : topK,
      top_k: topK,
      expert_first: expertFirst,
      expert_count: expertCount,
      tiles,
      matrices,
      units: alignUp(inFeatures, blockElements(type)) / unit,
      used_units: ceilDiv(inFeatures, unit),
      x_stride4: xStride / 4,
      out_features: outFeatures,
      out_stride: outStride,
      bias_first: biasFirst,
      alpha: clamped?.alpha ?? 0,
      limit: clamped?.limit ?? 0,
    },
  };
}

/** @throws SplitkvError `limit` when a dispatch would need more workgroups along y than the adapter allows. */
export function checkGridY(kernel: string, rows: number, workgroups: number, { limits }: DeviceTraits): void {
  const most = limits.maxComputeWorkgroupsPerDimension;
  if (workgroups > most) {
    throw limitError(
      `${kernel}: ${rows} rows need ${workgroups} workgroups in one dimension, at most ${most}: use smaller steps`,
    );
  }
}
