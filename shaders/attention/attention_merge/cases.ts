import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { HEAD_TABLE_LEAD, headTable, laneWord } from '../../cache/head_tables.js';
import { CHUNK_TOKENS, MERGE_LANES, NO_BLOCK } from '../../cache/kv_cache.js';
import { EMPTY_M, type Eviction, rowInfoArray, type RunEnds, withRunEnds } from '../fixture.js';
import { copiesByLane, mostLanesOf, owns, type Sharing, slotsOf } from '../share_fixture.js';
import { attentionMerge, type AttentionMergeProblem } from './index.js';
import { type LaneContributor, laneSources } from './lane_sources.js';
import { attentionMergeReference, chunksOf, givenPartials, lanesOf } from './reference.js';

export interface MergeCase extends AttentionMergeProblem, Sharing, RunEnds {
  readonly partials: number;
  readonly outStride: number;
  /** Of each row, whose slot has the row's number; undefined for an inactive row. There may be room for more rows. */
  readonly positions: readonly (number | undefined)[];
  /** Partials i of every row for which this holds are empty. */
  readonly empty?: (partial: number) => boolean;
  /** With perHead: by row, of each head of the cache. */
  readonly evicted?: Eviction['evicted'];
  /** 'home': by bundle, the ranks that hold its lanes; of copies by their lane slots, as offsets rotate them. */
  readonly contributors?: readonly (readonly LaneContributor[])[];
}

/** The position of a row with `count` partials. */
const withPartials = (count: number): number => count * CHUNK_TOKENS - 7;

type Options = Pick<
  MergeCase,
  | 'empty'
  | 'mode'
  | 'share'
  | 'sharers'
  | 'masks'
  | 'offsets'
  | 'perHead'
  | 'evicted'
  | 'bundleHeads'
  | 'lanes'
  | 'slidingWindow'
  | 'runs'
  | 'runEnds'
  | 'outPieces'
> & {
  /** 'home': by bundle, the lane slots of each rank that holds some; with sharers the ranks alone count. */
  readonly holders?: readonly (readonly number[])[];
  /** Rows behind the step's that there is room for. */
  readonly idle?: number;
  readonly races?: boolean;
};

/** States of lanes as they come home, of the last rank and bundle first, with room for one lane between them. */
function homeStates(
  holders: readonly (readonly number[])[],
  {
    rows,
    bundleHeads,
    chunks,
    sharers,
  }: { readonly rows: number; readonly bundleHeads: number; readonly chunks: number; readonly sharers?: number },
): LaneContributor[][] {
  let base = 0;
  const placed = holders.toReversed().map((masks) =>
    masks.toReversed().map((mask, left): LaneContributor => {
      const slots = sharers === undefined ? slotsOf(mask) : [masks.length - 1 - left];
      const lanes = mostLanesOf(slots, chunks, sharers);
      base += (lanes + 1) * rows * bundleHeads;
      return { slots, lanes, base: base - lanes * rows * bundleHeads };
    }),
  );
  return placed.toReversed().map((contributors) => contributors.toReversed());
}

function mergeCase(
  name: string,
  [heads, headDim, partials]: readonly [number, number, number],
  positions: MergeCase['positions'],
  options: Options = {},
): KernelCase<MergeCase> {
  const { races = false, holders, idle = 0, ...more } = options;
  const rows = positions.length + idle;
  const outStride = alignUp(Math.max(...(more.outPieces ?? [heads])) * headDim, 32);
  const chunks = Math.max(...positions.map((at) => Math.floor((at ?? 0) / CHUNK_TOKENS) + 1));
  const merged = positions.reduce<number>(
    (sum, at) => sum + (at === undefined ? 0 : Math.min(partials, Math.floor(at / CHUNK_TOKENS) + 1)),
    0,
  );
  const { bundleHeads = heads } = more;
  // Tables say who has which lane.
  const perHead =
    more.mode === 'home' && more.sharers === undefined
      ? { perHead: { kvHeads: heads / bundleHeads, tableStride: 3, block: CHUNK_TOKENS } }
      : {};
  return {
    name,
    problem: {
      ...perHead,
      rows,
      heads,
      headDim,
      partials,
      outStride,
      positions,
      ...more,
      ...(holders && {
        contributors: homeStates(holders, {
          rows,
          bundleHeads,
          chunks,
          ...(more.sharers && { sharers: more.sharers }),
        }),
      }),
    },
    seed: 3 + rows,
    // Lanes aren't divided by l, which goes to 200.
    tolerance: { absolute: more.mode === 'lanes' ? 4e-4 : 2e-6, relative: 1e-5 },
    flops: merged * heads * headDim * 2,
    bytes: merged * heads * (headDim + 2) * 4 + rows * heads * headDim * 4,
    step: { rows: positions.length, chunks: 1 },
    races,
  };
}

