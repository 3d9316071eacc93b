import type { Placement } from '../../src/arrangement/index.js';
import { holdersOf, type Plan } from '../../src/placement/index.js';
import { range, sum } from '../../src/base/lists.js';

/** A kv head on a rank. */
export interface HeadTile {
  readonly head: number;
  /** What it costs this rank, in the unit of the loads. */
  readonly load: number;
  /** Of the head, that this rank serves. */
  readonly share: number;
  /** Other ranks with a copy, ascending. */
  readonly copies: readonly number[];
}

/** A layer's heads by rank, and how well they balance. */
export interface LayerMap {
  readonly layer: number;
  readonly ranks: readonly (readonly HeadTile[])[];
  /** By rank. */
  readonly loads: readonly number[];
  readonly busiest: number;
  /** All loads / (ranks * busiest). */
  readonly utilisation: number;
}

/** Where a plan's heads lie, [layer][kv head]. */
export const placementOf = ({ stages }: Pick<Plan, 'stages'>, kvHeads: number): Placement =>
  stages.flatMap((stage) => {
    const heads = range(0, kvHeads).map((head) => holdersOf(stage, head));
    return range(...stage.layers).map(() => heads);
  });

/** An arrangement, layer by layer. @param loads [layer][kv head]; every head costs the same where they aren't known */
export function arrangementMap(
  placement: Placement,
  ranks: number,
  loads?: readonly (readonly number[])[],
): LayerMap[] {
  return placement.map((heads, layer) => {
    const loadOf = (head: number): number => loads?.[layer]?.[head] ?? 1;
    const byRank = range(0, ranks).map((rank) =>
      heads.flatMap((copies, head): HeadTile[] => {
        const own = copies.find((copy) => copy.rank === rank);
        if (!own) return [];
        const others = copies.filter((copy) => copy !== own).map((copy) => copy.rank);
        return [{ head, load: loadOf(head) * own.share, share: own.share, copies: others }];
      }),
    );
    const sums = byRank.map((tiles) => sum(tiles.map(({ load }) => load)));
    const busiest = Math.max(...sums);
    const utilisation = busiest > 0 ? sum(sums) / (ranks * busiest) : 1;
    return { layer, ranks: byRank, loads: sums, busiest, utilisation };
  });
}

/** Of all layers: ranks wait for the busiest in each. */
export function wholeUtilisation(layers: readonly LayerMap[]): number {
  const longest = sum(layers.map(({ busiest, ranks }) => busiest * ranks.length));
  return longest > 0 ? sum(layers.flatMap(({ loads }) => loads)) / longest : 1;
}
