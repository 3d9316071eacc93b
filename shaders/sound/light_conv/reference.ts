import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { LightConvProblem } from './index.js';

/** Float64, straight from the equation. */
export function lightConvReference(
  { rows, width, taps, xStride, outStride, eps }: LightConvProblem,
  { x, weight, norm }: HostArrays,
): Expected {
  const out = Array.from<number>({ length: rows * outStride });
  const input = (row: number, c: number): number =>
    row < 0 ? 0 : x![row * xStride + c]! / (1 + Math.exp(-x![row * xStride + width + c]!));
  for (let row = 0; row < rows; row++) {
    const v = Array.from({ length: width }, (_, c) =>
      Array.from({ length: taps }, (_tap, j) => weight![c * taps + j]! * input(row - taps + 1 + j, c)).reduce(
        (sum, value) => sum + value,
        0,
      ),
    );
    const scale = 1 / Math.sqrt(v.reduce((sum, value) => sum + value * value, 0) / width + eps);
    for (const [c, value] of v.entries()) {
      const normed = value * scale * norm![c]!;
      out[row * outStride + c] = normed / (1 + Math.exp(-normed));
    }
  }
  return { out };
}
