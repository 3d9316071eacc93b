import type { KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type MlaCase, mlaInputs, mlaKernelCase } from '../mla_fixture.js';
import { localChunks } from '../share.js';
import { mlaSplit } from './index.js';
import { mlaSplitReference } from './reference.js';

/** With room for as many chunks as a rank that shares the sequences may have. */
function splitShared(...args: Parameters<typeof mlaKernelCase>): ReturnType<typeof mlaKernelCase> {
  const whole = mlaKernelCase(...args);
  const { maxChunks, share } = whole.problem;
  return { ...whole, problem: { ...whole.problem, maxChunks: localChunks(maxChunks, share!) } };
}

// One block size a cache type: each is a pipeline to compile.
const cases = [
  mlaKernelCase(
    'tiny',
    { heads: 3, kvLoraRank: 32, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
    [[19, 0], [0, 1], undefined],
    true,
  ),
  mlaKernelCase('tiny f16, one head', { heads: 1, kvLoraRank: 32, qkRopeHeadDim: 8, kvType: 'f16', block: 64 }, [
    [17, 0],
  ]),
  mlaKernelCase(
    '8 heads, 64 + 16, ragged over chunk ends',
    { heads: 8, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f32', block: 16 },
    [[0, 2], [19, 1], [254, 0], undefined, [255, 3], [256, 4], [699, 5]],
  ),
  mlaKernelCase('3 heads, 64 + 16, f16', { heads: 3, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f16', block: 64 }, [
    [256, 1],
    undefined,
    [19, 0],
  ]),
  mlaKernelCase(
    '16 heads, 512 + 64, f16',
    { heads: 16, kvLoraRank: 512, qkRopeHeadDim: 64, kvType: 'f16', block: 64 },
    [[299, 0]],
  ),
  mlaKernelCase('3 heads, 40 + 24, q8', { heads: 3, kvLoraRank: 40, qkRopeHeadDim: 24, kvType: 'q8', block: 64 }, [
    [256, 1],
    undefined,
    [19, 0],
  ]),
  mlaKernelCase('9 heads, 512 + 64, q8', { heads: 9, kvLoraRank: 512, qkRopeHeadDim: 64, kvType: 'q8', block: 64 }, [
    [150, 0],
  ]),
  mlaKernelCase('40 heads, 256 + 32', { heads: 40, kvLoraRank: 256, qkRopeHeadDim: 32, kvType: 'f32', block: 16 }, [
    [60, 0],
    [59, 0],
  ]),
  mlaKernelCase('5 heads, 1024 + 64', { heads: 5, kvLoraRank: 1024, qkRopeHeadDim: 64, kvType: 'f32', block: 16 }, [
    [40, 0],
  ]),
  mlaKernelCase(
    '8 heads, 64 + 16, long f16',
    { heads: 8, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f16', block: 64 },
    [[2099, 0]],
  ),
  splitShared(
    'tiny, the second of two ranks',
    {
      heads: 3,
      kvLoraRank: 32,
      qkRopeHeadDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 2, index: 1 },
      offsets: [7, 0],
    },
    [[19, 0], [0, 1], undefined],
    true,
  ),
  splitShared(
    'the last of four ranks',
    {
      heads: 5,
      kvLoraRank: 32,
      qkRopeHeadDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 4, index: 3 },
      offsets: [6, 3, 1],
    },
    [[1500, 1], [255, 0], undefined, [256, 2], [1023, 0]],
  ),
  mlaKernelCase(
    'tiny, queries in three pieces, one empty',
    { heads: 3, kvLoraRank: 32, qkRopeHeadDim: 8, kvType: 'f32', block: 16, queryPieces: [2, 0, 1], idle: 1 },
    [[19, 0], undefined],
    true,
  ),
  mlaKernelCase(
    'queries in eight uneven pieces, f16',
    {
      heads: 19,
      kvLoraRank: 64,
      qkRopeHeadDim: 16,
      kvType: 'f16',
      block: 64,
      queryPieces: [0, 3, 3, 0, 2, 5, 6, 0],
      idle: 2,
    },
    [[256, 1], undefined, [19, 0]],
  ),
];

export const suite: KernelSuite<typeof mlaSplit.bindings, typeof mlaSplit.params, MlaCase> = {
  kernel: mlaSplit,
  cases,
  inputs: mlaInputs,
  outputs: ({ rows, heads, kvLoraRank, maxChunks }) => ({
    partial_o: { type: 'f32', length: rows * heads * maxChunks * kvLoraRank },
    partial_ml: { type: 'f32', length: rows * heads * maxChunks * 2 },
  }),
  reference: mlaSplitReference,
};
