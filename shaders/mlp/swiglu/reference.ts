import type { SwigluProblem } from './index.js';

/** Float64, straight from the equation. `out` holds what must stay: elements beyond width and rows beyond the step's. */
export function swigluReference(
  { width, inStride, upOffset, outStride }: SwigluProblem,
  rows: number,
  gateUp: ArrayLike<number>,
  out: ArrayLike<number>,
): number[] {
  const result = Array.from(out);
  for (let r = 0; r < rows; r++) {
    for (let i = 0; i < width; i++) {
      const g = gateUp[r * inStride + i]!;
      result[r * outStride + i] = (g / (1 + Math.exp(-g))) * gateUp[r * inStride + upOffset + i]!;
    }
  }
  return result;
}
