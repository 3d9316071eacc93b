/**
 * Room: rows times a packed weight: `linear` for few rows, `linear_tiled` for many, `linear_grouped` for a matrix per
 * head. pack.ts says how weights lie; `reduce_segments` adds up what a plan cuts. Read pack.ts next.
 */

import { SplitkvError } from '../../src/base/errors.js';
import { ceilDiv } from '../../src/base/math.js';
import type { DeviceTraits, FastPath } from '../../src/gpu/device.js';
import type { ParamTypes } from '../../src/gpu/kernel.js';
import geluWgsl from '../lib/gelu.wgsl?raw';
import segmentsWgsl from '../lib/segments.wgsl?raw';
import tanhWgsl from '../lib/tanh.wgsl?raw';
import { decodeBytes, decodesBytes, rowBytes } from './fast/fast.js';
import biasRowsWgsl from './bias_rows.wgsl?raw';
import biasSharedWgsl from './bias_shared.wgsl?raw';
import outputWgsl from './output.wgsl?raw';
import outputSegmentsWgsl from './output_segments.wgsl?raw';
import { blockElements, type MatrixType, TILE, UNIT_ELEMENTS } from './pack.js';
import { weightsWgsl } from './weights_wgsl.js';
import { inBlocks, type ResolvedSegments, resolveSegments, type Segments } from './segments.js';

/** Rows that share one read of the weights: at most so many, as a variant has room; changes no bit. */
export type TileRows = 1 | 2 | 4 | 8 | 16;

/** What every kernel that multiplies rows by a packed weight [outFeatures, inFeatures] is told. */
export interface LinearProblem {
  /** Most rows of a step; row r of x and out starts at r * stride. */
  readonly rows: number;
  /** Elements of a row of x: all of K, or a rank's slice of it. */
  readonly inFeatures: number;
  readonly outFeatures: number;
  readonly type: MatrixType;
  readonly segments: Segments;
  /** K of the whole model, where inFeatures is a rank's slice. Defaults to inFeatures. */
  readonly modelInFeatures?: number;
  readonly bias: boolean;
  /** Elements between the biases of rows that have their own. Default: all rows have the same. */
  readonly biasStride?: number;
  /** Element of a row's biases that output 0 has; with `biasStride`. Defaults to 0. */
  readonly biasOffset?: number;
  /** Elements, a multiple of 4; the row's padding up to it or to a multiple of 32 is zero. */
  readonly xStride: number;
  /** Element of a row of x that the contraction starts at: a multiple of 4. Defaults to 0. */
  readonly xOffset?: number;
  /** Elements. */
  readonly outStride: number;
  /** Element of the out row that output 0 goes to: for a weight in several shards. Defaults to 0. */
  readonly outOffset?: number;
  /** The sum and its bias times this, before the residual is added. Defaults to 1. */
  readonly outScale?: number;
  /** Outputs y become outCap * tanh(y / outCap). As they are where left out; not with a residual. */
  readonly outCap?: number;
  /** 'sum' (default): rows of outputs. 'segments': each segment's sum to out[segment - first][row][n], nothing added. */
  readonly output?: 'sum' | 'segments';
}

/** Activations that aren't all alike, to run a kernel on outside of a step. */
export const someActivations = (count: number): Float32Array<ArrayBuffer> =>
  Float32Array.from({ length: count }, (_, i) => ((i * 7919) % 1021) / 1021 - 0.5);

export const LINEAR_PARAMS = {
  rows: 'u32',
  out_features: 'u32',
  model_in_features: 'u32',
  units: 'u32',
  first_unit: 'u32',
  unit_vec4s: 'u32',
  x_stride4: 'u32',
  x_start4: 'u32',
  out_stride: 'u32',
  out_offset: 'u32',
  segment_total: 'u32',
  segment_align: 'u32',
  segment_first: 'u32',
  segment_count: 'u32',
  eps: 'f32',
  out_scale: 'f32',
} as const satisfies ParamTypes;

type LinearParams = { readonly [K in keyof typeof LINEAR_PARAMS]: number };

/**
 * What becomes of sums. 'residual': they are added to what stands there. 'gelu': of each the GELU, by the activation. 'swiglu': the weight holds gate
 * rows then up rows, each padded to 32; outFeatures is the intermediate size.
 */
export type Epilogue = 'none' | 'residual' | 'gelu' | 'swiglu';

/** Of a gate, or of all outputs. lib/gelu.wgsl: 'gelu' is by erf, 'gelu_tanh' (of outputs the default) by tanh. */
export type Activation = 'silu' | 'gelu_tanh' | 'gelu';

/** Of swiglu.wgsl and gelu.wgsl. */
export const activationConstants = (activation: Activation = 'silu') => ({
  GELU: activation !== 'silu',
  ERF: activation === 'gelu',
});

