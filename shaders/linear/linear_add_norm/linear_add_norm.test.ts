import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { rmsNorm } from '../../norm/rms_norm/index.js';
import { linear } from '../linear/index.js';
import { outLength } from '../reference.js';
import { rowBits, runOnce } from '../testing/run.js';
import { suite } from './cases.js';
import { linearAddNorm } from './index.js';
import { addedProblem } from './reference.js';

await testKernel(suite);

await describeOnAdapters('linear_add_norm', (device) => {
  const smaller = suite.cases.filter(({ large }) => large !== true);

  test('gives the bits of rms_norm onto x, and linear', { timeout: 300_000 }, async () => {
    for (const { name, problem, seed } of drawn(smaller, 3, `pair ${device().name}`)) {
      const inputs = suite.inputs(problem, new Random(seed));
      const { added, added_weight: weight, ...matrix } = inputs;
      const { rows } = problem;
      const length = outLength(problem);
      const { out: _, x_out: __, ...read } = linearAddNorm.bindings;
      const renamed = { ...read, other: 'read_write', out: 'read_write' } as const;
      const kernel = { ...linearAddNorm, bindings: renamed };
      const gotX = await runOnce(
        device(),
        kernel,
        problem,
        { ...inputs, other: new Float32Array(length) },
        rows * problem.xStride,
        false,
      );
      const sum = { x: added!, weight: weight!, out: matrix['x']! };
      const expectedX = await runOnce(device(), rmsNorm, addedProblem(problem), sum, rows * problem.xStride, false);
      // Padding beyond a vec4 isn't written.
      const written = 4 * Math.ceil(problem.inFeatures / 4);
      for (let row = 0; row < rows; row++) {
        const own = rowBits(gotX, row, problem.xStride, written);
        expect(own, `${name}: x`).toEqual(rowBits(expectedX, row, problem.xStride, written));
      }
      const x = new Float32Array(expectedX.buffer, expectedX.byteOffset, expectedX.length);
      const got = await runOnce(
        device(),
        linearAddNorm,
        problem,
        { ...inputs, x_out: new Float32Array(rows * problem.xStride) },
        length,
        false,
      );
      const expected = await runOnce(device(), linear, problem, { ...matrix, x }, length, false);
      expect(got, name).toEqual(expected);
    }
  });
});
