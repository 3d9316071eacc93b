import { sum } from '../../base/lists.js';
import { gcd } from '../../base/math.js';

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
  const parts = partsOf(sizes);
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

/** With more copies than this every rank may hold parts of heads, and of any size: nothing is to be gained. */
const COUNTED_COPIES = 8;

/**
 * What the busiest of `ranks` ranks has at least when loads are whole numbers of some part and only `copies` copies may cut them: cutting
 * heads in n1, n2, ... leaves n1 + n2 + ... pieces that needn't be whole, so on the other ranks loads are whole, and everywhere
 * multiples of 1 / lcm(n1, n2, ...); with a batch, of 1 / batch. The least over all such ways to spend the copies.
 */
export function wholeLoadsBound(loads: readonly number[], ranks: number, copies: number, batch: number): number {
  const parts = partsOf(loads);
  if (parts === undefined || copies > COUNTED_COPIES) return 0;
  const all = Math.round(sum(loads) * parts);
  let least = Infinity;
  const cut = (left: number, most: number, pieces: number, grid: number): void => {
    least = Math.min(
      least,
      leastPeak(all, ranks, Math.min(ranks, pieces), batch === Infinity || pieces === 0 ? grid : batch),
    );
    for (let n = Math.min(most, left + 1); n >= 2; n--) cut(left - (n - 1), n, pieces + n, lcm(grid, n));
  };
  cut(copies, ranks, 0, 1);
  return least / parts;
}

/** The least multiple of 1 / grid that is enough for all, where only `cut` of the ranks may hold more than a whole number. */
function leastPeak(all: number, ranks: number, cut: number, grid: number): number {
  for (let whole = Math.floor(all / ranks); ; whole++) {
    const rest = all - (ranks - cut) * whole;
    const peak = cut === 0 ? (rest <= 0 ? whole : Infinity) : Math.max(whole, Math.ceil((rest * grid) / cut) / grid);
    if (peak < whole + 1) return peak;
  }
}

/** Of how many equal parts of 1 all sizes are whole numbers; undefined where of none that is tried. */
const partsOf = (sizes: readonly number[]): number | undefined =>
  PARTS.find((n) => sizes.every((size) => Math.abs(size * n - Math.round(size * n)) <= WHOLE));

const lcm = (a: number, b: number): number => (a / gcd(a, b)) * b;
