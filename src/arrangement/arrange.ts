import { usageError } from '../base/errors.js';
import { MERGE_LANES } from '../base/kv_units.js';
import { count, range, spreadEvenly, sum } from '../base/lists.js';
import { intoBytes, leastLatency, rankBytes, rankSeconds } from './latency.js';
import { withinMemory } from './memory.js';
import { copiesForPrompts } from './prompts.js';
import { equalSharesBound } from './solvers/pieces.js';
import { SOLVERS, solveEach } from './solvers/solvers.js';
import { type Steps, TIE, type Task, layerLoads, makespan, rankCopies, staticPlacement } from './task.js';
import type { Arrangement, ArrangementProblem, HeadCosts, Mode, Placement } from './types.js';
import { show } from '../base/json.js';

/** Some seconds at most. Steps, not seconds: the same problem has the same answer on every machine. */
const STEPS = 4_000_000;
/** Ranks that are busy for so much of their time need no copies. */
const BUSY = 0.97;
/** Copies are left out as long as the busiest rank has no more than this times what it has with all of them. */
const CLOSE = 1.03;
/** Steps for each number of copies that is tried in a layer. */
const TRY_STEPS = 20_000;

type ModeProblem = ArrangementProblem & { readonly mode: Mode };

/**
 * Arranges heads over ranks so that the busiest rank has little to do.
 *
 * The same problem always gives the same arrangement. Limits of copies and memory are kept in every mode. No arrangement is
 * worse than the static one, unless memory forbids that one.
 *
 * @param steps of search at most, for all layers together; a million take some tenths of a second
 * @throws SplitkvError `usage` for a problem that makes no sense, or memory that a static arrangement doesn't fit in
 */
export function arrange(problem: ArrangementProblem, steps = STEPS): Arrangement {
  checkProblem(problem);
  const { mode, pipeline = 1, costs } = problem;
  if (pipeline > 1) return arrangePipeline({ ...problem, pipeline }, steps);
  if (costs) return arrangeLatency({ ...problem, mode: mode ?? 'exact', costs }, steps);
  if (mode === undefined) return forPrompts(problem, arrangeWithCopies(problem, steps));
  return measured({ ...problem, mode }, search({ ...problem, mode }, { left: steps }));
}

function arrangeWithCopies(problem: ArrangementProblem, steps: number): Arrangement {
  const { loads, ranks, memory, copies = ranks - 1 } = problem;
  const whole = { ...problem, copies: 0, mode: 'exact' } as const;
  const without = search(whole, { left: steps });
  const best = measured(whole, without);
  if (copies === 0 || best.utilisation >= BUSY) return best;
  const wrap = { ...problem, mode: 'wrap', copies } as const;
  const all = search(wrap, { left: steps });
  // Memory couples layers: there is no least number for each.
  if (memory !== undefined) {
    const spread = measured(wrap, all);
    return spread.makespan * CLOSE < best.makespan ? spread : best;
  }
  const placement = loads.map((layer, at) => {
    const peak = (heads: Placement[number]): number => makespan([layer], [heads], ranks);
    const of = ({ placement: own }: Found, index = at): Placement[number] => own[index] ?? [];
    const enough = peak(of(all)) * CLOSE;
    const few = (most: number): Placement[number] =>
      most === 0 ? of(without) : of(search({ ...wrap, loads: [layer], copies: most }, { left: TRY_STEPS }), 0);
    let [low, high, found] = [0, Math.min(copies, ranks - 1), of(all)];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const heads = few(middle);
      if (peak(heads) <= enough) [high, found] = [middle, heads];
      else low = middle + 1;
    }
    return found;
  });
  return measured(wrap, { placement, bound: all.bound });
}

/** With the copies that may still be made where single prompts need them. */
function forPrompts(problem: ArrangementProblem, found: Arrangement): Arrangement {
  const { loads, ranks, deviations, copies, memory, batch = MERGE_LANES } = problem;
  if (!deviations || !copies || ranks === 1 || memory !== undefined || batch % MERGE_LANES !== 0) return found;
  const limits = { ranks, copies, enough: BUSY };
  const placement = loads.map((layer, at) => {
    const heads = found.placement[at] ?? [];
    const more = copiesForPrompts(heads, { loads: layer, deviations: deviations[at] ?? [] }, limits);
    const peak = (own: Placement[number]): number => makespan([layer], [own], ranks);
    return peak(more) <= peak(staticPlacement(layer.length, ranks)) ? more : heads;
  });
  const added = placement.some((heads, layer) => heads !== found.placement[layer]);
  return added ? measured({ ...problem, mode: 'wrap' }, { placement, bound: sum(loads.flat()) / ranks }) : found;
}

