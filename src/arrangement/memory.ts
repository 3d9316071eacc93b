import { range, sum } from '../base/lists.js';
import { solveEach, type Solver } from './solvers/solvers.js';
import {
  type Answer,
  heaviestFirst,
  mostCopies,
  rankCopies,
  rankLoads,
  renamed,
  type Steps,
  type Task,
} from './task.js';
import type { LayerPlacement } from './types.js';

/** Limits of copies per layer that are tried, beside the one that is set. */
const TRIED_COPIES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32];
/** Search steps for a layer when a copy must leave a full rank. */
const REPAIR_STEPS = 2000;

/**
 * Layers that share the ranks' memory. Each layer is solved with more and more copies, copies are given where they save most,
 * and each layer's ranks are named so that memory fills evenly. What then still lies on a full rank is moved in the layers where
 * that costs least.
 *
 * @param tasks one per layer, with room for a rank's whole memory
 * @param memory copies of heads, of all layers, that a rank holds
 * @returns the layers' heads within memory, and a lower bound of their peaks' sum
 */
export function withinMemory(
  tasks: readonly Task[],
  memory: number,
  solve: Solver,
  steps: Steps,
): { readonly placement: readonly LayerPlacement[]; readonly bound: number } {
  const ranks = tasks[0]?.room.length ?? 0;
  const slack = ranks * memory - sum(tasks.map(({ loads }) => loads.length));
  const freely = tasks.map((task) => ({ ...task, copies: Math.min(task.copies, slack, usefulCopies(task)) }));
  const half = { left: Math.floor(steps.left / 2) };
  steps.left -= half.left;
  const unlimited = solveEach(freely, solve, half);
  steps.left += half.left;
  const together = sum(unlimited.map(copiesOf));
  const fits = (answers: readonly Answer[]): readonly LayerPlacement[] | undefined => {
    const layers = named(answers, ranks, memory);
    return Math.max(...memoryUsed(layers, ranks)) <= memory ? layers : undefined;
  };
  const free = together <= slack ? fits(unlimited) : undefined;
  if (free) return { placement: free, bound: sum(unlimited.map(({ bound }) => bound)) };

  const most = Math.max(...freely.map(({ copies }) => copies));
  const limits = TRIED_COPIES.filter((limit) => limit < most);
  const byLimit = limits.map((limit, i) => {
    const share = { left: Math.floor(steps.left / (limits.length - i)) };
    steps.left -= share.left;
    const limited = freely.map((task) => ({ ...task, copies: Math.min(limit, task.copies) }));
    const answers = solveEach(limited, solve, share);
    steps.left += share.left;
    return answers;
  });
  const answersOf = tasks.map((_, layer) => [...byLimit, unlimited].flatMap((answers) => answers[layer] ?? []));
  const choose = (choiceOf: (found: Answer, i: number) => Choice) =>
    chooseCopies(
      answersOf.map((list) => list.map(choiceOf)),
      slack,
    );
  const { chosen } = choose((found) => ({ copies: copiesOf(found), cost: found.peak }));
  // Up to a limit's bound is only what needs more copies than the limit before.
  const needs = [0, ...limits.map((limit) => limit + 1)];
  const { cost: bound } = choose((found, i) => ({ copies: needs[i] ?? 0, cost: found.bound }));
  const answers = chosen.flatMap((i, layer) => answersOf[layer]?.[i] ?? []);
  const placement = fits(answers) ?? repair(tasks, named(answers, ranks, memory), memory, solve);
  return { placement, bound };
}

/** Takes copies off the fullest rank, one at a time, each in the layer whose peak that raises least, until memory suffices. */
function repair(
  tasks: readonly Task[],
  start: readonly LayerPlacement[],
  memory: number,
  solve: Solver,
): readonly LayerPlacement[] {
  const layers = [...start];
  const ranks = tasks[0]?.room.length ?? 0;
  for (;;) {
    const used = memoryUsed(layers, ranks);
    const most = Math.max(...used);
    if (most <= memory) return layers;
    const fullest = used.indexOf(most);
    let best: readonly [layer: number, heads: LayerPlacement] = [0, []];
    let least = Infinity;
    for (const [layer, task] of tasks.entries()) {
      const heads = layers[layer] ?? [];
      const here = rankCopies(heads, ranks);
      if (here[fullest] === 0) continue;
      const room = here.map((n, rank) => (rank === fullest ? n - 1 : n + Math.max(0, memory - (used[rank] ?? 0))));
      const found = solve({ ...task, room, copies: sum(here) - heads.length }, { left: REPAIR_STEPS });
      const rise = found.peak - Math.max(...rankLoads(task.loads, heads, ranks));
      if (rise < least) [best, least] = [[layer, found.heads], rise];
    }
    const [layer, heads] = best;
    layers[layer] = heads;
  }
}

