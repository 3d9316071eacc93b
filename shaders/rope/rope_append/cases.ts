import { alignUp, ceilDiv } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type Eviction, type Idle, rowEntries, type RowInfo, rowInfoArray, withIdle } from '../../attention/fixture.js';
import { type QueryPieces, widestPiece } from '../../attention/query_pieces.js';
import { blockShape, headTable, tableLead } from '../../cache/head_tables.js';
import { type CacheHeads, kvCacheBytes, kvVectorBytes, NO_BLOCK } from '../../cache/kv_cache.js';
import { ropeAppend, type RopeAppendProblem } from './index.js';
import { ropeAppendReference, type SpansCase, spansOf } from './reference.js';

export interface RopeCase extends RopeAppendProblem, Eviction, Idle, Pick<SpansCase, 'pictures'> {
  readonly rowInfo: readonly RowInfo[];
  /** Slots whose tokens another rank holds. */
  readonly elsewhere?: readonly number[];
}

type Shape = Pick<
  RopeCase,
  | 'heads'
  | 'kvHeads'
  | 'headDim'
  | 'rotary'
  | 'queryRows'
  | 'spans'
  | 'pictures'
  | 'qkNorm'
  | 'valueNorm'
  | 'queriesOnly'
  | 'kvType'
  | 'block'
  | 'keys'
  | keyof CacheHeads
> &
  Eviction &
  QueryPieces &
  Idle;

function ropeCase(
  name: string,
  shape: Shape & Pick<RopeCase, 'elsewhere'>,
  rowInfo: readonly RowInfo[],
  races = false,
): KernelCase<RopeCase> {
  const rows = rowInfo.length;
  const all = withIdle(rowInfo, shape);
  const kvHeads = shape.queriesOnly ? 0 : shape.kvHeads;
  const width = (shape.heads + 2 * kvHeads) * shape.headDim;
  const widest = widestPiece(shape);
  const longest = Math.max(1, ...rowInfo.map((info) => (info ? info[0] + 1 : 0)));
  return {
    name,
    problem: {
      ...shape,
      rows: all.length,
      eps: 1e-6,
      tableStride: ceilDiv(longest, shape.block) + 1 + tableLead(shape),
      qkvStride: alignUp((widest + (2 * widest * kvHeads) / shape.heads) * shape.headDim, 32),
      rowInfo: all,
    },
    seed: 31 + rows,
    // f16 cases use numbers whose results f16 holds exactly, so that packed words can be compared.
    tolerance: shape.kvType === 'f16' ? { absolute: 0, relative: 0 } : { absolute: 2e-6, relative: 2e-6 },
    flops: rows * (shape.heads + shape.kvHeads) * shape.headDim * 3,
    bytes:
      rows * (width + shape.heads * shape.headDim) * 4 +
      2 * rows * shape.kvHeads * kvVectorBytes(shape.headDim, shape.kvType),
    step: { rows, chunks: 1 },
    races,
  };
}

/** Keys for a rank that keeps caches, with norms of q and k; slot 1's are appended here. */
const keptHere: Shape & Pick<RopeCase, 'elsewhere'> = {
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  qkNorm: true,
  kvType: 'f32',
  block: 16,
  elsewhere: [1],
  keys: 'kept',
};

/** A table of 40 positions, of which 31 rows have pictures that are wide, high and alike. */
const pictured = {
  heads: 4,
  kvHeads: 2,
  headDim: 32,
  block: 16,
  spans: { positions: 40, lines: 5, columns: 3 },
  pictures: [
    [
      [1, 2, 3],
      [8, 4, 2],
      [17, 3, 3],
    ],
    [],
    [[0, 1, 9]],
  ],
} as const;

