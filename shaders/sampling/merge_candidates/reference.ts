import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { readSlotParams } from '../argmax_partial/reference.js';
import { bestPairs } from '../candidates/reference.js';
import { CANDIDATES, candidateTiles, NO_TOKEN, type SliceProblem } from '../params.js';

/** The best pairs of all tiles; slots that aren't active keep what `candidates` holds. */
export function mergedReference(problem: SliceProblem, inputs: HostArrays): number[] {
  const { slots, vocab, slice: [first, end] = [0, vocab] } = problem;
  const each = candidateTiles(end - first) * CANDIDATES;
  const merged: number[] = Array.from(inputs['candidates']!);
  for (let slot = 0; slot < slots; slot++) {
    if (!readSlotParams(inputs['sampling']!, slot).active) continue;
    const pairs = Array.from({ length: each }, (_, i) => {
      const place = 2 * (slot * each + i);
      return [inputs['found']![place]!, inputs['found']![place + 1]!] as const;
    }).filter(([, id]) => id !== NO_TOKEN);
    merged.splice(slot * CANDIDATES * 2, CANDIDATES * 2, ...bestPairs(pairs));
  }
  return merged;
}
