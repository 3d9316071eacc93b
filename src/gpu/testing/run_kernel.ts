import { Random } from '../../base/random.js';
import type { Buffer, Device } from '../device.js';
import type { Bindings, ParamTypes } from '../kernel.js';
import { type Program, Recorder } from '../recorder.js';
import type { HostArray, HostArrays, KernelCase, KernelSuite } from './kernel_case.js';

export interface PreparedCase {
  readonly inputs: HostArrays;
  readonly program: Program;
  readonly buffers: Readonly<Record<string, Buffer>>;
  /** Fills every buffer with its contents before the dispatch: inputs, and NaN for outputs. */
  reset(): void;
  run(repeats?: number): void;
  readOutputs(names: readonly string[]): Promise<Record<string, HostArray>>;
  dispose(): void;
}

const NAN_BITS = 0x7fc00000;

/** Builds the buffers and the one-dispatch program of a case. Call inside `device.checked`. */
export function prepareCase<B extends Bindings, P extends ParamTypes, Problem>(
  device: Device,
  suite: KernelSuite<B, P, Problem>,
  testCase: KernelCase<Problem>,
): PreparedCase {
  const { kernel } = suite;
  const inputs = suite.inputs(testCase.problem, new Random(testCase.seed));
  const outputs = suite.outputs(testCase.problem);
  const buffers: Record<string, Buffer> = {};
  const types: Record<string, 'f32' | 'u32' | 'i32'> = {};
  for (const [name, array] of Object.entries(inputs)) {
    buffers[name] = device.createBuffer(`${kernel.name} ${name}`, array.byteLength);
    types[name] = array instanceof Float32Array ? 'f32' : array instanceof Uint32Array ? 'u32' : 'i32';
  }
  for (const [name, { type, length }] of Object.entries(outputs)) {
    buffers[name] = device.createBuffer(`${kernel.name} ${name}`, length * 4);
    types[name] = type;
  }
  const recorder = new Recorder(device, `${kernel.name} ${testCase.name}`);
  recorder.dispatch(kernel, testCase.problem, buffers as { readonly [K in keyof B]?: Buffer });
  const program = recorder.finish();
  return {
    inputs,
    program,
    buffers,
    reset() {
      for (const [name, array] of Object.entries(inputs)) device.write(buffers[name]!, 0, array);
      for (const [name, { length }] of Object.entries(outputs)) {
        device.write(buffers[name]!, 0, new Uint32Array(length).fill(NAN_BITS));
      }
    },
    run(repeats = 1) {
      const { rows, chunks } = testCase.step ?? { rows: 1, chunks: 1 };
      const encoder = device.gpu.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (let i = 0; i < repeats; i++) program.encode(pass, { rows: [rows], chunks });
      pass.end();
      device.gpu.queue.submit([encoder.finish()]);
    },
    async readOutputs(names) {
      const results: Record<string, HostArray> = {};
      for (const name of names) {
        const bytes = await device.read(buffers[name]!);
        results[name] =
          types[name] === 'f32'
            ? new Float32Array(bytes)
            : types[name] === 'u32'
              ? new Uint32Array(bytes)
              : new Int32Array(bytes);
      }
      return results;
    },
    dispose() {
      program.dispose();
      for (const buffer of Object.values(buffers)) buffer.dispose();
    },
  };
}

/** The first place where results differ by more than the tolerance, as a sentence; undefined when they agree. */
export function findMismatch<Problem>(
  testCase: KernelCase<Problem>,
  binding: string,
  got: ArrayLike<number>,
  expected: ArrayLike<number>,
): string | undefined {
  const { absolute, relative } = testCase.tolerance ?? { absolute: 1e-5, relative: 1e-5 };
  let worst = 0;
  let worstIndex = -1;
  let bad = 0;
  for (let i = 0; i < expected.length; i++) {
    const want = expected[i];
    if (want === undefined) continue;
    const error = Math.abs(got[i]! - want);
    const allowed = absolute + relative * Math.abs(want);
    if (error <= allowed) continue;
    bad++;
    const excess = Number.isNaN(error) ? Number.POSITIVE_INFINITY : error - allowed;
    if (excess > worst) [worst, worstIndex] = [excess, i];
  }
  if (bad === 0) return undefined;
  return (
    `case '${testCase.name}', ${binding}[${worstIndex}]: expected ${expected[worstIndex]}, got ${got[worstIndex]} ` +
    `(${bad} of ${expected.length} elements beyond ${absolute} + ${relative} * |expected|)`
  );
}
