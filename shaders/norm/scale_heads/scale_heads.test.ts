import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { scaleHeads } from './index.js';

await testKernel(suite);

test('refuses rows too short for what is normalised', () => {
  const { problem } = suite.cases[0]!;
  expect(() => scaleHeads.plan({ ...problem, stride: 64 }, BASELINE_TRAITS)).toThrow('stride 64');
  expect(() => scaleHeads.plan({ ...problem, kStart: 80 }, BASELINE_TRAITS)).toThrow('k from 80 on');
});
