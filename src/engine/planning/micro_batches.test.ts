import { describe, expect, test } from 'vitest';
import { makePlan, type ModelShape, Owners, type Plan } from '../../placement/index.js';
import { microBatchesOf } from './seats.js';
import { PoolSlots } from '../serving/loop/pool_slots.js';

const model: ModelShape = {
  numLayers: 4,
  hiddenSize: 96,
  vocabSize: 320,
  segmentHeads: [2, 2, 2],
  kvHeads: 3,
  latent: false,
  mlpSegments: [32, 32, 32, 32, 32, 32, 32, 32],
  numExperts: 0,
};
const planOf = (policy: string, ranks: number): Plan => makePlan(policy, ranks, model);

describe('how many micro-batches', () => {
  test.each([
    ['single', 1, 16, { count: 1, rowsEach: 8 }],
    ['tp', 3, 16, { count: 1, rowsEach: 8 }],
    ['token', 3, 16, { count: 2, rowsEach: 8 }],
    ['token', 3, 8, { count: 1, rowsEach: 8 }],
    ['pp', 2, 16, { count: 2, rowsEach: 1 }],
    ['pp', 4, 16, { count: 4, rowsEach: 1 }],
    ['pp', 4, 3, { count: 3, rowsEach: 1 }],
    ['pp x token', 4, 4, { count: 2, rowsEach: 1 }],
  ])('auto: %s on %i ranks with %i slots', (policy, ranks, slots, expected) => {
    expect(microBatchesOf(planOf(policy, ranks), slots, 'auto')).toEqual(expected);
  });

  test('as asked, up to one per slot', () => {
    expect(microBatchesOf(planOf('tp', 3), 4, 2)).toEqual({ count: 2, rowsEach: 1 });
    for (const asked of [0, 5, 1.5]) {
      expect(() => microBatchesOf(planOf('tp', 3), 4, asked)).toThrow(
        `microBatches ${asked}: expected an integer from 1 to the 4 slots`,
      );
    }
  });
});

describe('slots as the scheduler counts them', () => {
  test.each([
    ['single', 1, 3, 2],
    ['token', 3, 5, 2],
    ['token', 3, 2, 2],
    ['adp', 3, 4, 2],
    ['adp', 2, 1, 2],
    ['pp x token', 4, 4, 3],
  ])(
    '%s on %i ranks, %i slots in each of %i batches: each once, with the rank that keeps it',
    (policy, ranks, slots, batches) => {
      const owners = new Owners(planOf(policy, ranks), slots, batches);
      const { pools, sizes, places } = new PoolSlots(owners);
      const all = pools.flat().toSorted((a, b) => a - b);
      expect(all).toEqual(Array.from({ length: slots * batches }, (_, slot) => slot));
      for (const [pool, own] of pools.entries()) {
        expect(own.length).toBeGreaterThan(0);
        let at = 0;
        for (const [batch, size] of sizes[pool]!.entries()) {
          for (const slot of own.slice(at, (at += size))) expect(Math.floor(slot / slots)).toBe(batch);
        }
        expect(at).toBe(own.length);
        if (pools.length === 1) continue;
        for (const slot of own) {
          if (owners.rowRanks) expect(owners.placeOf(slot)).toBe(places[pool]);
          const keepers = Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => owners.keeps(rank, slot));
          expect(keepers.length).toBe(policy === 'pp x token' ? 2 : 1);
        }
      }
    },
  );
});
