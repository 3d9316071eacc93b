import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { segmentSquares, type SegmentSquaresProblem } from './index.js';
import { segmentSquaresReference } from './reference.js';

function squaresCase(
  name: string,
  [rows, segments, qWidth, kWidth]: readonly [number, number, number, number],
  more: Partial<KernelCase<SegmentSquaresProblem>> = {},
): KernelCase<SegmentSquaresProblem> {
  const qStart = 4;
  const kStart = qStart + segments * qWidth + 12;
  const stride = kStart + 2 * segments * kWidth + 8;
  return {
    name,
    problem: { rows, segments, qWidth, kWidth, qStart, kStart, stride, outStride: 64 },
    seed: 61,
    step: { rows, chunks: 1 },
    flops: 2 * rows * segments * (qWidth + kWidth),
    bytes: 4 * rows * segments * (qWidth + kWidth),
    tolerance: { absolute: 1e-6, relative: 3e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof segmentSquares.bindings, typeof segmentSquares.params, SegmentSquaresProblem> = {
  kernel: segmentSquares,
  cases: [
    squaresCase('control', [2, 3, 48, 24], { races: true }),
    squaresCase('heads of 8', [3, 1, 8, 8], { races: true }),
    squaresCase('uneven tail', [5, 2, 268, 132]),
    squaresCase('decode, 16 heads of 128', [1, 16, 128, 128]),
    squaresCase('prompt 128 x 4096', [128, 8, 512, 128]),
  ],
  inputs: ({ rows, stride }, random) => ({ x: random.normals(rows * stride) }),
  outputs: ({ rows, segments, outStride }) => ({ out: { type: 'f32', length: segments * rows * outStride } }),
  reference: segmentSquaresReference,
};
