/**
 * Room: projections, and what ranks do for each other in them: row_parallel.ts adds up segments of a contraction,
 * vocab.ts cuts the vocabulary. Here a packed matrix is multiplied.
 */

import { takesBytes } from '../../../../shaders/linear/fast/fast.js';
import { outputGate } from '../../../../shaders/attention/output_gate/index.js';
import { linear, type LinearRowsProblem } from '../../../../shaders/linear/linear/index.js';
import { linearAddNorm } from '../../../../shaders/linear/linear_add_norm/index.js';
import { linearMerge, type LinearMergeProblem } from '../../../../shaders/linear/linear_merge/index.js';
import { linearTiled } from '../../../../shaders/linear/linear_tiled/index.js';
import { known } from '../../../base/errors.js';
import { alignUp } from '../../../base/math.js';
import type { Buffer, Device, Tensor } from '../../../gpu/index.js';
import type { Activation } from '../../config/model_config.js';
import { fusesNorm, recordMerging } from '../fusion.js';
import type { Half, StageContext } from '../layer.js';
import { type Norm, recordNorm } from '../norm.js';
import type { Added } from '../residual.js';
import { normedOf, type RowBuffers } from '../rows.js';
import { type Matrix, type MatrixShard, shardTensors } from '../../weights/matrix.js';
import { ONE_SEGMENT, tileRows } from '../roles.js';
import type { HeldSegments } from '../../shape.js';
import type { RankRecorder } from '../world.js';

export interface Projection {
  readonly x: Buffer;
  /** Elements between rows of x. */
  readonly xStride: number;
  /** Element of its row that x starts at: a multiple of 4. Default 0. */
  readonly xOffset?: number;
  /** Add this to x first. */
  readonly adds?: Added | undefined;
  /** Normalise x first. */
  readonly norm?: Norm | undefined;
  readonly bias?: Buffer | undefined;
  /** Elements between the biases of rows that have their own; default: all have the same. */
  readonly biasStride?: number;
  readonly out: Tensor;
  readonly outStride: number;
  /** Where it differs from the matrix's rows: SwiGLU halves them. */
  readonly outFeatures?: number;
  /** How the contraction is summed; a rank of a split one holds a run of the segments. */
  readonly segments?: HeldSegments;
  /** 'segments': each segment's sum by itself, to be added up by `recordReduce`. */
  readonly output?: 'sum' | 'segments';
  /** Element of the out row that the matrix's first row goes to. */
  readonly outOffset?: number;
  readonly epilogue?: 'none' | 'residual' | 'swiglu' | 'gelu';
  /** Of swiglu's gate; default 'silu'. */
  readonly activation?: Activation | undefined;
  /** The sum (and bias) times this, before the residual is added; default 1. */
  readonly outScale?: number;
  /** Outputs y become outCap * tanh(y / outCap). */
  readonly outCap?: number | undefined;
  /** Other kernels read the normalised row too: don't fuse the norm. */
  readonly keepNormed?: boolean;
  /** Of 'swiglu', f32 as `out`: where gate and up are of two types, gates lie here before they meet what they open. */
  readonly gates?: Buffer | undefined;
  /** x is merged from these in steps of few chunks (`recordMerging`), whose `x` isn't read: a lone row's. */
  readonly merges?: Partials | undefined;
}

/** What attention leaves of a lone row. */
export interface Partials {
  readonly problem: Pick<LinearMergeProblem, 'headDim' | 'partials' | 'slidingWindow' | 'gateOffset'>;
  readonly tensors: {
    /** f32 [heads][partials][headDim]. */
    readonly partial_o: Buffer;
    /** vec2<f32> [heads][partials]: (m, l). */
    readonly partial_ml: Buffer;
    readonly row_info: Tensor;
    readonly gate: Tensor | undefined;
  };
}

/** As many rows as fit the largest binding at `rowBytes` each: all that are wanted, or a multiple of 16. */
export function fitRows({ bindingLimit }: Device, wanted: number, rowBytes: number): number {
  const most = Math.floor(bindingLimit / rowBytes);
  return alignUp(wanted, 16) <= most ? wanted : Math.max(16, Math.floor(most / 16) * 16);
}

/**
 * One projection by this rank's rows of a matrix: column-parallel where ranks hold different ones. The norm is fused or beside it (the
 * same bits), the kernel goes by role, and each shard is a dispatch.
 */
export function recordLinear(
  recorder: RankRecorder,
  buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed' | 'adapters'>,
  matrix: Matrix,
  io: Projection,
): void {
  const { adapters } = buffers;
  const plain = (of: Projection): void => recordMatrix(recorder, buffers, matrix, of);
  const loaded = adapters?.loaded();
  if (adapters && loaded) loaded.record(recorder, { ...buffers, adapters }, matrix, io, plain);
  else plain(io);
}

