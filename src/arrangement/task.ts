import { spreadEvenly, sum } from '../base/lists.js';
import type { LayerPlacement, Placement } from './types.js';

/** Loads nearer than this, relative, count as equal: the order of additions must not decide a search. */
export const TIE = 1e-9;

/** A budget of search steps, shared by searches: steps instead of seconds, so that the same input gives the same result. */
export interface Steps {
  left: number;
}

/** A layer's heads to be arranged so that the busiest rank has little to do. */
export interface Task {
  readonly loads: readonly number[];
  /** Copies beyond the first that there may be. */
  readonly copies: number;
  /** For each rank the copies that fit; Infinity without a limit. Together at least the number of heads. */
  readonly room: readonly number[];
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

/** Copies beyond the first that may be made and find room. */
export const spareCopies = ({ loads, copies, room }: Task): number => Math.min(copies, sum(room) - loads.length);

/** Ranks that may hold copies of one head: no more than there are requests to share. */
export const mostCopies = (task: Task): number => Math.min(task.room.length, task.batch);

export const heaviestFirst = (loads: readonly number[]): number[] =>
  [...loads.entries()].sort(([i, a], [j, b]) => b - a || i - j).map(([head]) => head);

export function rankLoads(loads: readonly number[], heads: LayerPlacement, ranks: number): number[] {
  const out = new Array<number>(ranks).fill(0);
  for (const [head, copies] of heads.entries()) {
    for (const { rank, share } of copies) out[rank]! += loads[head]! * share;
  }
  return out;
}

export function rankCopies(heads: LayerPlacement, ranks: number): number[] {
  const out = new Array<number>(ranks).fill(0);
  for (const copies of heads) for (const { rank } of copies) out[rank]!++;
  return out;
}

export const renamed = (heads: LayerPlacement, names: readonly number[]): LayerPlacement =>
  heads.map((copies) =>
    copies.map(({ rank, share }) => ({ rank: names[rank] ?? rank, share })).sort((a, b) => a.rank - b.rank),
  );

export function answer(task: Task, heads: LayerPlacement, bound: number): Answer {
  const peak = Math.max(...rankLoads(task.loads, heads, task.room.length));
  // What is proved least up to rounding is its own bound.
  return { heads, peak, bound: peak <= bound * (1 + TIE) ? peak : bound };
}

/** The one with the lower peak, the first where they tie; the higher bound holds for it too if both are of one kind. */
export function better(a: Answer, b: Answer | undefined): Answer {
  return b !== undefined && b.peak < a.peak * (1 - TIE) ? b : a;
}

/** No placement, whatever its shares, has a lower peak: the mean of all ranks. */
export const evenPeak = ({ loads, room }: Task): number => sum(loads) / room.length;

/** Static head allocation, as tensor parallelism has it: equally many heads per rank, in their order, whatever their load. */
export function staticPlacement(numHeads: number, ranks: number): LayerPlacement {
  return spreadEvenly(numHeads, ranks).flatMap(([first, end], rank) =>
    Array.from({ length: end - first }, () => [{ rank, share: 1 }]),
  );
}

type Loads = readonly (readonly number[])[];

export const layerLoads = (loads: Loads, placement: Placement, ranks: number): number[][] =>
  loads.map((layer, at) => rankLoads(layer, placement[at] ?? [], ranks));

/** The busiest rank's load of each layer, added up: every layer ends in a reduction, so ranks wait for the busiest in each. */
export const makespan = (loads: Loads, placement: Placement, ranks: number): number =>
  sum(layerLoads(loads, placement, ranks).map((own) => Math.max(...own)));

/** The share of their time that ranks work when all wait for a rank that takes `longest`; 1 when there is nothing to do. */
export const utilisation = (loads: Loads, ranks: number, longest: number): number =>
  longest > 0 ? sum(loads.flat()) / (ranks * longest) : 1;
