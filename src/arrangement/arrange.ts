import { usageError } from '../base/errors.js';
import { range, spreadEvenly, sum } from '../base/lists.js';
import type { Steps } from './solvers/assign.js';
import { checkProblem } from './check_problem.js';
import { withinMemory } from './memory.js';
import { equalSharesBound } from './solvers/pieces.js';
import { intoBytes, leastLatency, rankBytes, rankSeconds } from './latency/latency.js';
import { solveEach, SOLVERS } from './solvers/solvers.js';
import { staticPlacement } from './static.js';
import { busiestTotal, evenPeak, layerTask, makespan, rankCopies, type Task, TIE, utilisation } from './task.js';
import { balanceTotal } from './total.js';
import type { Arrangement, ArrangementProblem, HeadCosts, ModeProblem, Placement } from './types.js';

/** Some seconds at most. Steps, not seconds: the same problem has the same answer on every machine. */
const STEPS = 4_000_000;
/** Ranks that are busy for so much of their time need no copies. */
const BUSY = 0.97;
/** Copies are left out as long as the busiest rank has no more than this times what it has with all of them. */
const CLOSE = 1.03;
/** Steps for each number of copies that is tried in a layer. */
const TRY_STEPS = 20_000;

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
  const { mode, objective = 'per-layer', pipeline = 1, costs } = problem;
  if (pipeline > 1) return arrangePipeline({ ...problem, pipeline }, steps);
  if (costs) return arrangeLatency({ ...problem, mode: mode ?? 'exact', objective, costs }, steps);
  if (mode === undefined) return arrangeWithCopies({ ...problem, objective, mode: 'exact' }, steps);
  const asked = { ...problem, mode, objective };
  const { placement, bound } = search(asked, { left: steps });
  return measure(asked, placement, bound);
}

/** What a problem without a mode means. */
function arrangeWithCopies(problem: ModeProblem, steps: number): Arrangement {
  const { loads, ranks, memory, copies = ranks - 1, objective } = problem;
  const whole = { ...problem, copies: 0 };
  const without = search(whole, { left: steps });
  const best = measure(whole, without.placement, without.bound);
  if (copies === 0 || best.utilisation >= BUSY) return best;
  const wrap = { ...problem, mode: 'wrap', copies } as const;
  const all = search(wrap, { left: steps });
  const spread = measure(wrap, all.placement, all.bound);
  // Memory, and the total, couple layers: there is no least number for each.
  if (memory !== undefined || objective === 'total') return spread.makespan * CLOSE < best.makespan ? spread : best;
  const placement = loads.map((layer, at) => {
    const peak = (heads: Placement[number]): number => makespan([layer], [heads], ranks);
    const enough = peak(all.placement[at]!) * CLOSE;
    const few = (most: number): Placement[number] =>
      most === 0
        ? without.placement[at]!
        : search({ ...wrap, loads: [layer], copies: most }, { left: TRY_STEPS }).placement[0]!;
    let [low, high, found] = [0, Math.min(copies, ranks - 1), all.placement[at]!];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const heads = few(middle);
      if (peak(heads) <= enough) [high, found] = [middle, heads];
      else low = middle + 1;
    }
    return found;
  });
  return measure(wrap, placement, all.bound);
}

/** Each run of layers on ranks of its own. */
function arrangePipeline(problem: ArrangementProblem & { readonly pipeline: number }, steps: number): Arrangement {
  const { loads, ranks, pipeline } = problem;
  const stageRanks = ranks / pipeline;
  const stages = spreadEvenly(loads.length, pipeline).map(([first, end], stage) => {
    const own = <T>(list: readonly T[]): readonly T[] => list.slice(stage * stageRanks, (stage + 1) * stageRanks);
    const costs = problem.costs && costsOf(problem.costs, own);
    const part = { ...problem, loads: loads.slice(first, end), ranks: stageRanks, pipeline: 1 };
    return arrange({ ...part, ...(costs && { costs }) }, steps / pipeline);
  });
  const placement = stages.flatMap((stage, index) =>
    stage.placement.map((heads) =>
      heads.map((copies) => copies.map((copy) => ({ ...copy, rank: copy.rank + index * stageRanks }))),
    ),
  );
  const total = (of: (stage: Arrangement) => number): number => sum(stages.map(of));
  const [longest, lowerBound] = [total((stage) => stage.makespan), total((stage) => stage.lowerBound)];
  const optimal = stages.every((stage) => stage.optimal);
  return {
    ...stages[0]!,
    placement,
    makespan: longest,
    lowerBound,
    gap: optimal ? 0 : longest / lowerBound - 1,
    optimal,
    // What ranks do, of what they could have done.
    utilisation: longest > 0 ? total((stage) => stage.utilisation * stage.makespan) / longest : 1,
    copies: total((stage) => stage.copies),
  };
}

