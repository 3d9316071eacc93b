import { expect, test } from 'vitest';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { runOnce } from '../fixture.js';
import { suite } from './cases.js';
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
});

test('refuses rows that do not fit', () => {
  const problem = { rows: 1, topK: 2, width: 64, inStride: 64, stride: 32 };
  expect(() => moeCombine.plan(problem, BASELINE_TRAITS)).toThrow('stride 32');
});
