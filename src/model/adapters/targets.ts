/**
 * Room: low-rank adapters beside a model's matrices: which may have them and how theirs are packed (here), and how they are
 * recorded. Read loaded_adapters.ts next.
 */

import { nth, sum } from '../../base/lists.js';
import type { HalfMap, ModelMap } from '../weights/model_map.js';
import { isMatrixSpec, type MatrixSpec, paddedRows, specRows, specsIn } from '../weights/weight_map.js';

/** What an adapter adds to a tensor [rows, columns]: b a. Plain data; `b` has its scale in it. */
export interface LowRankPair {
  readonly tensor: string;
  readonly rank: number;
  /** f32 [rank][columns] */
  readonly a: Float32Array;
  /** f32 [rows][rank] */
  readonly b: Float32Array;
}

/** A matrix that adapters may change; `cut`: of one whose contraction plans cut, by what. */
export interface Target {
  readonly spec: MatrixSpec;
  readonly cut: 'heads' | 'mlp';
}

/** The kinds of halves whose projections adapters change. */
const ADAPTED = ['gqa', 'gated', 'plain'];

const targetsIn = ({ weights }: HalfMap<{ readonly kind: string }>, cut: Target['cut']): Target[] =>
  ADAPTED.includes(weights.kind)
    ? [...specsIn(weights)].flatMap((spec) => (isMatrixSpec(spec) ? { spec, cut } : []))
    : [];

export const targetsOf = ({ layers }: Pick<ModelMap, 'layers'>): Target[] =>
  layers.flatMap(({ attention, mlp }) => [...targetsIn(attention, 'heads'), ...targetsIn(mlp, 'mlp')]);

/** What a rank's matrix has of some adapters: of the kernel `low_rank`. */
export interface PackedPairs {
  readonly factors: Float32Array<ArrayBuffer>;
  /** By the adapter's place, four words each. */
  readonly table: Uint32Array<ArrayBuffer>;
  /** The most that an adapter has of A x. */
  readonly width: number;
}

/** @param adapters by place; pairs by tensor. Undefined where none has a tensor of the matrix. */
export function packPairs(
  spec: MatrixSpec,
  adapters: ReadonlyMap<number, ReadonlyMap<string, LowRankPair>>,
): PackedPairs | undefined {
  const { inFeatures, parts, segments } = spec;
  const { start, end } = segments ?? { start: 0, end: inFeatures };
  const outs = specRows(spec);
  const tensors = [...new Set(parts.flatMap(({ tensor }) => tensor ?? []))];
  const entries = [...adapters].flatMap(([place, pairs]) => {
    const own = tensors.flatMap((tensor) => pairs.get(tensor) ?? []);
    if (own.length === 0) return [];
    const rank = Math.max(...own.map((pair) => pair.rank));
    const aWords = own.length * rank * (end - start);
    return [{ place, own, rank, aWords, words: aWords + (1 + rank) * outs }];
  });
  if (entries.length === 0) return undefined;
  const factors = new Float32Array(sum(entries.map(({ words }) => words)));
  const table = new Uint32Array(4 * (1 + Math.max(...adapters.keys())));
  let at = 0;
  for (const { place, own, rank, aWords, words } of entries) {
    table.set([at, at + aWords, own.length * rank, rank], 4 * place);
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
  return { factors, table, width: Math.max(...entries.map(({ own, rank }) => own.length * rank)) };
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
