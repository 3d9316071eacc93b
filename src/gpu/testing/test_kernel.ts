/**
 * Room: how kernels are tested: cases with a reference (kernel_case.ts), run on every adapter that is found
 * (adapters.ts). toy_scale is the smallest kernel that has all parts.
 */

import { describe, expect, test } from 'vitest';
import type { Device, DeviceTraits } from '../device.js';
import { assembleWgsl, type Bindings, type ParamTypes } from '../kernel.js';
import { adaptersInTurn, testAdapters } from './adapters.js';
import { drawn, sweepsAll } from './draw.js';
import { bindingProblems, races } from './check_wgsl.js';
import type { KernelCase, KernelSuite } from './kernel_case.js';
import { findMismatch, prepareCase } from './run_kernel.js';

/** Milliseconds of a test. All types of weights, tuned in all ways, take a software adapter ten minutes. */
const LONGEST = sweepsAll ? 1_800_000 : 300_000;

/** The limits that WebGPU guarantees on every adapter, for checks that need no GPU. */
export const BASELINE_TRAITS: DeviceTraits = {
  limits: {
    maxStorageBufferBindingSize: 128 * 2 ** 20,
    maxBufferSize: 256 * 2 ** 20,
    maxComputeWorkgroupStorageSize: 16384,
    maxComputeInvocationsPerWorkgroup: 256,
    maxComputeWorkgroupsPerDimension: 65535,
    maxStorageBuffersPerShaderStage: 8,
    minUniformBufferOffsetAlignment: 256,
    minStorageBufferOffsetAlignment: 256,
  },
  f16: false,
  software: false,
  unroll: true,
};

/**
 * The whole test of a kernel: its declaration against its WGSL, races on the cases marked `races`, and every case inside
 * error scopes on the adapters of this run, outputs pre-filled with NaN, compared with the float64 reference.
 * Each case also runs with the decisions made for a GPU (`software: false`) where the adapter is a software one. Of several adapters
 * the last one, the quickest to compile for, runs the largest part of the drawn cases (draw.ts). Races and tunings take turns.
 */
export async function testKernel<B extends Bindings, P extends ParamTypes, Problem>(
  suite: KernelSuite<B, P, Problem>,
): Promise<void> {
  const { kernel } = suite;
  const cases = suite.cases.filter(({ large }) => large !== true);
  const quickest = (await testAdapters()).at(-1)!;
  const adapters = await adaptersInTurn(kernel.name);

  describe(kernel.name, () => {
    test('declaration and WGSL agree', () => {
      const seen = new Set<string>();
      for (const testCase of drawn(cases, Math.ceil(cases.length / 3), `declaration of ${kernel.name}`)) {
        for (const software of [false, true]) {
          const plan = kernel.plan(testCase.problem, { ...BASELINE_TRAITS, software, f16: testCase.needsF16 ?? false });
          const code = assembleWgsl(kernel.name, plan);
          if (seen.has(code)) continue;
          seen.add(code);
          expect(bindingProblems(kernel, code), testCase.name).toEqual([]);
        }
      }
    });

    const { tunings = [] } = kernel;
    const parts = drawn(tunings.length > 0 ? ['races', 'tunings'] : ['races'], 1, `part of ${kernel.name}`);
    const small = cases.filter((testCase) => testCase.races);
    const raced = drawn(
      small.flatMap((testCase) => [false, true].map((software) => ({ testCase, software }))),
      1,
      kernel.name,
    );
    test.runIf(parts.includes('races'))('no data races in the small cases', { timeout: 120_000 }, () => {
      expect(small.length, 'mark at least one small case with `races: true`').toBeGreaterThan(0);
      for (const { testCase, software } of raced) {
        expect(races(suite, testCase, { ...BASELINE_TRAITS, software }), testCase.name).toEqual([]);
      }
    });

    for (const adapter of adapters) {
      test(`agrees with the reference on ${adapter.name}`, { timeout: LONGEST }, async () => {
        const device = await adapter.open();
        try {
          const decisions: DeviceTraits[] = [device.traits];
          if (device.traits.software) decisions.push({ ...device.traits, software: false });
          for (const traits of decisions) {
            const decided = { ...kernel, plan: (problem: Problem) => kernel.plan(problem, traits) };
            // A CPU's compiler takes seconds for what is made for GPUs.
            const share = (adapter === quickest ? 1 / 8 : 1 / 16) * (traits === device.traits ? 1 : 1 / 2);
            const what = `${kernel.name} ${adapter.name} ${traits.software}`;
            for (const testCase of drawn(cases, Math.ceil(cases.length * share), what)) {
              if (testCase.needsF16 && !device.traits.f16) continue;
              const name = `${kernel.name} '${testCase.name}' decided for a ${traits.software ? 'software' : 'hardware'} adapter`;
              const prepared = await device.checked(name, () =>
                prepareCase(device, { ...suite, kernel: decided }, testCase),
              );
              await device.checked(name, () => {
                prepared.reset();
                prepared.run();
              });
              const expected = suite.reference(testCase.problem, prepared.inputs);
              const results = await prepared.readOutputs(Object.keys(expected));
              for (const [binding, want] of Object.entries(expected)) {
                const mismatch = findMismatch(testCase, binding, results[binding]!, want);
                if (mismatch) throw new Error(`${name}: ${mismatch}`);
              }
              prepared.dispose();
            }
          }
        } finally {
          device.dispose();
        }
      });
    }

    test.runIf(parts.includes('tunings'))(
      `computes the same bits however it is tuned, on ${quickest.name}`,
      { timeout: LONGEST },
      async () => {
        const device = await quickest.open();
        try {
          const traits = { ...device.traits, software: false };
          const runnable = cases.filter(({ needsF16 }) => !needsF16 || traits.f16);
          for (const testCase of drawn(runnable, Math.ceil(runnable.length / 24), `${kernel.name} tunings`)) {
            const expected = await outputBits(device, suite, testCase, traits);
            const { params } = kernel.plan(testCase.problem, traits);
            for (const tuning of drawn(tunings, 2, `${kernel.name} ${testCase.name}`)) {
              const tuned = { ...traits, tuning };
              const name = `${testCase.name}, ${tuning}`;
              expect(kernel.plan(testCase.problem, tuned).params, name).toEqual(params);
              expect(await outputBits(device, suite, testCase, tuned), name).toEqual(expected);
            }
          }
        } finally {
          device.dispose();
        }
      },
    );
  });
}

/** Of all that the reference tells, and of what nothing may be written to. */
export async function outputBits<B extends Bindings, P extends ParamTypes, Problem>(
  device: Device,
  suite: KernelSuite<B, P, Problem>,
  testCase: KernelCase<Problem>,
  traits: DeviceTraits,
): Promise<readonly Uint32Array[]> {
  const { kernel } = suite;
  const decided = { ...kernel, plan: (problem: Problem) => kernel.plan(problem, traits) };
  const what = `${kernel.name} '${testCase.name}' ${traits.tuning ?? ''}`;
  const prepared = await device.checked(what, () => prepareCase(device, { ...suite, kernel: decided }, testCase));
  try {
    await device.checked(what, () => {
      prepared.reset();
      prepared.run();
    });
    const outputs = await prepared.readOutputs(Object.keys(suite.reference(testCase.problem, prepared.inputs)));
    return Object.values(outputs).map(({ buffer, byteOffset, length }) => new Uint32Array(buffer, byteOffset, length));
  } finally {
    prepared.dispose();
  }
}
