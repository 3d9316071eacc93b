import { CHUNK_TOKENS, MERGE_LANES } from '../base/kv_units.js';
import { nth, range } from '../base/lists.js';

/** A head of a layer, whose merge lanes may be dealt out to some ranks. */
export interface LanedHead {
  /** That hold it: copies where there are several. */
  readonly ranks: readonly number[];
  /** That a sequence's cache of the head has. */
  readonly entries: number;
}

/** Entries in each merge lane of a head that has so many: chunk c is of lane c mod 8. */
export function laneEntries(entries: number): number[] {
  const round = MERGE_LANES * CHUNK_TOKENS;
  return range(0, MERGE_LANES).map((lane) => {
    const rest = (entries % round) - lane * CHUNK_TOKENS;
    return Math.floor(entries / round) * CHUNK_TOKENS + Math.min(Math.max(rest, 0), CHUNK_TOKENS);
  });
}

/** A merge lane of a head, and where it is so far. */
interface Lane {
  readonly ranks: readonly number[];
  readonly entries: number;
  rank: number | undefined;
}

/** Lanes of different heads or lengths. */
const unlike = (lanes: readonly Lane[]): Lane[] =>
  lanes.filter((lane, at) => !lanes.slice(0, at).some((a) => a.ranks === lane.ranks && a.entries === lane.entries));

/** Ranks of a chain of moves, of which every one is tried. */
const WHOLE_CHAINS = 3;

/** Moves that are tried: a millisecond or two a layer, at most. */
const TRIES = 1000;

/**
 * Deals the merge lanes of a layer's heads out to the ranks that hold them, so that the busiest rank has little to read: the
 * longest lanes first, each where least is to be read; then as long as the busiest rank can be relieved, by one lane or by a chain of
 * them. Lanes without entries follow, in the order in which a growing sequence reaches them. The same input gives the same shares
 * everywhere.
 * @param busy by rank, what it reads of the layer besides: other sequences
 * @param speedOf a rank: the busiest is the one that takes longest
 * @returns by head, the rank of each lane
 */
export function shareLanes(
  heads: readonly LanedHead[],
  busy: ReadonlyMap<number, number>,
  speedOf: (rank: number) => number = () => 1,
): number[][] {
  const loads = new Map([...busy].map(([rank, entries]) => [rank, entries / speedOf(rank)]));
  const loadOf = (rank: number): number => loads.get(rank) ?? 0;
  const withLane = (rank: number, entries: number): number => loadOf(rank) + entries / speedOf(rank);
  const leastBusy = (ranks: readonly number[], entries: number): number =>
    ranks.reduce((best, rank) => (withLane(rank, entries) < withLane(best, entries) ? rank : best));
  const add = (rank: number, entries: number): void => void loads.set(rank, withLane(rank, entries));
  const put = (lane: Lane, rank: number | undefined): void => {
    if (lane.rank !== undefined) add(lane.rank, -lane.entries);
    lane.rank = rank;
    if (rank !== undefined) add(rank, lane.entries);
  };
  const all = heads.map(({ ranks, entries }) =>
    laneEntries(entries).map((own): Lane => ({ ranks, entries: own, rank: undefined })),
  );
  const read = all.flat().filter(({ entries }) => entries > 0);
  for (const lane of read) if (lane.ranks.length === 1) put(lane, lane.ranks[0]);
  const free = read.filter(({ ranks }) => ranks.length > 1);
  for (const lane of free.toSorted((a, b) => b.entries - a.entries)) put(lane, leastBusy(lane.ranks, lane.entries));

  let left = TRIES;
  /**
   * Moves a lane away from a rank, and another from where it goes if that is too much there, so that no rank has as much as `peak`.
   * @param before ranks that gave one away; in long chains a rank that couldn't isn't asked again
   */
  const relieve = (from: number, peak: number, before: Set<number>): boolean => {
    const tried = before.size < WHOLE_CHAINS ? new Set(before) : before;
    tried.add(from);
    for (const lane of unlike(free.filter(({ rank }) => rank === from))) {
      for (const to of lane.ranks) {
        if (to === from || (tried.has(to) && withLane(to, lane.entries) >= peak)) continue;
        if (left-- <= 0) return false;
        put(lane, to);
        if (loadOf(from) < peak && (loadOf(to) < peak || relieve(to, peak, tried))) return true;
        put(lane, from);
      }
    }
    return false;
  };
  const busiest = (): number =>
    [...loads.keys()].reduce((best, rank) => (loadOf(rank) > loadOf(best) ? rank : best), nth([...loads.keys()], 0));
  while (free.length > 0 && relieve(busiest(), loadOf(busiest()), new Set()));
  const unread = range(0, MERGE_LANES).flatMap((at) => all.map((lanes) => nth(lanes, at)));
  for (const lane of unread.filter(({ entries }) => entries === 0)) {
    lane.rank = leastBusy(lane.ranks, CHUNK_TOKENS);
    add(lane.rank, CHUNK_TOKENS);
  }
  return all.map((lanes) => lanes.map(({ rank }) => rank!));
}

/** What each rank reads of these heads, whose lanes are shared so. */
export function laneLoads(
  heads: readonly Pick<LanedHead, 'entries'>[],
  shares: readonly (readonly number[])[],
): Map<number, number> {
  const loads = new Map<number, number>();
  for (const [at, { entries }] of heads.entries()) {
    const own = laneEntries(entries);
    for (const [lane, rank] of nth(shares, at).entries()) loads.set(rank, (loads.get(rank) ?? 0) + nth(own, lane));
  }
  return loads;
}
