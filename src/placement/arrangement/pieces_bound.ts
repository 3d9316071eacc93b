import { sum } from '../lists.js';

/** Sizes that are whole numbers of one of these parts give peaks that are, too. */
const PARTS = [1, 2, 3, 4, 6, 12, 60];
const WHOLE = 1e-9;

/**
 * What the busiest of `ranks` ranks has at least when pieces of these sizes stay whole. The largest of:
 * - the mean, and the largest piece;
 * - of any k * ranks + 1 pieces some rank gets k + 1: the k + 1 smallest of the largest k * ranks + 1;
 * - a piece with which not even the smallest other piece fits fills its rank alone, and the rest must fit on the other ranks;
 * rounded up to a whole number of parts where all sizes are.
 */
export function piecesBound(pieceSizes: readonly number[], ranks: number): number {
  const sizes = [...pieceSizes].sort((a, b) => b - a);
  let bound = Math.max(sum(sizes) / ranks, sizes[0]!);
  for (let k = 1; k * ranks < sizes.length; k++) {
    bound = Math.max(bound, sum(sizes.slice(k * ranks - k, k * ranks + 1)));
  }
  if (sizes.length > ranks) bound = Math.max(bound, aloneBound(sizes, ranks));
  const parts = PARTS.find((n) => sizes.every((size) => Math.abs(size * n - Math.round(size * n)) <= WHOLE));
  return parts === undefined ? bound : Math.max(bound, Math.ceil(bound * parts * (1 - WHOLE)) / parts);
}

/** A peak lower than a piece and the smallest one together leaves that piece alone; for each number of such pieces what it costs. */
function aloneBound(sizes: readonly number[], ranks: number): number {
  const smallest = sizes.at(-1)!;
  let rest = sum(sizes);
  let bound = Infinity;
  for (let alone = 0; alone < ranks; alone++) {
    bound = Math.min(bound, Math.max(rest / (ranks - alone), sizes[alone]! + smallest));
    rest -= sizes[alone]!;
  }
  return bound;
}
