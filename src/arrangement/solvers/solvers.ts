/**
 * Room: how each mode arranges the heads of one layer. pieces.ts and place.ts have what they share: cuts of heads, their
 * bounds, and pieces put on ranks. Read place.ts next, then exact.ts.
 */

import { exact } from './exact.js';
import { fairCopy, greedy } from './fair_copy.js';
import { type Answer, better, type Steps, type Task, TIE } from '../task.js';
import type { Mode } from '../types.js';
import { wrap } from './wrap.js';

export type Solver = (task: Task, steps: Steps) => Answer;

/** How each mode arranges the heads of one task; `static` searches nothing. */
export const SOLVERS: Readonly<Record<Exclude<Mode, 'static'>, Solver>> = {
  exact,
  greedy,
  'fair-copy': fairCopy,
  wrap,
};

const isProved = ({ peak, bound }: Answer): boolean => peak <= bound * (1 + TIE);

/**
 * Solves tasks that have nothing to do with each other: each with an equal part of the steps that are left, then those that it
 * wasn't enough for once more, with what the others didn't need.
 */
export function solveEach(tasks: readonly Task[], solve: Solver, steps: Steps): Answer[] {
  const part = Math.floor(steps.left / tasks.length / 2);
  const solveWith = (task: Task, left: number): { readonly found: Answer; readonly cut: boolean } => {
    const own = { left };
    steps.left -= left;
    const found = solve(task, own);
    steps.left += own.left;
    return { found, cut: own.left < left / 2 && !isProved(found) };
  };
  const first = tasks.map((task) => ({ task, ...solveWith(task, part) }));
  let open = first.filter(({ cut }) => cut).length;
  return first.map(({ task, found, cut }) => {
    if (!cut) return found;
    const more = Math.floor(steps.left / open--);
    // Searched again from the start, so only with clearly more.
    if (more <= 2 * part) return found;
    const again = solveWith(task, more).found;
    const best = better(found, again);
    return { ...best, bound: Math.min(best.peak, Math.max(found.bound, again.bound)) };
  });
}
