import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { linear } from '../../linear/linear/index.js';
import { runOnce as runLinear } from '../../linear/testing/run.js';
import { suite as expertSuite } from '../expert_linear/cases.js';
import { runOnce } from '../fixture.js';
import { suite as combineSuite } from '../moe_combine/cases.js';
import { suite } from './cases.js';
import { canCombine, expertLinearCombine } from './index.js';
import { downProblem, parted, sharedProblem } from './reference.js';

await testKernel(suite);

await describeOnAdapters('expert_linear_combine', (device) => {
  const small = suite.cases.filter(({ large }) => large !== true);

  test('gives the bits of linear, expert_linear and moe_combine, row by row', { timeout: 300_000 }, async () => {
    for (const { name, problem, seed } of drawn(small, 3, `combine ${device().name}`)) {
      const { rows, topK, outFeatures: width, outStride: stride } = problem;
      const inputs = suite.inputs(problem, new Random(seed));
      const { routed, shared } = parted(problem, inputs);
      const { out: residual, expert_weights, ...matrices } = inputs;
      const dense = sharedProblem(problem);
      const beside = { ...shared, out: residual! };
      const x = dense
        ? new Float32Array((await runLinear(device(), linear, dense, beside, stride, false)).slice().buffer)
        : residual;
      const room = { ...matrices, ...routed, out: new Float32Array(rows * topK * stride) };
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
