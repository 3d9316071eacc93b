/**
 * Room: loads to arrange, and independent answers: brute_force.ts tries everything. This file has the figures of
 * docs/arrangement.md, which a test takes again.
 */

import { arrange } from '../arrange.js';
import { promptUtilisation } from '../prompts.js';
import { rankLoads, utilisation } from '../task.js';
import type { ArrangementProblem } from '../types.js';
import { lognormalLoads } from './loads.js';

/** What was found before on loads of the same distribution: kv heads, ranks, and the utilisation of each column. */
export const EXPECTED = [
  { heads: 8, ranks: 4, more: 4, utilisation: [0.66, 0.87, 0.95, 0.97, 0.97] },
  { heads: 8, ranks: 8, more: 4, utilisation: [0.49, 0.49, 0.68, 0.84, 0.94] },
  { heads: 32, ranks: 8, more: 2, utilisation: [0.63, 0.91, 0.96, 0.96, 0.97] },
] as const;

/** Layers of a profile. */
export const LAYERS = 32;

type Limits = Omit<ArrangementProblem, 'loads' | 'ranks'>;

/** The columns: static, no copy, one copy per layer, more copies, wrap-around; in the last by requests of a batch of 8. */
const columns = (more: number): Readonly<Record<string, Limits>> => ({
  static: { mode: 'static' },
  greedy: { mode: 'greedy' },
  'exact, no copy': { mode: 'exact', copies: 0 },
  'fair-copy +1': { mode: 'fair-copy', copies: 1 },
  'exact +1': { mode: 'exact', copies: 1 },
  [`fair-copy +${more}`]: { mode: 'fair-copy', copies: more },
  [`exact +${more}`]: { mode: 'exact', copies: more },
  'wrap, batch 8': { mode: 'wrap', batch: 8 },
  wrap: { mode: 'wrap' },
});

/** Mean load / busiest rank's load, averaged over layers. */
export function meanUtilisation(loads: readonly (readonly number[])[], ranks: number, limits: Limits): number {
  const { placement } = arrange({ loads, ranks, ...limits });
  const each = placement.map((heads, layer) =>
    utilisation([loads[layer]!], ranks, Math.max(...rankLoads(loads[layer]!, heads, ranks))),
  );
  return each.reduce((total, value) => total + value, 0) / each.length;
}

/**
 * The utilisation of single prompts whose heads keep what the mean prompt's do, but for a lognormal spread: with the shares of the mean,
 * and with lanes shared anew.
 */
export function utilisationOfPrompts(
  loads: readonly (readonly number[])[],
  ranks: number,
  copies: number,
  spread: number,
): readonly [planned: number, shared: number] {
  const found = arrange({ loads, ranks, mode: 'fair-copy', copies });
  const deviations = loads.map((heads) => heads.map((load) => spread * load));
  const profile = { model: 'drawn', kv_budget: 0.2, layers: loads, share: loads, share_std: deviations };
  const of = (sharesLanes: boolean): number => promptUtilisation(profile, found.placement, ranks, sharesLanes)!;
  return [of(false), of(true)];
}

/** One row of figures for each of the shapes in `EXPECTED`, each over so many profiles. */
export function utilisationTable(profiles: number): { readonly [column: string]: number }[] {
  return EXPECTED.map(({ heads, ranks, more }) => {
    const figures = Object.entries(columns(more)).map(([name, limits]) => {
      const each = Array.from({ length: profiles }, (_, seed) =>
        meanUtilisation(lognormalLoads(seed + 1, LAYERS, heads), ranks, limits),
      );
      return [name, each.reduce((total, value) => total + value, 0) / profiles] as const;
    });
    return Object.fromEntries(figures);
  });
}
