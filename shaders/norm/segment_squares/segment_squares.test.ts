import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { segmentSquares } from './index.js';

await testKernel(suite);

test('refuses widths that cut a vec4, and rows too short for all segments', () => {
  const { problem } = suite.cases[0]!;
  expect(() => segmentSquares.plan({ ...problem, kWidth: 6 }, BASELINE_TRAITS)).toThrow('of 48 and 6');
  expect(() => segmentSquares.plan({ ...problem, stride: 200 }, BASELINE_TRAITS)).toThrow('stride 200');
});
