import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { KV_TYPES, kvVectorBytes } from '../../cache/kv_cache.js';
import {
  attendedTokens,
  attentionCase,
  type AttentionCase,
  attentionInputs,
  caseStep,
  type RowInfo,
  type Shape,
} from '../fixture.js';
import { localChunks, WHOLE } from '../share.js';
import { attentionSplit } from './index.js';
import { attentionSplitReference } from './reference.js';

function splitCase(name: string, shape: Shape, rowInfo: readonly RowInfo[], races = false): KernelCase<AttentionCase> {
  const whole = attentionCase(shape, rowInfo);
  const problem = { ...whole, maxChunks: localChunks(whole.maxChunks, shape.share ?? WHOLE) };
  const tokens = attendedTokens(rowInfo);
  return {
    name,
    problem,
    seed: 7 + rowInfo.length,
    // o is a sum of up to 256 values of weight up to 1; exp may be off by 3 + 2|x| ulp.
    tolerance: { absolute: 1e-4, relative: 2e-5 },
    flops: 4 * shape.heads * shape.headDim * tokens,
    bytes: 2 * shape.kvHeads * kvVectorBytes(shape.headDim, shape.kvType) * tokens,
    step: caseStep(problem),
    races,
  };
}

const cases = [
  splitCase('tiny', { heads: 3, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16 }, [[19, 0], [0, 1], undefined], true),
  splitCase(
    'tiny f16, two head tiles',
    { heads: 5, kvHeads: 1, headDim: 8, kvType: 'f16', block: 16 },
    [[17, 0]],
    true,
  ),
  splitCase('8/4 d32 ragged over chunk ends', { heads: 8, kvHeads: 4, headDim: 32, kvType: 'f32', block: 16 }, [
    [0, 2],
    [19, 1],
    [254, 0],
    undefined,
    [255, 3],
    [256, 4],
    [699, 5],
  ]),
  splitCase('9/3 d64 f16', { heads: 9, kvHeads: 3, headDim: 64, kvType: 'f16', block: 64 }, [
    [256, 1],
    undefined,
    [19, 0],
  ]),
  splitCase('14/2 d64, rows of one slot', { heads: 14, kvHeads: 2, headDim: 64, kvType: 'f32', block: 16 }, [
    [299, 0],
    [298, 0],
    [255, 1],
  ]),
  splitCase('7/1 d24 f16', { heads: 7, kvHeads: 1, headDim: 24, kvType: 'f16', block: 256 }, [
    [299, 0],
    [30, 1],
  ]),
  splitCase('3/3 d80', { heads: 3, kvHeads: 3, headDim: 80, kvType: 'f32', block: 16 }, [[270, 0]]),
  splitCase('32/8 d128 f16', { heads: 32, kvHeads: 8, headDim: 128, kvType: 'f16', block: 16 }, [[256, 0]]),
  splitCase('tiny q8', { heads: 3, kvHeads: 1, headDim: 8, kvType: 'q8', block: 16 }, [[19, 0], undefined], true),
  splitCase('14/2 d80 q8', { heads: 14, kvHeads: 2, headDim: 80, kvType: 'q8', block: 16 }, [
    [256, 1],
    undefined,
    [19, 0],
  ]),
  splitCase('4/4 d256 q8', { heads: 4, kvHeads: 4, headDim: 256, kvType: 'q8', block: 64 }, [[40, 0]]),
  splitCase(
    'tiny, windowed',
    { heads: 3, kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, slidingWindow: 3 },
    [[19, 0], [1, 1], undefined],
    true,
  ),
  splitCase('a window of 1', { heads: 4, kvHeads: 2, headDim: 8, kvType: 'f16', block: 16, slidingWindow: 1 }, [
    [0, 0],
    [255, 1],
    [256, 2],
    [700, 3],
  ]),
  splitCase(
    'windows over chunk ends, q8',
    { heads: 5, kvHeads: 1, headDim: 24, kvType: 'q8', block: 64, slidingWindow: 300 },
    [
      [299, 0],
      [300, 1],
      [555, 2],
      [556, 3],
      [900, 4],
    ],
  ),
  splitCase(
    'a window wider than the context',
    { heads: 2, kvHeads: 2, headDim: 16, kvType: 'f32', block: 16, slidingWindow: 5000 },
    [[270, 0]],
  ),
  splitCase(
    'windowed, the second of two ranks, kv head 2 of 3',
    {
      heads: 2,
      kvHeads: 1,
      cacheKvHeads: 3,
      firstKvHead: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 2, index: 1 },
      offsets: [7, 0, 1],
      slidingWindow: 270,
    },
    [[1500, 0], undefined, [600, 1], [100, 2]],
  ),
  splitCase(
    'capped scores',
    { heads: 4, kvHeads: 2, headDim: 32, kvType: 'f32', block: 16, slidingWindow: 21, softcap: 2.5 },
    [
      [40, 0],
      [3, 1],
    ],
  ),
  splitCase(
    'tiny, with sinks',
    { heads: 6, kvHeads: 2, headDim: 8, kvType: 'f32', block: 16, sinks: true },
    [[19, 0], [0, 1], undefined],
    true,
  ),
  splitCase(
    'sinks and a window over chunk ends, f16',
    { heads: 7, kvHeads: 1, headDim: 24, kvType: 'f16', block: 64, sinks: true, slidingWindow: 300 },
    [
      [255, 0],
      [256, 1],
      [599, 2],
      [900, 3],
    ],
  ),
  splitCase(
    'sinks, queries in uneven pieces, the second of two ranks, kv heads of 4',
    {
      heads: 12,
      kvHeads: 3,
      cacheKvHeads: 4,
      firstKvHead: 1,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      queryPieces: [0, 8, 0, 4],
      idle: 2,
      share: { ranks: 2, index: 1 },
      offsets: [1, 0, 3],
      sinks: true,
      softcap: 20,
    },
    [[700, 0], [255, 1], undefined, [300, 2]],
  ),
  splitCase(
    'sinks of heads of different lengths',
    {
      heads: 4,
      kvHeads: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      perHead: true,
      evicted: [[0, 600]],
      sinks: true,
    },
    [[800, 0], undefined],
  ),
  splitCase('71/1 d64', { heads: 71, kvHeads: 1, headDim: 64, kvType: 'f32', block: 16 }, [[40, 0]]),
  splitCase('8/1 d512 f16', { heads: 8, kvHeads: 1, headDim: 512, kvType: 'f16', block: 64 }, [[260, 0]]),
  splitCase('3/1 d328 q8', { heads: 3, kvHeads: 1, headDim: 328, kvType: 'q8', block: 64 }, [[40, 0]]),
  splitCase('2/1 d256', { heads: 2, kvHeads: 1, headDim: 256, kvType: 'f32', block: 128 }, [[260, 0]]),
  splitCase('8/4 d32 long', { heads: 8, kvHeads: 4, headDim: 32, kvType: 'f32', block: 16 }, [[2099, 0]]),
  splitCase(
    'tiny, the second of two ranks, kv head 2 of 3',
    {
      heads: 3,
      kvHeads: 1,
      cacheKvHeads: 3,
      firstKvHead: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 2, index: 1 },
      offsets: [7, 0],
    },
    [[17, 0], undefined, [3, 1]],
    true,
  ),
  splitCase(
    'the last of four ranks, 2 kv heads of 4',
    {
      heads: 6,
      kvHeads: 2,
      cacheKvHeads: 4,
      firstKvHead: 1,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 4, index: 3 },
      offsets: [6, 3, 1],
    },
    [[1500, 1], [255, 0], undefined, [256, 2], [1023, 0]],
  ),
  splitCase(
    'tiny, heads of different lengths',
    { heads: 2, kvHeads: 2, headDim: 8, kvType: 'f32', block: 16, perHead: true, evicted: [[0, 17]] },
    [[19, 0], undefined],
    true,
  ),
  splitCase(
    'heads of different lengths over chunk ends, 2 kv heads of 3',
    {
      heads: 4,
      kvHeads: 2,
      cacheKvHeads: 3,
      firstKvHead: 1,
      headDim: 24,
      kvType: 'f16',
      block: 64,
      perHead: true,
      evicted: [
        [0, 600, 90],
        [7, 0, 13],
        [0, 0, 256],
      ],
    },
    [[700, 0], [40, 1], undefined, [511, 2], [3, 3]],
  ),
  splitCase(
    'the second of four ranks, heads of different lengths',
    {
      heads: 2,
      kvHeads: 2,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 4, index: 1 },
      offsets: [2, 1],
      perHead: true,
      evicted: [[1100, 250]],
    },
    [
      [1500, 0],
      [300, 1],
    ],
  ),
  splitCase(
    'tiny, queries in two pieces',
    { heads: 4, kvHeads: 2, headDim: 8, kvType: 'f32', block: 16, queryPieces: [2, 2], idle: 1 },
    [[19, 0], undefined],
    true,
  ),
  splitCase(
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
      idle: 2,
    },
    [[256, 1], undefined, [19, 0]],
  ),
  splitCase(
    'queries in eight pieces, the second of two ranks',
    {
      heads: 8,
      kvHeads: 8,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      queryPieces: [1, 1, 1, 1, 1, 1, 1, 1],
      share: { ranks: 2, index: 1 },
      offsets: [1],
    },
    [[300, 0]],
  ),
  splitCase(
    'heads of which other ranks hold lanes',
    {
      heads: 6,
      kvHeads: 3,
      headDim: 8,
      kvType: 'f32',
      block: 16,
      perHead: true,
      masks: [0b10010010, 0xff, 0b01101101],
      offsets: [3, 0],
    },
    [[2400, 0], undefined, [600, 1]],
  ),
];

const large = KV_TYPES.map((kvType) => ({
  ...splitCase(`32/8 d128 ${kvType}, large`, { heads: 32, kvHeads: 8, headDim: 128, kvType, block: 64 }, [[16383, 0]]),
  large: true,
}));

export const suite: KernelSuite<typeof attentionSplit.bindings, typeof attentionSplit.params, AttentionCase> = {
  kernel: attentionSplit,
  cases: [...cases, ...large],
  inputs: attentionInputs,
  outputs: ({ rows, heads, headDim, maxChunks }) => ({
    partial_o: { type: 'f32', length: rows * heads * maxChunks * headDim },
    partial_ml: { type: 'f32', length: rows * heads * maxChunks * 2 },
  }),
  reference: attentionSplitReference,
};
