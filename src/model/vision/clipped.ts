import { clip } from '../../../shaders/linear/clip/index.js';
import { packedLayout } from '../../../shaders/linear/pack.js';
import { nth } from '../../base/lists.js';
import { alignUp } from '../../base/math.js';
import type { Buffer } from '../../gpu/index.js';
import { type AdaptedRows, type Adapters, settled } from '../adapters/loaded_adapters.js';
import { type Projection, recordLinear } from '../layers/linear/linear.js';
import { activationStride } from '../layers/roles.js';
import type { RankRecorder } from '../layers/world.js';
import type { Loaded } from '../weights/weight_map.js';
import type { Matrix } from '../weights/matrix.js';
import type { EncoderSpecs } from './encoder_specs.js';

/** Rows of a loaded matrix that have bounds of their own, and those' first element (`CLIPPED` by `BOUNDS`). */
interface Piece {
  readonly first: number;
  readonly rows: number;
  readonly boundsAt: number;
}

/** Projections whose inputs and outputs have bounds, in place of plain ones: an encoder's on one rank. */
export class ClippedLinears implements Adapters {
  readonly #of = new Map<Matrix, { readonly bounds: Buffer; readonly pieces: readonly Piece[] }>();

  constructor({ tower: { layers }, bounds }: Loaded<EncoderSpecs>) {
    for (const [index, { attention, mlp }] of layers.entries()) {
      const of = attention.weights as Extract<typeof attention.weights, { kind: 'gqa' }>;
      const dense = mlp.weights as Extract<typeof mlp.weights, { kind: 'gated' | 'plain' }>;
      let next = 0;
      for (const [matrix, count] of [
        [of.qkv, 3],
        [of.o[0]?.matrix, 1],
        [dense.gateUp, 2],
        [dense.down, 1],
      ] as const) {
        if (!matrix) continue;
        const each = matrix === dense.gateUp ? dense.downSegments.end : matrix.outFeatures / count;
        const pieces = Array.from({ length: count }, (_, at) => {
          return { first: at * alignUp(each, 32), rows: each, boundsAt: 4 * next++ };
        });
        this.#of.set(matrix, { bounds: nth(bounds, index), pieces });
      }
    }
  }

  splits(): boolean {
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
    const { bounds, pieces } = own;
    const { role, rows, adapters } = buffers;
    const { x, xStride, xOffset = 0, segments, out, outStride } = settled(recorder, buffers, matrix, io);
    const summed = segments && { segments };
    const floats = (what: string, stride: number): Buffer =>
      adapters.scratch.createBuffer(`${role} ${what} of ${stride}`, rows * stride * 4);
    const { inFeatures: width } = matrix;
    const [inStride, madeStride] = [
      activationStride(width),
      activationStride(pieces.length * alignUp(nth(pieces, 0).rows, 32)),
    ];
    const [input, made] = [floats('clipped', inStride), floats('to clip', madeStride)];
    for (const { first, rows: outFeatures, boundsAt } of pieces) {
      recorder.dispatch(
        clip,
        { rows, width, xStride, xOffset, outStride: inStride, boundsAt },
        { x, bounds, out: input },
      );
      const part = { x: input, xStride: inStride, ...summed, out: made, outStride: madeStride, outOffset: first };
      recordLinear(recorder, { role, rows, normed: undefined }, rowsOf(matrix, first, outFeatures), part);
    }
    const [gate, up] = pieces;
    const results = io.epilogue === 'swiglu' ? [gate!] : pieces;
    for (const { first, rows: outFeatures, boundsAt } of results) {
      const gated = results.length < pieces.length && up && { up: { offset: up.first, boundsAt: up.boundsAt + 2 } };
      const problem = { rows, width: outFeatures, xStride: madeStride, xOffset: first, outStride, outOffset: first };
      recorder.dispatch(clip, { ...problem, boundsAt: boundsAt + 2, ...gated }, { x: made, bounds, out });
    }
  }
}

/** Rows of a matrix from a multiple of 32 on. */
function rowsOf(matrix: Matrix, first: number, rows: number): Matrix {
  const shards = matrix.shards.map((shard) => {
    const before = first === 0 ? 0 : packedLayout(shard.type, first, matrix.inFeatures).weightBytes / 16;
    return { ...shard, rows, firstUnit: shard.firstUnit + before };
  });
  return { ...matrix, outFeatures: rows, shards };
}
