import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { attentionMerge } from '../../attention/attention_merge/index.js';
import { linearGrouped } from '../linear_grouped/index.js';
import { runOnce } from '../testing/run.js';
import { suite } from './cases.js';
import { linearGroupedMerge } from './index.js';
import { groupedProblem, mergeProblem } from './reference.js';

await testKernel(suite);

await describeOnAdapters('linear_grouped_merge', (device) => {
  test('gives the bits of attention_merge and linear_grouped', { timeout: 300_000 }, async () => {
    for (const { name, problem, seed } of drawn(suite.cases, 2, `pair ${device().name}`)) {
      const { partial_o, partial_ml, row_info, ...matrices } = suite.inputs(problem, new Random(seed));
      const partials = { partial_o: partial_o!, partial_ml: partial_ml!, row_info: row_info! };
      const { outStride } = problem;
      const inputs = { ...matrices, ...partials };
      const got = await runOnce(device(), linearGroupedMerge, { ...problem, rows: 1 }, inputs, outStride, false);
      const merge = mergeProblem(problem);
      const merged = await runOnce(device(), attentionMerge, merge, partials, merge.outStride, false);
      const x = new Float32Array(merged.buffer, merged.byteOffset, merged.length);
      const apart = groupedProblem(problem);
      const expected = await runOnce(device(), linearGrouped, apart, { ...matrices, x }, outStride, false);
      expect(got, name).toEqual(expected);
    }
  });
});

describe('linear_grouped_merge refuses', () => {
  const { problem } = suite.cases[0]!;
  const plan = (changes: object) => () => linearGroupedMerge.plan({ ...problem, ...changes }, BASELINE_TRAITS);

  test('problems that contradict themselves', () => {
    expect(plan({ inFeatures: 12 })).toThrow(/inFeatures is 12, expected a multiple of 8/);
    expect(plan({ outGroupStride: 32 })).toThrow(/outGroupStride is 32, expected at least 33/);
    expect(plan({ outStride: 64 })).toThrow(/2 groups of 33, 33 apart, don't fit an out row of 64/);
  });
});
