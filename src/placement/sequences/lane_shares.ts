import { laneLoads, type LanedHead, shareLanes } from '../../arrangement/lane_shares.js';
import { nth, valueIn } from '../../base/lists.js';
import type { Owners } from '../owners.js';
import { holdersOf } from './copies.js';

/** How a sequence's lanes are shared in a layer, by what its heads have there. */
interface Shared {
  /** Of each head, the ranks by lane. */
  readonly lanes: ReadonlyMap<number, readonly number[]>;
  /** By rank, entries that it reads of all heads. */
  readonly read: ReadonlyMap<number, number>;
}

/**
 * Who has which merge lanes of copied heads, once it is known what each sequence has of each head in each layer: a prompt that was
 * compressed. Until then, and where copies never have whole prompts, as the plan says. Every rank keeps one of these and tells it the
 * same of the layers in which it has heads, so all decide alike.
 */
export class LaneShares {
  /** By layer of the model, by slot. */
  readonly #shared = new Map<number, Map<number, Shared>>();

  constructor(readonly owners: Pick<Owners, 'plan' | 'lanes'>) {}

  /**
   * Shares a layer's lanes of a sequence anew, while every copy has all of it: so that ranks have little to wait for, with the sequences
   * that were shared before.
   * @param stage its index in the plan
   * @param layer of the model
   * @param entriesOf a kv head, that the sequence has
   */
  share(slot: number, stage: number, layer: number, entriesOf: (head: number) => number): void {
    const { stages, speeds = [] } = this.owners.plan;
    const { shares } = nth(stages, stage);
    const held = [...new Set(shares.flatMap(({ heads }) => heads))];
    const heads = held.map((head): LanedHead => ({
      ranks: holdersOf({ shares }, head).map(({ rank }) => rank),
      entries: entriesOf(head),
    }));
    const bySlot = valueIn(this.#shared, layer, () => new Map<number, Shared>());
    const busy = new Map<number, number>();
    for (const { read } of bySlot.values()) {
      for (const [rank, entries] of read) busy.set(rank, (busy.get(rank) ?? 0) + entries);
    }
    const lanes = shareLanes(heads, busy, (rank) => speeds[rank] ?? 1);
    bySlot.set(slot, { read: laneLoads(heads, lanes), lanes: new Map(held.map((head, at) => [head, nth(lanes, at)])) });
  }

  /** The ranks that have the merge lanes of a slot's head in a layer, by lane; undefined where the only rank that holds it has all. */
  lanes(slot: number, stage: number, layer: number, head: number): readonly number[] | undefined {
    return this.#shared.get(layer)?.get(slot)?.lanes.get(head) ?? this.owners.lanes(stage, head, slot);
  }

  release(slot: number): void {
    for (const bySlot of this.#shared.values()) bySlot.delete(slot);
  }
}
