import { expect, test } from 'vitest';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { prepareCase } from '../../../src/gpu/testing/run_kernel.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { swiglu } from './index.js';

await testKernel(suite);

await describeOnAdapters('swiglu', (device) => {
  test('leaves rows beyond the step alone, and a row is the same alone and in a batch', async () => {
    const problem = { rows: 6, width: 100, inStride: 256, upOffset: 128, outStride: 128 };
    const run = async (rows: number): Promise<Float32Array> => {
      const testCase = { name: `${rows} rows`, problem, seed: 3, flops: 0, bytes: 0, step: { rows, chunks: 1 } };
      const prepared = await device().checked('swiglu', () => prepareCase(device(), suite, testCase));
      prepared.reset();
      prepared.run();
      const { out } = await prepared.readOutputs(['out']);
      prepared.dispose();
      return out as Float32Array;
    };
    const all = await run(6);
    const some = await run(2);
    expect(some.subarray(0, 256)).toEqual(all.subarray(0, 256));
    expect(some[2 * 128]).toBeNaN();
  });
});

test('refuses shapes that overlap or do not fit', () => {
  const problem = { rows: 1, width: 64, inStride: 128, upOffset: 64, outStride: 64 };
  expect(() => swiglu.plan({ ...problem, upOffset: 32 }, BASELINE_TRAITS)).toThrow('upOffset 32');
  expect(() => swiglu.plan({ ...problem, outStride: 32 }, BASELINE_TRAITS)).toThrow('outStride 32');
  expect(() => swiglu.plan({ ...problem, rows: 65536 }, BASELINE_TRAITS)).toThrow('65536 rows');
});
