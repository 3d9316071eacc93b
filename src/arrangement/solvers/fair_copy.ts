import { bins, improve, placeLongestFirst } from './place.js';
import { cutHeads, cutLargestFirst, equalSharesBound, headShares, piecesBound } from './pieces.js';
import { answer, type Answer, better, rankCopies, staticPlacement, type Task, TIE } from '../task.js';

/** Copies that gain less than this, relative, one after the other, after which no more are tried. */
const GAIN = 1e-4;
const PATIENCE = 16;

/** The static placement of the task's heads; undefined where it has no room. */
export function staticAnswer(task: Task): Answer | undefined {
  const { loads, room } = task;
  const heads = staticPlacement(loads.length, room.length);
  const held = rankCopies(heads, room.length);
  if (room.some((places, rank) => (held[rank] ?? 0) > places)) return undefined;
  return answer(task, heads, piecesBound(loads, room.length));
}

/** Longest piece first, once; the static placement where that is better. */
export function greedy(task: Task): Answer {
  const bound = equalSharesBound({ ...task, copies: 0 });
  const pieces = cutHeads(task, []);
  // Whole heads always find a place: there is room for all of them.
  const ranks = placeLongestFirst(bins(task), pieces) ?? [];
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
