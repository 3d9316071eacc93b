import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { ClipProblem } from './index.js';

const gelu = (g: number): number => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3)));

/** Float64, straight from the equation. */
export function clipReference(
  { rows, width, xStride, xOffset = 0, outStride, outOffset = 0, boundsAt, up, silu, adds }: ClipProblem,
  inputs: HostArrays,
): Expected {
  const out = adds ? Array.from(inputs['out']!) : Array.from<number>({ length: rows * outStride });
  const clipped = (row: number, element: number, at: number): number => {
    const [least = 0, most = 0] = inputs['bounds']!.slice(at, at + 2);
    return Math.min(most, Math.max(least, inputs['x']![row * xStride + element]!));
  };
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < width; i++) {
      const value = clipped(row, xOffset + i, boundsAt);
      const activated = silu ? value / (1 + Math.exp(-value)) : value;
      const at = row * outStride + outOffset + i;
      out[at] = up ? gelu(value) * clipped(row, up.offset + i, up.boundsAt) : activated + (adds ? out[at]! : 0);
    }
  }
  return { out };
}