function recordMatrix(
  recorder: RankRecorder,
  buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed'>,
  matrix: Matrix,
  io: Projection,
): void {
  const { role, rows } = buffers;
  const { norm } = io;
  const width = matrix.inFeatures;
  const fused = norm !== undefined && !io.keepNormed && fusesNorm(recorder.device, norm.config, role, rows, width);
  const whole = wholeProblem(rows, matrix, io);
  let { x } = io;
  let inBytes = false;
  if (norm && !fused) {
    x = normedOf(buffers);
    // Whoever else reads normalised rows reads them in f32.
    const alone = role === 'prompt' && !io.keepNormed && norm.config.kind === 'rms';
    const traits = recorder.device.traitsOf(linearTiled.name);
    inBytes = alone && matrix.shards.every(({ type }) => takesBytes(traits, { ...whole, type }));
    recordNorm(recorder, norm, { rows, width, stride: io.xStride, inBytes }, io.x, x);
  }
  const recordShard = (shard: MatrixShard, of: Projection): void => {
    const { epilogue = 'none', activation, bias } = of;
    const problem = {
      ...whole,
      ...(bias && biasRows(shard, of)),
      type: shard.type,
      outFeatures: of.outFeatures ?? shard.rows,
      outOffset: (of.outOffset ?? 0) + shard.firstRow,
      epilogue,
      ...(activation && { activation }),
    };
    const tensors = { x, ...shardTensors(shard), bias: bias && biasOf(bias, shard), out: of.out };
    if (role === 'prompt') recorder.dispatch(linearTiled, { ...problem, inBytes }, tensors);
    else recordGenerated(recorder, { ...problem, tileRows: tileRows(rows) }, tensors, { ...of, fused });
  };
  if (io.epilogue === 'swiglu' && matrix.shards.length > 1) recordHalves(recorder, rows, matrix, io, recordShard);
  else for (const shard of matrix.shards) recordShard(shard, io);
}

/** Gate and up of two types, which one kernel can't read. */
function recordHalves(
  recorder: RankRecorder,
  rows: number,
  { shards }: Matrix,
  io: Projection,
  recordShard: (shard: MatrixShard, io: Projection) => void,
): void {
  const { out, outFeatures, outStride: stride, activation = 'silu' } = io;
  const gate = known(io.gates, 'buffer of gates');
  for (const [half, shard] of shards.entries()) {
    const to = { out: half === 0 ? gate : out, outOffset: -shard.firstRow };
    recordShard(shard, { ...io, ...to, epilogue: 'none', activation: undefined });
  }
  const width = known(outFeatures, 'width of gates');
  const shape = { width, stride, gateStride: stride, gateOffset: 0, by: activation };
  recorder.dispatch(outputGate, { rows, ...shape }, { gate, x: out });
}

/** A shard's outputs of generated rows. */
function recordGenerated(
  recorder: RankRecorder,
  problem: Omit<LinearRowsProblem, 'norm' | 'eps'>,
  tensors: { readonly x: Tensor; readonly bias: Tensor | undefined; readonly out: Tensor } & ReturnType<
    typeof shardTensors
  >,
  { norm, adds, merges, fused }: Pick<Projection, 'norm' | 'adds' | 'merges'> & { readonly fused: boolean },
): void {
  const normed = { ...problem, norm: fused, eps: (norm ?? adds?.norm)?.config.eps ?? 0 };
  if (adds) {
    const added = { added: adds.sum, added_weight: adds.norm.weight, x_out: adds.to };
    recorder.dispatch(
      linearAddNorm,
      { ...normed, scaled: adds.norm.scaled },
      { ...tensors, ...added, norm_weight: norm?.weight },
    );
    return;
  }
  const dispatch = (): void =>
    recorder.dispatch(linear, normed, { ...tensors, norm_weight: fused ? norm?.weight : undefined });
  if (!merges) {
    dispatch();
    return;
  }
  const { x: _x, ...matrixTensors } = tensors;
  const epilogue = problem.epilogue === 'residual' ? 'residual' : 'none';
  const merging = (): void =>
    recorder.dispatch(
      linearMerge,
      { ...problem, ...merges.problem, epilogue },
      { ...matrixTensors, ...merges.tensors },
    );
  recordMerging(recorder, merges.problem, merging, dispatch);
}

/** What all shards' dispatches are told. */
const wholeProblem = (rows: number, { inFeatures }: Matrix, io: Projection) => ({
  rows,
  // A split contraction's weight may be wider than the activations: whole quantisation blocks.
  inFeatures: io.segments ? io.segments.end - io.segments.start : inFeatures,
  segments: io.segments ?? ONE_SEGMENT,
  ...(io.segments && { modelInFeatures: io.segments.modelInFeatures }),
  ...(io.output && { output: io.output }),
  bias: io.bias !== undefined,
  ...(io.biasStride !== undefined && { biasStride: io.biasStride }),
  xStride: io.xStride,
  xOffset: io.xOffset ?? 0,
  outStride: io.outStride,
  outScale: io.outScale ?? 1,
  ...(io.outCap !== undefined && { outCap: io.outCap }),
});

/** The projection that a layer's half begins with: of its rows, normalised. */
export const recordFirst = (
  recorder: RankRecorder,
  { hiddenStride }: Pick<StageContext, 'hiddenStride'>,
  buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed' | 'residual' | 'adapters'>,
  half: Half<unknown>,
  matrix: Matrix,
  io: Omit<Projection, 'x' | 'xStride' | 'norm'>,
): void => recordLinear(recorder, buffers, matrix, { ...inputOf(buffers, half), xStride: hiddenStride, ...io });

/** What that projection reads. */
export const inputOf = (
  { residual }: Pick<RowBuffers, 'residual'>,
  { input, before }: Half<unknown>,
): Pick<Projection, 'x' | 'adds' | 'norm'> => (input ? { x: input } : { ...residual.take(), norm: before });

/** Whether a bias can be bound from a shard's first row on: at 256 bytes. */
const isBound = ({ firstRow }: MatrixShard): boolean => firstRow % 64 === 0;

/** Where it can't, the kernel finds the shard's in it. */
const biasRows = (shard: MatrixShard, { biasStride = 0 }: Projection) =>
  isBound(shard) ? {} : { biasStride, biasOffset: shard.firstRow };

const biasOf = (bias: Buffer, shard: MatrixShard): Tensor => {
  const offset = isBound(shard) ? shard.firstRow * 4 : 0;
  return offset === 0 ? bias : { buffer: bias, offset, size: bias.size - offset };
};
