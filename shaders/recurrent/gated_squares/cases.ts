import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { segmentRange } from '../../linear/segments.js';
import { gatedSquares, type GatedSquaresProblem } from './index.js';
import { gatedSquaresReference } from './reference.js';

function gatedCase(
  name: string,
  rows: number,
  [heads, headDim]: readonly [number, number],
  [total, first, count]: readonly [number, number, number],
  more: Partial<KernelCase<GatedSquaresProblem>> = {},
): KernelCase<GatedSquaresProblem> {
  const segments = { total, first, count, align: headDim };
  const modelWidth = heads * headDim;
  const { start, end } = segmentRange(modelWidth, segments);
  const stride = alignUp(end - start, 32);
  return {
    name,
    problem: {
      rows,
      headDim,
      segments,
      modelWidth,
      stride,
      vStride: stride + 64,
      vOffset: 12,
      gateStride: stride + 32,
      gateOffset: 8,
      squaresStride: 64,
    },
    seed: 53,
    step: { rows, chunks: 1 },
    flops: rows * (end - start) * 10,
    bytes: rows * (end - start) * 16,
    tolerance: { absolute: 1e-6, relative: 4e-6 },
    ...more,
  };
}

export const suite: KernelSuite<typeof gatedSquares.bindings, typeof gatedSquares.params, GatedSquaresProblem> = {
  kernel: gatedSquares,
  cases: [
    gatedCase('control', 2, [6, 8], [2, 0, 2], { races: true }),
    gatedCase('the last segments, uneven', 3, [7, 8], [3, 1, 2], { races: true }),
    gatedCase('segments without heads', 2, [3, 16], [8, 0, 8]),
    gatedCase('uneven tail', 5, [5, 268], [2, 0, 1]),
    gatedCase('decode, 48 heads of 32', 1, [48, 32], [4, 0, 4]),
    gatedCase('prompt 128, 64 heads of 64', 128, [64, 64], [8, 2, 4]),
  ],
  inputs: ({ rows, headDim, stride, vStride, gateStride }, random) => ({
    v: random.normals(rows * vStride),
    gate: random.normals(rows * gateStride, 3),
    skip: random.normals(Math.ceil(stride / headDim)),
    x: random.normals(rows * stride),
  }),
  outputs: ({ rows, segments, squaresStride }) => ({
    squares: { type: 'f32', length: segments.count * rows * squaresStride },
  }),
  reference: gatedSquaresReference,
};
