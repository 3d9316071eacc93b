import { type Bins, improve } from './improve.js';
import { placeLongestFirst } from './longest_first.js';
import { cutHeads, cutLargestFirst, equalSharesBound, headShares } from './pieces.js';
import { staticAnswer } from '../static.js';
import { answer, type Answer, better, type Task, TIE, withoutCopies } from '../task.js';

/** Copies that gain less than this, relative, one after the other, after which no more are tried. */
const GAIN = 1e-4;
const PATIENCE = 16;

/** Ranks, all of one speed. */
export const bins = (task: Task): Bins => ({ room: task.room, base: task.base, speed: task.room.map(() => 1) });

/** Longest piece first, once; the static placement where that is better. */
export function greedy(task: Task): Answer {
  const bound = equalSharesBound(withoutCopies(task));
  const pieces = cutHeads(
    task,
    task.loads.map(() => 1),
  );
  // Whole heads always find a place: there is room for all of them.
  const ranks = placeLongestFirst(bins(task), pieces)!;
  const found = answer(task, headShares(task.loads.length, pieces, ranks), bound);
  return better(found, staticAnswer(task));
}

/**
 * Fair copying: the head with the largest pieces gets one copy more, its requests in equal shares, until the budget is spent;
 * each time the pieces are placed longest first and improved. The best placement on the way wins, of equals that with fewer copies.
 */
export function fairCopy(task: Task): Answer {
  const bound = equalSharesBound(task);
  let best = greedy(task);
  let vain = 0;
  for (const copies of cutLargestFirst(task)) {
    if (best.peak <= bound * (1 + TIE) || vain > PATIENCE) break;
    const found = placeCut(task, copies, bound);
    vain = found && found.peak < best.peak * (1 - GAIN) ? 0 : vain + 1;
    if (found) best = better(best, found);
  }
  return answer(task, best.heads, bound);
}

/** One cut of the heads, placed longest first and improved; undefined where a copy finds no place. */
export function placeCut(task: Task, copies: readonly number[], bound: number): Answer | undefined {
  const pieces = cutHeads(task, copies);
  const first = placeLongestFirst(bins(task), pieces);
  if (!first) return undefined;
  return answer(task, headShares(task.loads.length, pieces, improve(bins(task), pieces, first)), bound);
}
