import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { lightConv, type LightConvProblem } from './index.js';
import { lightConvReference } from './reference.js';

function convCase(
  name: string,
  [rows, width, taps]: readonly [number, number, number],
  more: Partial<KernelCase<LightConvProblem>> = {},
): KernelCase<LightConvProblem> {
  return {
    name,
    problem: { rows, width, taps, xStride: 2 * width + 7, outStride: width + 5, eps: 1e-6 },
    seed: 67,
    step: { rows, chunks: 1 },
    flops: rows * width * (8 * taps + 8),
    bytes: rows * width * 12,
    tolerance: { absolute: 1e-5, relative: 1e-5 },
    ...more,
  };
}

export const suite: KernelSuite<typeof lightConv.bindings, typeof lightConv.params, LightConvProblem> = {
  kernel: lightConv,
  cases: [
    convCase('control', [4, 70, 3], { races: true }),
    convCase('one channel, one row', [1, 1, 2]),
    convCase('fewer rows than taps', [2, 33, 8]),
    convCase('uneven tail', [9, 130, 5]),
    convCase('30 s of 1024 channels', [750, 1024, 5], { large: true }),
  ],
  inputs: ({ rows, width, taps, xStride }, random) => ({
    x: random.normals(rows * xStride),
    weight: random.normals(width * taps, 0.5),
    norm: random.normals(width, 0.5),
  }),
  outputs: ({ rows, outStride }) => ({ out: { type: 'f32', length: rows * outStride } }),
  reference: lightConvReference,
};