/** The parts of a plan that the kernels share. `few`: of rows that precision 'fast' may round to bytes as they come. */
export function planLinear(
  kernel: string,
  problem: LinearProblem,
  epilogue: Epilogue,
  traits: DeviceTraits,
  few = false,
): {
  readonly segments: ResolvedSegments;
  readonly params: LinearParams;
  readonly fragments: readonly string[];
  readonly constants: Readonly<Record<string, boolean | number>>;
  /** Of workgroup memory for each row; with `few`. */
  readonly rowBytes: number;
  readonly fast?: FastPath;
} {
  checkRows(kernel, problem, epilogue);
  const { rows, inFeatures, outFeatures, type, xStride, xOffset = 0 } = problem;
  const { outStride, outOffset = 0, outCap = 0, output = 'sum' } = problem;
  const modelInFeatures = problem.modelInFeatures ?? inFeatures;
  const unit = UNIT_ELEMENTS[type];
  const segments = resolveSegments(kernel, problem.segments, inFeatures, modelInFeatures, unit, blockElements(type));
  // All ranks round the same blocks, so no segment of the model may cut one.
  const inBytes =
    few && inBlocks(problem.segments, modelInFeatures) && decodesBytes(traits, type)
      ? decodeBytes(type, inFeatures, traits)
      : undefined;
  return {
    segments,
    params: {
      rows,
      out_features: outFeatures,
      model_in_features: modelInFeatures,
      units: (segments.weightEnd - segments.weightStart) / unit,
      first_unit: segments.weightStart / unit,
      unit_vec4s: unit / 4,
      x_stride4: xStride / 4,
      // Wraps below 0, as the kernels' u32 sums do.
      x_start4: ((segments.start - xOffset) / 4) >>> 0,
      out_stride: outStride,
      out_offset: outOffset,
      segment_total: segments.total,
      segment_align: segments.align,
      segment_first: segments.first,
      segment_count: segments.count,
      eps: 0,
      out_scale: problem.outScale ?? 1,
    },
    rowBytes: inBytes ? rowBytes(inFeatures) : 0,
    ...(inBytes && { fast: 'dot4' as const }),
    fragments: [
      segmentsWgsl,
      ...(inBytes?.wgsl ?? [weightsWgsl(type, traits)]),
      tanhWgsl,
      geluWgsl,
      // Its own text, not a stride of 0: llvmpipe's loops are slower beside that, even where there is no bias.
      problem.biasStride === undefined ? biasSharedWgsl : biasRowsWgsl,
      outputWgsl,
      outputSegmentsWgsl,
    ],
    constants: {
      ...inBytes?.constants,
      BIAS: problem.bias,
      ...(problem.biasStride !== undefined && {
        BIAS_STRIDE: problem.biasStride,
        BIAS_OFFSET: problem.biasOffset ?? 0,
      }),
      RESIDUAL: epilogue === 'residual',
      GELU_OUT: epilogue === 'gelu',
      ERF: false,
      OUT_CAP: outCap,
      SEGMENTS_OUT: output === 'segments',
    },
  };
}

/** Whether rows of x and of outputs are as the kernels read and write them. @throws SplitkvError `internal` */
function checkRows(kernel: string, problem: LinearProblem, epilogue: Epilogue): void {
  const { inFeatures, outFeatures, xStride, xOffset = 0 } = problem;
  const { outStride, outOffset = 0 } = problem;
  const bad = (what: string): SplitkvError => new SplitkvError('internal', `${kernel}: ${what}`);
  if (xStride % 4 !== 0 || xStride < inFeatures) {
    throw bad(`xStride is ${xStride}, expected a multiple of 4 from inFeatures (${inFeatures}) on`);
  }
  if (xOffset % 4 !== 0 || xOffset < 0 || xOffset + inFeatures > xStride) {
    throw bad(`xOffset is ${xOffset}, expected a multiple of 4 up to xStride - inFeatures (${xStride - inFeatures})`);
  }
  if (outOffset + outFeatures > outStride) {
    throw bad(`outputs ${outOffset} .. ${outOffset + outFeatures} don't fit an out row of ${outStride}`);
  }
  checkEpilogue(kernel, problem, epilogue);
}

function checkEpilogue(
  kernel: string,
  { bias, output = 'sum', outScale = 1, outCap = 0 }: LinearProblem,
  epilogue: Epilogue,
): void {
  const bad = (what: string): SplitkvError => new SplitkvError('internal', `${kernel}: ${what}`);
  if (output === 'segments' && (epilogue !== 'none' || bias || outScale !== 1)) {
    throw bad(
      `output 'segments' adds no bias and has no scale or epilogue (got bias ${bias}, '${epilogue}'); reduce_segments does that`,
    );
  }
  if (outCap !== 0 && (!(outCap > 0 && outCap < Infinity) || epilogue !== 'none' || output === 'segments')) {
    throw bad(
      `outCap is ${outCap} with '${epilogue}' and output '${output}'; expected a positive number, and outputs by themselves`,
    );
  }
}

export const tilesOf = (outFeatures: number): number => ceilDiv(outFeatures, TILE);
