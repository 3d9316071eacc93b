import { sum } from '../../base/lists.js';
import { type Task, TIE } from '../task.js';
import type { HeadShare, LayerPlacement } from '../types.js';

interface Rank {
  readonly rank: number;
  load: number;
  /** Heads that it has room for besides. */
  free: number;
}

/** A head, and how many of its requests each of its ranks serves. */
interface Head {
  readonly load: number;
  readonly on: Map<number, number>;
}

/** Requests of a head that leave one rank for another. */
interface Move {
  readonly head: Head;
  readonly from: Rank;
  readonly to: Rank;
  readonly requests: number;
}

/**
 * Shares rounded to requests of a batch, then improved: requests move from the busiest rank to another, or change places with
 * requests of another head, as long as that makes both less busy than the busiest was.
 *
 * @param task with a finite batch
 * @param start within the task's limits
 */
export function improveUnits(task: Task, start: LayerPlacement): LayerPlacement {
  const { loads, batch, room } = task;
  const heads = loads.map((load, head): Head => ({ load, on: roundShares(start[head] ?? [], batch) }));
  const on = ({ rank }: Rank): Head[] => heads.filter((head) => head.on.has(rank));
  const loadOf = (rank: number): number => sum(heads.map((head) => ((head.on.get(rank) ?? 0) / batch) * head.load));
  const ranks = room.map((places, rank): Rank => ({ rank, load: loadOf(rank), free: places }));
  for (const rank of ranks) rank.free -= on(rank).length;
  let spare = task.copies - sum(heads.map((head) => head.on.size - 1));

  const apply = ({ head, from, to, requests }: Move): void => {
    const [left, more] = [(head.on.get(from.rank) ?? 0) - requests, head.on.get(to.rank)];
    if (more === undefined) {
      to.free--;
      spare--;
    }
    head.on.set(to.rank, (more ?? 0) + requests).set(from.rank, left);
    if (left === 0) {
      head.on.delete(from.rank);
      from.free++;
      spare++;
    }
    for (const rank of [from, to]) rank.load = loadOf(rank.rank);
  };
  /** Whether the limits are kept after the moves. */
  const allows = (moves: readonly Move[]): boolean => {
    for (const move of moves) apply(move);
    const allowed = spare >= 0 && ranks.every(({ free }) => free >= 0);
    for (const move of moves) apply({ ...move, from: move.to, to: move.from });
    return allowed;
  };
  /** The moves between two ranks after which the busier of them is least busy; none where that isn't below the limit. */
  const bestMoves = (busiest: Rank, other: Rank): readonly Move[] => {
    let best: readonly Move[] = [];
    let least = busiest.load * (1 - TIE);
    const consider = (...moves: readonly Move[]): void => {
      let moved = 0;
      for (const { head, from, requests } of moves)
        moved += ((from === busiest ? 1 : -1) * requests * head.load) / batch;
      const peak = Math.max(busiest.load - moved, other.load + moved);
      if (peak < least && allows(moves)) [best, least] = [moves, peak * (1 - TIE)];
    };
    const difference = busiest.load - other.load;
    const given = on(other);
    for (const head of on(busiest)) {
      const here = head.on.get(busiest.rank) ?? 0;
      // The amount that makes both ranks equal, to the next request below and above.
      for (const requests of around((difference / 2 / head.load) * batch, here)) {
        consider({ head, from: busiest, to: other, requests });
      }
      for (const back of given) {
        if (back === head || back.load === 0) continue;
        for (const requests of amounts(here)) {
          const equal = (requests * head.load - (difference / 2) * batch) / back.load;
          for (const returned of around(equal, back.on.get(other.rank) ?? 0)) {
            consider(
              { head, from: busiest, to: other, requests },
              { head: back, from: other, to: busiest, requests: returned },
            );
          }
        }
      }
    }
    return best;
  };

  const improves = (): boolean => {
    const [busiest, ...others] = ranks.toSorted((a, b) => b.load - a.load);
    return others
      .sort((a, b) => a.load - b.load || a.rank - b.rank)
      .some((other) => {
        const moves = busiest ? bestMoves(busiest, other) : [];
        for (const move of moves) apply(move);
        return moves.length > 0;
      });
  };
  while (improves());
  return heads.map((head) =>
    [...head.on].sort(([a], [b]) => a - b).map(([rank, n]): HeadShare => ({ rank, share: n / batch })),
  );
}

/** The whole numbers next to `value`, and all there is, within 1 .. most. */
const around = (value: number, most: number): number[] =>
  [...new Set([Math.floor(value), Math.ceil(value), most])].filter((n) => n >= 1 && n <= most);

/** 1 .. most, or of many only powers of two and all. */
function amounts(most: number): number[] {
  if (most <= 16) return Array.from({ length: most }, (_, i) => i + 1);
  return [...Array.from({ length: Math.floor(Math.log2(most)) + 1 }, (_, i) => 2 ** i), most];
}

/** Requests by rank, batch together: rounded down, the rest to those that lost most. */
function roundShares(copies: readonly HeadShare[], batch: number): Map<number, number> {
  const parts = copies.map(({ rank, share }) => {
    const requests = Math.floor(share * batch + TIE);
    return { rank, requests, lost: share * batch - requests };
  });
  const order = parts.toSorted((a, b) => b.lost - a.lost || a.rank - b.rank);
  for (let left = batch - sum(parts.map(({ requests }) => requests)); left > 0;) {
    for (const part of order.slice(0, left)) {
      part.requests++;
      left--;
    }
  }
  return new Map(parts.flatMap(({ rank, requests }) => (requests > 0 ? [[rank, requests] as const] : [])));
}
