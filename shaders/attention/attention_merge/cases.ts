import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { HEAD_TABLE_LEAD } from '../../cache/head_tables.js';
import { CHUNK_TOKENS, MERGE_LANES, NO_BLOCK } from '../../cache/kv_cache.js';
import { EMPTY_M, type Eviction, ownTables, rowInfoArray } from '../fixture.js';
import type { Sharing } from '../share_fixture.js';
import { attentionMerge, type AttentionMergeProblem } from './index.js';
import { attentionMergeReference, givenPartials } from './reference.js';

export interface MergeCase extends AttentionMergeProblem, Sharing {
  /** Of each row, whose slot has the row's number; undefined for an inactive row. */
  readonly positions: readonly (number | undefined)[];
  /** Partials i of every row for which this holds are empty. */
  readonly empty?: (partial: number) => boolean;
  /** With perHead: by row, of each head of the cache. */
  readonly evicted?: Eviction['evicted'];
}

/** The position of a row with `count` partials. */
const withPartials = (count: number): number => count * CHUNK_TOKENS - 7;

function mergeCase(
  name: string,
  [heads, headDim, partials]: readonly [number, number, number],
  positions: MergeCase['positions'],
  options: Pick<MergeCase, 'empty' | 'mode' | 'share' | 'offsets' | 'perHead' | 'evicted'> & { races?: boolean } = {},
): KernelCase<MergeCase> {
  const { races = false, ...more } = options;
  const rows = positions.length;
  const outStride = alignUp(heads * headDim, 32);
  const merged = positions.reduce<number>(
    (sum, at) => sum + (at === undefined ? 0 : Math.min(partials, Math.floor(at / CHUNK_TOKENS) + 1)),
    0,
  );
  return {
    name,
    problem: { rows, heads, headDim, partials, outStride, positions, ...more },
    seed: 3 + rows,
    // Lanes aren't divided by l, which goes to 200.
    tolerance: { absolute: more.mode === 'lanes' ? 4e-4 : 2e-6, relative: 1e-5 },
    flops: merged * heads * headDim * 2,
    bytes: merged * heads * (headDim + 2) * 4 + rows * heads * headDim * 4,
    step: { rows, chunks: 1 },
    races,
  };
}

const cases = [
  mergeCase('tiny', [1, 8, 3], [withPartials(3)], { races: true }),
  mergeCase('tiny, every lane twice', [2, 16, 17], [withPartials(17), undefined, 0], { races: true }),
  // FlashAttention's grid of split counts.
  mergeCase('1 to 133 partials', [8, 32, 133], [1, 2, 3, 5, 8, 9, 17, 32, 55, 97, 133].map(withPartials)),
  mergeCase('of lanes after prefill', [14, 64, 8], [3000, undefined, 255, 256, 1791, 1792]),
  mergeCase('empty partials between', [9, 24, 20], [withPartials(20), withPartials(9), 0], {
    empty: (i) => i % 3 !== 1,
  }),
  mergeCase('nothing but empty partials', [2, 64, 4], [withPartials(4)], { empty: () => true }),
  mergeCase('d256', [2, 256, 3], [withPartials(3)]),
  mergeCase('d80', [3, 80, 2], [withPartials(2), 12]),
  mergeCase('71 heads d192', [71, 192, 2], [withPartials(2)]),
  mergeCase('tiny lanes', [1, 8, 3], [withPartials(3), undefined, 0], { mode: 'lanes', races: true }),
  mergeCase('lanes of 1 of 1', [3, 24, 20], [withPartials(20), undefined, 0, withPartials(9)], { mode: 'lanes' }),
  mergeCase('lanes of 1 of 2', [3, 64, 10], [withPartials(19), undefined, 0, withPartials(9)], {
    mode: 'lanes',
    share: { ranks: 2, index: 1 },
    offsets: [0, 0, 3, 4],
    races: true,
  }),
  mergeCase('lanes of 7 of 8', [2, 192, 5], [withPartials(33), 0, withPartials(6)], {
    mode: 'lanes',
    share: { ranks: 8, index: 7 },
    offsets: [7, 6, 2],
  }),
  mergeCase('tiny home', [1, 8, 2], [withPartials(2), undefined, 0], { mode: 'home', races: true }),
  mergeCase('home of 4', [3, 64, 2], [withPartials(19), undefined, 0, withPartials(5), withPartials(8)], {
    mode: 'home',
    share: { ranks: 4, index: 1 },
    offsets: [3, 0, 1, 6, 9],
    races: true,
  }),
  mergeCase('home of 8, d192', [2, 192, 1], [withPartials(33), 0, withPartials(6)], {
    mode: 'home',
    share: { ranks: 8, index: 0 },
    offsets: [7, 6, 2],
  }),
  mergeCase('home of 2, short sequences', [2, 80, 2], [0, withPartials(3)], {
    mode: 'home',
    share: { ranks: 2, index: 0 },
    offsets: [1, 1],
  }),
  mergeCase('tiny, heads of different lengths', [2, 8, 3], [withPartials(3), undefined, 0], {
    perHead: { kvHeads: 2, tableStride: 4 },
    evicted: [[520, 200]],
    races: true,
  }),
  mergeCase('heads of different lengths, 2 kv heads of 4', [6, 32, 20], [withPartials(20), withPartials(9), 255], {
    perHead: { kvHeads: 2, cacheKvHeads: 4, firstKvHead: 1, tableStride: 21 },
    evicted: [
      [0, 3000, 4000, 1],
      [1, 2, 2000, 3],
      [0, 200],
    ],
  }),
  mergeCase(
    'lanes of 1 of 2, heads of different lengths',
    [4, 16, 10],
    [withPartials(19), undefined, 0, withPartials(9)],
    {
      mode: 'lanes',
      share: { ranks: 2, index: 1 },
      offsets: [0, 0, 3, 4],
      perHead: { kvHeads: 2, tableStride: 20 },
      evicted: [[4700, 2000], [], [], [0, 1500]],
    },
  ),
  mergeCase('home of 4, heads of different lengths', [4, 16, 2], [withPartials(19), undefined, 0, withPartials(5)], {
    mode: 'home',
    share: { ranks: 4, index: 1 },
    offsets: [3, 0, 1, 6],
    perHead: { kvHeads: 4, tableStride: 20 },
    evicted: [[4700, 4400, 4000, 0], [], [], [0, 0, 900, 1270]],
  }),
];

