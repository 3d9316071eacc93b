import { expect, test } from 'vitest';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { argmaxPartial } from './index.js';
import { suite } from './cases.js';

await testKernel(suite);

test('refuses vocabularies and shapes that it cannot take', () => {
  const problem = { slots: 1, vocab: 1000, stride: 1024, ring: 4 };
  const plan = (change: object) => (): unknown =>
    argmaxPartial.plan({ ...suite.cases[0]!.problem, ...problem, ...change }, BASELINE_TRAITS);
  expect(plan({})).not.toThrow();
  expect(plan({ vocab: 262145, stride: 262176 })).toThrow('262145');
  expect(plan({ stride: 992 })).toThrow('stride 992');
  expect(plan({ stride: 1001 })).toThrow('stride 1001');
  expect(plan({ ring: 0 })).toThrow('ring 0');
  expect(plan({ slice: [32, 1000] })).not.toThrow();
  for (const slice of [
    [16, 1000],
    [64, 64],
    [64, 1001],
    [-32, 64],
  ])
    expect(plan({ slice })).toThrow(`tokens ${slice.join(' to ')} of 1000`);
});
