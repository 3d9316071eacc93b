import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { linearInputs } from '../reference.js';
import { rowBits, runOnce } from '../testing/run.js';
import { suite, tiledProblem } from './cases.js';
import { linearTiled } from './index.js';

await testKernel(suite);

test('gate and up are of whole contractions', () => {
  const problem = tiledProblem(4, 64, 32, { epilogue: 'swiglu', segments: { total: 2, align: 32 } });
  expect(() => linearTiled.plan(problem, BASELINE_TRAITS)).toThrow('swiglu of 2 segments');
});

await describeOnAdapters('linear_tiled', (device) => {
  describe.each([true, false])('decided for a software adapter: %s', (software) => {
    test.each([
      ['segments', tiledProblem(200, 72, 2112, { type: 'q4', segments: { total: 3, align: 8 } })],
      ['swiglu', tiledProblem(200, 72, 1060, { type: 'q4', epilogue: 'swiglu' })],
    ])('a row has the same bits whatever the number of rows and the tiles: %s', async (_name, problem) => {
      // 200 rows take the largest tiles, fewer rows smaller ones.
      const inputs = linearInputs(problem, new Random(6));
      const { xStride, outStride, outFeatures } = problem;
      const whole = await runOnce(device(), linearTiled, problem, inputs, 200 * outStride, software);
      for (const rows of [1, 33]) {
        const first = 101;
        const x = inputs['x']!.slice(first * xStride, (first + rows) * xStride);
        const part = await runOnce(
          device(),
          linearTiled,
          { ...problem, rows },
          { ...inputs, x },
          rows * outStride,
          software,
        );
        for (let row = 0; row < rows; row++) {
          const expected = rowBits(whole, first + row, outStride, outFeatures);
          expect(rowBits(part, row, outStride, outFeatures), `row ${row} of ${rows}`).toEqual(expected);
        }
      }
    });

    test('an output has the same bits whatever shard of the weight it is in', async () => {
      const problem = tiledProblem(40, 72, 2112);
      const inputs = linearInputs(problem, new Random(7));
      const whole = await runOnce(device(), linearTiled, problem, inputs, 40 * problem.outStride, software);
      const tileWords = inputs['weight']!.length / 66;
      const shard = { ...inputs, weight: inputs['weight']!.slice(2 * tileWords, 3 * tileWords) };
      const part = await runOnce(
        device(),
        linearTiled,
        { ...problem, outFeatures: 32, outStride: 32 },
        shard,
        40 * 32,
        software,
      );
      for (let row = 0; row < 40; row++) {
        expect(rowBits(part, row, 32, 32)).toEqual(Array.from(whole.subarray(row * 2112 + 64, row * 2112 + 96)));
      }
    });
  });
});