const cases = [
  ropeCase(
    'tiny',
    { heads: 2, kvHeads: 1, headDim: 8, qkNorm: false, kvType: 'f32', block: 16 },
    [[3, 0], undefined],
    true,
  ),
  ropeCase(
    'tiny qk norm',
    { heads: 2, kvHeads: 1, headDim: 8, qkNorm: true, kvType: 'f32', block: 16 },
    [[17, 0]],
    true,
  ),
  ropeCase(
    'rows of the table for queries',
    { heads: 4, kvHeads: 2, headDim: 32, queryRows: true, qkNorm: false, kvType: 'f32', block: 16 },
    [[17, 0], undefined, [3, 1]],
  ),
  ropeCase('pictures in two of three slots', { ...pictured, qkNorm: true, kvType: 'f32' }, [
    [0, 0],
    [1, 0],
    [17, 1],
    undefined,
    [4, 2],
    ...[3, 4, 7, 8, 20, 29, 30].map((entry): RowInfo => [entry, 0]),
  ]),
  ropeCase('pictures, kept, q8', { ...pictured, rotary: 16, qkNorm: false, kvType: 'q8', keys: 'kept' }, [[9, 0]]),
  ropeCase(
    'pictures whose axes take no turns',
    { ...pictured, spans: { positions: 40, lines: 7, columns: 6, before: 3 }, qkNorm: false, kvType: 'f32' },
    [3, 4, 7, 8, 20, 29, 30].map((entry): RowInfo => [entry, 0]),
  ),
  ropeCase('tiny f16', { heads: 1, kvHeads: 1, headDim: 8, qkNorm: false, kvType: 'f16', block: 16 }, [[2, 0]], true),
  ropeCase('tiny q8', { heads: 2, kvHeads: 1, headDim: 8, qkNorm: false, kvType: 'q8', block: 16 }, [[2, 0]], true),
  ropeCase('8/4 d32 several slots', { heads: 8, kvHeads: 4, headDim: 32, qkNorm: false, kvType: 'f32', block: 16 }, [
    [0, 1],
    [255, 0],
    undefined,
    [256, 2],
    [40, 4],
    [41, 4],
  ]),
  ropeCase('9/3 d64 f16', { heads: 9, kvHeads: 3, headDim: 64, qkNorm: false, kvType: 'f16', block: 64 }, [
    [63, 1],
    undefined,
    [64, 0],
  ]),
  ropeCase('14/2 d128 qk norm', { heads: 14, kvHeads: 2, headDim: 128, qkNorm: true, kvType: 'f32', block: 256 }, [
    [300, 0],
    [15, 1],
  ]),
  ropeCase('7/1 d24 qk norm', { heads: 7, kvHeads: 1, headDim: 24, qkNorm: true, kvType: 'f32', block: 32 }, [[33, 0]]),
  ropeCase('3/3 d80 f16', { heads: 3, kvHeads: 3, headDim: 80, qkNorm: false, kvType: 'f16', block: 16 }, [
    [16, 0],
    [15, 0],
  ]),
  ropeCase('9/3 d64 q8, qk norm', { heads: 9, kvHeads: 3, headDim: 64, qkNorm: true, kvType: 'q8', block: 64 }, [
    [63, 1],
    undefined,
    [64, 0],
  ]),
  ropeCase('3/3 d80 q8', { heads: 3, kvHeads: 3, headDim: 80, qkNorm: false, kvType: 'q8', block: 16 }, [
    [16, 0],
    [15, 0],
  ]),
  ropeCase('3/1 d256 q8, qk norm', { heads: 3, kvHeads: 1, headDim: 256, qkNorm: true, kvType: 'q8', block: 16 }, [
    [16, 0],
  ]),
  ropeCase(
    '3/1 d32, 8 of them rotated',
    { heads: 3, kvHeads: 1, headDim: 32, rotary: 8, qkNorm: true, kvType: 'f32', block: 16 },
    [
      [19, 0],
      [3, 1],
    ],
  ),
  ropeCase(
    '6/2 d96, 72 of them rotated, f16',
    { heads: 6, kvHeads: 2, headDim: 96, rotary: 72, qkNorm: false, kvType: 'f16', block: 16 },
    [[19, 0]],
  ),
  ropeCase(
    '4/2 d40, 24 of them rotated, q8',
    { heads: 4, kvHeads: 2, headDim: 40, rotary: 24, qkNorm: false, kvType: 'q8', block: 16 },
    [[19, 0]],
  ),
  ropeCase(
    '4/2 d16, none rotated',
    { heads: 4, kvHeads: 2, headDim: 16, rotary: 0, qkNorm: true, kvType: 'f32', block: 16 },
    [[19, 0]],
  ),
  ropeCase(
    'values normalised',
    { heads: 2, kvHeads: 1, headDim: 8, qkNorm: true, valueNorm: true, kvType: 'f32', block: 16 },
    [[19, 0], undefined, [3, 1]],
    true,
  ),
  ropeCase(
    'values normalised, d512 q8',
    { heads: 3, kvHeads: 1, headDim: 512, qkNorm: true, valueNorm: true, kvType: 'q8', block: 64 },
    [[70, 0]],
  ),
  ropeCase('keys and normalised values for a rank that keeps caches', { ...keptHere, valueNorm: true }, [
    [3, 0],
    [20, 1],
    undefined,
    [21, 1],
  ]),
  ropeCase(
    'queries alone',
    { heads: 3, kvHeads: 1, headDim: 8, qkNorm: true, queriesOnly: true, kvType: 'f32', block: 16 },
    [[19, 0], undefined, [3, 1]],
    true,
  ),
  ropeCase('71/1 d64', { heads: 71, kvHeads: 1, headDim: 64, qkNorm: false, kvType: 'f32', block: 16 }, [[7, 0]]),
  ropeCase('3/1 d512 qk norm', { heads: 3, kvHeads: 1, headDim: 512, qkNorm: true, kvType: 'f32', block: 64 }, [
    [70, 0],
    [3, 1],
  ]),
  ropeCase('2/1 d256 qk norm', { heads: 2, kvHeads: 1, headDim: 256, qkNorm: true, kvType: 'f32', block: 128 }, [
    [130, 0],
  ]),
  ropeCase(
    'two kv heads of five, a slot of another rank',
    {
      heads: 4,
      kvHeads: 2,
      cacheKvHeads: 5,
      firstKvHead: 1,
      headDim: 16,
      qkNorm: true,
      kvType: 'f32',
      block: 16,
      elsewhere: [1],
    },
    [[3, 0], [20, 1], undefined, [4, 0], [21, 1]],
  ),
  ropeCase(
    'the last kv head of three, f16',
    {
      heads: 2,
      kvHeads: 1,
      cacheKvHeads: 3,
      firstKvHead: 2,
      headDim: 8,
      qkNorm: false,
      kvType: 'f16',
      block: 16,
      elsewhere: [0],
    },
    [
      [2, 0],
      [5, 1],
    ],
    true,
  ),
  ropeCase('keys for a rank that keeps caches, qk norm, some appended here', keptHere, [
    [3, 0],
    [20, 1],
    undefined,
    [21, 1],
  ]),
  ropeCase(
    'keys that are ready, f16',
    {
      heads: 3,
      kvHeads: 1,
      headDim: 8,
      qkNorm: false,
      kvType: 'f16',
      block: 16,
      elsewhere: [0],
      keys: 'ready',
    },
    [[2, 0], undefined, [17, 1], [18, 1]],
    true,
  ),
  ropeCase(
    'keys for a rank that keeps caches, q8, some appended here',
    { heads: 4, kvHeads: 2, headDim: 24, qkNorm: true, kvType: 'q8', block: 16, elsewhere: [1], keys: 'kept' },
    [[3, 0], [20, 1], undefined, [21, 1]],
    // No race check: wgsl_reflect's interpreter writes elsewhere than GPUs do, as the comparison with the reference shows.
    false,
  ),
  ropeCase(
    'keys that are ready, q8',
    { heads: 3, kvHeads: 1, headDim: 48, qkNorm: false, kvType: 'q8', block: 16, elsewhere: [0], keys: 'ready' },
    [[2, 0], undefined, [17, 1], [18, 1]],
    true,
  ),
  ropeCase(
    'heads of different lengths, q8, 2 kv heads of 3, in two pieces',
    {
      heads: 4,
      kvHeads: 2,
      cacheKvHeads: 3,
      firstKvHead: 1,
      headDim: 96,
      qkNorm: true,
      kvType: 'q8',
      block: 16,
      queryPieces: [2, 2],
      elsewhere: [1],
      perHead: true,
      evicted: [
        [0, 100, 31],
        [5, 5, 5],
      ],
    },
    [
      [130, 0],
      [131, 0],
      [20, 1],
    ],
  ),
  ropeCase(
    'tiny, after eviction',
    {
      heads: 2,
      kvHeads: 1,
      headDim: 8,
      qkNorm: false,
      kvType: 'f32',
      block: 16,
      perHead: true,
      evicted: [[20]],
    },
    [[37, 0], undefined],
    true,
  ),
  ropeCase(
    'heads of different lengths, 2 kv heads of 3, a slot of another rank',
    {
      heads: 4,
      kvHeads: 2,
      cacheKvHeads: 3,
      firstKvHead: 1,
      headDim: 16,
      qkNorm: true,
      kvType: 'f32',
      block: 16,
      elsewhere: [1],
      perHead: true,
      evicted: [
        [0, 100, 31],
        [5, 5, 5],
      ],
    },
    [
      [130, 0],
      [131, 0],
      [20, 1],
      [7, 2],
    ],
  ),
  ropeCase(
    'tiny, in two pieces',
    { heads: 4, kvHeads: 2, headDim: 8, qkNorm: false, kvType: 'f32', block: 16, queryPieces: [2, 2], idle: 1 },
    [[3, 0], undefined],
  ),
  ropeCase(
    'in uneven pieces, some empty, 3 kv heads of 4, qk norm',
    {
      heads: 9,
      kvHeads: 3,
      cacheKvHeads: 4,
      firstKvHead: 1,
      headDim: 16,
      qkNorm: true,
      kvType: 'f32',
      block: 16,
      queryPieces: [0, 6, 0, 3, 0],
      elsewhere: [1],
      idle: 2,
    },
    [[3, 0], [20, 1], undefined, [4, 0]],
  ),
  ropeCase(
    'in eight pieces, kept, f16',
    {
      heads: 8,
      kvHeads: 8,
      headDim: 8,
      qkNorm: false,
      kvType: 'f16',
      block: 16,
      queryPieces: [1, 1, 1, 1, 1, 1, 1, 1],
      elsewhere: [1],
      keys: 'kept',
    },
    [
      [2, 0],
      [17, 1],
    ],
  ),
  ropeCase(
    'in two pieces, ready, f16',
    {
      heads: 4,
      kvHeads: 2,
      headDim: 8,
      qkNorm: false,
      kvType: 'f16',
      block: 16,
      queryPieces: [2, 2],
      elsewhere: [0],
      keys: 'ready',
    },
    [
      [2, 0],
      [17, 1],
    ],
  ),
];

