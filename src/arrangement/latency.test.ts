import { describe, expect, test } from 'vitest';
import { Random } from '../base/random.js';
import { range, sum } from '../base/lists.js';
import { arrange } from './arrange.js';
import { rankBytes, rankSeconds } from './latency.js';
import type { ArrangementProblem, HeadCosts, LayerPlacement } from './types.js';

/** Every way to give each head's requests to ranks, whole requests: the fastest. */
function fastest(loads: readonly number[], costs: HeadCosts, requests: number, copies: number): number {
  const ranks = costs.secondsPerEntry.length;
  const ways: number[][] = [];
  const split = (left: number, own: readonly number[]): void => {
    if (own.length === ranks) {
      if (left === 0) ways.push([...own]);
      return;
    }
    for (let count = 0; count <= left; count++) split(left - count, [...own, count]);
  };
  split(requests, []);
  let best = Infinity;
  const walk = (head: number, seconds: readonly number[], spare: number): void => {
    if (Math.max(...seconds) >= best) return;
    if (head === loads.length) {
      best = Math.max(...seconds);
      return;
    }
    for (const way of ways) {
      const extra = way.filter((count) => count > 0).length - 1;
      if (extra > spare) continue;
      const next = seconds.map((own, rank) =>
        way[rank]! === 0
          ? own
          : own + costs.secondsPerHead[rank]! + loads[head]! * way[rank]! * costs.secondsPerEntry[rank]!,
      );
      walk(head + 1, next, spare - extra);
    }
  };
  walk(
    0,
    range(0, ranks).map(() => 0),
    copies,
  );
  return best;
}

const loadsOf = (random: Random, layers: number, heads: number): number[][] =>
  range(0, layers).map(() => range(0, heads).map(() => 20 + random.integer(200)));
const placed = (heads: LayerPlacement): number => sum(heads.map((copies) => sum(copies.map(({ share }) => share))));

describe('arranged by seconds', () => {
  test('is near the fastest placement of all, and never beyond its bound, on ranks of unequal speed', () => {
    const random = new Random(5);
    let [found, best] = [0, 0];
    for (const copies of [0, 1, 2]) {
      for (const _ of range(0, 12)) {
        const loads = loadsOf(random, 1, 4);
        const ranks = 2 + random.integer(2);
        const secondsPerEntry = range(0, ranks).map(() => 1 + random.integer(3));
        const costs = { secondsPerEntry, secondsPerHead: secondsPerEntry.map((own) => own * 30) };
        const problem: ArrangementProblem = {
          loads,
          ranks,
          copies,
          batch: 3,
          mode: 'exact',
          costs,
        };
        const arrangement = arrange(problem);
        const least = fastest(loads[0]!, costs, 3, copies);
        expect(arrangement.makespan).toBeGreaterThanOrEqual(least * (1 - 1e-9));
        expect(arrangement.lowerBound).toBeLessThanOrEqual(least * (1 + 1e-9));
        expect(arrangement.makespan).toBeLessThanOrEqual(least * 1.25);
        expect(arrangement.copies).toBeLessThanOrEqual(copies);
        expect(placed(arrangement.placement[0]!)).toBeCloseTo(4, 9);
        found += arrangement.makespan;
        best += least;
      }
    }
    expect(found / best).toBeLessThan(1.04);
  });

  test('gives a faster rank more, and makes no copy that costs more than it saves', () => {
    const loads = [[100, 100, 100, 100]];
    const base = { loads, ranks: 2, mode: 'exact', batch: 8 } as const;
    const uneven = arrange({ ...base, costs: { secondsPerEntry: [1, 3], secondsPerHead: [0, 0] } });
    const seconds = rankSeconds(
      loads[0]!,
      uneven.placement[0]!,
      { secondsPerEntry: [1, 3], secondsPerHead: [0, 0] },
      8,
    );
    // 3200 entries at a speed of 1 + 1/3.
    expect(Math.max(...seconds)).toBeCloseTo(2400, 6);
    const heavy = { ...base, loads: [[100, 200, 100, 100]] };
    const cheap = arrange({ ...heavy, costs: { secondsPerEntry: [1, 1], secondsPerHead: [10, 10] } });
    expect([cheap.copies, cheap.makespan]).toEqual([1, 2000 + 30]);
    const dear = arrange({ ...heavy, costs: { secondsPerEntry: [1, 1], secondsPerHead: [1000, 1000] } });
    expect([dear.copies, dear.makespan]).toEqual([0, 2400 + 2000]);
    const inOrder = arrange({ ...heavy, mode: 'static', costs: { secondsPerEntry: [1, 1], secondsPerHead: [0, 0] } });
    expect(inOrder.makespan).toBe(2400);
  });

  test('stages of a pipeline have costs of their own ranks', () => {
    const costs = { secondsPerEntry: [1, 1, 2, 2], secondsPerHead: [0, 0, 0, 0] };
    const problem = {
      loads: [
        [10, 10],
        [10, 10],
      ],
      ranks: 4,
      pipeline: 2,
      mode: 'exact',
      costs,
    } as const;
    const { makespan, placement, utilisation } = arrange(problem);
    expect([makespan, utilisation]).toEqual([30, 1]);
    expect(placement.map((heads) => heads.flat().map(({ rank }) => rank))).toEqual([
      [0, 1],
      [2, 3],
    ]);
  });

  test('memory counts bytes of weights and of the cache: heads leave a rank that lacks them', () => {
    const random = new Random(9);
    const loads = loadsOf(random, 6, 8);
    const costs = { secondsPerEntry: [1, 4], secondsPerHead: [5, 20], bytesPerHead: 1000, bytesPerEntry: 10 };
    const problem = { loads, ranks: 2, mode: 'exact', batch: 4, costs } as const;
    const free = arrange(problem);
    const used = rankBytes(loads, free.placement, costs, 4);
    const memoryBytes = [Math.floor(used[0]! * 0.7), Infinity];
    const tight = arrange({ ...problem, costs: { ...costs, memoryBytes } });
    expect(rankBytes(loads, tight.placement, costs, 4)[0]).toBeLessThanOrEqual(memoryBytes[0]!);
    expect(tight.makespan).toBeGreaterThan(free.makespan);
    for (const heads of tight.placement) expect(placed(heads)).toBeCloseTo(8, 9);
    expect(() => arrange({ ...problem, costs: { ...costs, memoryBytes: [1000, 1000] } })).toThrow(/bytes by rank/);
  });

  test.each<[Partial<ArrangementProblem>, RegExp]>([
    [{ costs: { secondsPerEntry: [1], secondsPerHead: [1, 1] } }, /secondsPerEntry has 1 numbers/],
    [{ costs: { secondsPerEntry: [1, -1], secondsPerHead: [1, 1] } }, /secondsPerEntry has -1/],
    [{ memory: 9, costs: { secondsPerEntry: [1, 1], secondsPerHead: [1, 1] } }, /memoryBytes/],
  ])('refuses %j', (more, message) => {
    expect(() => arrange({ loads: [[1, 2]], ranks: 2, mode: 'exact', ...more })).toThrow(message);
  });
});
