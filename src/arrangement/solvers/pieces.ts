import { sum } from '../../base/lists.js';
import { piecesBound, wholeLoadsBound } from './pieces_bound.js';
import { evenPeak, mostCopies, type Task } from '../task.js';
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
export function cutHeads(task: Task, copies: readonly number[]): Piece[] {
  return task.loads
    .map((load, head) =>
      equalShares(copies[head]!, task.batch).map((share): Piece => ({ head, share, size: load * share })),
    )
    .sort(([a], [b]) => b!.size - a!.size || a!.head - b!.head)
    .flat();
}

/** The shares that placing piece i on rank ranks[i] gives. */
export function headShares(numHeads: number, pieces: readonly Piece[], ranks: readonly number[]): HeadShare[][] {
  const heads = Array.from({ length: numHeads }, (): HeadShare[] => []);
  for (const [i, { head, share }] of pieces.entries()) heads[head]!.push({ rank: ranks[i]!, share });
  for (const copies of heads) copies.sort((a, b) => a.rank - b.rank);
  return heads;
}

/**
 * What the busiest rank has at least however heads are cut into equal pieces within the budgets: the mean, the largest piece that is
 * left when always the largest is cut further, and what so few cuts of whole numbers allow.
 */
export function equalSharesBound(task: Task): number {
  let copies: readonly number[] = [];
  for (copies of cutLargestFirst(task));
  if (copies.every((n) => n === 1)) return Math.max(evenPeak(task), piecesBound(task.loads, task.room.length));
  const largest = task.loads.map((load, head) => largestPiece(load, copies[head]!, task.batch));
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
  const left = [...task.budgets];
  let spare = sum(task.room) - copies.length;
  yield [...copies];
  for (; spare > 0; spare--) {
    let chosen = -1;
    let largest = 0;
    for (const [head, load] of task.loads.entries()) {
      if (copies[head]! >= most || left[task.budgetOf[head]!]! <= 0) continue;
      const size = largestPiece(load, copies[head]!, task.batch);
      if (size > largest) [chosen, largest] = [head, size];
    }
    if (chosen < 0) return;
    copies[chosen]!++;
    left[task.budgetOf[chosen]!]!--;
    yield [...copies];
  }
}
