/**
 * Room: low-rank adapters beside a model's matrices: which may have them and how theirs are packed (here), and how they are
 * recorded. Read loaded_adapters.ts next.
 */

import { known } from '../../base/errors.js';
import { nth, range, sum } from '../../base/lists.js';
import type { ModelConfig } from '../config/model_config.js';
import type { ModelMap } from '../weights/model_map.js';
import {
  type AbsorbedSpec,
  allRows,
  isMatrixSpec,
  type MatrixSpec,
  paddedRows,
  someRows,
  specRows,
  specsIn,
} from '../weights/weight_map.js';

/** What an adapter adds to a tensor [rows, columns]: b a. Plain data; `b` has its scale in it. */
export interface LowRankPair {
  readonly tensor: string;
  readonly rank: number;
  /** f32 [rank][columns] */
  readonly a: Float32Array;
  /** f32 [rows][rank] */
  readonly b: Float32Array;
}

/** The table of the embedding by columns: [hidden, vocabulary]. What an adapter adds to a token's is B times its column of A. */
export const EMBEDDED = 'embedded tokens';

/**
 * The matrices that adapters may change: all of layers, what their inputs are projected by, the output head, and the embedding, whole on
 * each rank that runs rows of the first layer. A tied head is the embedding table to the model, but to adapters both are tensors of
 * their own.
 */
export function targetsOf(
  { layers, perLayer, head }: Pick<ModelMap, 'layers' | 'perLayer' | 'head'>,
  { tensors, tieWordEmbeddings: tied, hiddenSize, vocabSize }: ModelConfig,
): MatrixSpec[] {
  const own = [...specsIn([layers, perLayer])].filter(isMatrixSpec);
  if (layers.some(({ index }) => index === 0))
    own.push({ name: EMBEDDED, inFeatures: vocabSize, parts: [allRows(`${tensors.embedding}.weight`, hiddenSize)] });
  // Encoders have none.
  if (!head || (tied && tensors.head === tensors.embedding)) return own;
  const parts = head.matrix.parts.map((part) => ({ ...part, tensor: `${tensors.head}.weight` }));
  return [...own, { ...head.matrix, parts }];
}

/** What a rank's matrix has of some adapters: of the kernel `low_rank`. */
export interface PackedPairs {
  readonly name: string;
  readonly factors: Float32Array<ArrayBuffer>;
  /** By the adapter's place, four words each; of a matrix of experts, for each of them. */
  readonly table: Uint32Array<ArrayBuffer>;
  /** The most that an adapter has of A x. */
  readonly width: number;
}

const TILE = 32;

/** By place; pairs by tensor. */
type PairsAt = ReadonlyMap<number, ReadonlyMap<string, LowRankPair>>;

/** Of a matrix, or of both that it is cut into; of none where no adapter has a tensor of it. */
export function packPairs(spec: MatrixSpec, adapters: PairsAt): PackedPairs[] {
  return spec.packedAs ? packHalves(spec as AbsorbedSpec, adapters) : packMatrix(spec, adapters);
}

/**
 * W_UK + B_UK A is absorbed as W_UK^T q + A^T (B_UK^T q): columns of B_UK^T side by side, a group a head, and A for all. W_UV + B_UV A
 * has A for all, and rows of B_UV of each.
 */
function packHalves({ inFeatures: latent, packedAs, parts: [part] }: AbsorbedSpec, adapters: PairsAt): PackedPairs[] {
  const { tensor = '', tensorRows, firstRow, rows } = known(part, 'rows of kv_b_proj');
  const [{ name, rows: all, columns: nope }, values] = packedAs;
  const heads = range(0, all / latent);
  const each = rows / heads.length;
  const keys = heads.flatMap((head) => range(firstRow + head * each, firstRow + head * each + nope));
  const absorbed = [...adapters].map(([place, pairs]): [number, Map<string, LowRankPair>] => {
    const { a, b, rank } = pairs.get(tensor) ?? {};
    if (!a || !b || !rank) return [place, new Map()];
    const turned = { a: transposed(b, keys, rank), b: transposed(a, range(0, rank), latent) };
    return [place, new Map([[tensor, { tensor, rank, ...turned }]])];
  });
  const parts = heads.map((head) =>
    someRows(tensor, tensorRows, [firstRow + head * each + nope, firstRow + (head + 1) * each]),
  );
  return [
    ...packMatrix({ name, inFeatures: keys.length, parts: [allRows(tensor, latent)] }, new Map(absorbed)),
    ...packMatrix({ name: values.name, inFeatures: latent, parts }, adapters),
  ];
}

/** Some rows of a matrix as columns. */
function transposed(of: Float32Array, rows: readonly number[], columns: number): Float32Array {
  const out = new Float32Array(rows.length * columns);
  for (const [at, row] of rows.entries())
    for (let column = 0; column < columns; column++) out[column * rows.length + at] = of[row * columns + column]!;
  return out;
}

function packMatrix(spec: MatrixSpec, adapters: PairsAt): PackedPairs[] {
  const { name, inFeatures, parts: all, segments, granule } = spec;
  const { start, end } = segments ?? { start: 0, end: inFeatures };
  // Of a matrix of experts, each has entries of its own.
  const experts = granule === undefined ? 1 : specRows(spec) / (granule * TILE);
  const outs = specRows(spec) / experts;
  const each = all.length / experts;
  const entries = [...adapters].flatMap(([place, pairs]) =>
    range(0, experts).flatMap((expert) => {
      const parts = all.slice(expert * each, (expert + 1) * each);
      const own = [...new Set(parts.map(({ tensor }) => tensor))].flatMap((tensor) => pairs.get(tensor ?? '') ?? []);
      if (own.length === 0) return [];
      const rank = Math.max(...own.map((pair) => pair.rank));
      const aWords = own.length * rank * (end - start);
      return [{ entry: place * experts + expert, parts, own, rank, aWords, words: aWords + (1 + rank) * outs }];
    }),
  );
  if (entries.length === 0) return [];
  const factors = new Float32Array(sum(entries.map(({ words }) => words)));
  const table = new Uint32Array(4 * experts * (1 + Math.max(...adapters.keys())));
  let at = 0;
  for (const { entry, parts, own, rank, aWords, words } of entries) {
    table.set([at, at + aWords, own.length * rank, rank], 4 * entry);
    for (const [index, { a, rank: rows }] of own.entries()) {
      for (let row = 0; row < rows; row++) {
        const from = row * inFeatures;
        factors.set(a.subarray(from + start, from + end), at + (index * rank + row) * (end - start));
      }
    }
    const b = at + aWords;
    let first = 0;
    for (const part of parts) {
      const index = own.findIndex(({ tensor }) => tensor === part.tensor);
      if (index >= 0) packRows(factors.subarray(b + first), outs, part, nth(own, index), index * rank);
      first += paddedRows(part);
    }
    at += words;
  }
  return [{ name, factors, table, width: Math.max(...entries.map(({ own, rank }) => own.length * rank)) }];
}

/** Where in A x the rows of a part begin to read, then B's columns. */
function packRows(
  to: Float32Array,
  outs: number,
  { firstRow, rows, order }: MatrixSpec['parts'][number],
  { b, rank }: LowRankPair,
  first: number,
): void {
  for (let row = 0; row < rows; row++) {
    const at = order ? row - (row % order.length) + order[row % order.length]! : row;
    to[row] = first;
    for (let j = 0; j < rank; j++) to[(1 + j) * outs + row] = b[(firstRow + at) * rank + j]!;
  }
}
