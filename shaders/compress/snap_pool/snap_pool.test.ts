import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { snapPool } from './index.js';

await testKernel(suite);

test('snap_pool refuses widths without a middle', () => {
  const { problem } = suite.cases[0]!;
  expect(() => snapPool.plan({ ...problem, width: 4 }, BASELINE_TRAITS)).toThrow(/width 4; expected an odd number/);
  expect(() => snapPool.plan({ ...problem, width: 0 }, BASELINE_TRAITS)).toThrow(/width 0/);
});
