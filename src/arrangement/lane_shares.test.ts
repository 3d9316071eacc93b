import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { range, sum } from '../base/lists.js';
import { laneEntries, type LanedHead, shareLanes } from './lane_shares.js';

/** What each rank reads, if the lanes of the heads are on these ranks. */
function loadsOf(
  heads: readonly LanedHead[],
  busy: ReadonlyMap<number, number>,
  shares: readonly (readonly number[])[],
): Map<number, number> {
  const loads = new Map(busy);
  for (const [at, { entries }] of heads.entries()) {
    // Token by token: the chunk that it is in has a lane.
    for (let entry = 0; entry < entries; entry++) {
      const rank = shares[at]![Math.floor(entry / 256) % 8]!;
      loads.set(rank, (loads.get(rank) ?? 0) + 1);
    }
  }
  return loads;
}

const peakOf = (...of: Parameters<typeof loadsOf>): number => Math.max(0, ...loadsOf(...of).values());

/** The least that the busiest rank can have, by trying everything. */
function leastPeak(heads: readonly LanedHead[], busy: ReadonlyMap<number, number>): number {
  const loads = new Map(busy);
  const lanes = heads.flatMap(({ ranks, entries }) =>
    laneEntries(entries)
      .filter((own) => own > 0)
      .map((own) => ({ ranks, own })),
  );
  let least = Infinity;
  const walk = (at: number): void => {
    const peak = Math.max(0, ...loads.values());
    if (peak >= least) return;
    if (at === lanes.length) least = peak;
    else {
      const { ranks, own } = lanes[at]!;
      for (const rank of ranks) {
        const before = loads.get(rank) ?? 0;
        loads.set(rank, before + own);
        walk(at + 1);
        loads.set(rank, before);
      }
    }
  };
  walk(0);
  return least;
}

const problems = (ranks: number, heads: number, entries: number) =>
  fc.record({
    heads: fc.array(
      fc.record({
        ranks: fc.subarray(range(0, ranks), { minLength: 1 }),
        entries: fc.integer({ min: 0, max: entries }),
      }),
      { minLength: 1, maxLength: heads },
    ),
    busy: fc
      .array(fc.integer({ min: 0, max: 1200 }), { minLength: ranks, maxLength: ranks })
      .map((loads) => new Map(loads.entries())),
  });

describe('merge lanes dealt out to copies', () => {
  test('a head of one chunk goes where least is to be read, one of many in even parts', () => {
    const busy = new Map([
      [0, 100],
      [1, 90],
    ]);
    expect(shareLanes([{ ranks: [0, 1], entries: 200 }], busy)[0]![0]).toBe(1);
    const [lanes] = shareLanes([{ ranks: [3, 5], entries: 4096 }], new Map());
    expect(lanes!.filter((rank) => rank === 3)).toHaveLength(4);
    // Lanes of 512, 352 and six of 256 entries: the second and one of the last go to the rank that reads 1200 besides.
    const uneven = shareLanes([{ ranks: [0, 1], entries: 2400 }], new Map([[0, 1200]]));
    expect(peakOf([{ ranks: [0, 1], entries: 2400 }], new Map([[0, 1200]]), uneven)).toBe(1808);
  });

  test('a rank that is three times as fast has three times as many lanes', () => {
    const [lanes] = shareLanes([{ ranks: [0, 1], entries: 8192 }], new Map(), (rank) => (rank === 1 ? 3 : 1));
    expect(lanes!.filter((rank) => rank === 1)).toHaveLength(6);
  });

  test('lanes without entries follow, each where least would be read when they fill', () => {
    const [lanes] = shareLanes([{ ranks: [0, 1], entries: 256 }], new Map([[1, 200]]));
    expect(lanes).toEqual([0, 1, 0, 1, 0, 1, 0, 1]);
  });

  test('lanes are on ranks that have the head, and those of all entries', () => {
    fc.assert(
      fc.property(problems(6, 6, 9000), ({ heads, busy }) => {
        const shares = shareLanes(heads, busy);
        for (const [at, { ranks, entries }] of heads.entries()) {
          expect(shares[at]).toHaveLength(8);
          expect(shares[at]!.filter((rank) => !ranks.includes(rank))).toEqual([]);
          expect(sum(laneEntries(entries))).toBe(entries);
        }
        expect(shareLanes(heads, busy)).toEqual(shares);
      }),
      { numRuns: 60 },
    );
  });

  test('the busiest rank has as little as trying everything finds, but for a few problems that come within 2%', () => {
    const found = { least: 0, all: 0 };
    fc.assert(
      fc.property(problems(3, 2, 1900), ({ heads, busy }) => {
        const least = leastPeak(heads, busy);
        const peak = peakOf(heads, busy, shareLanes(heads, busy));
        expect(peak).toBeLessThanOrEqual(1.02 * least);
        found.all++;
        if (peak === least) found.least++;
      }),
      { numRuns: 200, seed: 7 },
    );
    expect(found.least).toBeGreaterThan(0.97 * found.all);
  });
});
