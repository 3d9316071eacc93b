import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { runOnce } from '../fixture.js';
import { routeProblem, suite } from './cases.js';
import { moeRoute } from './index.js';

await testKernel(suite);

const decisions = [true, false];

await describeOnAdapters('moe_route', (device) => {
  test.each(decisions)('gives ties to the lower expert and the lower group (software: %s)', async (software) => {
    const problem = routeProblem(2, 8, 2, { method: 'group_limited_greedy', groups: 4, topkGroups: 2 });
    const logits = Float32Array.of(1, 1, 1, 1, 1, 1, 1, 1, 0, 3, 3, 0, 3, 3, 3, 3);
    const { expert_ids: ids } = await runOnce(device(), suite, problem, { logits }, 2, software);
    expect(Array.from(ids!)).toEqual([0, 1, 1, 2]);
  });

  test.each(decisions)('chooses by bias and weighs without it (software: %s)', async (software) => {
    const problem = routeProblem(1, 4, 1, { scoring: 'sigmoid', method: 'noaux_tc', correctionBias: true });
    const inputs = { logits: Float32Array.of(3, 2, 0, 1), correction_bias: Float32Array.of(-2, -2, 0, -1) };
    const { expert_ids: ids, expert_weights: weights } = await runOnce(device(), suite, problem, inputs, 1, software);
    expect([ids![0], weights![0]]).toEqual([2, 0.5]);
  });

  test.each(decisions)(
    'never chooses an expert of a group left out, even where all others are negative (software: %s)',
    async (software) => {
      const problem = routeProblem(1, 4, 2, {
        scoring: 'sigmoid',
        method: 'noaux_tc',
        correctionBias: true,
        groups: 2,
        topkGroups: 1,
      });
      const inputs = { logits: new Float32Array(4), correction_bias: Float32Array.of(-1, -3, -2, -1.5) };
      const { expert_ids: ids } = await runOnce(device(), suite, problem, inputs, 1, software);
      expect(Array.from(ids!)).toEqual([2, 3]);
    },
  );

  test.each(decisions)('extreme logits give finite weights (software: %s)', async (software) => {
    const problem = routeProblem(1, 4, 4, { scoring: 'sigmoid', method: 'noaux_tc' });
    const { expert_weights: weights } = await runOnce(
      device(),
      suite,
      problem,
      { logits: Float32Array.of(-200, 200, -1e30, 1e30) },
      1,
      software,
    );
    expect(Array.from(weights!)).toEqual([0, 1, 0, 1]);
  });

  test.each(decisions)(
    'a row is the same alone and in a batch; rows beyond the step are left alone (software: %s)',
    async (software) => {
      const problem = routeProblem(5, 64, 6, { normTopkProb: true });
      const logits = new Random(9).normals(5 * 64, 2);
      const all = await runOnce(device(), suite, problem, { logits }, 5, software);
      const last = await runOnce(device(), suite, problem, { logits: logits.slice(4 * 64) }, 1, software);
      for (const name of ['expert_ids', 'expert_weights']) {
        expect(last[name]!.subarray(0, 6)).toEqual(all[name]!.subarray(4 * 6));
      }
      expect(last['expert_weights']![6]).toBeNaN();
      expect([all['row_count']![0], last['row_count']![0]]).toEqual([5, 1]);
    },
  );
});

test('refuses what it cannot route', () => {
  const plan = (experts: number, topK: number, rest = {}) =>
    moeRoute.plan(routeProblem(1, experts, topK, rest), BASELINE_TRAITS);
  expect(() => plan(513, 2)).toThrow('513 experts; this runtime has at most 512');
  expect(plan(512, 32).constants['CAPACITY']).toBe(512);
  expect(() => plan(64, 33)).toThrow('33 experts a token; this runtime has at most 32');
  expect(() => plan(64, 2, { method: 'noaux_tc', groups: 3 })).toThrow('groups is 3, expected a divisor of 64');
  expect(() => plan(64, 2, { groups: 4 })).toThrow("groups is 4, expected 1 with 'greedy'");
  expect(() => plan(8, 3, { method: 'noaux_tc', groups: 4, topkGroups: 1 })).toThrow('topK is 3, expected 1 to 2');
});
