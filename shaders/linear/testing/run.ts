import type { Device } from '../../../src/gpu/device.js';
import type { Bindings, Kernel, ParamTypes } from '../../../src/gpu/kernel.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { prepareCase } from '../../../src/gpu/testing/run_kernel.js';

/** For tests: runs one dispatch with the decisions made for a software or a hardware adapter, and returns `out`. */
export async function runOnce<B extends Bindings, P extends ParamTypes, Problem extends { readonly rows: number }>(
  device: Device,
  kernel: Kernel<B, P, Problem>,
  problem: Problem,
  inputs: HostArrays,
  outLength: number,
  software: boolean,
): Promise<Uint32Array> {
  const suite = {
    kernel: { ...kernel, plan: (p: Problem) => kernel.plan(p, { ...device.traits, software }) },
    cases: [],
    inputs: () => inputs,
    outputs: () => ('out' in inputs ? {} : { out: { type: 'u32' as const, length: outLength } }),
    reference: () => ({}),
  };
  const step = { rows: problem.rows, chunks: 1 };
  const testCase = { name: 'one', problem, seed: 0, flops: 0, bytes: 0, step };
  const prepared = await device.checked(kernel.name, () => prepareCase(device, suite, testCase));
  try {
    await device.checked(kernel.name, () => {
      prepared.reset();
      prepared.run();
    });
    const out = (await prepared.readOutputs(['out']))['out']!;
    return new Uint32Array(out.buffer, out.byteOffset, out.length);
  } finally {
    prepared.dispose();
  }
}

/** Bits of the first `width` elements of row `row`. */
export const rowBits = (out: Uint32Array, row: number, stride: number, width: number): number[] =>
  Array.from(out.subarray(row * stride, row * stride + width));
