import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { adaptersInTurn, decisions } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { bits, runOn } from '../../attention/fixture.js';
import { groupedProblem, suite } from './cases.js';
import { linearGrouped, type LinearGroupedProblem } from './index.js';

await testKernel(suite);

test('linear_grouped refuses slices that overlap the row', () => {
  const problem = groupedProblem('f32', 1, 3, 8, 40);
  expect(() => linearGrouped.plan({ ...problem, inFeatures: 12 }, BASELINE_TRAITS)).toThrow(/inFeatures is 12/);
  expect(() => linearGrouped.plan({ ...problem, xOffset: 32 }, BASELINE_TRAITS)).toThrow(/don't fit an x row/);
  expect(() => linearGrouped.plan({ ...problem, outGroupStride: 39 }, BASELINE_TRAITS)).toThrow(/outGroupStride is 39/);
});

for (const adapter of await adaptersInTurn('linear_grouped rows')) {
  describe(`linear_grouped on ${adapter.name}`, () => {
    test("a row's bits don't depend on the rows beside it; nothing but outputs is written", async () => {
      const device = await adapter.open();
      const problem: LinearGroupedProblem = groupedProblem('f16', 9, 3, 40, 33);
      const inputs = suite.inputs(problem, new Random(4));
      const x = inputs['x'] as Float32Array;
      const one: LinearGroupedProblem = { ...problem, rows: 1, tileRows: 1 };
      for (const traits of decisions(device)) {
        const { out } = await runOn(device, suite, problem, inputs, { rows: 9, chunks: 1 }, traits);
        expect((out as Float32Array).filter((value) => !Number.isNaN(value)).length).toBe(9 * 3 * 33);
        for (const row of [0, 5, 8]) {
          const own = { ...inputs, x: x.slice(row * problem.xStride, (row + 1) * problem.xStride) };
          const alone = await runOn(device, suite, one, own, { rows: 1, chunks: 1 }, traits);
          expect(bits(alone['out']!, 0, problem.outStride)).toEqual(
            bits(out!, row * problem.outStride, problem.outStride),
          );
        }
      }
      device.dispose();
    });
  });
}
