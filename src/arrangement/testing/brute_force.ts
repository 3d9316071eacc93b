import { rankCopies, rankLoads } from '../task.js';
import type { HeadShare, LayerPlacement } from '../types.js';

/** Every way to put copies of each head on ranks with at most so many copies beyond the first, a head's copies in equal shares. */
export function* everyPlacement(heads: number, ranks: number, copies: number): Generator<LayerPlacement, void> {
  const current: HeadShare[][] = [];
  function* walk(left: number): Generator<LayerPlacement, void> {
    if (current.length === heads) return yield current.map((list) => [...list]);
    for (let chosen = 1; chosen < 1 << ranks; chosen++) {
      const holders = Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => (chosen >> rank) & 1);
      if (holders.length - 1 > left) continue;
      current.push(holders.map((rank) => ({ rank, share: 1 / holders.length })));
      yield* walk(left - holders.length + 1);
      current.pop();
    }
  }
  yield* walk(copies);
}

/** The least peak of a layer with equal shares. */
export function leastPeak(loads: readonly number[], ranks: number, copies: number): number {
  let least = Infinity;
  for (const heads of everyPlacement(loads.length, ranks, copies)) {
    least = Math.min(least, Math.max(...rankLoads(loads, heads, ranks)));
  }
  return least;
}

/**
 * The least peak of a layer with any shares: on given holders the least peak is the largest load of some heads over the number of
 * ranks that hold one of them (the duality of flows and cuts).
 */
export function leastPeakOfAnyShares(loads: readonly number[], ranks: number, copies: number): number {
  let least = Infinity;
  for (const heads of everyPlacement(loads.length, ranks, copies)) {
    let peak = 0;
    for (let chosen = 1; chosen < 1 << loads.length; chosen++) {
      const some = loads.map((_, head) => head).filter((head) => (chosen >> head) & 1);
      const holders = new Set(some.flatMap((head) => heads[head]!.map(({ rank }) => rank)));
      peak = Math.max(peak, some.reduce((total, head) => total + loads[head]!, 0) / holders.size);
    }
    least = Math.min(least, peak);
  }
  return least;
}

/** The least sum of peaks with equal shares when a rank holds at most `memory` heads of all layers. */
export function leastWithinMemory(
  layers: readonly (readonly number[])[],
  ranks: number,
  copies: number,
  memory: number,
): number {
  // By what the ranks hold already: the least sum of peaks so far.
  let states = new Map([[new Array<number>(ranks).fill(0).join(), 0]]);
  for (const loads of layers) {
    const next = new Map<string, number>();
    for (const heads of everyPlacement(loads.length, ranks, copies)) {
      const peak = Math.max(...rankLoads(loads, heads, ranks));
      const held = rankCopies(heads, ranks);
      for (const [key, cost] of states) {
        const used = key.split(',').map((n, rank) => Number(n) + held[rank]!);
        if (Math.max(...used) > memory) continue;
        next.set(used.join(), Math.min(next.get(used.join()) ?? Infinity, cost + peak));
      }
    }
    states = next;
  }
  return Math.min(...states.values());
}
