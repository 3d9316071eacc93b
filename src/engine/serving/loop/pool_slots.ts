import { nth, range } from '../../../base/lists.js';
import type { Owners } from '../../../placement/index.js';

/** Slots of the ranks, as the scheduler counts them: pool by pool, and in a pool by the batch whose steps they take part in. */
export class PoolSlots {
  /** By pool that has any slot: its place among those that sequences are dealt out to. */
  readonly held: readonly number[];
  /** By pool: the ranks' numbers of its slots, batch after batch. */
  readonly pools: readonly (readonly number[])[];
  /** By pool: how many slots it has in each batch. */
  readonly sizes: readonly (readonly number[])[];
  /** Of each of them, its number among all that keep sequences. */
  readonly places: readonly number[];

  constructor(owners: Owners) {
    const { slots } = owners;
    const ranges = Array.from({ length: owners.batches }, (_, batch) => owners.ranges(batch));
    const all = owners.ranges(0).map((_, pool) => ({ pool, own: ranges.map((of) => nth(of, pool)) }));
    const held = all.filter(({ own }) => own.some(([first, end]) => end > first));
    this.held = held.map(({ pool }) => pool);
    this.pools = held.map(({ own }) =>
      own.flatMap(([first, end], batch) => range(batch * slots + first, batch * slots + end)),
    );
    this.sizes = held.map(({ own }) => own.map(([first, end]) => end - first));
    // Where places run their own rows, in the order of their ranks.
    const roots = owners.rowRanks?.map((ranks) => nth(ranks, 0));
    const inOrder = roots?.toSorted((a, b) => a - b);
    this.places = this.held.map((pool) => (roots && inOrder ? inOrder.indexOf(nth(roots, pool)) : pool));
  }

  /** The ranks' number of a pool's slot. */
  of(pool: number, slot: number): number {
    return nth(nth(this.pools, pool), slot);
  }
}
