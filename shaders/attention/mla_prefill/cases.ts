import type { KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import type { RowInfo } from '../fixture.js';
import { type MlaCase, mlaInputs, mlaKernelCase } from '../mla_fixture.js';
import { mlaPrefill } from './index.js';
import { mlaPrefillReference } from './reference.js';

/** `count` rows of a slot from a position on, padded with inactive rows to `padded`. */
export const promptRows = (slot: number, first: number, count: number, padded = count): RowInfo[] =>
  Array.from({ length: padded }, (_, i) => (i < count ? ([first + i, slot] as const) : undefined));

// One block size a cache type: each is a pipeline to compile.
const cases = [
  mlaKernelCase(
    'tiny',
    { heads: 1, kvLoraRank: 32, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
    promptRows(0, 0, 5, 8),
    true,
  ),
  mlaKernelCase(
    '3 heads, 64 + 16, two slots',
    { heads: 3, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f32', block: 16 },
    [...promptRows(1, 250, 11, 16), ...promptRows(0, 0, 16), ...promptRows(0, 16, 1, 16)],
  ),
  mlaKernelCase(
    'a tail of rows',
    { heads: 8, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f16', block: 64 },
    promptRows(0, 30, 19),
  ),
  mlaKernelCase(
    '16 heads, 512 + 64, f16',
    { heads: 16, kvLoraRank: 512, qkRopeHeadDim: 64, kvType: 'f16', block: 64 },
    promptRows(0, 40, 8),
  ),
  mlaKernelCase('5 heads, 64 + 16, q8', { heads: 5, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'q8', block: 64 }, [
    ...promptRows(1, 250, 11, 16),
    ...promptRows(0, 0, 16),
  ]),
  mlaKernelCase(
    'a lane of two chunks',
    { heads: 3, kvLoraRank: 32, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
    promptRows(0, 2043, 10, 16),
  ),
  mlaKernelCase(
    'tiny, the second of two ranks, in a bundle',
    {
      heads: 2,
      kvLoraRank: 32,
      qkRopeHeadDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 2, index: 1 },
      offsets: [1],
      partialLayout: { bundleHeads: 2 },
    },
    promptRows(0, 0, 5, 8),
    true,
  ),
  mlaKernelCase(
    'the third of four ranks, in bundles of one head',
    {
      heads: 3,
      kvLoraRank: 32,
      qkRopeHeadDim: 8,
      kvType: 'f32',
      block: 16,
      share: { ranks: 4, index: 2 },
      offsets: [2, 0, 5],
      partialLayout: { bundleHeads: 1 },
    },
    [...promptRows(1, 767, 3, 8), ...promptRows(0, 0, 5, 8), ...promptRows(2, 2303, 2, 8)],
  ),
  mlaKernelCase(
    'tiny, queries in three pieces, one empty, in bundles',
    {
      heads: 3,
      kvLoraRank: 32,
      qkRopeHeadDim: 8,
      kvType: 'f32',
      block: 16,
      queryPieces: [2, 0, 1],
      partialLayout: { bundleHeads: 1 },
      idle: 8,
    },
    promptRows(0, 3, 2, 8),
    true,
  ),
  mlaKernelCase(
    'queries in eight uneven pieces, in bundles of two heads, f16',
    {
      heads: 14,
      kvLoraRank: 64,
      qkRopeHeadDim: 16,
      kvType: 'f16',
      block: 64,
      queryPieces: [0, 2, 3, 0, 2, 5, 2, 0],
      partialLayout: { bundleHeads: 2 },
      share: { ranks: 2, index: 0 },
      offsets: [1],
      idle: 8,
    },
    promptRows(0, 250, 11, 16),
  ),
];

export const suite: KernelSuite<typeof mlaPrefill.bindings, typeof mlaPrefill.params, MlaCase> = {
  kernel: mlaPrefill,
  cases,
  inputs: mlaInputs,
  outputs: ({ rows, heads, kvLoraRank, lanes }) => ({
    partial_o: { type: 'f32', length: rows * heads * lanes * kvLoraRank },
    partial_ml: { type: 'f32', length: rows * heads * lanes * 2 },
  }),
  reference: mlaPrefillReference,
};
