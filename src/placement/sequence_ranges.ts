import { sameList } from './lists.js';
import type { RankShare } from './plan.js';

/** Rows [first, end). */
export type RowRange = readonly [first: number, end: number];

/**
 * Slots dealt to ranks in proportion to their weights, as runs in the order of the ranks: by the largest remainder, of equals the
 * later one, since a root comes first and should have fewer.
 */
export function sequenceRanges(weights: readonly number[], slots: number): RowRange[] {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const exact = weights.map((weight) => (weight / total) * slots);
  const counts = exact.map(Math.floor);
  const left = slots - counts.reduce((sum, count) => sum + count, 0);
  const order = [...weights.keys()]
    .filter((index) => weights[index]! > 0)
    .toSorted((a, b) => exact[b]! - counts[b]! - (exact[a]! - counts[a]!) || b - a);
  for (const index of order.slice(0, left)) counts[index]!++;
  let next = 0;
  return counts.map((count) => {
    const first = next;
    next += count;
    return [first, next];
  });
}

/** The slots whose cache a rank of a stage keeps: all, but where whole sequences are dealt out. */
export function ownSlots(share: RankShare, stage: readonly RankShare[], slots: number): RowRange {
  if (share.sequences === undefined) return [0, slots];
  const members = stage.filter(({ kvHeads }) => sameList(kvHeads, share.kvHeads));
  const weights = members.map(({ sequences = 0 }) => sequences);
  return sequenceRanges(weights, slots)[members.indexOf(share)]!;
}
