import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { moeSort } from './index.js';

await testKernel(suite);

test('refuses more experts a row than there are', () => {
  expect(() => moeSort.plan({ rows: 1, topK: 5, experts: 4 }, BASELINE_TRAITS)).toThrow('topK 5, experts 4');
});
