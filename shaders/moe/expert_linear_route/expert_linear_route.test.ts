import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { linear } from '../../linear/linear/index.js';
import { runOnce as runLinear } from '../../linear/testing/run.js';
import { suite as hiddenSuite } from '../expert_linear/cases.js';
import { runOnce } from '../fixture.js';
import { suite as routeSuite } from '../moe_route/cases.js';
import { suite } from './cases.js';
import { canRoute, expertLinearRoute } from './index.js';
import { hiddenProblem, parted, routeProblem, sharedProblem } from './reference.js';

await testKernel(suite);

await describeOnAdapters('expert_linear_route', (device) => {
  const small = suite.cases.filter(({ large }) => large !== true);

  test('gives the bits of moe_route, expert_linear and linear', { timeout: 300_000 }, async () => {
    for (const { name, problem, seed } of drawn(small, 3, `route ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed));
      const { x, norm_weight, bias, logits, correction_bias, out: room } = inputs;
      const got = await runOnce(device(), suite, problem, inputs, 1, false);

      const choice = { logits: logits!, ...(correction_bias && { correction_bias }) };
      const route = await runOnce(device(), routeSuite, routeProblem(problem), choice, 1, false);
      for (const chosen of ['expert_ids', 'expert_weights']) expect(got[chosen], name).toEqual(route[chosen]);

      const { routed, shared } = parted(problem, inputs);
      const row = { x: x!, norm_weight: norm_weight! };
      const ids = { expert_ids: route['expert_ids']!, out: room! };
      const experts = { ...row, ...routed, ...ids, ...(bias && { bias }) };
      const { out } = await runOnce(device(), hiddenSuite, hiddenProblem(problem), experts, 1, false);
      const expected = new Uint32Array(out!.buffer);
      const dense = sharedProblem(problem);
      if (dense) {
        const beside = await runLinear(device(), linear, dense, { ...row, ...shared }, dense.outStride, false);
        expected.set(beside.subarray(0, dense.outFeatures), problem.topK * problem.outStride);
      }
      expect(new Uint32Array(got['out']!.buffer), name).toEqual(expected);
    }
  });
});

test('refuses rows that do not fit beside the choice, and what is not behind the experts', () => {
  const { problem } = suite.cases.find(({ name }) => name === 'f16, 2 of 4 and a shared one')!;
  const plan = (changes: object) => () => expertLinearRoute.plan({ ...problem, ...changes }, BASELINE_TRAITS);
  expect(canRoute(64, 2048, BASELINE_TRAITS)).toBe(true);
  expect(canRoute(512, 3072, BASELINE_TRAITS)).toBe(false);
  expect(plan({ experts: 512, inFeatures: 3072, xStride: 3072, shared: undefined })).toThrow(
    /inFeatures 3072 with a fused norm need \d+ bytes of workgroup memory/,
  );
  expect(plan({ shared: { width: 24, firstUnit: 512 } })).toThrow('firstUnit is 512, expected at least 2048');
});
