import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { bits, runOn } from '../../attention/fixture.js';
import { suite as groupedSuite } from '../../linear/linear_grouped/cases.js';
import { suite as appendSuite } from '../mla_rope_append/cases.js';
import { suite } from './cases.js';
import { absorbProblem } from './reference.js';

await testKernel(suite);

await describeOnAdapters('mla_absorb_append', (device) => {
  test('writes what mla_rope_append and linear_grouped do, bit for bit', { timeout: 300_000 }, async () => {
    const traits = { ...device().traits, software: false };
    for (const { name, problem, seed, step } of drawn(suite.cases, 2, `pair ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed));
      const got = await runOn(device(), suite, problem, inputs, step!, traits, ['out', 'latent_cache']);
      const { weight, scale, ...tokens } = inputs;
      const appended = await runOn(device(), appendSuite, problem, tokens, step!, traits, ['q_abs', 'latent_cache']);
      const matrices = { x: inputs['q']!, weight: weight!, ...(scale && { scale }) };
      const { out } = await runOn(device(), groupedSuite, absorbProblem(problem), matrices, step!, traits);
      const { length } = out!;
      // Each leaves NaN where the other writes; of an inactive row, whose query is NaN, nothing counts.
      const absorbed = bits(out!, 0, length);
      const rotated = bits(appended['q_abs']!, 0, length);
      const both = absorbed.map((value, at) => (value === 0x7fc00000 ? rotated[at]! : value));
      const counts = (_: number, at: number) => problem.rowInfo[Math.floor(at / problem.qAbsStride)] !== undefined;
      expect(bits(got['out']!, 0, length).filter(counts), name).toEqual(both.filter(counts));
      const cache = appended['latent_cache']!;
      expect(bits(got['latent_cache']!, 0, cache.length), name).toEqual(bits(cache, 0, cache.length));
    }
  });
});
