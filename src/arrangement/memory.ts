import { sum } from '../base/lists.js';
import type { Steps } from './solvers/assign.js';
import { type Choice, chooseCopies } from './solvers/copy_choice.js';
import { evenNames, rename } from './rank_names.js';
import { solveEach, type Solver } from './solvers/solvers.js';
import { type Answer, mostCopies, rankCopies, rankLoads, type Task } from './task.js';
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
): { readonly layers: readonly LayerPlacement[]; readonly bound: number } {
  const ranks = tasks[0]!.room.length;
  const slack = ranks * memory - sum(tasks.map(({ loads }) => loads.length));
  const freely = tasks.map((task) => ({ ...task, budgets: [Math.min(task.budgets[0]!, slack, usefulCopies(task))] }));
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
  if (free) return { layers: free, bound: sum(unlimited.map(({ bound }) => bound)) };

  const most = Math.max(...freely.map(({ budgets }) => budgets[0]!));
  const limits = TRIED_COPIES.filter((limit) => limit < most);
  const byLimit = limits.map((limit, i) => {
    const share = { left: Math.floor(steps.left / (limits.length - i)) };
    steps.left -= share.left;
    const limited = freely.map((task) => ({ ...task, budgets: [Math.min(limit, task.budgets[0]!)] }));
    const answers = solveEach(limited, solve, share);
    steps.left += share.left;
    return answers;
  });
  const answersOf = tasks.map((_, layer) => [...byLimit, unlimited].map((answers) => answers[layer]!));
  const { chosen } = chooseCopies(
    answersOf.map((list) => list.map((found): Choice => ({ copies: copiesOf(found), cost: found.peak }))),
    slack,
  );
  // Up to a limit's bound is only what needs more copies than the limit before.
  const needs = [0, ...limits.map((limit) => limit + 1)];
  const bound = chooseCopies(
    answersOf.map((list) => list.map((found, i): Choice => ({ copies: needs[i]!, cost: found.bound }))),
    slack,
  ).cost;
  const answers = chosen.map((i, layer) => answersOf[layer]![i]!);
  const layers = fits(answers) ?? repair(tasks, named(answers, ranks, memory), memory, solve);
  return { layers, bound };
}

/** Takes copies off the fullest rank, one at a time, each in the layer whose peak that raises least, until memory suffices. */
function repair(
  tasks: readonly Task[],
  start: readonly LayerPlacement[],
  memory: number,
  solve: Solver,
): readonly LayerPlacement[] {
  const layers = [...start];
  const ranks = tasks[0]!.room.length;
  for (;;) {
    const used = memoryUsed(layers, ranks);
    const fullest = used.indexOf(Math.max(...used));
    if (used[fullest]! <= memory) return layers;
    let best: { readonly layer: number; readonly heads: LayerPlacement } | undefined;
    let least = Infinity;
    for (const [layer, heads] of layers.entries()) {
      const task = tasks[layer]!;
      const here = rankCopies(heads, ranks);
      if (here[fullest] === 0) continue;
      const room = here.map((n, rank) => (rank === fullest ? n - 1 : n + Math.max(0, memory - used[rank]!)));
      const found = solve({ ...task, room, budgets: [sum(here) - heads.length] }, { left: REPAIR_STEPS });
      const rise = found.peak - Math.max(...rankLoads(task.loads, heads, ranks));
      if (rise < least) [best, least] = [{ layer, heads: found.heads }, rise];
    }
    layers[best!.layer] = best!.heads;
  }
}

/** The answers' heads, with names of the ranks that fill memory evenly. */
function named(answers: readonly Answer[], ranks: number, memory: number): LayerPlacement[] {
  const copies = answers.map(({ heads }) => rankCopies(heads, ranks));
  const names = evenNames(copies, memory);
  return answers.map(({ heads }, layer) => rename(heads, names[layer]!));
}

/** The copies of all layers that each rank holds. */
const memoryUsed = (layers: readonly LayerPlacement[], ranks: number): number[] => rankCopies(layers.flat(), ranks);

/** Copies beyond the first. */
const copiesOf = ({ heads }: Answer): number => heads.flat().length - heads.length;

const usefulCopies = (task: Task): number => task.loads.length * (mostCopies(task) - 1);
