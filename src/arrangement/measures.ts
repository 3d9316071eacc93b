import { sum } from '../base/lists.js';
import { rankLoads } from './task.js';
import type { Placement } from './types.js';

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
