import { sum } from '../../base/lists.js';
import type { Steps } from './assign.js';
import { greedy } from './fair_copy.js';
import { equalShares, equalSharesBound, headShares, type Piece } from './pieces.js';
import { staticAnswer } from '../static.js';
import { answer, type Answer, mostCopies, type Task, TIE } from '../task.js';

/**
 * FairKV's backtracking over the list of heads (its algorithm 1), as the reference: every list of at most m pieces, where a head
 * stays whole or is split into n = 2 .. m - |current| + 1 equal parts; m = heads + copies. What the paper leaves open is filled
 * in plainly: the pieces of each list are placed on the ranks in every way, and the least peak wins. Parts of a head lie on
 * different ranks, so no head has more than there are ranks.
 *
 * Exponential: of use for some 8 heads and 2 copies. It starts from the static placement and shares no code with `exact`.
 */
export function backtrack(task: Task, steps: Steps): Answer {
  const { loads, room, batch } = task;
  const m = loads.length + Math.min(sum(task.budgets), sum(room) - loads.length);
  let best = staticAnswer(task) ?? greedy(task);
  const current: Piece[] = [];

  const recurse = (index: number): void => {
    if (steps.left <= 0) return;
    steps.left--;
    if (index === loads.length) {
      if (current.length > m || overdrawn(task, current)) return;
      const ranks = placeEveryWay(task, current, best.peak, steps);
      if (ranks) best = answer(task, headShares(loads.length, current, ranks), 0);
      return;
    }
    for (let n = 1; n <= Math.max(1, m - current.length + 1); n++) {
      if (n > mostCopies(task)) break;
      current.push(...equalShares(n, batch).map((share) => ({ head: index, share, size: loads[index]! * share })));
      recurse(index + 1);
      current.length -= n;
    }
  };
  recurse(0);
  return answer(task, best.heads, steps.left > 0 ? best.peak : equalSharesBound(task));
}

/** Whether a layer has more pieces than its heads and copies. */
function overdrawn({ budgetOf, budgets }: Task, pieces: readonly Piece[]): boolean {
  const left = [...budgets];
  for (const [i, { head }] of pieces.entries()) if (pieces[i - 1]?.head === head) left[budgetOf[head]!]!--;
  return left.some((budget) => budget < 0);
}

/** The best ranks for the pieces, if their peak is below the limit. */
function placeEveryWay(
  { room, base }: Task,
  pieces: readonly Piece[],
  limit: number,
  steps: Steps,
): readonly number[] | undefined {
  const held = room.map((): Piece[] => []);
  const ranks: number[] = [];
  const loadOf = (rank: number): number => base[rank]! + sum(held[rank]!.map(({ size }) => size));
  let least = limit * (1 - TIE);
  let best: readonly number[] | undefined;
  const place = (i: number): void => {
    if (steps.left <= 0) return;
    steps.left--;
    const piece = pieces[i];
    if (piece === undefined) {
      best = [...ranks];
      least = Math.max(...base.map((_, rank) => loadOf(rank))) * (1 - TIE);
      return;
    }
    const tried: number[] = []; // empty ranks that differ in something
    for (const [rank, list] of held.entries()) {
      if (list.length === 0) {
        if (tried.some((other) => room[other] === room[rank] && base[other] === base[rank])) continue;
        tried.push(rank);
      }
      if (list.length >= room[rank]! || list.some(({ head }) => head === piece.head)) continue;
      if (loadOf(rank) + piece.size >= least) continue;
      list.push(piece);
      ranks.push(rank);
      place(i + 1);
      list.pop();
      ranks.pop();
    }
  };
  place(0);
  return best;
}
