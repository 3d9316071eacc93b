import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { MoeCombineProblem } from './index.js';

/** Float64, straight from the equation, for `rows` rows. */
export function combineReference(
  { rows: capacity, topK, width, inStride, stride, ranks = 1, apart = false }: MoeCombineProblem,
  rows: number,
  { expert_out: out, expert_weights: weights, expert_ids: ids, owners, x }: HostArrays,
): number[] {
  const result = Array.from(x!);
  for (let row = 0; row < rows; row++) {
    if (apart) result.fill(0, row * stride, row * stride + width);
    for (let pair = row * topK; pair < (row + 1) * topK; pair++) {
      const region = ranks > 1 ? owners![ids![pair]!]! : 0;
      const start = (region * capacity * topK + pair) * inStride;
      for (let i = 0; i < width; i++) result[row * stride + i]! += weights![pair]! * out![start + i]!;
    }
  }
  return result;
}