/** Of some of the ranks. */
const costsOf = (costs: HeadCosts, own: <T>(list: readonly T[]) => readonly T[]): HeadCosts => ({
  ...costs,
  secondsPerEntry: own(costs.secondsPerEntry),
  secondsPerHead: own(costs.secondsPerHead),
  ...(costs.memoryBytes && { memoryBytes: own(costs.memoryBytes) }),
});

/** Seconds instead of entries: whatever the mode, but `static`, searches one way. */
function arrangeLatency(problem: ModeProblem & { readonly costs: HeadCosts }, steps: number): Arrangement {
  const { loads, ranks, costs, batch = 1, mode, objective, copies: asked } = problem;
  const most = mode === 'static' || mode === 'greedy' ? 0 : (asked ?? ranks - 1);
  const found = leastLatency(problem, most, { left: steps });
  const { memoryBytes } = costs;
  const placement = memoryBytes ? intoBytes(problem, found.placement, memoryBytes) : found.placement;
  if (!placement) {
    const used = rankBytes(loads, found.placement, costs, batch);
    throw usageError(
      `heads and their cache need ${used.map(Math.ceil).join(', ')} bytes by rank, and there are ${memoryBytes!.join(', ')}: give more ranks, ` +
        'a smaller batch or a smaller KV budget',
    );
  }
  const seconds = placement.map((heads, layer) => rankSeconds(loads[layer]!, heads, costs, batch));
  const longest = sum(seconds.map((own) => Math.max(...own)));
  const optimal = longest <= found.bound * (1 + TIE);
  return {
    mode,
    objective,
    placement,
    makespan: longest,
    lowerBound: optimal ? longest : found.bound,
    gap: optimal || found.bound === 0 ? 0 : longest / found.bound - 1,
    optimal,
    utilisation: longest > 0 ? sum(seconds.flat()) / (ranks * longest) : 1,
    copies: placement.flat(2).length - placement.flat().length,
  };
}

/**
 * Copies beyond the first that a layer may have: as the problem says; without it as many as memory allows, where memory is
 * limited; otherwise ranks - 1 for `fair-copy`, `wrap` (as many as wrapping takes) and where no mode is given, none for `backtrack` and
 * `exact`. The modes `static` and `greedy` never copy.
 */
export function copyLimit({ mode, copies, memory, ranks }: ArrangementProblem): number {
  if (mode === 'static' || mode === 'greedy') return 0;
  if (copies !== undefined) return copies;
  if (memory !== undefined) return Infinity;
  return mode === undefined || mode === 'fair-copy' || mode === 'wrap' ? ranks - 1 : 0;
}

interface Found {
  readonly placement: Placement;
  /** Of the makespan. */
  readonly bound: number;
}

function search(problem: ModeProblem, steps: Steps): Found {
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
  { mode, memory, objective }: ModeProblem,
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
function lowestPeak({ mode }: ModeProblem, task: Task): number {
  const copies = task.budgets[0]! > 0 && task.batch > 1;
  return mode === 'wrap' && copies ? evenPeak(task) : equalSharesBound(task);
}

/** How good a placement is. */
function measure(problem: ModeProblem, placement: Placement, bound: number): Arrangement {
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

function staticTooLarge({ memory, ranks }: ModeProblem, placement: Placement): Error {
  const copies = rankCopies(placement.flat(), ranks);
  const most = Math.max(...copies);
  return usageError(
    `memory ${memory}: the static arrangement puts ${most} heads on rank ${copies.indexOf(most)}; give at least ${most}, or another mode`,
  );
}
