import { describe, expect, test } from 'vitest';
import { laneEntries } from '../../arrangement/lane_shares.js';
import { range, sum } from '../../base/lists.js';
import { arrangedPlan } from '../make/arranged_plan.js';
import { Owners } from '../owners.js';
import { randomArrangement } from '../testing/arrangements.js';
import { gqaShape } from '../testing/shapes.js';
import { copiedHeads, holdersOf, laneHolders } from './copies.js';
import { LaneShares } from './lane_shares.js';

const shape = gqaShape(6, { numLayers: 5 });
const plan = arrangedPlan(randomArrangement(shape, 4, { seed: 9, copies: 3 }), shape, 'lanes');
/** Copied heads by stage, in each layer. */
const copied = plan.stages.flatMap((stage, index) =>
  range(...stage.layers).flatMap((layer) => copiedHeads(stage).map((head) => ({ stage, index, layer, head }))),
);
const entriesOf = (slot: number, layer: number, head: number): number =>
  300 + ((slot * 701 + layer * 331 + head * 977) % 2500);

function shared(slots: readonly number[]): { readonly owners: Owners; readonly shares: LaneShares } {
  const owners = new Owners(plan, 4);
  const shares = new LaneShares(owners);
  for (const slot of slots) {
    owners.admit(slot, 4000, slot + 3);
    for (const [index, { layers }] of plan.stages.entries()) {
      for (const layer of range(...layers)) shares.share(slot, index, layer, (head) => entriesOf(slot, layer, head));
    }
  }
  return { owners, shares };
}

/** What each rank reads of a layer. */
function read(shares: LaneShares, slots: readonly number[], layer: number): number[] {
  const index = plan.stages.findIndex(({ layers: [first, end] }) => layer >= first && layer < end);
  const loads = [0, 0, 0, 0];
  for (const slot of slots) {
    for (const head of range(0, shape.kvHeads)) {
      const [holder] = holdersOf(plan.stages[index]!, head);
      const lanes = shares.lanes(slot, index, layer, head) ?? Array.from({ length: 8 }, () => holder!.rank);
      for (const [lane, own] of laneEntries(entriesOf(slot, layer, head)).entries()) loads[lanes[lane]!]! += own;
    }
  }
  return loads;
}

describe('lanes of copied heads, shared anew', () => {
  test('a sequence whose entries nobody knows has the lanes of the plan, rotated by its offset', () => {
    const owners = new Owners(plan, 4);
    const shares = new LaneShares(owners);
    owners.admit(1, 4000, 5);
    expect(copied.length).toBeGreaterThan(5);
    for (const { stage, index, layer, head } of copied) {
      const lanes = laneHolders(holdersOf(stage, head));
      expect(shares.lanes(1, index, layer, head)).toEqual(range(0, 8).map((lane) => lanes[(lane + 5) % 8]));
      const held = range(0, 8).map((chunk) =>
        range(0, 4)
          .filter((rank) => holdersOf(stage, head).some((holder) => holder.rank === rank))
          .find((rank) => owners.holds(rank, { stage: index, kvHead: head, slot: 1, chunk })),
      );
      expect(shares.lanes(1, index, layer, head)).toEqual(held);
    }
    expect(
      shares.lanes(
        1,
        0,
        0,
        range(0, 6).find((head) => !copiedHeads(plan.stages[0]!).includes(head))!,
      ),
    ).toBe(undefined);
  });

  test('every lane is with a rank that has the head, and ranks wait less than with the lanes of the plan', () => {
    const slots = [0, 2];
    const { owners, shares } = shared(slots);
    for (const { stage, index, layer, head } of copied) {
      const ranks = holdersOf(stage, head).map(({ rank }) => rank);
      for (const slot of slots)
        expect(ranks).toEqual(expect.arrayContaining([...shares.lanes(slot, index, layer, head)!]));
    }
    const peaks = (of: LaneShares): number =>
      sum(range(0, shape.numLayers).map((layer) => Math.max(...read(of, slots, layer))));
    const before = peaks(new LaneShares(owners));
    expect(peaks(shares)).toBeLessThan(0.9 * before);
    for (const layer of range(0, shape.numLayers)) {
      expect(sum(read(shares, slots, layer))).toBe(
        sum(slots.flatMap((slot) => range(0, 6).map((head) => entriesOf(slot, layer, head)))),
      );
    }
  });

  test('sequences count that are there, and not those that went; told the same, all decide alike', () => {
    const { shares } = shared([0, 2, 1]);
    shares.release(2);
    const { index, layer, head } = copied[0]!;
    expect(shares.lanes(0, index, layer, head)).toEqual(shared([0, 2]).shares.lanes(0, index, layer, head));
    const again = (of: LaneShares): unknown => {
      for (const [at, { layers }] of plan.stages.entries()) {
        for (const each of range(...layers)) of.share(3, at, each, (own) => entriesOf(3, each, own));
      }
      return copied.map((one) => of.lanes(3, one.index, one.layer, one.head));
    };
    const without = shared([0, 1]).shares;
    const other = shared([0, 2, 1]).shares;
    other.release(2);
    expect(again(shares)).toEqual(again(other));
    expect(again(new LaneShares(new Owners(plan, 4)))).not.toEqual(again(without));
  });
});
