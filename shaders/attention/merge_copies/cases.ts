import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { HEAD_TABLE_LEAD } from '../../cache/head_tables.js';
import { CHUNK_TOKENS, MERGE_LANES, NO_BLOCK } from '../../cache/kv_cache.js';
import { EMPTY_M, rowInfoArray } from '../fixture.js';
import { mergeCopies, type MergeCopiesProblem } from './index.js';
import { chunksOf, lanePartials, mergeCopiesReference } from './reference.js';

export interface MergeCopiesCase extends MergeCopiesProblem {
  /** Of each row, whose slot has the row's number; undefined for an inactive row. */
  readonly positions: readonly (number | undefined)[];
  /** Entries that each kv head of a row's slot has lost. */
  readonly evicted?: readonly (readonly number[])[];
  /** 'lanes': which lanes of a slot's kv head lie here. */
  readonly holds: (slot: number, kvHead: number, lane: number) => boolean;
  /** 'home': (first, count) of each kv head's guests. */
  readonly guests?: readonly (readonly [first: number, count: number])[];
}

const withChunks = (count: number): number => count * CHUNK_TOKENS - 7;
const guestCount = ({ guests = [] }: MergeCopiesCase): number => guests.reduce((sum, [, count]) => sum + count, 0);

function copiesCase(
  name: string,
  [heads, kvHeads, headDim]: readonly [number, number, number],
  positions: MergeCopiesCase['positions'],
  options: Pick<MergeCopiesCase, 'mode'> &
    Partial<Pick<MergeCopiesCase, 'holds' | 'guests' | 'evicted'>> & { readonly races?: boolean },
): KernelCase<MergeCopiesCase> {
  const { races = false, holds = () => true, ...more } = options;
  const rows = positions.length;
  const longest = Math.max(...positions.map((position) => position ?? 0));
  const partials = Math.floor(longest / CHUNK_TOKENS) + 1;
  const problem: MergeCopiesCase = {
    rows,
    heads,
    kvHeads,
    headDim,
    partials,
    lanes: Math.min(MERGE_LANES, partials),
    block: 64,
    tableStride: partials * 4 + HEAD_TABLE_LEAD,
    outStride: alignUp(heads * headDim, 32),
    positions,
    holds,
    ...more,
  };
  const states = rows * heads * partials;
  return {
    name,
    problem,
    seed: 5 + rows,
    // Lanes aren't divided by l, which goes to 200.
    tolerance: { absolute: more.mode === 'lanes' ? 4e-4 : 2e-6, relative: 1e-5 },
    flops: states * headDim * 2,
    bytes: states * (headDim + 2) * 4,
    step: { rows, chunks: partials },
    races,
  };
}

const odd = (slot: number, head: number, lane: number): boolean => (slot + head + lane) % 2 === 1;

const cases = [
  copiesCase('tiny lanes', [2, 1, 8], [withChunks(3), undefined, 0], { mode: 'lanes', races: true }),
  copiesCase('lanes of 20 chunks, every other one here', [6, 3, 24], [withChunks(20), 0, withChunks(9), 255, 256], {
    mode: 'lanes',
    holds: odd,
  }),
  copiesCase('nothing here', [2, 2, 64], [withChunks(4)], { mode: 'lanes', holds: () => false }),
  copiesCase('lanes of heads of different lengths, d192', [4, 2, 192], [withChunks(10), withChunks(3)], {
    mode: 'lanes',
    holds: odd,
    evicted: [
      [0, 2200],
      [700, 3],
    ],
  }),
  copiesCase('tiny home', [2, 1, 8], [withChunks(2), undefined, 0], { mode: 'home', guests: [[1, 1]], races: true }),
  copiesCase('home without guests', [3, 3, 16], [withChunks(11)], {
    mode: 'home',
    guests: [
      [3, 0],
      [3, 0],
      [3, 0],
    ],
  }),
  copiesCase('home of three kv heads: none, two and one guests', [6, 3, 80], [withChunks(20), 3, withChunks(5)], {
    mode: 'home',
    guests: [
      [3, 0],
      [3, 2],
      [5, 1],
    ],
    evicted: [[4000, 0, 1]],
  }),
];

/** What was evicted, and for each chunk that lies here some block. */
function tables(problem: MergeCopiesCase): Uint32Array {
  const { kvHeads, tableStride, positions, holds, evicted } = problem;
  const words = new Uint32Array(positions.length * kvHeads * tableStride).fill(NO_BLOCK);
  for (const [slot, position] of positions.entries()) {
    for (let head = 0; head < kvHeads; head++) {
      const table = (slot * kvHeads + head) * tableStride;
      words[table] = evicted?.[slot]?.[head] ?? 0;
      const chunks = position === undefined ? 0 : chunksOf(problem, slot, position, head);
      for (let chunk = 0; chunk < chunks; chunk++) {
        if (holds(slot, head, chunk % MERGE_LANES)) words.fill(7, table + 1 + chunk * 4, table + 5 + chunk * 4);
      }
    }
  }
  return words;
}

/** Partials of random sets of keys; those that a row doesn't have are NaN and must not matter. */
function inputs(problem: MergeCopiesCase, random: Random): HostArrays {
  const { rows, heads, kvHeads, headDim, partials, lanes, mode, positions, guests } = problem;
  const items = mode === 'home' ? (heads / kvHeads) * (kvHeads + guestCount(problem)) * lanes : heads * partials;
  const o = new Float32Array(items * rows * headDim).fill(Number.NaN);
  const ml = new Float32Array(items * rows * 2).fill(Number.NaN);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    for (let head = 0; head < heads; head++) {
      for (const [lane, given] of lanePartials(problem, row, position, head).entries()) {
        for (const [i, at] of given.entries()) {
          // Of a lane's copies, one has keys.
          const empty = mode === 'home' && i !== (lane + head) % given.length;
          const l = empty ? 0 : 1 + 200 * random.next();
          ml.set([empty ? EMPTY_M : 4 * random.normal(), l], at * 2);
          for (let dim = 0; dim < headDim; dim++) o[at * headDim + dim] = empty ? 0 : l * random.normal();
        }
      }
    }
  }
  return {
    partial_o: o,
    partial_ml: ml,
    row_info: rowInfoArray(positions.map((position, row) => (position === undefined ? undefined : [position, row]))),
    block_table: tables(problem),
    ...(guests ? { guests: Uint32Array.from(guests.flat()) } : {}),
  };
}

export const suite: KernelSuite<typeof mergeCopies.bindings, typeof mergeCopies.params, MergeCopiesCase> = {
  kernel: mergeCopies,
  cases,
  inputs,
  outputs: ({ rows, heads, headDim, lanes, outStride, mode }) => {
    const states = heads * lanes * rows;
    return mode === 'lanes'
      ? { out: { type: 'f32', length: states * headDim }, out_ml: { type: 'f32', length: states * 2 } }
      : { out: { type: 'f32', length: rows * outStride } };
  },
  reference: mergeCopiesReference,
};