/** What a cache holds where nothing is appended. */
export const UNTOUCHED = { f32: -77.25, packed: 0x12345678 } as const;

function inputs(problem: RopeCase, random: Random): HostArrays {
  const { heads, kvHeads, headDim, kvType, block, tableStride, qkvStride, rowInfo, elsewhere = [] } = problem;
  const { queryPieces = [heads] } = problem;
  const exact = kvType === 'f16';
  const qkv = new Float32Array(queryPieces.length * rowInfo.length * qkvStride);
  for (let i = 0; i < qkv.length; i++) {
    const own = queryPieces[Math.floor(i / (rowInfo.length * qkvStride))]!;
    const width = (own + (2 * own * kvHeads) / heads) * headDim;
    // Multiples of 1/16 times multiples of 1/8 need 10 bits: f16 holds their rotations.
    if (i % qkvStride < width) qkv[i] = exact ? (random.integer(65) - 32) / 16 : random.normal();
  }
  const longest = Math.max(...rowInfo.map((info) => (info ? info[0] + 1 : 0)));
  const { rotary = headDim, queryRows = false, spans } = problem;
  const tableRows = spans?.positions ?? (queryRows ? 2 * longest : longest);
  const table = new Float32Array(tableRows * rotary);
  for (let position = 0; position < tableRows; position++) {
    for (let pair = 0; pair < rotary / 2; pair++) {
      const angle = position * 10000 ** ((-2 * pair) / rotary);
      const place = (value: number) => (exact ? Math.round(value * 8) / 8 : value);
      table.set([place(Math.cos(angle)), place(Math.sin(angle))], position * rotary + pair * 2);
    }
  }
  const slots = Math.max(...rowInfo.map((info) => (info ? info[1] + 1 : 0)));
  const tables = problem.perHead ? (problem.cacheKvHeads ?? kvHeads) : 1;
  const blocks = slots * tables * tableStride + 1;
  const blockTable = new Uint32Array(slots * tables * tableStride).fill(NO_BLOCK);
  // Only the blocks that rows write have an entry; blocks descend, so that none is where its index says.
  for (const info of rowInfo) {
    if (!info) continue;
    for (let head = 0; head < tables; head++) {
      const table = headTable(problem, info[1], head);
      const entry = rowEntries(problem, info, head) - 1;
      if (problem.perHead) blockTable[table] = info[0] - entry;
      if (elsewhere.includes(info[1])) continue;
      const at = table + tableLead(problem) + Math.floor(entry / block);
      blockTable[at] = blocks - 1 - at;
    }
  }
  const words = kvCacheBytes(blockShape(problem), blocks) / 4;
  const cache = () =>
    kvType === 'f32' ? new Float32Array(words).fill(UNTOUCHED.f32) : new Uint32Array(words).fill(UNTOUCHED.packed);
  return {
    qkv,
    ...(rotary > 0 && { rope_table: Float32Array.of(...table, ...spansOf(problem, slots)) }),
    q_norm: random.normals(headDim),
    k_norm: random.normals(headDim),
    row_info: rowInfoArray(rowInfo),
    block_table: blockTable,
    k_cache: cache(),
    v_cache: cache(),
  };
}

export const suite: KernelSuite<typeof ropeAppend.bindings, typeof ropeAppend.params, RopeCase> = {
  kernel: ropeAppend,
  cases,
  inputs,
  outputs: () => ({}),
  reference: ropeAppendReference,
};
