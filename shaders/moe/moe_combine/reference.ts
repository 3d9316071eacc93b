import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { MoeCombineProblem } from './index.js';

/** Float64, straight from the equation, for `rows` rows. */
export function combineReference(
  { topK, width, inStride, stride }: MoeCombineProblem,
  rows: number,
  { expert_out: out, expert_weights: weights, x }: HostArrays,
): number[] {
  const result = Array.from(x!);
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < width; i++) {
      for (let pair = row * topK; pair < (row + 1) * topK; pair++) {
        result[row * stride + i]! += weights![pair]! * out![pair * inStride + i]!;
      }
    }
  }
  return result;
}
