import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { swiglu, type SwigluProblem } from './index.js';
import { swigluReference } from './reference.js';

function swigluCase(
  name: string,
  rows: number,
  width: number,
  more: Partial<KernelCase<SwigluProblem>> = {},
): KernelCase<SwigluProblem> {
  const stride = alignUp(width, 32);
  return {
    name,
    problem: { rows, width, inStride: 2 * stride, upOffset: stride, outStride: stride },
    seed: 17,
    step: { rows, chunks: 1 },
    flops: rows * width * 5,
    bytes: rows * width * 12,
    tolerance: { absolute: 1e-6, relative: 4e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof swiglu.bindings, typeof swiglu.params, SwigluProblem> = {
  kernel: swiglu,
  cases: [
    swigluCase('control', 1, 256, { races: true }),
    swigluCase('one element', 1, 1),
    swigluCase('uneven tail', 5, 333),
    swigluCase('up joined to the gate without padding', 3, 45, {
      problem: { rows: 3, width: 45, inStride: 96, upOffset: 45, outStride: 64 },
    }),
    swigluCase('gelu', 3, 333, {
      problem: { rows: 3, width: 333, inStride: 704, upOffset: 352, outStride: 352, activation: 'gelu_tanh' },
      races: true,
    }),
    swigluCase('decode 8192', 1, 8192),
    swigluCase('prompt 128 x 4864', 128, 4864),
  ],
  inputs: ({ rows, width, inStride, outStride }, random) => {
    const gate_up = random.normals(rows * inStride, 3);
    // Both tails: exp(-g) overflows f32 at g = -89, and g * exp(g) underflows below -87.
    for (const [i, g] of [-200, -88.9, 200, 88.9, 0, -1e30, 1e30].entries()) if (i < width) gate_up[i] = g;
    const out = new Float32Array(rows * outStride);
    for (let r = 0; r < rows; r++) out.fill(Number.NaN, r * outStride, r * outStride + width);
    return { gate_up, out };
  },
  outputs: () => ({}),
  reference: (problem, { gate_up, out }) => ({ out: swigluReference(problem, problem.rows, gate_up!, out!) }),
};