function arrangePipeline(problem: ArrangementProblem & { readonly pipeline: number }, steps: number): Arrangement {
  const { loads, ranks, pipeline } = problem;
  const stageRanks = ranks / pipeline;
  const stages = spreadEvenly(loads.length, pipeline).map(([first, end], stage) => {
    const own = <T>(list: readonly T[]): readonly T[] => list.slice(stage * stageRanks, (stage + 1) * stageRanks);
    const costs = problem.costs && costsOf(problem.costs, own);
    const part = {
      ...problem,
      loads: loads.slice(first, end),
      deviations: problem.deviations?.slice(first, end),
      ranks: stageRanks,
      pipeline: 1,
    };
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
    mode: problem.mode ?? stages[0]?.mode ?? 'exact',
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

const costsOf = (costs: HeadCosts, own: <T>(list: readonly T[]) => readonly T[]): HeadCosts => ({
  ...costs,
  secondsPerEntry: own(costs.secondsPerEntry),
  secondsPerHead: own(costs.secondsPerHead),
  ...(costs.memoryBytes && { memoryBytes: own(costs.memoryBytes) }),
});

/** Seconds instead of entries: whatever the mode, but `static`, searches one way. */
function arrangeLatency(problem: ModeProblem & { readonly costs: HeadCosts }, steps: number): Arrangement {
  const { loads, ranks, costs, batch = 1, mode, copies: asked } = problem;
  const most = mode === 'static' || mode === 'greedy' ? 0 : (asked ?? ranks - 1);
  const found = leastLatency(problem, most, { left: steps });
  const { memoryBytes } = costs;
  const placement = memoryBytes ? intoBytes(problem, found.placement, memoryBytes) : found.placement;
  if (!placement) {
    const used = rankBytes(loads, found.placement, costs, batch).map(Math.ceil).join(', ');
    throw usageError(
      `heads and their cache need ${used} bytes by rank, and there are ${memoryBytes?.join(', ')}: give more ranks, ` +
        'a smaller batch or a smaller KV budget',
    );
  }
  const seconds = placement.map((heads, layer) => rankSeconds(loads[layer] ?? [], heads, costs, batch));
  return measure(mode, { placement, bound: found.bound }, seconds, sum(seconds.flat()));
}

/**
 * Copies beyond the first that a layer may have: as the problem says; without it as many as memory allows, where memory is
 * limited; otherwise ranks - 1 for `fair-copy`, `wrap` (as many as wrapping takes) and where no mode is given, none for `exact`.
 * The modes `static` and `greedy` never copy.
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
  const { loads, ranks, memory = Infinity, batch = Infinity, mode } = problem;
  const room = range(0, ranks).map(() => memory);
  const copies = Math.min(copyLimit(problem), ranks * memory - loads.flat().length);
  const tasks = loads.map((layer): Task => ({ loads: layer, copies, room, batch }));
  const asStatic = loads.map((layer) => staticPlacement(layer.length, ranks));
  const held = rankCopies(asStatic.flat(), ranks);
  const most = Math.max(...held);
  if (mode === 'static') {
    if (most <= memory) return { placement: asStatic, bound: sum(tasks.map(equalSharesBound)) };
    throw usageError(
      `memory ${memory}: the static arrangement puts ${most} heads on rank ${held.indexOf(most)}; give at least ${most}, or another mode`,
    );
  }
  const found = memory < Infinity ? withinMemory(tasks, memory, SOLVERS[mode], steps) : alone(tasks, mode, steps);
  if (most > memory || makespan(loads, found.placement, ranks) <= makespan(loads, asStatic, ranks) * (1 + TIE)) {
    return found;
  }
  return { placement: asStatic, bound: found.bound };
}

function alone(tasks: readonly Task[], mode: Exclude<Mode, 'static'>, steps: Steps): Found {
  const answers = solveEach(tasks, SOLVERS[mode], steps);
  return { placement: answers.map(({ heads }) => heads), bound: sum(answers.map(({ bound }) => bound)) };
}

const measured = ({ loads, ranks, mode }: ModeProblem, found: Found): Arrangement =>
  measure(mode, found, layerLoads(loads, found.placement, ranks), sum(loads.flat()));

/**
 * How good a placement is.
 * @param taken what each rank does, [layer][rank]; `all` of it together
 */
function measure(
  mode: Mode,
  { placement, bound }: Found,
  taken: readonly (readonly number[])[],
  all: number,
): Arrangement {
  const slowest = sum(taken.map((own) => Math.max(...own)));
  const ranks = taken[0]?.length ?? 1;
  const optimal = slowest <= bound * (1 + TIE);
  const lowerBound = optimal ? slowest : bound;
  return {
    mode,
    placement,
    makespan: slowest,
    lowerBound,
    gap: optimal || bound === 0 ? 0 : slowest / lowerBound - 1,
    optimal,
    utilisation: slowest > 0 ? all / (ranks * slowest) : 1,
    copies: placement.flat(2).length - placement.flat().length,
  };
}

/** More ranks than any machine has; a slip of the keyboard should not fill the memory. */
const MOST_RANKS = 1024;

/**
 * @throws SplitkvError `usage` for loads that aren't one number of at least 0 a layer and head, for numbers out of range, and for
 * a memory that can't hold every head once
 */
function checkProblem(problem: ArrangementProblem): void {
  const { loads, ranks, copies, memory, batch, pipeline = 1 } = problem;
  const heads = loads[0]?.length ?? 0;
  if (heads === 0) throw usageError('loads: expected at least one layer with at least one head');
  for (const [layer, row] of loads.entries()) {
    if (row.length !== heads) {
      throw usageError(
        `loads: layer ${layer} has ${count(row.length, 'head')}, layer 0 has ${heads}; expected equally many`,
      );
    }
    const wrong = row.findIndex((load) => !(Number.isFinite(load) && load >= 0));
    if (wrong >= 0) {
      throw usageError(`loads: layer ${layer}, head ${wrong} is ${show(row[wrong])}; expected a number of at least 0`);
    }
  }
  if (!Number.isFinite(sum(loads.flat())))
    throw usageError('loads: they add up to more than a number holds; give them in a larger unit');
  checkWhole('ranks', ranks, 1, MOST_RANKS);
  checkWhole('pipeline', pipeline, 1, loads.length);
  if (ranks % pipeline !== 0) {
    throw usageError(`pipeline ${pipeline}: ${count(ranks, 'rank')} make no ${pipeline} stages of as many ranks`);
  }
  checkWhole('copies', copies ?? 0, 0);
  checkWhole('memory', memory ?? 1, 1);
  checkWhole('batch', batch ?? 1, 1);
  checkCosts(problem);
  if (memory === undefined || memory * ranks >= loads.length * heads) return;
  throw usageError(
    `memory ${memory}: ${count(ranks, 'rank')} of ${memory} hold ${memory * ranks} heads, but ${count(loads.length, 'layer')} ` +
      `of ${heads} are ${loads.length * heads}; give at least ${Math.ceil((loads.length * heads) / ranks)}, or more ranks`,
  );
}

function checkWhole(name: string, value: number, low: number, high = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(value) && value >= low && value <= high) return;
  const range = high === Number.MAX_SAFE_INTEGER ? `of at least ${low}` : `from ${low} to ${high}`;
  throw usageError(`${name} ${value}: expected a whole number ${range}`);
}

function checkCosts({ costs, ranks, memory }: ArrangementProblem): void {
  if (!costs) return;
  if (memory !== undefined) throw usageError(`memory ${memory} counts heads; beside costs give costs.memoryBytes`);
  const { secondsPerEntry, secondsPerHead, bytesPerHead = 0, bytesPerEntry = 0, memoryBytes } = costs;
  for (const [name, list] of Object.entries({ secondsPerEntry, secondsPerHead, memoryBytes })) {
    if (list === undefined) continue;
    if (list.length !== ranks)
      throw usageError(`costs.${name} has ${list.length} numbers; expected one per rank, ${ranks}`);
    const bad = list.find((value) => !(value >= 0));
    if (bad !== undefined) throw usageError(`costs.${name} has ${bad}; expected numbers from 0 on`);
  }
  for (const [name, value] of Object.entries({ bytesPerHead, bytesPerEntry })) {
    if (!(value >= 0 && value < Infinity)) throw usageError(`costs.${name} is ${value}; expected a number from 0 on`);
  }
}
