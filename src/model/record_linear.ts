import { embedding } from '../../shaders/embedding/embedding/index.js';
import { canFuseNorm, linear } from '../../shaders/linear/linear/index.js';
import { linearTiled } from '../../shaders/linear/linear_tiled/index.js';
import { swiglu } from '../../shaders/mlp/swiglu/index.js';
import { rmsNorm } from '../../shaders/norm/rms_norm/index.js';
import { alignUp } from '../base/math.js';
import type { Buffer, Device, Recorder, Tensor } from '../gpu/index.js';
import type { RowBuffers } from './forward.js';
import type { Matrix } from './matrix.js';
import { activationStride, DOWN_SEGMENTS, ONE_SEGMENT, type Role, tileRows } from './roles.js';

export interface Projection {
  readonly x: Buffer;
  /** Elements between rows of x. */
  readonly xStride: number;
  /** RMS-normalise x first. */
  readonly norm?: { readonly weight: Buffer; readonly eps: number };
  readonly bias?: Buffer | undefined;
  readonly out: Buffer;
  readonly outStride: number;
  /** Where it differs from the matrix's rows: SwiGLU halves them. */
  readonly outFeatures?: number;
  readonly segments?: { readonly total: number; readonly align: number };
  readonly epilogue?: 'none' | 'residual' | 'swiglu';
  /** The sum (and bias) times this, before the residual is added; default 1. */
  readonly outScale?: number;
  /** Other kernels read the normalised row too: don't fuse the norm. */
  readonly keepNormed?: boolean;
}

/** As many rows as fit the largest binding at `rowBytes` each: all that are wanted, or a multiple of 16. */
export function fitRows(device: Device, wanted: number, rowBytes: number): number {
  const { maxStorageBufferBindingSize, maxBufferSize } = device.traits.limits;
  const most = Math.floor(Math.min(maxStorageBufferBindingSize, maxBufferSize) / rowBytes);
  return alignUp(wanted, 16) <= most ? wanted : Math.max(16, Math.floor(most / 16) * 16);
}

/** Whether rows of this role and number get their norm inside the projection. */
export const fusesNorm = (device: Device, role: Role, rows: number, width: number): boolean =>
  role === 'generated' && rows === 1 && canFuseNorm(width, device.traits);

/** One projection: the norm fused or beside it (the same bits), the kernel by role, one dispatch a shard. */
export function recordLinear(
  recorder: Recorder,
  buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed'>,
  matrix: Matrix,
  io: Projection,
): void {
  const { role, rows } = buffers;
  const { norm } = io;
  const fused = norm !== undefined && !io.keepNormed && fusesNorm(recorder.device, role, rows, matrix.inFeatures);
  let { x } = io;
  if (norm && !fused) {
    x = buffers.normed!;
    recorder.dispatch(
      rmsNorm,
      { rows, width: matrix.inFeatures, stride: io.xStride, eps: norm.eps, residual: false },
      { x: io.x, weight: norm.weight, out: x },
    );
  }
  for (const shard of matrix.shards) {
    const problem = {
      rows,
      inFeatures: matrix.inFeatures,
      outFeatures: io.outFeatures ?? shard.rows,
      type: matrix.type,
      segments: io.segments ?? ONE_SEGMENT,
      bias: io.bias !== undefined,
      xStride: io.xStride,
      outStride: io.outStride,
      outOffset: shard.firstRow,
      outScale: io.outScale ?? 1,
    };
    const tensors = {
      x,
      weight: shard.weight,
      scale: shard.scale,
      bias: io.bias && biasOf(io.bias, shard.firstRow),
      out: io.out,
    };
    if (role === 'prompt') {
      recorder.dispatch(
        linearTiled,
        { ...problem, epilogue: io.epilogue === 'residual' ? 'residual' : 'none' },
        tensors,
      );
    } else {
      recorder.dispatch(
        linear,
        { ...problem, tileRows: tileRows(rows), norm: fused, eps: norm?.eps ?? 0, epilogue: io.epilogue ?? 'none' },
        { ...tensors, norm_weight: fused ? norm.weight : undefined },
      );
    }
  }
}

const biasOf = (bias: Buffer, firstRow: number): Tensor =>
  firstRow === 0 ? bias : { buffer: bias, offset: firstRow * 4, size: bias.size - firstRow * 4 };

/** Embedding rows of the step's tokens, from as many shards as the vocabulary needs. */
export function recordEmbedding(
  recorder: Recorder,
  matrix: Matrix,
  buffers: RowBuffers,
  outStride: number,
  scaleBy = 1,
): void {
  for (const shard of matrix.shards) {
    recorder.dispatch(
      embedding,
      {
        rows: buffers.rows,
        hidden: matrix.inFeatures,
        outStride,
        type: matrix.type,
        shardFirst: shard.firstRow,
        shardRows: shard.rows,
        scaleBy,
      },
      { tokens: buffers.tokens, weight: shard.weight, scale: shard.scale, out: buffers.x },
    );
  }
}

/** A dense SwiGLU whose output is added to `buffers.x`. Generated rows fuse the activation into the first projection. */
export function recordSwiglu(
  recorder: Recorder,
  buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed' | 'x'>,
  weights: {
    readonly gateUp: Matrix;
    readonly gateUpBias?: Buffer | undefined;
    readonly down: Matrix;
    readonly downBias?: Buffer | undefined;
  },
  io: Pick<Projection, 'x' | 'xStride' | 'norm' | 'outScale'> & {
    /** The intermediate size. */
    readonly width: number;
    /** Prompt rows only. */
    readonly gateUp: Buffer | undefined;
    readonly hidden: Buffer;
  },
): void {
  const { width, hidden, gateUp, outScale, ...from } = io;
  const stride = activationStride(width);
  const input = { ...from, bias: weights.gateUpBias };
  if (buffers.role === 'prompt') {
    const inStride = weights.gateUp.outFeatures;
    recordLinear(recorder, buffers, weights.gateUp, { ...input, out: gateUp!, outStride: inStride });
    recorder.dispatch(
      swiglu,
      { rows: buffers.rows, width, inStride, upOffset: inStride / 2, outStride: stride },
      { gate_up: gateUp!, out: hidden },
    );
  } else {
    recordLinear(recorder, buffers, weights.gateUp, {
      ...input,
      out: hidden,
      outStride: stride,
      outFeatures: width,
      epilogue: 'swiglu',
    });
  }
  recordLinear(recorder, buffers, weights.down, {
    x: hidden,
    xStride: stride,
    segments: DOWN_SEGMENTS,
    bias: weights.downBias,
    out: buffers.x,
    outStride: io.xStride,
    epilogue: 'residual',
    ...(outScale !== undefined && { outScale }),
  });
}
