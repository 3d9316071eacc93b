import { expect, test } from 'vitest';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { prepareCase } from '../../../src/gpu/testing/run_kernel.js';
import { testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { LISTED } from '../params.js';
import { suite } from './cases.js';
import { firstListWord, listedTokens } from './reference.js';

await testKernel(suite);

await describeOnAdapters('list_bins', (device) => {
  test.each(suite.cases.filter(({ problem }) => problem.vocab < 10_000))(
    '$name: lists what it counts',
    async (each) => {
      const { problem } = each;
      const prepared = prepareCase(device(), suite, each);
      prepared.reset();
      prepared.run();
      const { partials } = await prepared.readOutputs(['partials']);
      let compared = 0;
      for (let slot = 0; slot < problem.slots; slot++) {
        const expected = listedTokens(problem, prepared.inputs, slot);
        if (!expected || expected.length > LISTED) continue;
        const first = firstListWord(problem, slot);
        const pairs = expected.map((_, i) => [partials![first + 2 * i], partials![first + 2 * i + 1]]);
        pairs.sort((a, b) => a[1]! - b[1]!);
        expect(pairs.map(([, id]) => id)).toEqual(expected.map(([, id]) => id));
        // WGSL allows a division by the temperature to be 2.5 units in the last place off; a key's are the float's.
        for (const [i, [key]] of pairs.entries()) expect(Math.abs(key! - expected[i]![0])).toBeLessThanOrEqual(3);
        compared += expected.length;
      }
      expect(compared + (problem.logits === 'equal' || problem.logits === 'flat' ? 1 : 0)).toBeGreaterThan(0);
      prepared.dispose();
    },
  );
});
