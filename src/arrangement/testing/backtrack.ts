import { sum } from '../../base/lists.js';
import { greedy, staticAnswer } from '../solvers/fair_copy.js';
import { equalShares, equalSharesBound, headShares, type Piece } from '../solvers/pieces.js';
import { answer, type Answer, mostCopies, spareCopies, type Steps, type Task, TIE } from '../task.js';

/**
 * FairKV's backtracking over the list of heads (its algorithm 1), as a reference for `exact`: every list of at most m pieces, where a head
 * stays whole or is split into n = 2 .. m - |current| + 1 equal parts; m = heads + copies. What the paper leaves open is filled
 * in plainly: the pieces of each list are placed on the ranks in every way, and the least peak wins. Parts of a head lie on
 * different ranks, so no head has more than there are ranks.
 *
 * Exponential: of use for some 8 heads and 2 copies. It starts from the static placement and shares no code with `exact`.
 */
export function backtrack(task: Task, steps: Steps): Answer {
  const { loads, batch } = task;
  const m = loads.length + spareCopies(task);
  let best = staticAnswer(task) ?? greedy(task);
  const current: Piece[] = [];

  const recurse = (index: number): void => {
    if (steps.left <= 0) return;
    steps.left--;
    const load = loads[index];
    if (load === undefined) {
      if (current.length > m) return;
      const ranks = placeEveryWay(task, current, best.peak, steps);
      if (ranks) best = answer(task, headShares(loads.length, current, ranks), 0);
      return;
    }
    for (let n = 1; n <= Math.max(1, m - current.length + 1); n++) {
      if (n > mostCopies(task)) break;
      current.push(...equalShares(n, batch).map((share) => ({ head: index, share, size: load * share })));
      recurse(index + 1);
      current.length -= n;
    }
  };
  recurse(0);
  return answer(task, best.heads, steps.left > 0 ? best.peak : equalSharesBound(task));
}

/** The best ranks for the pieces, if their peak is below the limit. */
function placeEveryWay(
  { room }: Task,
  pieces: readonly Piece[],
  limit: number,
  steps: Steps,
): readonly number[] | undefined {
  const held = room.map((places, rank) => ({ rank, places, pieces: [] as Piece[] }));
  const ranks: number[] = [];
  const loadOf = ({ pieces: own }: (typeof held)[number]): number => sum(own.map(({ size }) => size));
  let least = limit * (1 - TIE);
  let best: readonly number[] | undefined;
  const place = (i: number): void => {
    if (steps.left <= 0) return;
    steps.left--;
    const piece = pieces[i];
    if (piece === undefined) {
      best = [...ranks];
      least = Math.max(...held.map(loadOf)) * (1 - TIE);
      return;
    }
    const tried = new Set<number>(); // rooms of empty ranks
    for (const own of held) {
      if (own.pieces.length === 0) {
        if (tried.has(own.places)) continue;
        tried.add(own.places);
      }
      if (own.pieces.length >= own.places || own.pieces.some(({ head }) => head === piece.head)) continue;
      if (loadOf(own) + piece.size >= least) continue;
      own.pieces.push(piece);
      ranks.push(own.rank);
      place(i + 1);
      own.pieces.pop();
      ranks.pop();
    }
  };
  place(0);
  return best;
}
