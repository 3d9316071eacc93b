import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { bits, runOn } from '../../attention/fixture.js';
import { suite as convSuite } from '../../recurrent/causal_conv/cases.js';
import { INACTIVE } from '../../../src/base/kv_units.js';
import { suite as linearSuite } from '../linear/cases.js';
import { suite } from './cases.js';
import { linearConv } from './index.js';
import { convProblem, linearProblem } from './reference.js';

await testKernel(suite);

test('refuses what it has no layout or room for', () => {
  const plan = (changes: object) => () => linearConv.plan({ ...suite.cases[0]!.problem, ...changes }, BASELINE_TRAITS);
  for (const changes of [{ width: 40 }, { taps: 9 }, { xStride: 18 }])
    expect(plan(changes)).toThrow(/^linear_conv: .* expected/);
  expect(plan({ inFeatures: 4096, xStride: 4096 })).toThrow(/use linear and causal_conv/);
});

await describeOnAdapters('linear_conv', (device) => {
  const small = suite.cases.filter(({ large }) => large !== true);
  const step = { rows: 1, chunks: 1 };

  test('gives the bits of linear and causal_conv', { timeout: 300_000 }, async () => {
    const traits = { ...device().traits, software: false };
    for (const { name, problem, seed } of drawn(small, 2, `pair ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed));
      const { taps, row_info, places, state, ...matrix } = inputs;
      const written = ['out', 'state'];
      const got = await runOn(device(), suite, problem, inputs, step, traits, written);
      const projected = await runOn(device(), linearSuite, linearProblem(problem), matrix, step, traits);
      const out = new Float32Array(problem.width);
      const conv = { weight: taps!, row_info: row_info!, places: places!, state: state!, out };
      const x = projected['out']!;
      const expected = await runOn(device(), convSuite, convProblem(problem), { ...conv, x }, step, traits, written);
      for (const binding of written) {
        const [one, two] = [got[binding]!, expected[binding]!];
        expect(bits(one, 0, one.length), `${binding} of '${name}'`).toEqual(bits(two, 0, two.length));
      }
    }
  });

  test('an inactive row leaves its state', async () => {
    const { problem, seed } = suite.cases[0]!;
    const inputs = { ...suite.inputs(problem, new Random(seed)), row_info: Uint32Array.of(INACTIVE, INACTIVE) };
    const { state } = await runOn(device(), suite, problem, inputs, step, { ...device().traits, software: false }, [
      'state',
    ]);
    expect(state).toEqual((inputs as HostArrays)['state']);
  });
});
