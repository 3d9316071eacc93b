import { MOST_BLOCKS_TOLD, PrefixFilter } from './prefix_filter.js';

/**
 * A replica's own list of the prefixes that its cache should have: those of the requests that it took, the ones used longest ago
 * forgotten first, ends before beginnings.
 */
export class PrefixRecord {
  /** Last used last. As signed numbers, which take no memory of their own in a set. */
  readonly #blocks = new Set<number>();

  /** @param capacity blocks that the cache has room for; more than MOST_BLOCKS_TOLD are kept but not told */
  constructor(private readonly capacity: number) {}

  get size(): number {
    return this.#blocks.size;
  }

  /** Blocks of a prefix, from its first on, that are here. */
  matched(prefix: Uint32Array): number {
    let count = 0;
    while (count < prefix.length && this.#blocks.has(prefix[count]! | 0)) count++;
    return count;
  }

  /** A request with this prefix was taken. */
  use(prefix: Uint32Array): void {
    // The first is used last, so that a prefix loses its end before its beginning, without which the end is of no use.
    for (let at = Math.min(prefix.length, this.capacity) - 1; at >= 0; at--) {
      this.#blocks.delete(prefix[at]! | 0);
      this.#blocks.add(prefix[at]! | 0);
    }
    let over = this.#blocks.size - this.capacity;
    for (const block of this.#blocks) {
      if (over-- <= 0) break;
      this.#blocks.delete(block);
    }
  }

  /** The cache was lost. */
  clear(): void {
    this.#blocks.clear();
  }

  /** What is told: the blocks used last, as many as fit. */
  filter(): PrefixFilter {
    const told = Math.min(this.size, MOST_BLOCKS_TOLD);
    const filter = PrefixFilter.forBlocks(told);
    let older = this.size - told;
    for (const block of this.#blocks) if (older-- <= 0) filter.add(block);
    return filter;
  }
}
