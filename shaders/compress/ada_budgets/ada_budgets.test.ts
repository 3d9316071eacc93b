import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { adaBudgets } from './index.js';

await testKernel(suite);

test('ada_budgets refuses floors that thousandths cannot say', () => {
  const { problem } = suite.cases[0]!;
  expect(() => adaBudgets.plan({ ...problem, floor: 1.1 }, BASELINE_TRAITS)).toThrow(/floor 1.1; expected 0 to 1/);
  expect(() => adaBudgets.plan({ ...problem, floor: 0.1234 }, BASELINE_TRAITS)).toThrow(/steps of 0.001/);
  expect(() => adaBudgets.plan({ ...problem, heads: 0 }, BASELINE_TRAITS)).toThrow(/0 heads/);
  expect(() => adaBudgets.plan({ ...problem, scoreStride: 5_000_000 }, BASELINE_TRAITS)).toThrow(/5000000 tokens/);
});
