import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { kvVectorBytes } from '../../cache/kv_cache.js';
import {
  attendedTokens,
  attentionCase,
  type AttentionCase,
  attentionInputs,
  caseStep,
  type RowInfo,
  type Shape,
} from '../fixture.js';
import { localLanes, type PartialLayout, WHOLE } from '../share.js';
import { mostLanesOf, slotsOf } from '../share_fixture.js';
import { attentionPrefill, PREFILL_TILE_ROWS } from './index.js';
import { attentionPrefillReference } from './reference.js';

export interface PrefillCase extends AttentionCase {
  readonly lanes: number;
  readonly partialLayout?: PartialLayout;
}
type PrefillShape = Shape & Pick<PrefillCase, 'partialLayout'>;

/** All rows are of one run. */
const EVERY = { rows: 2 ** 30, ends: 3 };

/** Rows that see those beside them in groups of so many. */
function boundedBy(sizes: readonly number[]): Pick<PrefillCase, 'runs' | 'bounds'> {
  const bounds = sizes.flatMap((size, at) => {
    const first = sizes.slice(0, at).reduce((sum, each) => sum + each, 0);
    return Array<readonly [number, number]>(size).fill([first, first + size]);
  });
  return { runs: { rows: 2 ** 30, ends: 1, bounded: true }, bounds };
}

/** Rows of a slot at consecutive positions; `skip` rows of their first tile stay inactive. */
export interface Segment {
  readonly slot: number;
  readonly from: number;
  readonly count: number;
  readonly skip?: number;
}

/** Segments as row tiles: each starts a tile and fills its last one up with inactive rows. */
export function promptRows(segments: readonly Segment[]): RowInfo[] {
  const rows: RowInfo[] = [];
  for (const { slot, from, count, skip = 0 } of segments) {
    for (let i = 0; i < skip; i++) rows.push(undefined);
    for (let i = 0; i < count; i++) rows.push([from + i, slot]);
    while (rows.length % PREFILL_TILE_ROWS !== 0) rows.push(undefined);
  }
  return rows;
}

export function prefillProblem(shape: PrefillShape, rowInfo: readonly RowInfo[]): PrefillCase {
  const problem = attentionCase(shape, rowInfo);
  const { masks, partialLayout = 'row' } = shape;
  const all = localLanes(problem.maxChunks, shape.share ?? WHOLE);
  const held = masks?.slice(problem.firstKvHead).map((mask) => mostLanesOf(slotsOf(mask), problem.maxChunks));
  return { ...problem, lanes: held && partialLayout !== 'row' ? Math.max(...held) : all };
}

function prefillCase(
  name: string,
  shape: PrefillShape,
  segments: readonly Segment[],
  races = false,
): KernelCase<PrefillCase> {
  const problem = prefillProblem(shape, promptRows(segments));
  const tokens = attendedTokens(problem.rowInfo);
  return {
    name,
    problem,
    seed: 17 + segments.length,
    // o is a sum of up to 512 values of weight up to 1; exp may be off by 3 + 2|x| ulp.
    tolerance: { absolute: 1e-4, relative: 2e-5 },
    flops: 4 * shape.heads * shape.headDim * tokens,
    bytes: 2 * shape.kvHeads * kvVectorBytes(shape.headDim, shape.kvType) * tokens,
    step: caseStep(problem),
    races,
  };
}

