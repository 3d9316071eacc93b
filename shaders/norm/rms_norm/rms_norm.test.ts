import { expect, test } from 'vitest';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { prepareCase } from '../../../src/gpu/testing/run_kernel.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { rmsNorm, type RmsNormProblem } from './index.js';

await testKernel(suite);

await describeOnAdapters('rms_norm', (device) => {
  const run = async (
    problem: RmsNormProblem,
    rows: number,
    traits: DeviceTraits,
  ): Promise<Record<string, ArrayLike<number>>> => {
    const decided = { ...suite, kernel: { ...rmsNorm, plan: (p: RmsNormProblem) => rmsNorm.plan(p, traits) } };
    const testCase = { name: `${rows} rows`, problem, seed: 4, flops: 0, bytes: 0, step: { rows, chunks: 1 } };
    const prepared = await device().checked('rms_norm', () => prepareCase(device(), decided, testCase));
    prepared.reset();
    prepared.run();
    const results = await prepared.readOutputs(['out']);
    prepared.dispose();
    return results;
  };
  const problem = { rows: 4, width: 1001, stride: 1024, eps: 1e-6, residual: false };

  test('the number of threads changes no bit', async () => {
    const few = await run(problem, 4, { ...device().traits, software: true });
    const many = await run(problem, 4, { ...device().traits, software: false });
    expect(few).toEqual(many);
  });

  test('rows beyond the step stay as they were; the others are the same as in a full step', async () => {
    const all = await run(problem, 4, device().traits);
    const some = await run(problem, 3, device().traits);
    const compared = 3 * 1024;
    expect(Array.from(some['out']!).slice(0, compared)).toEqual(Array.from(all['out']!).slice(0, compared));
    expect(some['out']![compared]).toBeNaN();
  });
});

test('refuses a stride that cuts a vec4 or a row', () => {
  const problem = { rows: 1, width: 30, stride: 32, eps: 1e-6, residual: false };
  expect(() => rmsNorm.plan({ ...problem, stride: 30 }, BASELINE_TRAITS)).toThrow('stride 30');
  expect(() => rmsNorm.plan({ ...problem, stride: 28 }, BASELINE_TRAITS)).toThrow('stride 28');
});
