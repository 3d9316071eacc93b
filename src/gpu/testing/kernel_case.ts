import type { Random } from '../../base/random.js';
import type { Bindings, Kernel, ParamTypes, StepShape } from '../kernel.js';

export type HostArray = Float32Array | Uint32Array | Int32Array;
export type HostArrays = Readonly<Record<string, HostArray>>;
/** What a reference computes, in float64 where the kernel computes in f32; `undefined` elements aren't compared. */
export type Expected = Readonly<Record<string, ArrayLike<number>>>;

/** One named shape: the same list feeds the test and the benchmark. */
export interface KernelCase<Problem> {
  readonly name: string;
  readonly problem: Problem;
  readonly seed: number;
  /** Largest difference allowed: absolute + relative * |expected|. Zero means exact. Defaults to 1e-5 and 1e-5. */
  readonly tolerance?: { readonly absolute: number; readonly relative: number };
  /** Floating-point operations and bytes moved, for the benchmark's GFLOP/s and GB/s. */
  readonly flops: number;
  readonly bytes: number;
  /** For kernels whose grid depends on the step. */
  readonly step?: StepShape;
  /** Needs the adapter feature shader-f16. */
  readonly needsF16?: boolean;
  /** Of a real model's size, for benchmarks on GPUs: tests leave it out, and benchmarks on CPU adapters where it isn't asked for. */
  readonly large?: boolean;
  /** Small enough for wgsl_reflect's race detector, which interprets WGSL in JavaScript. */
  readonly races?: boolean;
}

/**
 * A kernel with its reference and cases. `inputs` returns a host array for every binding that has contents before the
 * dispatch; `outputs` says the length and type of the bindings that only receive results (pre-filled with NaN).
 */
export interface KernelSuite<B extends Bindings, P extends ParamTypes, Problem> {
  readonly kernel: Kernel<B, P, Problem>;
  readonly cases: readonly KernelCase<Problem>[];
  readonly inputs: (problem: Problem, random: Random) => HostArrays;
  readonly outputs: (
    problem: Problem,
  ) => Readonly<Record<string, { readonly type: 'f32' | 'u32'; readonly length: number }>>;
  /** Float64, straight from the equation, no tiling. Returns what each compared binding must hold. */
  readonly reference: (problem: Problem, inputs: HostArrays) => Expected;
}
