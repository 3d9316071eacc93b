import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArray, HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { blockShape } from '../../cache/head_tables.js';
import { KV_TYPES, keyUnit, kvVectorBytes, storedUnits, valueUnit } from '../../cache/kv_cache.js';
import {
  attendedTokens,
  attentionCase,
  attentionInputs,
  cacheShape,
  caseStep,
  putSinks,
  type RowInfo,
  type Shape,
} from '../fixture.js';
import { attentionAppend } from './index.js';
import { type SpansCase, spansOf } from '../../rope/rope_append/reference.js';
import { type AppendCase, attentionAppendReference } from './reference.js';

function appendCase(
  name: string,
  {
    qkNorm = false,
    valueNorm = false,
    rotary,
    queryRows,
    spans,
    pictures,
    ...shape
  }: Shape &
    SpansCase & {
      readonly qkNorm?: boolean;
      readonly valueNorm?: boolean;
      readonly rotary?: number;
      readonly queryRows?: boolean;
    },
  rowInfo: readonly RowInfo[],
  races = false,
): KernelCase<AppendCase> {
  const problem = {
    ...attentionCase(shape, rowInfo),
    qkvStride: alignUp((shape.heads + 2 * shape.kvHeads) * shape.headDim + (shape.sinks ? shape.heads : 0), 32),
    qkNorm,
    valueNorm,
    ...(rotary !== undefined && { rotary }),
    ...(queryRows && { queryRows }),
    ...(spans && { spans, pictures }),
    eps: 1e-6,
  };
  const tokens = attendedTokens(rowInfo);
  return {
    name,
    problem,
    seed: 17 + rowInfo.length,
    // As attention_split; queries and keys are products and sums of numbers up to some 4.
    tolerance: { absolute: 1e-4, relative: 2e-5 },
    flops: 4 * shape.heads * shape.headDim * tokens,
    bytes: 2 * shape.kvHeads * kvVectorBytes(shape.headDim, shape.kvType) * tokens,
    step: caseStep(problem),
    races,
  };
}

const cases = [
  appendCase(
    'tiny',
    { heads: 3, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16 },
    [[19, 0], [0, 1], undefined],
    true,
  ),
  // Not race-checked: with two lanes a vector the checker gives one lane the other's `units`, and so sees both write one place.
  appendCase(
    'tiny f16, two head tiles, normalised',
    { heads: 5, kvHeads: 1, headDim: 16, kvType: 'f16', block: 16, qkNorm: true },
    [[17, 0]],
  ),
  appendCase('tiny q8', { heads: 2, kvHeads: 2, headDim: 8, kvType: 'q8', block: 16 }, [[19, 0], undefined]),
  appendCase('the first token', { heads: 8, kvHeads: 2, headDim: 32, kvType: 'f32', block: 64 }, [[0, 0]]),
  appendCase('8/4 d32 ragged over chunk ends', { heads: 8, kvHeads: 4, headDim: 32, kvType: 'f32', block: 16 }, [
    [0, 2],
    [19, 1],
    [254, 0],
    undefined,
    [255, 3],
    [256, 4],
    [699, 5],
  ]),
  appendCase(
    'tiny, with sinks',
    { heads: 6, kvHeads: 2, headDim: 8, kvType: 'f32', block: 16, sinks: true },
    [[19, 0], [0, 1], undefined],
    true,
  ),
  appendCase(
    '8/1 d64 f16, sinks and a window',
    { heads: 8, kvHeads: 1, headDim: 64, kvType: 'f16', block: 64, sinks: true, slidingWindow: 128 },
    [
      [700, 0],
      [256, 1],
      [255, 2],
      [3, 3],
    ],
  ),
  appendCase('14/2 d64 f16', { heads: 14, kvHeads: 2, headDim: 64, kvType: 'f16', block: 64 }, [[700, 0]]),
  appendCase(
    '16/8 d128 f16, normalised',
    { heads: 16, kvHeads: 8, headDim: 128, kvType: 'f16', block: 64, qkNorm: true },
    [[256, 0]],
  ),
  appendCase('7/1 d24 normalised', { heads: 7, kvHeads: 1, headDim: 24, kvType: 'f32', block: 256, qkNorm: true }, [
    [299, 0],
    [30, 1],
  ]),
  appendCase(
    '7/1 d24 values normalised',
    { heads: 7, kvHeads: 1, headDim: 24, kvType: 'f32', block: 32, qkNorm: true, valueNorm: true },
    [
      [299, 0],
      [30, 1],
    ],
  ),
  appendCase(
    '6/3 d40 q8, values normalised',
    { heads: 6, kvHeads: 3, headDim: 40, kvType: 'q8', block: 32, qkNorm: true, valueNorm: true },
    [[256, 0]],
  ),
  appendCase('3/3 d80', { heads: 3, kvHeads: 3, headDim: 80, kvType: 'f32', block: 16 }, [[270, 0]]),
  appendCase('6/3 d40 q8, normalised', { heads: 6, kvHeads: 3, headDim: 40, kvType: 'q8', block: 32, qkNorm: true }, [
    [256, 1],
    undefined,
    [20, 0],
  ]),
  appendCase('2/1 d256 q8', { heads: 2, kvHeads: 1, headDim: 256, kvType: 'q8', block: 64 }, [[40, 0]]),
  appendCase('8/2 d256 normalised', { heads: 8, kvHeads: 2, headDim: 256, kvType: 'f32', block: 128, qkNorm: true }, [
    [260, 0],
  ]),
  appendCase(
    'tiny, windowed',
    { heads: 3, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, slidingWindow: 3 },
    [[19, 0], [1, 1], undefined],
    true,
  ),
  appendCase(
    'tiny, a window of 1',
    { heads: 2, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, slidingWindow: 1 },
    [
      [0, 0],
      [255, 1],
      [256, 2],
      [300, 3],
    ],
    true,
  ),
  appendCase(
    'windows over chunk ends, q8, partly rotated',
    { heads: 5, kvHeads: 1, headDim: 24, kvType: 'q8', block: 64, slidingWindow: 300, rotary: 16 },
    [
      [299, 0],
      [300, 1],
      [555, 2],
      [556, 3],
      [900, 4],
    ],
  ),
  appendCase(
    'capped scores, normalised, partly rotated',
    { heads: 4, kvHeads: 2, headDim: 32, kvType: 'f32', block: 16, softcap: 2.5, qkNorm: true, rotary: 8 },
    [
      [40, 0],
      [3, 1],
    ],
  ),
  appendCase(
    'rows of the table for queries',
    { heads: 4, kvHeads: 2, headDim: 32, kvType: 'f32', block: 16, queryRows: true },
    [
      [40, 0],
      [3, 1],
    ],
  ),
  appendCase(
    'pictures, normalised, partly rotated',
    {
      heads: 4,
      kvHeads: 2,
      headDim: 64,
      kvType: 'f32',
      block: 16,
      qkNorm: true,
      rotary: 40,
      spans: { positions: 300, lines: 6, columns: 4 },
      pictures: [
        [
          [2, 3, 5],
          [20, 6, 2],
        ],
        [],
        [[1, 2, 2]],
      ],
    },
    [
      [270, 0],
      [9, 1],
      [3, 2],
      [9, 3],
    ],
  ),
  appendCase('not rotated', { heads: 4, kvHeads: 2, headDim: 24, kvType: 'f16', block: 16, rotary: 0 }, [[270, 0]]),
  appendCase(
    '2 kv heads of 4',
    { heads: 4, kvHeads: 2, cacheKvHeads: 4, firstKvHead: 1, headDim: 24, kvType: 'f16', block: 32 },
    [[511, 0], undefined, [512, 1]],
  ),
];