/** The answers' heads, with names of the ranks that fill memory evenly. */
function named(answers: readonly Answer[], ranks: number, memory: number): LayerPlacement[] {
  const copies = answers.map(({ heads }) => rankCopies(heads, ranks));
  const names = evenNames(copies, memory);
  return answers.map(({ heads }, layer) => renamed(heads, names[layer] ?? []));
}

const memoryUsed = (layers: readonly LayerPlacement[], ranks: number): number[] => rankCopies(layers.flat(), ranks);

const copiesOf = ({ heads }: Answer): number => heads.flat().length - heads.length;

const usefulCopies = (task: Task): number => task.loads.length * (mostCopies(task) - 1);

/** Something a layer may be given: so many copies for that cost. */
interface Choice {
  readonly copies: number;
  readonly cost: number;
}

/**
 * One choice for each layer, at most `copies` copies together, for the least total cost (a knapsack, exactly).
 *
 * @param choices [layer][choice]; each layer has one without copies
 * @returns the index of each layer's choice, of equal costs with fewer copies; and the cost
 */
export function chooseCopies(
  choices: readonly (readonly Choice[])[],
  copies: number,
): { readonly chosen: number[]; readonly cost: number } {
  const useful = choices.reduce((total, list) => total + Math.max(...list.map((choice) => choice.copies)), 0);
  const most = Math.min(copies, useful);
  let least = range(0, most + 1).map(() => 0); // by copies at most used
  // By layer and copies at most used.
  const taken = choices.map((list) => {
    const before = least;
    const best = range(0, most + 1).map((used) => {
      let found = { i: 0, cost: Infinity };
      for (const [i, choice] of list.entries()) {
        const cost = (before[used - choice.copies] ?? Infinity) + choice.cost;
        if (cost < found.cost) found = { i, cost };
      }
      return found;
    });
    least = best.map(({ cost }) => cost);
    return best;
  });
  let used = most;
  const chosen = choices.toReversed().map((list, back) => {
    const i = taken.at(-1 - back)?.[used]?.i ?? 0;
    used -= list[i]?.copies ?? 0;
    return i;
  });
  return { chosen: chosen.reverse(), cost: least[most] ?? Infinity };
}

/**
 * Names for each layer's ranks that spread copies evenly over ranks: which rank is which makes no difference to a layer's peak,
 * but a rank's memory holds its copies of all layers.
 *
 * @param copies [layer][rank]
 * @param memory copies a rank may hold
 * @returns [layer][rank]: the rank's new name
 */
export function evenNames(copies: readonly (readonly number[])[], memory: number): number[][] {
  const used = (copies[0] ?? []).map(() => 0);
  const names = copies.map((): number[] => []);
  for (const layer of heaviestFirst(copies.map((row) => Math.max(...row) - Math.min(...row)))) {
    const [row, own] = [copies[layer] ?? [], names[layer] ?? []];
    const emptiest = heaviestFirst(used.map((n) => -n));
    for (const [i, rank] of heaviestFirst(row).entries()) {
      const name = emptiest[i] ?? rank;
      own[rank] = name;
      used[name]! += row[rank] ?? 0;
    }
  }
  while (Math.max(...used) > memory && exchange(copies, names, used));
  return names;
}

/** Exchanges the name of the fullest rank with another's in the layer where that evens them out most. */
function exchange(copies: readonly (readonly number[])[], names: readonly number[][], used: number[]): boolean {
  let least = Math.max(...used);
  const most = least;
  const fullest = used.indexOf(most);
  let best: { readonly row: number[]; readonly a: number; readonly b: number; readonly name: number } | undefined;
  let moved = 0;
  for (const [layer, row] of names.entries()) {
    const held = copies[layer] ?? [];
    const a = row.indexOf(fullest);
    for (const [b, name] of row.entries()) {
      const less = (held[a] ?? 0) - (held[b] ?? 0);
      const fuller = Math.max(most - less, (used[name] ?? 0) + less);
      if (less > 0 && fuller < least) [best, least, moved] = [{ row, a, b, name }, fuller, less];
    }
  }
  if (!best) return false;
  const { row, a, b, name } = best;
  used[fullest]! -= moved;
  used[name]! += moved;
  [row[a], row[b]] = [name, fullest];
  return true;
}
