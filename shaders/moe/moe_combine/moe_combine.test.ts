import { expect, test } from 'vitest';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { Random } from '../../../src/base/random.js';
import { randomExperts, runOnce } from '../fixture.js';
import { spreadOutputs, suite } from './cases.js';
import { moeCombine } from './index.js';

await testKernel(suite);

await describeOnAdapters('moe_combine', (device) => {
  test.each([true, false])(
    'adds the slots in order, then x; rows beyond the step stay (software: %s)',
    async (software) => {
      const problem = { rows: 2, topK: 3, width: 1, inStride: 1, stride: 1 };
      const inputs = {
        // (2^25 + 1) - 2^25 is 0 in f32; any other order keeps the 1, or loses the 3 of x.
        expert_out: Float32Array.of(2 ** 25, 1, -(2 ** 25), 5, 6, 7),
        expert_weights: new Float32Array(6).fill(1),
        x: Float32Array.of(3, 4),
      };
      const { x } = await runOnce(device(), suite, problem, inputs, 1, software);
      expect(Array.from(x!)).toEqual([3, 4]);
    },
  );

  test.each([true, false])('experts of several ranks give the bits of one rank (software: %s)', async (software) => {
    const random = new Random(14);
    const problem = { rows: 9, topK: 6, width: 70, inStride: 96, stride: 80 };
    const out = random.normals(9 * 6 * 96);
    const inputs = { expert_weights: random.normals(9 * 6), x: random.normals(9 * 80) };
    const one = await runOnce(device(), suite, problem, { ...inputs, expert_out: out }, 8, software);
    const ids = randomExperts(9, 6, 24, random);
    for (const ranks of [2, 4, 8]) {
      const owners = Uint32Array.from({ length: 24 }, () => random.integer(ranks));
      const spread = spreadOutputs({ ...problem, ranks }, out, ids, owners);
      const given = { ...inputs, expert_out: spread, expert_ids: ids, owners };
      const { x } = await runOnce(device(), suite, { ...problem, ranks }, given, 8, software);
      expect(new Uint32Array(x!.buffer), `${ranks} ranks`).toEqual(new Uint32Array(one['x']!.buffer));
    }
  });
});

test('refuses rows that do not fit', () => {
  const problem = { rows: 1, topK: 2, width: 64, inStride: 64, stride: 32 };
  expect(() => moeCombine.plan(problem, BASELINE_TRAITS)).toThrow('stride 32');
  expect(() => moeCombine.plan({ ...problem, stride: 64, ranks: 0 }, BASELINE_TRAITS)).toThrow('0 ranks');
  const many = { ...problem, rows: 4096, topK: 8, inStride: 2048, stride: 64, ranks: 8 };
  expect(() => moeCombine.plan(many, BASELINE_TRAITS)).toThrow(
    /8 ranks' expert outputs of 4096 rows take 2147483648 bytes/,
  );
});
