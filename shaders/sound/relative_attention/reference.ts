import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import type { RelativeAttentionProblem } from './index.js';

/** Float64, straight from the equation. */
export function relativeAttentionReference(
  { rows, heads, dim, keys, softened, xStride, relativeStride, outStride, cap }: RelativeAttentionProblem,
  { x, relative, scale }: HostArrays,
): Expected {
  const out = Array.from<number>({ length: rows * outStride });
  const width = heads * dim;
  const at = (row: number, part: number, head: number, d: number): number =>
    x![row * xStride + part * width + head * dim + d]!;
  for (let row = 0; row < rows; row++) {
    for (let head = 0; head < heads; head++) {
      const scores: number[] = [];
      for (let j = 0; j < keys && j <= row; j++) {
        let sum = 0;
        for (let d = 0; d < dim; d++) {
          const factor = softened ? scale![d]! : Math.log(1 + Math.exp(scale![d]!));
          const query = (at(row, 0, head, d) * factor) / (Math.sqrt(dim) * Math.log(2));
          const key = (at(row - j, 1, head, d) * Math.log(1 + Math.E)) / Math.log(2);
          sum += query * (key + relative![j * relativeStride + head * dim + d]!);
        }
        scores.push(cap * Math.tanh(sum / cap));
      }
      const total = scores.reduce((sum, score) => sum + Math.exp(score), 0);
      for (let d = 0; d < dim; d++)
        out[row * outStride + head * dim + d] = scores.reduce(
          (sum, score, j) => sum + (Math.exp(score) / total) * at(row - j, 2, head, d),
          0,
        );
    }
  }
  return { out };
}