/** Only how much was evicted is read of a head's table. */
function tables({ perHead, evicted, positions }: MergeCase): Uint32Array {
  const table = { ...perHead!, perHead: true, block: CHUNK_TOKENS, ...(evicted && { evicted }) };
  const lengths = positions.map((position) => (position === undefined ? undefined : position + 1));
  const blocks = table.tableStride - HEAD_TABLE_LEAD;
  return ownTables(table, new Uint32Array(positions.length * blocks).fill(NO_BLOCK), lengths);
}

/** Partials of random sets of keys; those that a row doesn't have are NaN and must not matter. */
function inputs(problem: MergeCase, random: Random): HostArrays {
  const { rows, heads, headDim, partials, mode, share, offsets = [], positions, empty } = problem;
  const states = rows * heads * partials * (mode === 'home' ? (share?.ranks ?? 1) : 1);
  const o = new Float32Array(states * headDim).fill(Number.NaN);
  const ml = new Float32Array(states * 2).fill(Number.NaN);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    for (let head = 0; head < heads; head++) {
      for (const [i, { at }] of givenPartials(problem, row, position, head).entries()) {
        const isEmpty = empty?.(i) ?? false;
        const l = isEmpty ? 0 : 1 + 200 * random.next();
        ml[at * 2] = isEmpty ? EMPTY_M : 4 * random.normal();
        ml[at * 2 + 1] = l;
        for (let dim = 0; dim < headDim; dim++) o[at * headDim + dim] = isEmpty ? 0 : l * random.normal();
      }
    }
  }
  return {
    partial_o: o,
    partial_ml: ml,
    row_info: rowInfoArray(positions.map((position, row) => (position === undefined ? undefined : [position, row]))),
    ...(problem.perHead ? { block_table: tables(problem) } : {}),
    ...(share ? { chunk_offsets: Uint32Array.from(positions, (_, row) => offsets[row] ?? 0) } : {}),
  };
}

export const suite: KernelSuite<typeof attentionMerge.bindings, typeof attentionMerge.params, MergeCase> = {
  kernel: attentionMerge,
  cases,
  inputs,
  outputs: ({ rows, heads, headDim, outStride, mode, share }) => {
    const states = (MERGE_LANES / (share?.ranks ?? 1)) * rows * heads;
    return mode === 'lanes'
      ? { out: { type: 'f32', length: states * headDim }, out_ml: { type: 'f32', length: states * 2 } }
      : { out: { type: 'f32', length: rows * outStride } };
  },
  reference: attentionMergeReference,
};
