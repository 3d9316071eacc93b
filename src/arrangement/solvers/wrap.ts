import type { Steps } from './assign.js';
import { fairCopy } from './fair_copy.js';
import { fill } from './fill.js';
import { groupRanks } from './groups.js';
import { equalSharesBound } from './pieces.js';
import { answer, type Answer, better, evenPeak, type Task, TIE, withoutCopies } from '../task.js';
import type { LayerPlacement } from '../types.js';
import { improveUnits } from '../units.js';
import { intoRoom, wrapGroups } from './wrap_line.js';

/**
 * McNaughton's wrap-around: heads in a line, cut where a rank is full, the rest of the cut head to the next rank. That takes
 * ranks - 1 copies at most, also where more are allowed, and leaves no rank with more than the mean. With fewer copies, or too
 * little room, ranks are put into groups that each wrap their own heads; with requests in a batch the shares are rounded and
 * then improved request by request.
 *
 * @param task of one layer
 */
export function wrap(task: Task, steps: Steps): Answer {
  const copies = Math.min(task.room.length - 1, task.budgets[0]!);
  if (copies === 0 || task.batch === 1) {
    const whole = withoutCopies(task);
    return answer(task, fairCopy(whole).heads, equalSharesBound(whole));
  }
  const limited = { ...task, budgets: [copies] };
  let bound = evenPeak(task);
  let best: Answer | undefined;
  const consider = (heads: LayerPlacement | undefined): void => {
    if (!heads) return;
    const found = answer(task, task.batch === Infinity ? heads : improveUnits(limited, heads), bound);
    best = best ? better(best, found) : found;
  };
  if (task.base.every((load) => load === 0)) {
    for (let n = copies; n > 0 && !best; n--) {
      const grouped = groupRanks(limited, n, steps);
      if (n === copies) bound = grouped.bound;
      consider(intoRoom(limited, wrapGroups(limited, grouped.groups)));
    }
  }
  // Equal shares are shares, too; and where wrapping isn't perfect they may be better.
  if (!best || best.peak > bound * (1 + TIE)) consider(fairCopy(limited).heads);
  if (best!.peak > bound * (1 + TIE)) consider(fill(limited, best!.peak));
  return answer(task, best!.heads, bound);
}
