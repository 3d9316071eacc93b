import type { Expected, HostArray, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { halfBits, rowEntries } from '../../attention/fixture.js';
import { blockShape, headTable, tableLead } from '../../cache/head_tables.js';
import { keyUnit, NO_BLOCK, valueUnit } from '../../cache/kv_cache.js';
import type { RopeCase } from './cases.js';
import { type RopeSpans, spanElements } from './index.js';

/** Of which pictures a slot's rows are, and how pairs are shared out among their three positions. */
export interface SpansCase {
  readonly spans?: RopeSpans | undefined;
  /** By slot: the entry of each one's first row, its lines and its columns. */
  readonly pictures?: readonly (readonly (readonly [entry: number, lines: number, columns: number])[])[];
}

/** By pair: the row of the table that an entry turns by. Written out from a sequence's beginning, entry by entry. */
export function tableRows({ spans, pictures = [] }: SpansCase, [entry, slot]: readonly [number, number]) {
  if (!spans) return () => entry;
  const positions: [number, number, number][] = [];
  let next = 0;
  while (positions.length <= entry) {
    const [, lines = 0, columns = 0] = pictures[slot]?.find(([first]) => first === positions.length) ?? [];
    for (let at = 0; at < lines * columns; at++)
      positions.push([next, next + Math.floor(at / columns), next + (at % columns)]);
    if (lines > 0) next += Math.max(lines, columns);
    else {
      positions.push([next, next, next]);
      next++;
    }
  }
  const [all, line, column] = positions[entry]!;
  const { lines, columns, before } = spans;
  const within = (pair: number, first: number, count: number): boolean => pair >= first && pair < first + count;
  const lineOf = (pair: number): boolean =>
    before === undefined ? pair % 3 === 1 && pair < 3 * lines : within(pair, before, lines);
  const columnOf = (pair: number): boolean =>
    before === undefined ? pair % 3 === 2 && pair < 3 * columns : within(pair, before + lines, columns);
  return (pair: number): number => (lineOf(pair) ? line : columnOf(pair) ? column : all);
}

/** What lies behind a table's positions. */
export const spansOf = ({ spans, pictures = [] }: SpansCase, slots: number): Float32Array =>
  spans
    ? Float32Array.from(Array.from({ length: slots }, (_, slot) => [...spanElements(pictures[slot] ?? [])]).flat())
    : new Float32Array(0);

/** A q or k head, normalised if asked, whose first `rotary` elements are rotated by rows of the table. */
export function rotatedHead(
  x: ArrayLike<number>,
  norm: { readonly weight: HostArray; readonly eps: number } | undefined,
  { table, rotary }: { readonly table: HostArray; readonly rotary: number },
  rowOf: number | ((pair: number) => number),
): Float64Array {
  const { length } = x;
  const squares = Array.from(x).reduce((sum, value) => sum + value * value, 0);
  const scale = norm ? 1 / Math.sqrt(squares / length + Math.fround(norm.eps)) : 1;
  const y = Float64Array.from(x, (value, i) => value * scale * (norm ? norm.weight[i]! : 1));
  const half = rotary / 2;
  return Float64Array.from(y, (_, i) => {
    if (i >= rotary) return y[i]!;
    const pair = i % half;
    const row = typeof rowOf === 'number' ? rowOf : rowOf(pair);
    const [cos, sin] = [table[row * rotary + pair * 2]!, table[row * rotary + pair * 2 + 1]!];
    return i < half ? y[i]! * cos - y[i + half]! * sin : y[i]! * cos + y[i - half]! * sin;
  });
}

/** A v head, normalised without weights. */
export const normedHead = (x: ArrayLike<number>, eps: number): Float64Array =>
  rotatedHead(x, { weight: new Float32Array(x.length).fill(1), eps }, { table: new Float32Array(0), rotary: 0 }, 0);

/** Vectors that a row has: q, k and v. */
const vectorsOf = ({ heads, kvHeads, queriesOnly }: RopeCase): number => heads + (queriesOnly ? 0 : 2 * kvHeads);

/** qkv with q rotated, and the caches with the rows' k and v; everything else as it was. q8 caches: by the property test. */
export function ropeAppendReference(problem: RopeCase, inputs: HostArrays): Expected {
  const { heads, kvHeads, headDim, qkNorm, eps, kvType, block, qkvStride, rowInfo, keys, firstKvHead = 0 } = problem;
  const { rotary = headDim } = problem;
  const { queryPieces = [heads] } = problem;
  const group = heads / kvHeads;
  const shape = blockShape(problem);
  const given = inputs['qkv']!;
  const qkv = Float64Array.from(given);
  const cached = Array.from(inputs['k_cache']!);
  const values = Array.from(inputs['v_cache']!);

  /** First element of a row's vector: of all q, then all k, then all v. */
  const start = (row: number, vector: number): number => {
    const kind = vector < heads ? 'q' : vector < heads + kvHeads ? 'k' : 'v';
    const head = kind === 'q' ? vector : ((vector - heads) % kvHeads) * group;
    let piece = 0;
    let before = 0;
    while (head - before >= queryPieces[piece]!) before += queryPieces[piece++]!;
    const own = queryPieces[piece]!;
    const place = {
      q: head - before,
      k: own + (head - before) / group,
      v: own + own / group + (head - before) / group,
    }[kind];
    return (piece * problem.rows + row) * qkvStride + place * headDim;
  };
  const append = (cache: number[], unit: number, dim: number, value: number): void => {
    if (kvType === 'f32') cache[unit * 4 + dim] = value;
    else {
      const at = unit * 2 + (dim >> 1);
      const kept = dim & 1 ? cache[at]! & 0xffff : cache[at]! & 0xffff0000;
      cache[at] = (kept | (halfBits(value) << (dim & 1 ? 16 : 0))) >>> 0;
    }
  };
  const valued = (x: ArrayLike<number>): ArrayLike<number> => (problem.valueNorm ? normedHead(x, eps) : x);
  const rotated = (x: ArrayLike<number>, weight: HostArray, row: Parameters<typeof rotatedHead>[3]): Float64Array =>
    keys === 'ready'
      ? Float64Array.from(x)
      : rotatedHead(x, qkNorm ? { weight, eps } : undefined, { table: inputs['rope_table']!, rotary }, row);

  for (const [row, info] of rowInfo.entries()) {
    if (!info) continue;
    const [position, slot] = info;
    for (let vector = 0; vector < vectorsOf(problem); vector++) {
      const at = start(row, vector);
      const x = given.subarray(at, at + headDim);
      if (vector < heads) {
        qkv.set(rotated(x, inputs['q_norm']!, problem.queryRows ? 2 * position + 1 : tableRows(problem, info)), at);
        continue;
      }
      const isKey = vector < heads + kvHeads;
      const made = isKey
        ? rotated(x, inputs['k_norm']!, problem.queryRows ? 2 * position : tableRows(problem, info))
        : valued(x);
      if (keys === 'kept') qkv.set(made, at);
      const head = firstKvHead + ((vector - heads) % kvHeads);
      const entry = rowEntries(problem, info, head) - 1;
      const table = headTable(problem, slot, head) + tableLead(problem);
      const physical = inputs['block_table']![table + Math.floor(entry / block)]!;
      if (physical === NO_BLOCK || kvType === 'q8') continue;
      const stored = problem.perHead ? 0 : head;
      const [cache, unit] = isKey ? ([cached, keyUnit] as const) : ([values, valueUnit] as const);
      for (let i = 0; i < headDim; i++) {
        append(cache, unit(shape, physical, stored, i >> 2, entry % block), i & 3, made[i]!);
      }
    }
  }
  return kvType === 'q8' ? { qkv } : { qkv, k_cache: cached, v_cache: values };
}
