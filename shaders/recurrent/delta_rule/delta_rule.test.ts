import { expect, test } from 'vitest';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { outputBits, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';

await testKernel(suite);

test('four threads of a column give the bits of one', { timeout: 120_000 }, async () => {
  const device = await (await testAdapters()).at(-1)!.open();
  try {
    for (const testCase of drawn(suite.cases, 3, 'four threads')) {
      const [four, one] = await Promise.all(
        [false, true].map((software) => outputBits(device, suite, testCase, { ...device.traits, software })),
      );
      expect(four, testCase.name).toEqual(one);
    }
  } finally {
    device.dispose();
  }
});
