import { expect, test } from 'vitest';
import type { DeviceTraits } from '../../src/gpu/device.js';
import type { Bindings, ParamTypes } from '../../src/gpu/kernel.js';
import { describeOnAdapters } from '../../src/gpu/testing/adapters.js';
import type { KernelSuite } from '../../src/gpu/testing/kernel_case.js';
import { prepareCase } from '../../src/gpu/testing/run_kernel.js';
import { BASELINE_TRAITS } from '../../src/gpu/testing/test_kernel.js';
import type { RmsNormProblem } from './rms_norm/index.js';

/** What is true of every kernel that normalises rows, a workgroup each. `problem`: four rows. */
export async function testNormRows<B extends Bindings, P extends ParamTypes, Problem extends RmsNormProblem>(
  suite: KernelSuite<B, P, Problem>,
  problem: Problem,
): Promise<void> {
  const { kernel } = suite;
  await describeOnAdapters(kernel.name, (device) => {
    const run = async (rows: number, traits: DeviceTraits): Promise<Record<string, ArrayLike<number>>> => {
      const decided = { ...suite, kernel: { ...kernel, plan: (p: Problem) => kernel.plan(p, traits) } };
      const testCase = { name: `${rows} rows`, problem, seed: 4, flops: 0, bytes: 0, step: { rows, chunks: 1 } };
      const prepared = await device().checked(kernel.name, () => prepareCase(device(), decided, testCase));
      prepared.reset();
      prepared.run();
      const results = await prepared.readOutputs(['out']);
      prepared.dispose();
      return results;
    };

    test('the number of threads changes no bit', async () => {
      const few = await run(4, { ...device().traits, software: true });
      const many = await run(4, { ...device().traits, software: false });
      expect(few).toEqual(many);
    });

    test('rows beyond the step stay as they were; the others are the same as in a full step', async () => {
      const all = await run(4, device().traits);
      const some = await run(3, device().traits);
      const compared = 3 * problem.stride;
      expect(Array.from(some['out']!).slice(0, compared)).toEqual(Array.from(all['out']!).slice(0, compared));
      expect(some['out']![compared]).toBeNaN();
    });
  });

  test('refuses a stride that cuts a vec4 or a row', () => {
    const narrow = { ...problem, width: 30, stride: 32 };
    expect(() => kernel.plan({ ...narrow, stride: 30 }, BASELINE_TRAITS)).toThrow('stride 30');
    expect(() => kernel.plan({ ...narrow, stride: 28 }, BASELINE_TRAITS)).toThrow('stride 28');
  });
}
