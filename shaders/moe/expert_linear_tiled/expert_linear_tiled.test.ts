import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { expertLayout } from '../experts.js';
import { expertInputs, expertProblem, randomExperts, runOnce } from '../fixture.js';
import { sorted, suite } from './cases.js';
import { expertLinearTiled, mostTiles } from './index.js';

await testKernel(suite);

await describeOnAdapters('expert_linear_tiled', (device) => {
  test.each([true, false])(
    'bits: a row alone or among others, experts in one buffer or in three (software: %s)',
    async (software) => {
      const problem = { ...expertProblem(35, [8, 3], 72, 33, { type: 'q8' }), stepRows: 35 };
      const random = new Random(6);
      const inputs = expertInputs(problem, random);
      const ids = randomExperts(problem.rows, problem.topK, problem.experts, random);
      const { out: whole } = await runOnce(
        device(),
        suite,
        problem,
        { ...inputs, ...sorted(ids, problem) },
        35,
        software,
      );

      const rowLength = problem.topK * problem.outStride;
      for (const row of [0, 34]) {
        const one = { ...problem, rows: 1, stepRows: 1 };
        const alone = {
          ...inputs,
          x: inputs['x']!.slice(row * problem.xStride, (row + 1) * problem.xStride),
          out: inputs['out']!.slice(0, rowLength),
          ...sorted(ids.subarray(row * problem.topK), one),
        };
        const { out } = await runOnce(device(), suite, one, alone, 1, software);
        expect(out).toEqual(whole!.subarray(row * rowLength, (row + 1) * rowLength));
      }

      const { weightBytes, scaleBytes } = expertLayout(problem);
      let out = inputs['out']!;
      for (const [expertFirst, expertCount] of [
        [5, 3],
        [0, 1],
        [1, 4],
      ] as const) {
        const part = (name: string, bytes: number) =>
          inputs[name]!.slice((expertFirst * bytes) / 4, ((expertFirst + expertCount) * bytes) / 4);
        const shard = {
          ...inputs,
          weight: part('weight', weightBytes),
          scale: part('scale', scaleBytes),
          out,
          ...sorted(ids, problem),
        };
        const result = await runOnce(device(), suite, { ...problem, expertFirst, expertCount }, shard, 35, software);
        out = result['out']! as Float32Array;
      }
      expect(out).toEqual(whole);
    },
  );
});

test('the grid has room for every spread of rows over experts', () => {
  const tile = 32;
  const random = new Random(1);
  for (const [rows, topK, experts] of [
    [1, 1, 4],
    [33, 6, 64],
    [100, 2, 3],
    [1024, 6, 64],
  ] as const) {
    for (let trial = 0; trial < 20; trial++) {
      const counts = new Array<number>(experts).fill(0);
      // Skewed: the first experts take most.
      for (const id of randomExperts(rows, topK, Math.max(topK, Math.floor(experts / (1 + (trial % 4)))), random))
        counts[id]!++;
      const tiles = counts.reduce((sum, count) => sum + Math.ceil(count / tile), 0);
      expect(mostTiles(rows, topK, experts, tile)).toBeGreaterThanOrEqual(tiles);
    }
  }
  expect(mostTiles(0, 6, 64, tile)).toBe(0);
  // One row: a tile an expert, and none more.
  expect(mostTiles(1, 6, 64, tile)).toBe(6);
});

test('refuses steps that need too many workgroups', () => {
  const problem = expertProblem(300_000, [8, 8], 32, 32);
  expect(() => expertLinearTiled.plan(problem, BASELINE_TRAITS)).toThrow('300000 rows need 75007 workgroups');
});
