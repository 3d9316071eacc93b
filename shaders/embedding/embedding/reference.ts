import { alignUp } from '../../../src/base/math.js';
import type { EmbeddingProblem } from './index.js';

/** Straight from the equation; `table` is [shardRows][hidden]. Rows that the kernel leaves alone keep what `out` holds. */
export function embeddingReference(
  { hidden, outStride, shardFirst, shardRows, scaleBy = 1, zeroOthers = false, adds, index }: EmbeddingProblem,
  tokens: ArrayLike<number>,
  table: ArrayLike<number>,
  out: ArrayLike<number>,
): number[] {
  const result = Array.from(out);
  const written = alignUp(hidden, 4);
  const { stride = 1, shift = 0, mask = 0xffffffff, first = 0 } = index ?? {};
  for (let r = 0; r < tokens.length / stride; r++) {
    const n = (((tokens[r * stride]! >>> shift) & mask) >>> 0) + first - shardFirst;
    if (n < 0 || n >= shardRows) {
      if (zeroOthers) result.fill(0, r * outStride, r * outStride + written);
      continue;
    }
    result.fill(0, r * outStride, r * outStride + written);
    for (let k = 0; k < hidden; k++) {
      const at = r * outStride + k;
      result[at] = Math.fround(table[n * hidden + k]! * Math.fround(scaleBy) + (adds ? out[at]! : 0));
    }
  }
  return result;
}