const large = KV_TYPES.map((kvType) => ({
  ...appendCase(`32/8 d128 ${kvType}, large`, { heads: 32, kvHeads: 8, headDim: 128, kvType, block: 64 }, [[16383, 0]]),
  large: true,
}));

/** As attention_split's, without what the cache has yet to get: rows' own keys and values. */
function inputs(problem: AppendCase, random: Random): HostArrays {
  const { rowInfo, rows, headDim, kvHeads, firstKvHead = 0, kvType, block } = problem;
  const { q: _q, ...given } = attentionInputs(problem, random);
  const shape = blockShape(cacheShape(problem));
  const words = { f32: 4, f16: 2, q8: 1 }[kvType];
  const poison = kvType === 'f32' ? Number.NaN : 0x7e007e00;
  const forget = (cache: HostArray, unitOf: typeof keyUnit): void => {
    for (const info of rowInfo) {
      if (!info) continue;
      const physical = given['block_table']![info[1] * problem.tableStride + Math.floor(info[0] / block)]!;
      for (let head = firstKvHead; head < firstKvHead + kvHeads; head++) {
        for (let unit = 0; unit < storedUnits(headDim, kvType); unit++) {
          const at = unitOf(shape, physical, head, unit, info[0] % block) * words;
          cache.fill(poison, at, at + words);
        }
      }
    }
  };
  forget(given['k_cache']!, keyUnit);
  forget(given['v_cache']!, valueUnit);
  const qkv = random.normals(rows * problem.qkvStride, 2);
  const sinks = (problem.heads + 2 * kvHeads) * headDim;
  if (problem.sinks) putSinks(problem, qkv, (row, head) => row * problem.qkvStride + sinks + head);
  const longest = Math.max(0, ...rowInfo.map((info) => info?.[0] ?? 0)) + 1;
  const positions = problem.spans?.positions ?? longest;
  const slots = Math.max(0, ...rowInfo.map((info) => info?.[1] ?? 0)) + 1;
  const angles = Array.from(
    { length: Math.max(1, (positions * (problem.queryRows ? 2 : 1) * (problem.rotary ?? headDim)) / 2) },
    () => random.next() * 2 * Math.PI,
  );
  return {
    ...given,
    qkv,
    rope_table: Float32Array.of(
      ...angles.flatMap((angle) => [Math.cos(angle), Math.sin(angle)]),
      ...spansOf(problem, slots),
    ),
    q_norm: random.normals(headDim, 1),
    k_norm: random.normals(headDim, 1),
  };
}

export const suite: KernelSuite<typeof attentionAppend.bindings, typeof attentionAppend.params, AppendCase> = {
  kernel: attentionAppend,
  cases: [...cases, ...large],
  inputs,
  outputs: ({ rows, heads, headDim, maxChunks }) => ({
    partial_o: { type: 'f32', length: rows * heads * maxChunks * headDim },
    partial_ml: { type: 'f32', length: rows * heads * maxChunks * 2 },
  }),
  reference: attentionAppendReference,
};
