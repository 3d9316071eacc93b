import type { EmbeddingProblem } from './index.js';

/** Straight from the equation; `table` is [shardRows][hidden]. Rows that the kernel leaves alone keep what `out` holds. */
export function embeddingReference(
  { hidden, outStride, shardFirst, shardRows, scaleBy = 1, zeroOthers = false }: EmbeddingProblem,
  tokens: ArrayLike<number>,
  table: ArrayLike<number>,
  out: ArrayLike<number>,
): number[] {
  const result = Array.from(out);
  for (let r = 0; r < tokens.length; r++) {
    const n = tokens[r]! - shardFirst;
    if (n < 0 || n >= shardRows) {
      if (zeroOthers) result.fill(0, r * outStride, r * outStride + hidden);
      continue;
    }
    for (let k = 0; k < hidden; k++) result[r * outStride + k] = table[n * hidden + k]! * Math.fround(scaleBy);
  }
  return result;
}
