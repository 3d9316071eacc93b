import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { copyRate } from './index.js';

await testKernel(suite);

test('refuses bytes that no whole workgroups copy', () => {
  expect(() => copyRate.plan({ bytes: 4096 }, BASELINE_TRAITS)).toThrow('4096 bytes');
});
