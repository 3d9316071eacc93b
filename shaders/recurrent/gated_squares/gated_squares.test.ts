import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { gatedSquares } from './index.js';

await testKernel(suite);

test('refuses heads that cut a vec4, and rows too short for all of them', () => {
  const { problem } = suite.cases[0]!;
  expect(() => gatedSquares.plan({ ...problem, headDim: 6 }, BASELINE_TRAITS)).toThrow('heads of 6');
  expect(() => gatedSquares.plan({ ...problem, gateStride: 48 }, BASELINE_TRAITS)).toThrow('gateStride 48');
});
