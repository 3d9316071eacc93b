import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { keyOf, penalisedLogits, readSlotParams } from '../argmax_partial/reference.js';
import { CANDIDATE_TILE, CANDIDATES, NO_TOKEN, type SliceProblem } from '../params.js';

/** The best (key, id) pairs of some tokens, larger key first, then lower id, filled up with (0, NO_TOKEN). */
export function bestPairs(pairs: readonly (readonly [key: number, id: number])[]): number[] {
  const best = pairs.toSorted(([a, i], [b, j]) => b - a || i - j).slice(0, CANDIDATES);
  return Array.from({ length: CANDIDATES }, (_, place) => best[place] ?? ([0, NO_TOKEN] as const)).flat();
}

/**
 * The best pairs of each tile of `tileSize` tokens, [slots][tiles][CANDIDATES]; slots that aren't active keep what `before` holds.
 */
export function candidatesReference(
  problem: SliceProblem,
  inputs: HostArrays,
  before: ArrayLike<number>,
  tileSize = CANDIDATE_TILE,
): number[] {
  const { slots, vocab, slice: [first, end] = [0, vocab] } = problem;
  const tiles = Math.ceil((end - first) / tileSize);
  const found = Array.from(before);
  for (let slot = 0; slot < slots; slot++) {
    if (!readSlotParams(inputs['sampling']!, slot).active) continue;
    const logits = penalisedLogits(problem, inputs, slot);
    for (let tile = 0; tile < tiles; tile++) {
      const from = first + tile * tileSize;
      const length = Math.min(tileSize, end - from);
      const best = bestPairs(Array.from({ length }, (_, i) => [keyOf(logits[from + i]!), from + i]));
      found.splice((slot * tiles + tile) * CANDIDATES * 2, best.length, ...best);
    }
  }
  return found;
}
