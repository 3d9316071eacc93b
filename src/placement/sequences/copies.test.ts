import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { arrangedPlan } from '../make/arranged_plan.js';
import { chunkRoom, copiedHeads, CopyOwners, holdersOf, laneHolders } from './copies.js';
import type { CopySharing } from '../../arrangement/types.js';
import { randomArrangement } from '../testing/arrangements.js';
import { gqaShape } from '../testing/shapes.js';

const shares = fc
  .array(fc.integer({ min: 1, max: 20 }), { minLength: 2, maxLength: 8 })
  .map((parts) => parts.map((part, i) => ({ rank: 2 * i, share: part / parts.reduce((a, b) => a + b) })));

const counted = <T>(list: readonly T[], value: T): number => list.filter((item) => item === value).length;

describe('merge lanes of copies', () => {
  test('every copy has its share to the lane, and at least one', () => {
    fc.assert(
      fc.property(shares, (holders) => {
        const lanes = laneHolders(holders);
        expect(lanes).toHaveLength(8);
        for (const { rank, share } of holders) {
          const own = counted(lanes, rank);
          expect(own).toBeGreaterThanOrEqual(1);
          // Copies that had to be given their one lane take it from the others.
          if (holders.every((holder) => holder.share >= 1 / 8)) expect(Math.abs(own - 8 * share)).toBeLessThan(1);
        }
      }),
    );
  });

  test('they alternate, so that few chunks are shared', () => {
    const halves = [
      { rank: 1, share: 0.5 },
      { rank: 4, share: 0.5 },
    ];
    expect(laneHolders(halves)).toEqual([1, 4, 1, 4, 1, 4, 1, 4]);
    const quarters = [
      { rank: 0, share: 0.25 },
      { rank: 1, share: 0.75 },
    ];
    expect(counted(laneHolders(quarters).slice(0, 4), 0)).toBe(1);
    expect(laneHolders([...Array(8).keys()].map((rank) => ({ rank, share: 1 / 8 })))).toEqual([...Array(8).keys()]);
  });
});

const plan = (sharing: CopySharing, seed: number, ranks = 4) => {
  const shape = gqaShape(6, { numLayers: 5 });
  return arrangedPlan(randomArrangement(shape, ranks, { seed, copies: 3 }), shape, sharing);
};

describe('who holds a copied head', () => {
  test.each<CopySharing>(['lanes', 'sequences'])('%s: every chunk on one copy, within the room there is', (sharing) => {
    const slots = 7;
    for (let seed = 0; seed < 4; seed++) {
      const made = plan(sharing, seed);
      const owners = new CopyOwners(made, slots);
      const others = new CopyOwners(made, slots);
      let next = seed * 77 + 1;
      const dice = (n: number): number => (next = (next * 48271) % 2147483647) % n;
      for (let turn = 0; turn < 20; turn++) {
        const [slot, tokens, offset, leaves] = [dice(slots), 1 + dice(3000), dice(8), dice(4) === 0];
        for (const each of [owners, others]) {
          if (leaves) each.release(slot);
          else each.admit(slot, tokens, offset);
        }
        for (const [index, stage] of made.stages.entries()) {
          for (const head of copiedHeads(stage)) {
            const holders = holdersOf(stage, head).map(({ rank }) => rank);
            const held = new Map(holders.map((rank) => [rank, 0]));
            for (let s = 0; s < slots; s++) {
              for (let chunk = 0; chunk < 12; chunk++) {
                const by = holders.filter((rank) => owners.holds(rank, index, head, s, chunk));
                if (by.length !== 1) throw new Error(`chunk ${chunk} of slot ${s} is with ranks ${by.join()}`);
                held.set(by[0]!, held.get(by[0]!)! + 1);
              }
              expect(others.home(index, head, s)).toBe(owners.home(index, head, s));
              expect(holders).toContain(owners.home(index, head, s));
            }
            if (sharing === 'sequences') continue;
            for (const [rank, chunks] of held) {
              expect(chunks).toBeLessThanOrEqual(
                chunkRoom(stage, sharing, { rank, head }, { slots, tokens: 12 * 256 }),
              );
            }
          }
        }
      }
    }
  });

  test('sequences: no copy ever holds more of them than its share rounded up', () => {
    const [slots, made] = [8, plan('sequences', 3)];
    const owners = new CopyOwners(made, slots);
    for (let turn = 0; turn < 60; turn++) {
      owners.admit((turn * 5) % slots, 1 + ((turn * 7919) % 2000), 0);
      for (const [index, stage] of made.stages.entries()) {
        for (const head of copiedHeads(stage)) {
          for (const { rank, share } of holdersOf(stage, head)) {
            const own = [...Array(Math.min(slots, turn + 1)).keys()].filter(
              (i) => owners.home(index, head, ((turn - i) * 5) % slots) === rank,
            );
            expect(own.length).toBeLessThanOrEqual(Math.ceil(share * slots));
          }
        }
      }
    }
  });

  test('sequences: shares are honoured, and one that leaves makes room for the next', () => {
    const shape = gqaShape(2, { numLayers: 1 });
    const half = [
      { rank: 0, share: 0.5 },
      { rank: 1, share: 0.5 },
    ];
    const placement = [[half, half]];
    const made = arrangedPlan(
      { version: 1, policy: 'arranged', model: 'm', ranks: 2, mode: 'wrap', placement },
      shape,
      'sequences',
    );
    const owners = new CopyOwners(made, 4);
    const home = (slot: number): number[] => [0, 1].map((head) => owners.home(0, head, slot));
    for (const slot of [0, 1, 2, 3]) owners.admit(slot, 100, 0);
    // Two heads of one layer begin on different ranks.
    expect([0, 1, 2, 3].map(home)).toEqual([
      [0, 1],
      [1, 0],
      [0, 1],
      [1, 0],
    ]);
    owners.release(1);
    owners.release(3);
    owners.admit(3, 100, 0);
    expect(home(3)).toEqual([1, 0]);
    // By tokens: a long sequence on one rank weighs as much as several on the other.
    for (const slot of [0, 1, 2, 3]) owners.release(slot);
    owners.admit(0, 300, 0);
    owners.admit(1, 100, 0);
    owners.admit(2, 100, 0);
    expect([0, 1, 2].map((slot) => home(slot)[0])).toEqual([0, 1, 1]);
  });
});

