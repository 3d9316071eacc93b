/**
 * Room: how each mode arranges the heads of one layer, a file each; pieces.ts and assign.ts have what they share. Read
 * longest_first.ts next, then exact.ts.
 */

import type { Steps } from './assign.js';
import { backtrack } from './backtrack.js';
import { exact } from './exact.js';
import { fairCopy, greedy } from './fair_copy.js';
import type { Answer, Task } from '../task.js';
import type { Mode } from '../types.js';
import { wrap } from './wrap.js';

export type Solver = (task: Task, steps: Steps) => Answer;

/** How each mode arranges the heads of one task; `static` searches nothing. */
export const SOLVERS: Readonly<Record<Exclude<Mode, 'static'>, Solver>> = {
  backtrack,
  exact,
  greedy,
  'fair-copy': fairCopy,
  wrap,
};
