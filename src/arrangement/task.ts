import { sum } from '../base/lists.js';
import type { LayerPlacement, Placement } from './types.js';

/** Loads nearer than this, relative, count as equal: the order of additions must not decide a search. */
export const TIE = 1e-9;

/**
 * Heads to be arranged so that the busiest rank has little to do: a layer's, or with the objective `total` all layers' together.
 * Copies draw on budgets, one per layer.
 */
export interface Task {
  readonly loads: readonly number[];
  /** For each head the budget that its copies draw on. */
  readonly budgetOf: readonly number[];
  /** Copies beyond the first that each budget allows. */
  readonly budgets: readonly number[];
  /** For each rank the copies that fit; Infinity without a limit. Together at least the number of heads. */
  readonly room: readonly number[];
  /** The load that each rank has already. */
  readonly base: readonly number[];
  /** Shares are multiples of 1 / batch; Infinity for real shares. */
  readonly batch: number;
}

export interface Answer {
  readonly heads: LayerPlacement;
  /** The busiest rank's load. */
  readonly peak: number;
  /** No answer of the same kind has a lower peak; equal to the peak where that is proved least. */
  readonly bound: number;
}

/** The task of one layer on ranks that do nothing yet. */
export function layerTask(loads: readonly number[], room: readonly number[], copies: number, batch: number): Task {
  return { loads, budgetOf: loads.map(() => 0), budgets: [copies], room, base: room.map(() => 0), batch };
}

/** The same task with no copies allowed. */
export const withoutCopies = (task: Task): Task => ({ ...task, budgets: task.budgets.map(() => 0) });

/** Ranks that may hold copies of one head: no more than there are requests to share. */
export const mostCopies = (task: Task): number => Math.min(task.room.length, task.batch);

/** The load that a task's heads put on each rank, beside what it has already. */
export function rankLoads(loads: readonly number[], heads: LayerPlacement, ranks: number): number[] {
  const out = new Array<number>(ranks).fill(0);
  for (const [head, copies] of heads.entries()) {
    for (const { rank, share } of copies) out[rank]! += loads[head]! * share;
  }
  return out;
}

/** The load of each rank with what it had already. */
export const loadsWith = (task: Task, heads: LayerPlacement): number[] =>
  rankLoads(task.loads, heads, task.room.length).map((load, rank) => task.base[rank]! + load);

/** The copies that each rank holds. */
export function rankCopies(heads: LayerPlacement, ranks: number): number[] {
  const out = new Array<number>(ranks).fill(0);
  for (const copies of heads) for (const { rank } of copies) out[rank]!++;
  return out;
}

export function answer(task: Task, heads: LayerPlacement, bound: number): Answer {
  const peak = Math.max(...loadsWith(task, heads));
  // What is proved least up to rounding is its own bound.
  return { heads, peak, bound: peak <= bound * (1 + TIE) ? peak : bound };
}

/** The one with the lower peak, the first where they tie; the higher bound holds for it too if both are of one kind. */
export function better(a: Answer, b: Answer | undefined): Answer {
  return b !== undefined && b.peak < a.peak * (1 - TIE) ? b : a;
}

/** No placement, whatever its shares, has a lower peak: the mean of all ranks, and what the busiest has already. */
export const evenPeak = ({ loads, base }: Task): number => Math.max((sum(base) + sum(loads)) / base.length, ...base);

type Loads = readonly (readonly number[])[];

/** The busiest rank's load of each layer, added up: every layer ends in a reduction, so ranks wait for the busiest in each. */
export const makespan = (loads: Loads, placement: Placement, ranks: number): number =>
  sum(placement.map((heads, layer) => Math.max(...rankLoads(loads[layer]!, heads, ranks))));

/** The load over all layers of the rank where it is highest: what the objective `total` makes small. */
export const busiestTotal = (loads: Loads, placement: Placement, ranks: number): number =>
  Math.max(...rankLoads(loads.flat(), placement.flat(), ranks));

/** The share of their time that ranks work when all wait for a rank that takes `longest`; 1 when there is nothing to do. */
export const utilisation = (loads: Loads, ranks: number, longest: number): number =>
  longest > 0 ? sum(loads.flat()) / (ranks * longest) : 1;
