import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { bits, runOn } from '../../attention/fixture.js';
import { suite as linearSuite } from '../../linear/linear/cases.js';
import { suite as absorbSuite } from '../mla_absorb_append/cases.js';
import { suite } from './cases.js';
import { canUp } from './index.js';
import { absorbCaseOf, inputsOf, upProblem } from './reference.js';

await testKernel(suite);

test('heads whose rows are cut, or have more units than a contraction has parts, and quantised absorbs are refused', () => {
  const fine = { loraRank: 768, qkNopeHeadDim: 128, qkRopeHeadDim: 64, absorbType: 'f32' } as const;
  expect(canUp(fine, BASELINE_TRAITS)).toBe(true);
  expect(canUp({ ...fine, qkNopeHeadDim: 132 }, BASELINE_TRAITS)).toBe(false);
  expect(canUp({ ...fine, qkNopeHeadDim: 136 }, BASELINE_TRAITS)).toBe(false);
  expect(canUp({ ...fine, qkNopeHeadDim: 136, absorbType: 'f16' }, BASELINE_TRAITS)).toBe(true);
  expect(canUp({ ...fine, absorbType: 'q8' }, BASELINE_TRAITS)).toBe(false);
  expect(canUp({ ...fine, loraRank: 8192 }, BASELINE_TRAITS)).toBe(false);
});

await describeOnAdapters('mla_up_append', (device) => {
  test('writes what linear and mla_absorb_append do, bit for bit', { timeout: 300_000 }, async () => {
    const traits = { ...device().traits, software: false };
    for (const { name, problem, seed, step } of drawn(suite.cases, 1, `pair ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed));
      const got = await runOn(device(), suite, problem, inputs, step!, traits, ['out', 'latent_cache']);
      const { up, absorb } = inputsOf(problem, inputs);
      const { out: q } = await runOn(device(), linearSuite, upProblem(problem), up, step!, traits);
      const absorbs = absorbCaseOf(problem);
      const wanted = await runOn(device(), absorbSuite, absorbs, { ...absorb, q: q! }, step!, traits, [
        'out',
        'latent_cache',
      ]);
      // Of an inactive row, whose query is NaN, nothing counts.
      const counts = (_: number, at: number) => problem.rowInfo[Math.floor(at / problem.qAbsStride)] !== undefined;
      const { length } = got['out']!;
      expect(bits(got['out']!, 0, length).filter(counts), name).toEqual(bits(wanted['out']!, 0, length).filter(counts));
      const cache = wanted['latent_cache']!;
      expect(bits(got['latent_cache']!, 0, cache.length), name).toEqual(bits(cache, 0, cache.length));
    }
  });
});