const cases = [
  prefillCase('tiny', { heads: 2, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16 }, [{ slot: 0, from: 0, count: 3 }]),
  prefillCase(
    'tiny f16, two key tiles',
    { heads: 1, kvHeads: 1, headDim: 8, kvType: 'f16', block: 16 },
    [{ slot: 0, from: 32, count: 2, skip: 1 }],
    true,
  ),
  prefillCase('8/4 d32 ragged over a chunk end', { heads: 8, kvHeads: 4, headDim: 32, kvType: 'f32', block: 16 }, [
    { slot: 1, from: 250, count: 9 },
    { slot: 0, from: 0, count: 40 },
    { slot: 3, from: 0, count: 1 },
    { slot: 2, from: 511, count: 18, skip: 3 },
  ]),
  prefillCase('9/3 d64 f16', { heads: 9, kvHeads: 3, headDim: 64, kvType: 'f16', block: 64 }, [
    { slot: 0, from: 0, count: 20 },
    { slot: 1, from: 255, count: 2 },
  ]),
  prefillCase('14/2 d64', { heads: 14, kvHeads: 2, headDim: 64, kvType: 'f32', block: 16 }, [
    { slot: 0, from: 292, count: 8 },
  ]),
  prefillCase('7/1 d24 f16', { heads: 7, kvHeads: 1, headDim: 24, kvType: 'f16', block: 256 }, [
    { slot: 0, from: 0, count: 33 },
  ]),
  prefillCase('3/3 d80', { heads: 3, kvHeads: 3, headDim: 80, kvType: 'f32', block: 16 }, [
    { slot: 0, from: 0, count: 24 },
  ]),
  prefillCase('32/8 d128 f16', { heads: 32, kvHeads: 8, headDim: 128, kvType: 'f16', block: 16 }, [
    { slot: 0, from: 250, count: 7 },
  ]),
  prefillCase('6/2 d80 q8', { heads: 6, kvHeads: 2, headDim: 80, kvType: 'q8', block: 16 }, [
    { slot: 0, from: 250, count: 9 },
  ]),
  prefillCase(
    'tiny, windowed',
    { heads: 2, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, slidingWindow: 3 },
    [{ slot: 0, from: 32, count: 2, skip: 1 }],
    true,
  ),
  prefillCase('a window of 1', { heads: 2, kvHeads: 1, headDim: 8, kvType: 'f16', block: 16, slidingWindow: 1 }, [
    { slot: 0, from: 0, count: 3 },
    { slot: 1, from: 250, count: 20, skip: 2 },
  ]),
  prefillCase(
    'windows over chunk ends, q8',
    { heads: 3, kvHeads: 1, headDim: 24, kvType: 'q8', block: 64, slidingWindow: 300 },
    [
      { slot: 0, from: 290, count: 20 },
      { slot: 1, from: 550, count: 9 },
      { slot: 2, from: 2300, count: 17, skip: 5 },
    ],
  ),
  prefillCase(
    'a window wider than the context',
    { heads: 2, kvHeads: 2, headDim: 16, kvType: 'f32', block: 16, slidingWindow: 5000 },
    [{ slot: 0, from: 250, count: 20 }],
  ),
  prefillCase(
    'windowed, the third of four ranks, in bundles',
    {
      heads: 2,
      kvHeads: 2,
      cacheKvHeads: 4,
      firstKvHead: 1,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 4, index: 2 },
      offsets: [2, 0, 5],
      partialLayout: { bundleHeads: 1 },
      slidingWindow: 411,
    },
    [
      { slot: 1, from: 767, count: 3 },
      { slot: 0, from: 0, count: 5, skip: 2 },
      { slot: 2, from: 2303, count: 2 },
    ],
  ),
  prefillCase(
    'capped scores',
    { heads: 4, kvHeads: 2, headDim: 32, kvType: 'f32', block: 16, slidingWindow: 21, softcap: 2.5 },
    [{ slot: 0, from: 0, count: 40 }],
  ),
  prefillCase(
    'tiny, with sinks',
    { heads: 6, kvHeads: 2, headDim: 8, kvType: 'f32', block: 16, sinks: true },
    [{ slot: 0, from: 3, count: 5, skip: 1 }],
    true,
  ),
  prefillCase(
    'sinks and a window over chunk ends, f16, lanes wrap',
    { heads: 7, kvHeads: 1, headDim: 24, kvType: 'f16', block: 64, sinks: true, slidingWindow: 300 },
    [
      { slot: 0, from: 254, count: 4 },
      { slot: 1, from: 2300, count: 6 },
    ],
  ),
  prefillCase(
    'sinks, queries in pieces, the second of two ranks, in bundles',
    {
      heads: 12,
      kvHeads: 3,
      cacheKvHeads: 4,
      firstKvHead: 1,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      queryPieces: [0, 8, 4],
      share: { ranks: 2, index: 1 },
      offsets: [1, 0],
      partialLayout: { bundleHeads: 4 },
      sinks: true,
    },
    [
      { slot: 0, from: 600, count: 3 },
      { slot: 1, from: 250, count: 9 },
    ],
  ),
  prefillCase(
    'tiny, both ways',
    { heads: 2, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, runs: EVERY, runEnds: [0, 19], idle: 16 },
    [{ slot: 1, from: 0, count: 19 }],
    true,
  ),
  prefillCase(
    'both ways over chunk ends, f16',
    { heads: 3, kvHeads: 3, headDim: 32, kvType: 'f16', block: 64, runs: EVERY, runEnds: [530] },
    [{ slot: 0, from: 0, count: 530 }],
  ),
  prefillCase(
    'both ways, windows over a chunk end',
    { heads: 2, kvHeads: 1, headDim: 24, kvType: 'f32', block: 16, runs: EVERY, runEnds: [300], slidingWindow: 9 },
    [{ slot: 0, from: 0, count: 300 }],
  ),
  prefillCase(
    'within bounds, over a chunk end',
    { heads: 2, kvHeads: 2, headDim: 24, kvType: 'f32', block: 16, ...boundedBy([64, 12, 190, 3, 30]), runEnds: [299] },
    [{ slot: 0, from: 0, count: 299 }],
  ),
  prefillCase(
    'tiny, within bounds',
    { heads: 2, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, ...boundedBy([5, 2, 12]), runEnds: [19], idle: 16 },
    [{ slot: 0, from: 0, count: 19 }],
    true,
  ),
  prefillCase(
    'a run between others',
    {
      heads: 2,
      kvHeads: 1,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      runs: { rows: 5, ends: 4 },
      runEnds: [9, 7],
      idle: 16,
    },
    [
      { slot: 1, from: 0, count: 10 },
      { slot: 0, from: 6, count: 5, skip: 1 },
      { slot: 0, from: 30, count: 2 },
    ],
  ),
  prefillCase(
    'runs over chunk ends, a window beyond them, f16',
    {
      heads: 4,
      kvHeads: 2,
      headDim: 24,
      kvType: 'f16',
      block: 64,
      runs: { rows: 40, ends: 2 },
      runEnds: [270, 0],
      slidingWindow: 43,
    },
    [
      { slot: 0, from: 200, count: 90 },
      { slot: 1, from: 250, count: 9 },
    ],
  ),
  prefillCase(
    'runs over chunk ends, the second of two ranks, in bundles',
    {
      heads: 2,
      kvHeads: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 2, index: 1 },
      offsets: [1, 0],
      partialLayout: { bundleHeads: 1 },
      runs: { rows: 20, ends: 2 },
      runEnds: [260, 520],
    },
    [
      { slot: 0, from: 230, count: 33 },
      { slot: 1, from: 498, count: 24 },
    ],
  ),
  prefillCase('71/1 d64', { heads: 71, kvHeads: 1, headDim: 64, kvType: 'f32', block: 16 }, [
    { slot: 0, from: 30, count: 4 },
  ]),
  prefillCase('4/2 d512 f16', { heads: 4, kvHeads: 2, headDim: 512, kvType: 'f16', block: 64 }, [
    { slot: 0, from: 250, count: 9 },
  ]),
  prefillCase('2/1 d256', { heads: 2, kvHeads: 1, headDim: 256, kvType: 'f32', block: 128 }, [
    { slot: 0, from: 10, count: 16 },
  ]),
  prefillCase('8/4 d32, lanes wrap', { heads: 8, kvHeads: 4, headDim: 32, kvType: 'f32', block: 16 }, [
    { slot: 0, from: 2046, count: 3 },
  ]),
  prefillCase(
    'tiny, the second of two ranks, kv head 2 of 3, in a bundle',
    {
      heads: 1,
      kvHeads: 1,
      cacheKvHeads: 3,
      firstKvHead: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 2, index: 1 },
      offsets: [1],
      partialLayout: { bundleHeads: 1 },
    },
    [{ slot: 0, from: 5, count: 2, skip: 1 }],
    true,
  ),
  prefillCase(
    'the third of four ranks, 2 kv heads of 4, in bundles of one head',
    {
      heads: 2,
      kvHeads: 2,
      cacheKvHeads: 4,
      firstKvHead: 1,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 4, index: 2 },
      offsets: [2, 0, 5],
      partialLayout: { bundleHeads: 1 },
    },
    [
      { slot: 1, from: 767, count: 3 },
      { slot: 0, from: 0, count: 5, skip: 2 },
      { slot: 2, from: 2303, count: 2 },
    ],
  ),
  prefillCase(
    'tiny, heads of different lengths',
    { heads: 2, kvHeads: 2, headDim: 8, kvType: 'f16', block: 16, perHead: true, evicted: [[30, 3]] },
    [{ slot: 0, from: 32, count: 2, skip: 1 }],
    true,
  ),
  prefillCase(
    'heads of different lengths over chunk ends, 2 kv heads of 3',
    {
      heads: 4,
      kvHeads: 2,
      cacheKvHeads: 3,
      firstKvHead: 1,
      headDim: 32,
      kvType: 'f32',
      block: 64,
      perHead: true,
      evicted: [
        [0, 515, 256],
        [0, 0, 2],
      ],
    },
    [
      { slot: 0, from: 515, count: 18, skip: 2 },
      { slot: 1, from: 2, count: 5 },
    ],
  ),
  prefillCase(
    'the third of four ranks, heads of different lengths',
    {
      heads: 2,
      kvHeads: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 4, index: 2 },
      offsets: [2],
      partialLayout: { bundleHeads: 2 },
      perHead: true,
      evicted: [[2050, 250]],
    },
    [{ slot: 0, from: 2303, count: 2 }],
  ),
  prefillCase(
    'tiny, queries in two pieces, a bundle each',
    {
      heads: 4,
      kvHeads: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      queryPieces: [2, 2],
      partialLayout: { bundleHeads: 2 },
      idle: 16,
    },
    [{ slot: 0, from: 3, count: 2 }],
    true,
  ),
  prefillCase(
    'queries in uneven pieces, some empty, 3 kv heads of 4, f16',
    {
      heads: 9,
      kvHeads: 3,
      cacheKvHeads: 4,
      firstKvHead: 1,
      headDim: 64,
      kvType: 'f16',
      block: 64,
      queryPieces: [0, 6, 0, 3, 0],
      partialLayout: { bundleHeads: 3 },
      share: { ranks: 2, index: 0 },
      offsets: [1, 0],
      idle: 16,
    },
    [
      { slot: 0, from: 250, count: 9 },
      { slot: 1, from: 255, count: 1 },
    ],
  ),
  prefillCase(
    'tiny, heads of which other ranks hold lanes',
    {
      heads: 2,
      kvHeads: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      perHead: true,
      masks: [1, 0xfe],
      offsets: [1],
      partialLayout: { bundleHeads: 1 },
    },
    [{ slot: 0, from: 5, count: 2 }],
  ),
  prefillCase(
    'heads of which other ranks hold lanes, in bundles of a kv head',
    {
      heads: 4,
      kvHeads: 2,
      cacheKvHeads: 3,
      firstKvHead: 1,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      perHead: true,
      masks: [0xff, 0b01101101, 0b10010010],
      offsets: [3, 0],
      queryPieces: [2, 2],
      partialLayout: { bundleHeads: 2 },
    },
    [
      { slot: 0, from: 2303, count: 3 },
      { slot: 1, from: 511, count: 2 },
    ],
  ),
  prefillCase(
    'heads of which other ranks hold lanes, empty there',
    { heads: 2, kvHeads: 2, headDim: 8, kvType: 'f32', block: 16, perHead: true, masks: [0b01010101, 0b10101010] },
    [{ slot: 0, from: 511, count: 2 }],
  ),
];

export const suite: KernelSuite<typeof attentionPrefill.bindings, typeof attentionPrefill.params, PrefillCase> = {
  kernel: attentionPrefill,
  cases,
  inputs: attentionInputs,
  outputs: ({ rows, heads, headDim, lanes }) => ({
    partial_o: { type: 'f32', length: rows * heads * lanes * headDim },
    partial_ml: { type: 'f32', length: rows * heads * lanes * 2 },
  }),
  reference: attentionPrefillReference,
};
