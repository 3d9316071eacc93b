import { CHUNK_TOKENS, MERGE_LANES } from '../owner.js';
import { laneHolders } from '../sequences/copies.js';
import { laneLoads } from '../../arrangement/lane_shares.js';
import type { LayerPlacement, Placement } from '../../arrangement/types.js';
import { nth, range, sum } from '../../base/lists.js';

/** Entries from which a head has a chunk in every merge lane: with fewer, copies can't share it as they should. */
export const LANE_ENTRIES = MERGE_LANES * CHUNK_TOKENS;

/** An arrangement for one sequence at a time, whose copies would share lanes. */
export interface LaneSharing {
  /** Copies left out where sharing lanes wouldn't help: the head is then whole on one of its ranks. */
  readonly placement: Placement;
  /** Layers that had copies, and those that still have some. */
  readonly copied: number;
  readonly shared: number;
  /** The busiest ranks of the layers have less to read by so much that one sequence at a time is worth it. */
  readonly pays: boolean;
}

/** What ranks wait for must shrink by so much: copies that share lanes take an exchange a layer, and run one sequence at a time. */
const WORTH = 0.9;

/**
 * Leaves copies out where sharing merge lanes helps one sequence little: heads of fewer than `LANE_ENTRIES` entries, and layers whose
 * busiest rank would have no less to read. A layer with copies costs an exchange more.
 * @param entries that each head is expected to keep, [layer][kv head]
 */
export function lanesThatPay(
  placement: Placement,
  ranks: number,
  entries: readonly (readonly number[])[],
): LaneSharing {
  let [copied, shared] = [0, 0];
  let [before, after] = [0, 0];
  const layers = placement.map((heads, layer) => {
    if (!hasCopies(heads)) return heads;
    copied++;
    const kept = nth(entries, layer);
    const whole = uncopied(heads, kept, ranks, () => true);
    const wholePeak = busiest(whole, kept, ranks);
    before += wholePeak;
    const long = uncopied(heads, kept, ranks, (head) => nth(kept, head) < LANE_ENTRIES);
    const longPeak = hasCopies(long) ? busiest(long, kept, ranks) : wholePeak;
    after += Math.min(longPeak, wholePeak);
    if (longPeak >= wholePeak) return whole;
    shared++;
    return long;
  });
  return { placement: layers, copied, shared, pays: shared > 0 && after <= WORTH * before };
}

const hasCopies = (heads: LayerPlacement): boolean => heads.some((copies) => copies.length > 1);

/** Some copied heads whole on one of their ranks: the longest first, each where least is to be read so far. */
function uncopied(
  heads: LayerPlacement,
  entries: readonly number[],
  ranks: number,
  isWhole: (head: number) => boolean,
): LayerPlacement {
  const chosen = heads
    .map((copies, head) => ({ head, copies, kept: nth(entries, head) }))
    .filter(({ head, copies }) => copies.length > 1 && isWhole(head));
  const placed = [...heads];
  for (const { head } of chosen) placed[head] = [];
  const loads = loadsOf(placed, entries, ranks);
  for (const { head, copies, kept } of chosen.toSorted((a, b) => b.kept - a.kept || a.head - b.head)) {
    const { rank } = copies.reduce((best, copy) => (nth(loads, copy.rank) < nth(loads, best.rank) ? copy : best));
    placed[head] = [{ rank, share: 1 }];
    loads[rank]! += kept;
  }
  return placed;
}

const busiest = (heads: LayerPlacement, entries: readonly number[], ranks: number): number =>
  Math.max(...loadsOf(heads, entries, ranks));

/** Entries that each rank reads of a layer: of a copied head, its chunks. */
function loadsOf(heads: LayerPlacement, entries: readonly number[], ranks: number): number[] {
  const placed = heads.flatMap((copies, head) => (copies.length > 0 ? [{ copies, entries: nth(entries, head) }] : []));
  const lanes = placed.map(({ copies }) => laneHolders(copies));
  const loads = laneLoads(placed, lanes);
  return range(0, ranks).map((rank) => loads.get(rank) ?? 0);
}

/**
 * Entries that heads are expected to keep when nothing is known of the prompts but the context: all of a prompt of half of it, or its
 * budget's part, as the loads are spread.
 */
export function expectedEntries(
  { loads, placement }: { readonly loads?: readonly (readonly number[])[] | undefined; readonly placement: Placement },
  { contextLength, budget }: { readonly contextLength: number; readonly budget: number | undefined },
): number[][] {
  const prompt = contextLength / 2;
  if (budget === undefined || budget >= 1) return placement.map((heads) => heads.map(() => prompt));
  if (!loads || sum(loads.flat()) === 0) return placement.map((heads) => heads.map(() => budget * prompt));
  const all = loads.flat();
  const scale = (budget * prompt * all.length) / sum(all);
  // No head keeps more than there is.
  return loads.map((layer) => layer.map((load) => Math.min(prompt, load * scale)));
}