test('what heads kept decides who keeps which sequence, beyond the shares where there is room for all', () => {
  const shape = gqaShape(2, { numLayers: 1 });
  const halves = [0, 1].map((rank) => ({ rank, share: 0.5 }));
  const placement = [[halves, [{ rank: 0, share: 1 }]]];
  const made = arrangedPlan(
    { version: 1, policy: 'arranged', model: 'm', ranks: 2, mode: 'wrap', placement },
    shape,
    'sequences',
  );
  const sequences = (heads: readonly number[]) =>
    [0, 1, 2, 3].map((slot) => ({ slot, length: 900, entries: 150, heads: [heads], remaining: 100 }));
  const moved = (roomy: boolean, heads: readonly number[]): number[] => {
    const owners = new CopyOwners(made, 4, roomy);
    for (const slot of [0, 1, 2, 3]) owners.admit(slot, 900, 0);
    owners.balance(sequences(heads));
    return [0, 1, 2, 3].map((slot) => owners.home(0, 0, slot)).toSorted((a, b) => a - b);
  };
  // Rank 0 reads the second head of every sequence besides.
  expect(moved(true, [100, 200])).toEqual([1, 1, 1, 1]);
  expect(moved(true, [200, 100])).toEqual([0, 1, 1, 1]);
  expect(moved(false, [100, 200])).toEqual([0, 0, 1, 1]);
});

describe('heads whose loads are known', () => {
  const loads = [600, 100, 100, 200];
  const on = (rank: number) => [{ rank, share: 1 }];
  const half = [
    { rank: 0, share: 0.5 },
    { rank: 1, share: 0.5 },
  ];
  // Rank 0 has a whole head; rank 1 none.
  const placement = [[half, half, half, on(0)]];
  const made = arrangedPlan(
    { version: 1, policy: 'arranged', model: 'm', ranks: 2, mode: 'wrap', placement, loads: [loads] },
    gqaShape(4, { numLayers: 1 }),
    'sequences',
  );
  const read = (owners: CopyOwners, lengths: readonly number[]): number[] =>
    [0, 1].map((rank) =>
      lengths.reduce(
        (sum, length, slot) =>
          sum +
          [0, 1, 2].reduce((own, head) => own + (owners.home(0, head, slot) === rank ? loads[head]! * length : 0), 0) +
          (rank === 0 ? loads[3]! * length : 0),
        0,
      ),
    );

  test('one sequence alone: the heaviest head goes where least is to be read', () => {
    const owners = new CopyOwners(made, 8);
    owners.admit(0, 1, 0);
    expect(read(owners, [1])).toEqual([400, 600]);
  });

  test('several: no rank has more than a head of one of them above another; those left are shared out again', () => {
    const owners = new CopyOwners(made, 8);
    const lengths = [50, 30, 80, 20, 60];
    for (const [slot, length] of lengths.entries()) owners.admit(slot, length, 0);
    const [first, second] = read(owners, lengths) as [number, number];
    expect(Math.abs(first - second)).toBeLessThanOrEqual(600 * 80);
    owners.release(0);
    owners.release(2);
    const left = [0, 30, 0, 20, 60];
    owners.balance([1, 3, 4].map((slot) => ({ slot, length: left[slot]!, entries: left[slot]!, remaining: 60 })));
    const after = read(owners, left);
    expect(Math.max(...after) / (after[0]! + after[1]!)).toBeLessThan(0.56);
  });
});
