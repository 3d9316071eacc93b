import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { snapScores } from './index.js';

await testKernel(suite);

test('snap_scores refuses what it has no layout for', () => {
  const { problem } = suite.cases[0]!;
  expect(() => snapScores.plan({ ...problem, window: 0 }, BASELINE_TRAITS)).toThrow(/window of 0 tokens.*1 to 256/);
  expect(() => snapScores.plan({ ...problem, window: 257 }, BASELINE_TRAITS)).toThrow(/window of 257/);
  expect(() => snapScores.plan({ ...problem, lanes: 9 }, BASELINE_TRAITS)).toThrow(/9 merge lanes/);
  expect(() => snapScores.plan({ ...problem, headDim: 20 }, BASELINE_TRAITS)).toThrow(/head_dim 20/);
  expect(() => snapScores.plan({ ...problem, qStride: 8 }, BASELINE_TRAITS)).toThrow(/qStride 8/);
});
