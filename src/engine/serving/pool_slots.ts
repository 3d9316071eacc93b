import type { SlotOwners } from '../slot_owners.js';

/** Slots of the ranks, as the scheduler counts them: pool by pool, and in a pool by the batch whose steps they take part in. */
export class PoolSlots {
  /** By pool that has any slot: the ranks' numbers of its slots, batch after batch. */
  readonly pools: readonly (readonly number[])[];
  /** By pool: how many slots it has in each batch. */
  readonly sizes: readonly (readonly number[])[];
  /** Of each of them, its number among all that keep sequences. */
  readonly places: readonly number[];

  constructor(owners: SlotOwners, batches: number) {
    const { slots } = owners;
    const ranges = Array.from({ length: batches }, (_, batch) => owners.rangesOf(batch));
    const all = owners.pools.map((_, pool) => ranges.map((of) => of[pool]!));
    const held = [...all.keys()].filter((pool) => all[pool]!.some(([first, end]) => end > first));
    this.pools = held.map((pool) =>
      all[pool]!.flatMap(([first, end], batch) =>
        Array.from({ length: end - first }, (_, slot) => batch * slots + first + slot),
      ),
    );
    this.sizes = held.map((pool) => all[pool]!.map(([first, end]) => end - first));
    this.places = held.map((pool) => owners.ranks?.[pool] ?? pool);
  }

  /** The ranks' number of a pool's slot. */
  of(pool: number, slot: number): number {
    return this.pools[pool]![slot]!;
  }
}
