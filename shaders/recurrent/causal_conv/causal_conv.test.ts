import { expect, test } from 'vitest';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { outputBits, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';

await testKernel(suite);

test('rows side by side have the bits of rows in turn', { timeout: 120_000 }, async () => {
  const device = await (await testAdapters()).at(-1)!.open();
  try {
    for (const testCase of suite.cases) {
      const [beside, inTurn] = await Promise.all(
        [false, true].map((software) => outputBits(device, suite, testCase, { ...device.traits, software })),
      );
      expect(beside, testCase.name).toEqual(inTurn);
    }
  } finally {
    device.dispose();
  }
});
