import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { SegmentSquaresProblem } from './index.js';

/** Float64, straight from the equation. */
export function segmentSquaresReference(
  { rows, segments, qWidth, kWidth, qStart, kStart, stride, outStride }: SegmentSquaresProblem,
  inputs: HostArrays,
): { out: number[] } {
  const out = new Array<number>(segments * rows * outStride);
  const squares = (from: number, count: number): number =>
    Array.from(inputs['x']!.subarray(from, from + count)).reduce((sum, value) => sum + value * value, 0);
  for (let s = 0; s < segments; s++) {
    for (let r = 0; r < rows; r++) {
      out[(s * rows + r) * outStride] = squares(r * stride + qStart + s * qWidth, qWidth);
      out[(s * rows + r) * outStride + 1] = squares(r * stride + kStart + s * kWidth, kWidth);
    }
  }
  return { out };
}
