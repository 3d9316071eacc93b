/**
 * Room: which sequences a rank keeps, where a plan shards them: slots by weight (here and in sequence_weights.ts),
 * and copies of a head (copies.ts). Owners ask these.
 */

import { sameList, sum } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import { isKvOnly, type RankShare } from '../plan.js';

/** Rows [first, end). */
export type RowRange = readonly [first: number, end: number];

/**
 * Slots of ranks in proportion to their weights, as runs in the order of the ranks: by the largest remainder, of equals the
 * later one, since a root comes first and should have fewer.
 */
export function sequenceRanges(weights: readonly number[], slots: number): RowRange[] {
  const total = sum(weights);
  const runs = weights.map((weight, index) => {
    const exact = (weight / total) * slots;
    return { index, weight, rest: exact - Math.floor(exact), count: Math.floor(exact) };
  });
  const left = slots - sum(runs.map(({ count }) => count));
  const order = runs.filter(({ weight }) => weight > 0).toSorted((a, b) => b.rest - a.rest || b.index - a.index);
  for (const run of order.slice(0, left)) run.count++;
  let next = 0;
  return runs.map(({ count }) => [next, (next += count)]);
}

/** Ranks that keep the same sequences: one alone, or several that split the chunks of each by merge lanes. */
export type Place = readonly RankShare[];

/** The places among which this rank's sequences are sharded, the root's first: neighbours that together have all merge lanes. */
export function sequencePlaces(share: RankShare, stage: readonly RankShare[]): Place[] {
  const members = stage.filter(({ kvHeads }) => sameList(kvHeads, share.kvHeads));
  const roots = members.filter((member) => !isKvOnly(member));
  const places: RankShare[][] = [];
  let place: RankShare[] = [];
  let lanes = MERGE_LANES;
  for (const member of [...roots, ...members.filter((member) => !roots.includes(member))]) {
    if (lanes >= MERGE_LANES) {
      places.push((place = []));
      lanes = 0;
    }
    place.push(member);
    lanes += member.lanes.length;
  }
  return places;
}

/**
 * The places of a stage whose ranks run rows of their own, in the order of the plan: neighbours that together hold all heads, and once
 * every kv head of the cache with every lane. What is left over at the end is a place, too, if not a whole one.
 */
export function dataPlaces(stage: readonly RankShare[]): Place[] {
  const headsOf = (ranks: readonly RankShare[]): number => new Set(ranks.flatMap(({ heads }) => heads)).size;
  const boxesOf = (ranks: readonly RankShare[]): number =>
    sum(ranks.map((own) => own.kvHeads.length * own.lanes.length));
  const heads = headsOf(stage);
  const boxes = new Set(stage.flatMap(({ kvHeads }) => kvHeads)).size * MERGE_LANES;
  const places: RankShare[][] = [];
  let rest: RankShare[] = [];
  for (const share of stage) {
    rest.push(share);
    if (headsOf(rest) < heads || boxesOf(rest) < boxes) continue;
    places.push(rest);
    rest = [];
  }
  return rest.length > 0 ? [...places, rest] : places;
}

export const placeWeights = (places: readonly Place[]): number[] => places.map(([first]) => first?.sequences ?? 0);
