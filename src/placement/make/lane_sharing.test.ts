import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { expectedEntries, LANE_ENTRIES, lanesThatPay } from './lane_sharing.js';
import { randomArrangement } from '../testing/arrangements.js';

const on = (rank: number, share = 1) => ({ rank, share });
const halves = [on(0, 0.5), on(1, 0.5)];

describe('copies for one sequence at a time', () => {
  test('heads of one chunk or a few stay whole, where least is read', () => {
    const placement = [[halves, [on(0)], [on(1)]]];
    expect(lanesThatPay(placement, 2, [[800, 300, 100]])).toEqual({
      placement: [[[on(1)], [on(0)], [on(1)]]],
      copied: 1,
      shared: 0,
      pays: false,
    });
  });

  test('heads with a chunk in every lane are shared, if that leaves the busiest rank less to read', () => {
    const placement = [
      [halves, [on(0)], [on(1)]],
      [[on(0)], [on(1)], [on(0)]],
      [halves, [on(2)], [on(0)]],
    ];
    const entries = [
      [4096, 300, 100],
      [1, 2, 3],
      // The busiest rank has no part in the copied head.
      [LANE_ENTRIES, 9000, 5],
    ];
    expect(lanesThatPay(placement, 3, entries)).toEqual({
      placement: [placement[0], placement[1], [[on(1)], [on(2)], [on(0)]]],
      copied: 2,
      shared: 1,
      pays: true,
    });
  });

  test('long heads of a layer may be shared while its short ones are not', () => {
    const { placement, shared } = lanesThatPay([[halves, halves, [on(1)]]], 2, [[5000, 900, 200]]);
    expect(placement).toEqual([[halves, [on(0)], [on(1)]]]);
    expect(shared).toBe(1);
  });

  test('every head stays on ranks that had it, with its shares or whole', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 999 }), fc.integer({ min: 1, max: 4000 }), (seed, most) => {
        const { placement } = randomArrangement({ numLayers: 3, kvHeads: 5 }, 4, { seed, copies: 3 });
        const entries = placement.map((heads, layer) =>
          heads.map((_, head) => 1 + (((layer * 5 + head) * 997) % most)),
        );
        const found = lanesThatPay(placement, 4, entries);
        for (const [layer, heads] of placement.entries()) {
          for (const [head, before] of heads.entries()) {
            const after = found.placement[layer]![head]!;
            if (after.length > 1) {
              expect(after).toEqual(before);
              expect(entries[layer]![head]).toBeGreaterThanOrEqual(LANE_ENTRIES);
            } else {
              expect(after[0]!.share).toBe(1);
              expect(before.map(({ rank }) => rank)).toContain(after[0]!.rank);
            }
          }
        }
        const count = found.placement.filter((heads) => heads.some((copies) => copies.length > 1)).length;
        expect(found.shared).toBe(count);
      }),
    );
  });

  test('expected entries: half a context, or what a budget leaves of it, spread as the loads are', () => {
    const placement = [[[on(0)], [on(1)]]];
    const loads = [[30, 10]];
    const of = (budget: number | undefined, given?: number[][]) =>
      expectedEntries({ placement, loads: given }, { contextLength: 2000, budget });
    expect(of(undefined, loads)).toEqual([[1000, 1000]]);
    expect(of(1, loads)).toEqual([[1000, 1000]]);
    expect(of(0.2)).toEqual([[200, 200]]);
    expect(of(0.2, loads)).toEqual([[300, 100]]);
    expect(of(0.8, loads)).toEqual([[1000, 400]]);
  });
});
