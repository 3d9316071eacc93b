import type { SwigluProblem } from './index.js';

/** Float64, straight from the equation. `out` holds what must stay: elements beyond width and rows beyond the step's. */
export function swigluReference(
  { width, inStride, upOffset, outStride, activation }: SwigluProblem,
  rows: number,
  gateUp: ArrayLike<number>,
  out: ArrayLike<number>,
): number[] {
  const result = Array.from(out);
  for (let r = 0; r < rows; r++) {
    for (let i = 0; i < width; i++) {
      const g = gateUp[r * inStride + i]!;
      const active =
        activation === 'gelu_tanh'
          ? 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3)))
          : g / (1 + Math.exp(-g));
      result[r * outStride + i] = active * gateUp[r * inStride + upOffset + i]!;
    }
  }
  return result;
}
