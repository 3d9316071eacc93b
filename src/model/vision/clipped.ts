import { clip } from '../../../shaders/linear/clip/index.js';
import { packedLayout } from '../../../shaders/linear/pack.js';
import { nth, range } from '../../base/lists.js';
import type { Buffer } from '../../gpu/index.js';
import { type AdaptedRows, type Adapters, settled } from '../adapters/loaded_adapters.js';
import { type Projection, recordLinear } from '../layers/linear/linear.js';
import type { GqaWeights } from '../layers/attention/gqa_weights.js';
import type { DenseMlpWeights } from '../layers/mlp/mlp_weights.js';
import { activationStride } from '../layers/roles.js';
import type { RankRecorder } from '../layers/world.js';
import type { Loaded } from '../weights/weight_map.js';
import type { Matrix } from '../weights/matrix.js';
import type { EncoderSpecs } from './encoder_specs.js';

/** Projections whose inputs and outputs have bounds, in place of plain ones: an encoder's on one rank. */
export class ClippedLinears implements Adapters {
  /** How many of `CLIPPED` a matrix is made of, as many rows each, and where their bounds begin. */
  readonly #of = new Map<Matrix, { readonly bounds: Buffer; readonly first: number; readonly count: number }>();

  constructor({ tower: { layers }, bounds }: Loaded<EncoderSpecs>) {
    for (const [index, { attention, mlp }] of layers.entries()) {
      const { qkv, o } = attention.weights as GqaWeights;
      const { gateUp, down } = mlp.weights as DenseMlpWeights;
      const all = { bounds: nth(bounds, index) };
      this.#of.set(qkv!, { ...all, first: 0, count: 3 });
      this.#of.set(nth(o, 0).matrix, { ...all, first: 3, count: 1 });
      this.#of.set(gateUp!, { ...all, first: 4, count: 2 });
      this.#of.set(down!, { ...all, first: 6, count: 1 });
    }
  }

  addsTo(): boolean {
    return false;
  }

  record(
    recorder: RankRecorder,
    buffers: AdaptedRows,
    matrix: Matrix,
    io: Projection,
    plain: (io: Projection) => void,
  ): void {
    const own = this.#of.get(matrix);
    if (!own) return plain(io);
    const { bounds, first, count } = own;
    const { role, rows, adapters } = buffers;
    const { x, out, xStride, xOffset, segments, outStride, outFeatures } = settled(recorder, buffers, matrix, io);
    const stride = activationStride(matrix.inFeatures);
    const [made, each] = [activationStride(matrix.outFeatures), matrix.outFeatures / count];
    const floats = (what: string, elements: number): Buffer =>
      adapters.scratch.createBuffer(`${role} ${what} of ${elements}`, rows * elements * 4);
    const [input, output] = [floats('clipped', stride), floats('to clip', made)];
    const boundsAt = (part: number, side: number): number => (first + part) * 4 + side * 2;
    for (const part of range(0, count)) {
      const within = { rows, width: matrix.inFeatures, xStride, xOffset, outStride: stride };
      recorder.dispatch(clip, { ...within, boundsAt: boundsAt(part, 0) }, { x, bounds, out: input });
      recordLinear(recorder, { role, rows, normed: undefined }, partOf(matrix, part * each, each), {
        x: input,
        xStride: stride,
        ...(segments && { segments }),
        out: output,
        outStride: made,
        outOffset: part * each,
      });
    }
    const up = io.epilogue === 'swiglu' ? { offset: each, boundsAt: boundsAt(1, 1) } : undefined;
    for (const part of range(0, up ? 1 : count)) {
      const at = { xOffset: part * each, outOffset: part * each, boundsAt: boundsAt(part, 1), up };
      recorder.dispatch(
        clip,
        { rows, width: outFeatures ?? each, xStride: made, outStride, ...at },
        { x: output, bounds, out },
      );
    }
  }
}

/** Rows of a matrix from a multiple of 32 on. */
function partOf(matrix: Matrix, first: number, rows: number): Matrix {
  const shards = matrix.shards.map((shard) => {
    const before = first && packedLayout(shard.type, first, matrix.inFeatures).weightBytes / 16;
    return { ...shard, rows, firstUnit: shard.firstUnit + before };
  });
  return { ...matrix, outFeatures: rows, shards };
}
