import { usageError } from '../base/errors.js';
import { range, sum } from '../base/lists.js';
import type { Steps } from './solvers/assign.js';
import { checkProblem } from './check_problem.js';
import { solveEach } from './layers.js';
import { busiestTotal, makespan, utilisation } from './measures.js';
import { withinMemory } from './memory.js';
import { equalSharesBound } from './solvers/pieces.js';
import { SOLVERS } from './solvers/solvers.js';
import { staticPlacement } from './static.js';
import { evenPeak, layerTask, rankCopies, type Task, TIE } from './task.js';
import { balanceTotal } from './total.js';
import type { Arrangement, ArrangementProblem, Placement } from './types.js';

/** Some seconds at most. Steps, not seconds: the same problem has the same answer on every machine. */
const STEPS = 4_000_000;

/**
 * Arranges heads over ranks so that the busiest rank has little to do.
 *
 * The same problem always gives the same arrangement. Limits of copies and memory are kept in every mode. No arrangement is
 * worse, by its objective, than the static one, unless memory forbids that one.
 *
 * @param steps of search at most, for all layers together; a million take some tenths of a second
 * @throws SplitkvError `usage` for a problem that makes no sense, or memory that a static arrangement doesn't fit in
 */
export function arrange(problem: ArrangementProblem, steps = STEPS): Arrangement {
  checkProblem(problem);
  const { placement, bound } = search(problem, { left: steps });
  return measure(problem, placement, bound);
}

/**
 * Copies beyond the first that a layer may have: as the problem says; without it as many as memory allows, where memory is
 * limited; else ranks - 1 for `fair-copy` and `wrap` (as many as wrapping takes), none for `backtrack` and `exact`. The modes
 * `static` and `greedy` never copy.
 */
export function copyLimit({ mode, copies, memory, ranks }: ArrangementProblem): number {
  if (mode === 'static' || mode === 'greedy') return 0;
  if (copies !== undefined) return copies;
  if (memory !== undefined) return Infinity;
  return mode === 'fair-copy' || mode === 'wrap' ? ranks - 1 : 0;
}

interface Found {
  readonly placement: Placement;
  /** Of the makespan. */
  readonly bound: number;
}

function search(problem: ArrangementProblem, steps: Steps): Found {
  const { loads, ranks, memory = Infinity, batch = Infinity, mode, objective } = problem;
  const room = range(0, ranks).map(() => memory);
  const spare = ranks * memory - loads.flat().length;
  const copies = Math.min(copyLimit(problem), spare);
  const tasks = loads.map((layer) => layerTask(layer, room, copies, batch));
  const asStatic = loads.map((layer) => staticPlacement(layer.length, ranks));
  const staticFits = Math.max(...rankCopies(asStatic.flat(), ranks)) <= memory;
  const floor = sum(tasks.map((task) => lowestPeak(problem, task)));
  if (mode === 'static') {
    if (!staticFits) throw staticTooLarge(problem, asStatic);
    return { placement: asStatic, bound: floor };
  }
  const found = searchWith(problem, tasks, steps, floor);
  const cost = objective === 'total' ? busiestTotal : makespan;
  if (!staticFits || cost(loads, found.placement, ranks) <= cost(loads, asStatic, ranks) * (1 + TIE)) return found;
  return { placement: asStatic, bound: found.bound };
}

function searchWith(
  { mode, memory, objective }: ArrangementProblem,
  tasks: readonly Task[],
  steps: Steps,
  floor: number,
): Found {
  const solve = SOLVERS[mode as keyof typeof SOLVERS];
  if (objective === 'total') {
    const together = mode === 'exact' || mode === 'backtrack';
    return { placement: balanceTotal(tasks, solve, together, steps), bound: floor };
  }
  if (memory !== undefined) {
    const { layers, bound } = withinMemory(tasks, memory, solve, steps);
    return { placement: layers, bound };
  }
  const answers = solveEach(tasks, solve, steps);
  return { placement: answers.map(({ heads }) => heads), bound: sum(answers.map(({ bound }) => bound)) };
}

/** A lower bound of a layer's peak with the mode's kind of shares. */
function lowestPeak({ mode }: ArrangementProblem, task: Task): number {
  const copies = task.budgets[0]! > 0 && task.batch > 1;
  return mode === 'wrap' && copies ? evenPeak(task) : equalSharesBound(task);
}

/** How good a placement is. */
function measure(problem: ArrangementProblem, placement: Placement, bound: number): Arrangement {
  const { loads, ranks, mode, objective } = problem;
  const slowest = makespan(loads, placement, ranks);
  const optimal = slowest <= bound * (1 + TIE);
  const lowerBound = optimal ? slowest : bound;
  return {
    mode,
    objective,
    placement,
    makespan: slowest,
    lowerBound,
    gap: optimal ? 0 : slowest / lowerBound - 1,
    optimal,
    utilisation: utilisation(loads, ranks, slowest),
    copies: placement.flat(2).length - placement.flat().length,
  };
}

function staticTooLarge({ memory, ranks }: ArrangementProblem, placement: Placement): Error {
  const copies = rankCopies(placement.flat(), ranks);
  const most = Math.max(...copies);
  return usageError(
    `memory ${memory}: the static arrangement puts ${most} heads on rank ${copies.indexOf(most)}; give at least ${most}, or another mode`,
  );
}
