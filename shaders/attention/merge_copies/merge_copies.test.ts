import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { mergeCopies } from './index.js';

await testKernel(suite);

test('merge_copies refuses shapes it has no layout for', () => {
  const [{ problem }] = suite.cases as [(typeof suite.cases)[number]];
  expect(() => mergeCopies.plan({ ...problem, headDim: 260 }, BASELINE_TRAITS)).toThrow(/head_dim 260/);
  expect(() => mergeCopies.plan({ ...problem, lanes: 9 }, BASELINE_TRAITS)).toThrow(/9 lanes; expected 1 to 8/);
  expect(() => mergeCopies.plan({ ...problem, heads: 3, kvHeads: 2 }, BASELINE_TRAITS)).toThrow(/3 query heads/);
  expect(() => mergeCopies.plan({ ...problem, mode: 'home', outStride: 8 }, BASELINE_TRAITS)).toThrow(/outStride 8/);
});
