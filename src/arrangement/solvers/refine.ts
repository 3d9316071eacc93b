import { assign, type Steps } from './assign.js';
import { headShares, placedPieces } from './pieces.js';
import { answer, type Answer, loadsWith, type Task, TIE } from '../task.js';

/** Search steps for three ranks, at most. */
const STEPS = 4000;

/** Arranges the pieces on the busiest rank and two others anew by branch and bound, until no two others help or the steps run out. */
export function refine(task: Task, start: Answer, steps: Steps): Answer {
  let best = start;
  while (best.peak > best.bound * (1 + TIE)) {
    const better = refineOnce(task, best, steps);
    if (!better) break;
    best = better;
  }
  return best;
}

function refineOnce(task: Task, { heads, bound }: Answer, steps: Steps): Answer | undefined {
  const { pieces, ranks } = placedPieces(task.loads, heads);
  const loads = loadsWith(task, heads);
  const [busiest, ...others] = [...loads.keys()].sort((a, b) => loads[b]! - loads[a]! || a - b);
  // The lightest first: the most to gain.
  others.reverse();
  for (const [i, second] of others.entries()) {
    for (const third of others.slice(i + 1)) {
      const three = [busiest!, second, third];
      const taken = [...pieces.keys()].filter((p) => three.includes(ranks[p]!));
      const bins = {
        room: three.map((rank) => task.room[rank]!),
        base: three.map((rank) => task.base[rank]!),
        speed: [1, 1, 1],
      };
      const mean = three.reduce((total, rank) => total + loads[rank]!, 0) / 3;
      const own = { left: Math.min(STEPS, steps.left) };
      steps.left -= own.left;
      const found = assign(
        bins,
        taken.map((p) => pieces[p]!),
        loads[busiest!]!,
        Math.max(mean, bound),
        own,
      );
      steps.left += own.left;
      if (!found.ranks) continue;
      for (const [at, p] of taken.entries()) ranks[p] = three[found.ranks[at]!]!;
      return answer(task, headShares(task.loads.length, pieces, ranks), bound);
    }
  }
  return undefined;
}
