import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { bits, runOn } from '../../attention/fixture.js';
import { suite as convSuite } from '../causal_conv/cases.js';
import { suite as headsSuite } from '../delta_heads/cases.js';
import { suite as ruleSuite } from '../delta_rule/cases.js';
import { rowInfoOf } from '../fixture.js';
import { suite as normSuite } from '../gated_norm/cases.js';
import { suite } from './cases.js';
import { canStep, deltaStep } from './index.js';
import { stepProblems } from './reference.js';

await testKernel(suite);

test('refuses heads that it has no room for', () => {
  const [{ problem }] = suite.cases as [(typeof suite.cases)[0]];
  for (const changes of [{ keyDim: 6 }, { valueDim: 260 }, { ratio: 100 }, { xStride: 60 }, { taps: 1 }]) {
    expect(() => deltaStep.plan({ ...problem, ...changes }, BASELINE_TRAITS)).toThrow(/^delta_step: .* expected heads/);
  }
  expect(canStep({ ratio: 8, keyDim: 256, valueDim: 128 })).toBe(true);
  expect(canStep({ ratio: 9, keyDim: 256, valueDim: 128 })).toBe(false);
});

await describeOnAdapters('delta_step', (device, isQuickest) => {
  test('writes what the four kernels do, bit for bit', { timeout: 300_000 }, async () => {
    const traits = { ...device().traits, software: false };
    for (const { name, problem, seed } of drawn(suite.cases, isQuickest ? 2 : 1, `four ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed)) as Record<string, Float32Array>;
      const { x, taps, row_info, places, rates, dt_bias, norm, conv_state, memory, out } =
        inputs as Required<HostArrays>;
      const step = { rows: problem.rows, chunks: 1 };
      const written = ['out', 'conv_state', 'memory'];
      const got = await runOn(device(), suite, problem, inputs, step, traits, written);
      const four = stepProblems(problem);
      const run = { row_info: row_info!, places: places! };
      const conv = await runOn(
        device(),
        convSuite,
        four.conv,
        { ...run, x: x!, weight: taps!, state: conv_state!, out: new Float32Array(problem.rows * four.conv.outStride) },
        step,
        traits,
        ['state', 'out'],
      );
      const heads = await runOn(
        device(),
        headsSuite,
        four.heads,
        { inputs: x!, rates: rates!, dt_bias: dt_bias!, qkv: conv['out']! },
        step,
        traits,
        ['qkv', 'gates'],
      );
      const rule = await runOn(
        device(),
        ruleSuite,
        four.rule,
        { ...run, qkv: heads['qkv']!, gates: heads['gates']!, state: memory!, out: out! },
        step,
        traits,
        ['state', 'out'],
      );
      const normed = await runOn(
        device(),
        normSuite,
        four.norm,
        { gate: x!, weight: norm!, x: rule['out']! },
        step,
        traits,
        ['x'],
      );
      const expected = { out: normed['x']!, conv_state: conv['state']!, memory: rule['state']! };
      const { runs } = rowInfoOf(problem.rows, false);
      for (const [binding, array] of Object.entries(expected)) {
        // The four give an inactive row something, which nobody reads.
        const spans =
          binding === 'out'
            ? runs.map(({ first, count }) => [first * problem.outStride, count * problem.outStride] as const)
            : [[0, array.length] as const];
        for (const [start, length] of spans) {
          expect(bits(got[binding]!, start, length), `${binding} of '${name}'`).toEqual(bits(array, start, length));
        }
      }
    }
  });
});
