import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite as expertSuite } from '../expert_linear/cases.js';
import { runOnce } from '../fixture.js';
import { suite as combineSuite } from '../moe_combine/cases.js';
import { suite } from './cases.js';
import { canCombine, expertLinearCombine } from './index.js';
import { downProblem } from './reference.js';

await testKernel(suite);

await describeOnAdapters('expert_linear_combine', (device) => {
  test('gives the bits of expert_linear and moe_combine, row by row', { timeout: 300_000 }, async () => {
    for (const { name, problem, seed } of drawn(suite.cases, 2, `combine ${device().name}`)) {
      const { rows, topK, outFeatures: width, outStride: stride } = problem;
      const inputs = suite.inputs(problem, new Random(seed));
      const { out: x, expert_weights, ...matrices } = inputs;
      const room = { ...matrices, out: new Float32Array(rows * topK * stride) };
      const { out: each } = await runOnce(device(), expertSuite, downProblem(problem), room, rows, false);
      const combine = { rows, topK, width, inStride: stride, stride };
      const outputs = { expert_out: each!, expert_weights: expert_weights!, x: x! };
      const { x: expected } = await runOnce(device(), combineSuite, combine, outputs, rows, false);

      const { out } = await runOnce(device(), suite, problem, inputs, rows, false);
      expect(new Uint32Array(out!.buffer), name).toEqual(new Uint32Array(expected!.buffer));
    }
  });
});

test('refuses experts whose sums do not fit, and shapes that contradict themselves', () => {
  const { problem } = suite.cases[0]!;
  const plan = (changes: object) => () => expertLinearCombine.plan({ ...problem, ...changes }, BASELINE_TRAITS);
  const shape = { ...problem, experts: 16, topK: 16 };
  expect(canCombine(shape, BASELINE_TRAITS)).toBe(false);
  expect(canCombine({ ...shape, topK: 14 }, BASELINE_TRAITS)).toBe(true);
  expect(plan(shape)).toThrow(/16 experts a row need \d+ bytes of workgroup memory.* is 16384; use expert_linear/);
  expect(plan({ topK: 5 })).toThrow('topK is 5, expected 1 to 4');
  expect(plan({ rows: 70000 })).toThrow('70000 rows need 70000 workgroups');
});