/** Masks of the lane slots of `ranks` ranks that share sequences. */
const residues = (ranks: number): number[] =>
  Array.from({ length: ranks }, (_, index) =>
    Array.from({ length: MERGE_LANES / ranks }, (_, i) => 1 << (index + i * ranks)).reduce((a, b) => a | b),
  );

const cases = [
  mergeCase('both ways over a chunk end', [2, 8, 3], [254, 255, 256, 530, undefined], {
    runs: { rows: 2 ** 30, ends: 5 },
    runEnds: [531, 531, 531, 531],
    idle: 3,
  }),
  mergeCase('runs over a chunk end', [2, 8, 3], [240, 254, 255, 256, 530], {
    runs: { rows: 16, ends: 6 },
    runEnds: [257, 257, 257, 0, 531],
  }),
  mergeCase('tiny', [1, 8, 3], [withPartials(3)], { races: true }),
  mergeCase(
    'out in pieces, one of them empty',
    [8, 32, 9],
    [1, undefined, 9, 3].map((count) => count && withPartials(count)),
    {
      outPieces: [3, 0, 4, 1],
      idle: 2,
    },
  ),
  mergeCase('tiny, every lane twice', [2, 16, 17], [withPartials(17), undefined, 0], { races: true }),
  // FlashAttention's grid of split counts.
  mergeCase('1 to 133 partials', [8, 32, 133], [1, 2, 3, 5, 8, 9, 17, 32, 55, 97, 133].map(withPartials)),
  mergeCase('of lanes after prefill', [14, 64, 8], [3000, undefined, 255, 256, 1791, 1792]),
  mergeCase('empty partials between', [9, 24, 20], [withPartials(20), withPartials(9), 0], {
    empty: (i) => i % 3 !== 1,
  }),
  mergeCase('nothing but empty partials', [2, 64, 4], [withPartials(4)], { empty: () => true }),
  mergeCase('tiny, windowed', [1, 8, 3], [withPartials(3), 5], { slidingWindow: 300, races: true }),
  mergeCase('windows of two to eleven chunks', [3, 24, 20], [withPartials(20), 0, withPartials(11), 2560, 2559], {
    slidingWindow: 2305,
  }),
  mergeCase('windowed lanes of 1 of 2', [3, 64, 10], [withPartials(19), undefined, 0, withPartials(9)], {
    mode: 'lanes',
    share: { ranks: 2, index: 1 },
    offsets: [0, 0, 3, 4],
    slidingWindow: 700,
  }),
  mergeCase('windowed lanes of which some are empty', [2, 16, 3], [withPartials(11), withPartials(3)], {
    mode: 'lanes',
    share: { ranks: 4, index: 2 },
    offsets: [1, 2],
    slidingWindow: 1,
  }),
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
  mergeCase('lanes of 2 of 4, in bundles', [6, 16, 5], [withPartials(17), undefined, withPartials(3), 0], {
    mode: 'lanes',
    share: { ranks: 4, index: 2 },
    offsets: [0, 0, 3, 6],
    bundleHeads: 2,
    lanes: 1,
    idle: 2,
  }),
  mergeCase('lanes of 3 ranks, which have different numbers', [2, 16, 9], [withPartials(21), 0, withPartials(9), 700], {
    mode: 'lanes',
    share: { ranks: 3, index: 2 },
    offsets: [0, 2, 1, 4],
    bundleHeads: 1,
    idle: 1,
  }),
  mergeCase('windowed lanes of 1 of 5', [3, 24, 6], [withPartials(19), undefined, withPartials(24), withPartials(9)], {
    mode: 'lanes',
    share: { ranks: 5, index: 1 },
    offsets: [0, 0, 3, 4],
    slidingWindow: 700,
  }),
  mergeCase('tiny lanes of 11 ranks, of which some have none', [1, 8, 2], [withPartials(11), withPartials(3), 0], {
    mode: 'lanes',
    share: { ranks: 11, index: 9 },
    offsets: [0, 9, 7],
    races: true,
  }),
  mergeCase('home of 3 that share sequences', [6, 16, 3], [withPartials(21), undefined, 0, withPartials(5)], {
    mode: 'home',
    holders: [
      [0, 0, 0],
      [0, 0, 0],
    ],
    sharers: 3,
    bundleHeads: 3,
    offsets: [5, 0, 3, 0xffffffff],
    races: true,
  }),
  mergeCase('home of 4 that share sequences', [2, 64, 2], [withPartials(19), 0, withPartials(7)], {
    mode: 'home',
    holders: [[0, 0, 0, 0]],
    sharers: 4,
    offsets: [3, 0, 9],
  }),
  mergeCase('home of 11 that share sequences, d192', [2, 192, 1], [withPartials(33), 0, withPartials(6)], {
    mode: 'home',
    holders: [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
    sharers: 11,
    offsets: [7, 10, 2],
  }),
  mergeCase('tiny home', [1, 8, 2], [withPartials(2), undefined, 0], { mode: 'home', holders: [[0xff]], races: true }),
  mergeCase('home of 4', [3, 64, 2], [withPartials(19), undefined, 0, withPartials(5), withPartials(8)], {
    mode: 'home',
    holders: [residues(4)],
    offsets: [3, 0, 1, 6, 9],
    races: true,
  }),
  mergeCase('home of 8, d192', [2, 192, 1], [withPartials(33), 0, withPartials(6)], {
    mode: 'home',
    holders: [residues(8)],
    offsets: [7, 6, 2],
  }),
  mergeCase('home of 2, short sequences', [2, 80, 2], [0, withPartials(3)], {
    mode: 'home',
    holders: [residues(2)],
    offsets: [1, 1],
  }),
  mergeCase('home of 2 and 8, in bundles of two heads', [6, 16, 2], [withPartials(11), undefined, 0, withPartials(5)], {
    mode: 'home',
    holders: [residues(2), residues(8), [0xff]],
    bundleHeads: 2,
    offsets: [5, 0, 3, 0xffffffff],
    idle: 3,
  }),
  mergeCase('home of uneven parts, one row', [4, 24, 2], [withPartials(20)], {
    mode: 'home',
    holders: [[0b10010010, 0b01101101], [0xff], [0b00000001, 0b11111100, 0b00000010], [0b11110000, 0b00001111]],
    bundleHeads: 1,
    offsets: [3],
  }),
  mergeCase('tiny, heads of different lengths', [2, 8, 3], [withPartials(3), undefined, 0], {
    perHead: { kvHeads: 2, tableStride: 4, block: CHUNK_TOKENS },
    evicted: [[520, 200]],
    races: true,
  }),
  mergeCase('heads of different lengths, 2 kv heads of 4', [6, 32, 20], [withPartials(20), withPartials(9), 255], {
    perHead: { kvHeads: 2, cacheKvHeads: 4, firstKvHead: 1, tableStride: 21, block: CHUNK_TOKENS },
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
      perHead: { kvHeads: 2, tableStride: 20, block: CHUNK_TOKENS },
      evicted: [[4700, 2000], [], [], [0, 1500]],
    },
  ),
  mergeCase('home of 4, heads of different lengths', [4, 16, 2], [withPartials(19), undefined, 0, withPartials(5)], {
    mode: 'home',
    holders: [residues(4)],
    offsets: [3, 0, 1, 6],
    perHead: { kvHeads: 4, tableStride: 20, block: CHUNK_TOKENS },
    evicted: [[4700, 4400, 4000, 0], [], [], [0, 0, 900, 1270]],
  }),
  mergeCase('tiny lanes of heads of which other ranks hold some', [2, 8, 3], [withPartials(3), undefined, 0], {
    mode: 'lanes',
    perHead: { kvHeads: 2, tableStride: 13, block: 64 },
    masks: [0b00000101, 0b11111010],
    bundleHeads: 1,
    lanes: 2,
    offsets: [0, 0, 1],
    races: true,
  }),
  mergeCase(
    'lanes of heads of different lengths of which other ranks hold some',
    [6, 24, 20],
    [withPartials(20), 0, withPartials(9), undefined, 255, 256],
    {
      mode: 'lanes',
      perHead: { kvHeads: 3, cacheKvHeads: 4, firstKvHead: 1, tableStride: 81, block: 64 },
      masks: [0, 0b10010010, 0xff, 0b01101101],
      bundleHeads: 2,
      offsets: [3, 2, 7, 0, 1, 8],
      evicted: [[0, 2200, 0, 1], [], [0, 700, 3]],
      idle: 1,
    },
  ),
  mergeCase('nothing here', [2, 64, 4], [withPartials(4)], {
    mode: 'lanes',
    perHead: { kvHeads: 2, tableStride: 17, block: 64 },
    masks: [0, 0],
  }),
  mergeCase(
    'home of heads of different lengths of which ranks hold some, d192',
    [4, 192, 2],
    [withPartials(10), undefined, withPartials(3), 0],
    {
      mode: 'home',
      holders: [
        [0b10010010, 0b01101101],
        [0b11111110, 0b00000001],
      ],
      bundleHeads: 2,
      offsets: [3, 0, 1, 5],
      perHead: { kvHeads: 2, tableStride: 50, block: 64 },
      evicted: [
        [0, 2200],
        [0, 0],
        [700, 3],
      ],
    },
  ),
];

/** What was evicted of each head, and for each chunk that lies here some block. */
function tables(problem: MergeCase): Uint32Array {
  const { perHead, positions, masks, evicted, heads, bundleHeads = heads, contributors, offsets = [] } = problem;
  const { kvHeads, cacheKvHeads = kvHeads, firstKvHead = 0, tableStride, block } = perHead!;
  const words = new Uint32Array(positions.length * cacheKvHeads * tableStride).fill(NO_BLOCK);
  for (const [slot, position] of positions.entries()) {
    for (let head = 0; head < cacheKvHeads; head++) {
      const table = headTable({ ...perHead!, perHead: true }, slot, head);
      words[table] = evicted?.[slot]?.[head] ?? 0;
      const bundle = Math.floor(((head - firstKvHead) * heads) / kvHeads / bundleHeads);
      const copies = contributors?.[bundle];
      if (copies) words[table + tableStride - 1] = laneWord(copiesByLane(copies, offsets[slot]));
      for (let chunk = 0; masks && position !== undefined && chunk < chunksOf(problem, slot, position, head); chunk++) {
        const first = table + HEAD_TABLE_LEAD + (chunk * CHUNK_TOKENS) / block;
        if (owns(problem, slot, chunk, head)) words.fill(7, first, first + CHUNK_TOKENS / block);
      }
    }
  }
  return words;
}

/** Partials of random sets of keys; those that a row doesn't have are NaN and must not matter. */
function inputs(problem: MergeCase, random: Random): HostArrays {
  const { rows, heads, headDim, partials, mode, share, offsets = [], positions, empty, contributors } = problem;
  const { bundleHeads = heads } = problem;
  const ends = contributors?.flat().map(({ base, lanes }) => base + lanes * rows * bundleHeads);
  const states = ends ? Math.max(...ends) : rows * heads * partials;
  const o = new Float32Array(states * headDim).fill(Number.NaN);
  const ml = new Float32Array(states * 2).fill(Number.NaN);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    for (let head = 0; head < heads; head++) {
      for (const [i, { at }] of givenPartials(problem, row, position, head).entries()) {
        if (at < 0) continue;
        const isEmpty = empty?.(i) ?? false;
        const l = isEmpty ? 0 : 1 + 200 * random.next();
        ml[at * 2] = isEmpty ? EMPTY_M : 4 * random.normal();
        ml[at * 2 + 1] = l;
        for (let dim = 0; dim < headDim; dim++) o[at * headDim + dim] = isEmpty ? 0 : l * random.normal();
      }
    }
  }
  return withRunEnds(problem, {
    partial_o: o,
    partial_ml: ml,
    row_info: rowInfoArray(positions.map((position, row) => (position === undefined ? undefined : [position, row]))),
    ...(problem.perHead ? { block_table: tables(problem) } : {}),
    ...(share || mode === 'home' ? { chunk_offsets: Uint32Array.from(positions, (_, row) => offsets[row] ?? 0) } : {}),
    ...(contributors && {
      sources: problem.sharers
        ? laneSources(contributors, { rows, bundleHeads, slots: problem.sharers })
        : laneSources(
            contributors.map((copies) => copies.map((copy, number) => ({ ...copy, slots: [number] }))),
            { rows, bundleHeads },
          ),
    }),
  });
}

export const suite: KernelSuite<typeof attentionMerge.bindings, typeof attentionMerge.params, MergeCase> = {
  kernel: attentionMerge,
  cases,
  inputs,
  outputs: (problem) => {
    const { rows, heads, headDim, outStride, mode, outPieces = [heads] } = problem;
    const states = lanesOf(problem) * rows * heads;
    return mode === 'lanes'
      ? { out: { type: 'f32', length: states * headDim }, out_ml: { type: 'f32', length: states * 2 } }
      : { out: { type: 'f32', length: outPieces.length * rows * outStride } };
  },
  reference: attentionMergeReference,
};
