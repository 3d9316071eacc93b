import { sum } from '../../base/lists.js';
import { evenPeak, type Task, TIE } from '../task.js';
import type { HeadShare, LayerPlacement } from '../types.js';

/** Halvings of the interval in which the lowest peak is looked for. */
const HALVINGS = 40;

/**
 * Fills ranks one after the other, cutting heads where a rank is full, to the lowest peak below `limit` at which all heads find a
 * place that way.
 */
export function fill(task: Task, limit: number): LayerPlacement | undefined {
  let low = evenPeak(task) * (1 + TIE / 4);
  let best = fillTo(task, low);
  if (best) return best;
  let high = limit;
  for (let i = 0; i < HALVINGS; i++) {
    const middle = (low + high) / 2;
    const found = fillTo(task, middle);
    if (found) [best, high] = [found, middle];
    else low = middle;
  }
  return best;
}

/** No rank above `peak`: the largest heads that still fit, then as many requests of one head as fit, if a copy is allowed. */
function fillTo(task: Task, peak: number): LayerPlacement | undefined {
  const { loads, room, batch, budgetOf } = task;
  const out = loads.map((): HeadShare[] => []);
  const left = loads.map(() => 1);
  const budgets = [...task.budgets];
  const open = new Set([...loads.keys()].sort((a, b) => loads[b]! - loads[a]! || a - b));
  let spare = sum(room) - loads.length;
  for (const [rank, places] of room.entries()) {
    let gap = peak - task.base[rank]!;
    let free = places;
    const give = (head: number, share: number): void => {
      out[head]!.push({ rank, share });
      gap -= loads[head]! * share;
      free--;
    };
    // Rests of heads cut before go first: whole heads can wait, a rest that must be cut again costs another copy.
    for (const head of [...open].sort((a, b) => Number(left[b]! < 1) - Number(left[a]! < 1))) {
      if (free <= 0 || loads[head]! * left[head]! > gap) continue;
      give(head, left[head]!);
      open.delete(head);
    }
    let cut = -1;
    let share = 0;
    for (const head of open) {
      if (free <= 0 || spare <= 0 || budgets[budgetOf[head]!]! <= 0) continue;
      const fits = gap / loads[head]!;
      const part = batch === Infinity ? fits : Math.floor(fits * batch) / batch;
      const size = part > TIE ? loads[head]! * part : 0;
      if (size > (cut < 0 ? 0 : loads[cut]! * share)) [cut, share] = [head, part];
    }
    if (cut < 0) continue;
    give(cut, share);
    left[cut]! -= share;
    budgets[budgetOf[cut]!]!--;
    spare--;
  }
  return open.size === 0 ? out : undefined;
}
