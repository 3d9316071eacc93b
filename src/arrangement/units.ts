import { sum } from '../base/lists.js';
import { type Task, TIE } from './task.js';
import type { HeadShare, LayerPlacement } from './types.js';

/** Requests of a head that leave one rank for another. */
interface Move {
  readonly head: number;
  readonly from: number;
  readonly to: number;
  readonly requests: number;
}

/**
 * Shares rounded to requests of a batch, then improved: requests move from the busiest rank to another, or change places with
 * requests of another head, as long as that makes both less busy than the busiest was.
 *
 * @param task with a finite batch
 * @param heads within the task's limits
 */
export function improveUnits(task: Task, heads: LayerPlacement): LayerPlacement {
  const { loads, batch, room } = task;
  const state = new Requests(task, heads);
  for (;;) {
    const busiest = state.load.indexOf(Math.max(...state.load));
    const limit = state.load[busiest]! * (1 - TIE);
    const others = [...room.keys()]
      .filter((rank) => rank !== busiest)
      .sort((a, b) => state.load[a]! - state.load[b]! || a - b);
    const found = others.some((other) => {
      const moves = bestMoves(state, loads, batch, busiest, other, limit);
      for (const move of moves) state.apply(move);
      return moves.length > 0;
    });
    if (!found) return state.placement();
  }
}

/** The moves between two ranks after which the busier of them is least busy; none where that isn't below the limit. */
function bestMoves(
  state: Requests,
  loads: readonly number[],
  batch: number,
  busiest: number,
  other: number,
  limit: number,
): readonly Move[] {
  let best: readonly Move[] = [];
  let least = limit;
  const consider = (moves: readonly Move[]): void => {
    const peak = state.peakAfter(moves, busiest, other);
    if (peak < least && state.allows(moves)) [best, least] = [moves, peak * (1 - TIE)];
  };
  const difference = state.load[busiest]! - state.load[other]!;
  for (const head of state.headsOn(busiest)) {
    const here = state.requests[head]![busiest]!;
    // The amount that makes both ranks equal, to the next request below and above.
    for (const requests of around((difference / 2 / loads[head]!) * batch, here)) {
      consider([{ head, from: busiest, to: other, requests }]);
    }
    for (const back of state.headsOn(other)) {
      if (back === head || loads[back]! === 0) continue;
      const there = state.requests[back]![other]!;
      for (const requests of amounts(here)) {
        const equal = (requests * loads[head]! - (difference / 2) * batch) / loads[back]!;
        for (const returned of around(equal, there)) {
          consider([
            { head, from: busiest, to: other, requests },
            { head: back, from: other, to: busiest, requests: returned },
          ]);
        }
      }
    }
  }
  return best;
}

/** The whole numbers next to `value`, and all there is, within 1 .. most. */
const around = (value: number, most: number): number[] =>
  [...new Set([Math.floor(value), Math.ceil(value), most])].filter((n) => n >= 1 && n <= most);

/** 1 .. most, or of many only powers of two and all. */
function amounts(most: number): number[] {
  if (most <= 16) return Array.from({ length: most }, (_, i) => i + 1);
  return [...Array.from({ length: Math.floor(Math.log2(most)) + 1 }, (_, i) => 2 ** i), most];
}

/** How many requests of each head each rank serves, and what the limits leave. */
class Requests {
  /** [head][rank] */
  readonly requests: number[][];
  readonly load: number[];
  readonly #free: number[];
  readonly #budgets: number[];

  constructor(
    private readonly task: Task,
    heads: LayerPlacement,
  ) {
    const { room, budgets, budgetOf } = task;
    this.requests = heads.map((copies) => roundShares(copies, task.batch, room.length));
    this.#free = [...room];
    this.#budgets = [...budgets];
    for (const [head, row] of this.requests.entries()) {
      const holders = [...row.keys()].filter((rank) => row[rank]! > 0);
      this.#budgets[budgetOf[head]!]! -= holders.length - 1;
      for (const rank of holders) this.#free[rank]!--;
    }
    this.load = room.map((_, rank) => this.#loadOf(rank));
  }

  headsOn(rank: number): number[] {
    return [...this.requests.keys()].filter((head) => this.requests[head]![rank]! > 0);
  }

  /** The higher load of the two ranks after the moves. */
  peakAfter(moves: readonly Move[], a: number, b: number): number {
    let moved = 0;
    for (const { head, from, requests } of moves) {
      moved += ((from === a ? 1 : -1) * requests * this.task.loads[head]!) / this.task.batch;
    }
    return Math.max(this.load[a]! - moved, this.load[b]! + moved);
  }

  /** Whether the limits are kept after the moves. */
  allows(moves: readonly Move[]): boolean {
    for (const move of moves) this.apply(move);
    const allowed = this.#free.every((free) => free >= 0) && this.#budgets.every((budget) => budget >= 0);
    for (const { head, from, to, requests } of moves) this.apply({ head, from: to, to: from, requests });
    return allowed;
  }

  apply({ head, from, to, requests }: Move): void {
    const row = this.requests[head]!;
    const budget = this.task.budgetOf[head]!;
    if (row[to] === 0) {
      this.#free[to]!--;
      this.#budgets[budget]!--;
    }
    row[to]! += requests;
    row[from]! -= requests;
    if (row[from] === 0) {
      this.#free[from]!++;
      this.#budgets[budget]!++;
    }
    for (const rank of [from, to]) this.load[rank] = this.#loadOf(rank);
  }

  placement(): LayerPlacement {
    return this.requests.map((row) =>
      row.flatMap((n, rank): HeadShare[] => (n > 0 ? [{ rank, share: n / this.task.batch }] : [])),
    );
  }

  #loadOf(rank: number): number {
    return (
      this.task.base[rank]! +
      sum(this.requests.map((row, head) => (row[rank]! / this.task.batch) * this.task.loads[head]!))
    );
  }
}

/** Requests for each rank, batch together: rounded down, the rest to those that lost most. */
function roundShares(copies: readonly HeadShare[], batch: number, ranks: number): number[] {
  const row = new Array<number>(ranks).fill(0);
  for (const { rank, share } of copies) row[rank] = Math.floor(share * batch + TIE);
  const lost = [...copies].sort(
    (a, b) => b.share * batch - row[b.rank]! - (a.share * batch - row[a.rank]!) || a.rank - b.rank,
  );
  for (let i = 0, left = batch - sum(row); left > 0; i++, left--) row[lost[i % lost.length]!.rank]!++;
  return row;
}
