import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { subsample, type SubsampleProblem } from './index.js';
import { subsampleReference } from './reference.js';

function subsampleCase(
  name: string,
  [rows, columns]: readonly [number, number],
  [inputs, channels]: readonly [number, number],
  more: Partial<KernelCase<SubsampleProblem>> = {},
): KernelCase<SubsampleProblem> {
  return {
    name,
    problem: { rows, columns, inputs, channels, countsAt: 1, eps: 1e-6 },
    seed: 61,
    step: { rows, chunks: 1 },
    flops: rows * columns * channels * (18 * inputs + 8),
    bytes: rows * columns * (inputs * 16 + channels * 4),
    tolerance: { absolute: 2e-5, relative: 2e-5 },
    ...more,
  };
}

export const suite: KernelSuite<typeof subsample.bindings, typeof subsample.params, SubsampleProblem> = {
  kernel: subsample,
  cases: [
    subsampleCase('control', [2, 2], [2, 5], { races: true }),
    subsampleCase('one place', [1, 1], [1, 3]),
    subsampleCase('channels beyond a workgroup', [3, 4], [3, 70]),
    subsampleCase('1 to 128 channels', [5, 64], [1, 128]),
    subsampleCase('128 to 32 channels', [4, 32], [128, 32]),
    subsampleCase('10 s, 128 to 32 channels', [250, 32], [128, 32], { large: true }),
  ],
  // An odd number of lines; what stands behind them isn't read.
  inputs: ({ rows, columns, inputs, channels }, random) => ({
    x: random.normals(2 * rows * 2 * columns * inputs),
    weight: random.normals(channels * inputs * 9, 0.3),
    norm: random.normals(channels, 0.5),
    counts: Uint32Array.of(7, 2 * rows - 1),
  }),
  outputs: ({ rows, columns, channels }) => ({ out: { type: 'f32', length: rows * columns * channels } }),
  reference: subsampleReference,
};
