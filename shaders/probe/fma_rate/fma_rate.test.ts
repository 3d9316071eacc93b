import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { fmaRate } from './index.js';

await testKernel(suite);

test('refuses invocations that no whole workgroups make', () => {
  const problem = { invocations: 300, steps: 1, factor: 1, addend: 0 };
  expect(() => fmaRate.plan(problem, BASELINE_TRAITS)).toThrow('300 invocations');
});
