import { range, sum } from '../../base/lists.js';
import { gcd } from '../../base/math.js';
import { evenPeak, mostCopies, spareCopies, type Task } from '../task.js';
import type { HeadShare } from '../types.js';

/** A part of a head's requests that one rank is to serve. */
export interface Piece {
  readonly head: number;
  readonly share: number;
  readonly size: number;
}

/** `copies` shares, largest first, as equal as requests allow: 1/3 each, or 3/8, 3/8, 2/8 for a batch of 8. */
export function equalShares(copies: number, batch: number): number[] {
  if (batch === Infinity) return new Array<number>(copies).fill(1 / copies);
  const base = Math.floor(batch / copies);
  const longer = batch % copies;
  return Array.from({ length: copies }, (_, i) => (base + (i < longer ? 1 : 0)) / batch);
}

/** The largest of the pieces that a head of this load gives. */
export const largestPiece = (load: number, copies: number, batch: number): number =>
  load * (batch === Infinity ? 1 / copies : Math.ceil(batch / copies) / batch);

/**
 * Every head in as many pieces as it has copies.
 *
 * @returns the heads by falling size of their largest piece; a head's pieces follow each other, largest first
 */
export function cutHeads({ loads, batch }: Task, copies: readonly number[]): Piece[] {
  const largest = (pieces: readonly Piece[]): number => pieces[0]?.size ?? 0;
  return loads
    .map((load, head) =>
      equalShares(copies[head] ?? 1, batch).map((share): Piece => ({ head, share, size: load * share })),
    )
    .sort((a, b) => largest(b) - largest(a))
    .flat();
}

/** The shares that placing piece i on rank ranks[i] gives. */
export function headShares(numHeads: number, pieces: readonly Piece[], ranks: readonly number[]): HeadShare[][] {
  const placed = pieces.map(({ head, share }, i) => ({ head, copy: { rank: ranks[i] ?? 0, share } }));
  return range(0, numHeads).map((of) =>
    placed.flatMap(({ head, copy }) => (head === of ? [copy] : [])).sort((a, b) => a.rank - b.rank),
  );
}

/**
 * What the busiest rank has at least however heads are cut into equal pieces within the budgets: the mean, the largest piece that is
 * left when always the largest is cut further, and what so few cuts of whole numbers allow.
 */
export function equalSharesBound(task: Task): number {
  let copies: readonly number[] = [];
  for (copies of cutLargestFirst(task));
  if (copies.every((n) => n === 1)) return Math.max(evenPeak(task), piecesBound(task.loads, task.room.length));
  const largest = task.loads.map((load, head) => largestPiece(load, copies[head] ?? 1, task.batch));
  const spent = sum(copies) - copies.length;
  return Math.max(evenPeak(task), ...largest, wholeLoadsBound(task.loads, task.room.length, spent, task.batch));
}

/**
 * Copies of each head: at first one, then always one more of the head whose pieces are largest and may still be cut, until
 * nothing may. No other cut within the same budgets has a smaller largest piece.
 */
export function* cutLargestFirst(task: Task): Generator<readonly number[], void> {
  const most = mostCopies(task);
  const copies = task.loads.map(() => 1);
  yield [...copies];
  for (let spare = spareCopies(task); spare > 0; spare--) {
    let chosen = -1;
    let largest = 0;
    for (const [head, count] of copies.entries()) {
      const size = count < most ? largestPiece(task.loads[head] ?? 0, count, task.batch) : 0;
      if (size > largest) [chosen, largest] = [head, size];
    }
    if (chosen < 0) return;
    copies[chosen]!++;
    yield [...copies];
  }
}

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
  let bound = Math.max(sum(sizes) / ranks, sizes[0] ?? 0);
  for (let k = 1; k * ranks < sizes.length; k++) {
    bound = Math.max(bound, sum(sizes.slice(k * ranks - k, k * ranks + 1)));
  }
  if (sizes.length > ranks) bound = Math.max(bound, aloneBound(sizes, ranks));
  const parts = partsOf(sizes);
  return parts === undefined ? bound : Math.max(bound, Math.ceil(bound * parts * (1 - WHOLE)) / parts);
}

/** A peak lower than a piece and the smallest one together leaves that piece alone; for each number of such pieces what it costs. */
function aloneBound(sizes: readonly number[], ranks: number): number {
  const smallest = Math.min(...sizes);
  let rest = sum(sizes);
  let bound = Infinity;
  for (const [alone, size] of sizes.slice(0, ranks).entries()) {
    bound = Math.min(bound, Math.max(rest / (ranks - alone), size + smallest));
    rest -= size;
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
  const all = Math.round(sum(loads) * (parts ?? NaN));
  // Beyond exact numbers nothing is counted one by one.
  if (parts === undefined || !Number.isSafeInteger(all) || copies > COUNTED_COPIES) return 0;
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
