import { SplitkvError } from '../../base/errors.js';

/**
 * One rank's KV blocks: free, held by sequences (a block may be held by several), or kept: held by nobody but with content that
 * the prefix cache knows. Kept blocks count as free; the one unused for longest is given out first, after all empty ones.
 */
export class BlockPool {
  readonly #holders: Int32Array;
  readonly #empty: number[];
  /** In order of last use: a Set keeps the order of insertion. */
  readonly #kept = new Set<number>();

  /**
   * @param isCached whether the prefix cache knows a block's content
   * @param forget told when a kept block is given out for other content
   */
  constructor(
    readonly numBlocks: number,
    private readonly isCached: (block: number) => boolean = () => false,
    private readonly forget: (block: number) => void = () => {},
  ) {
    this.#holders = new Int32Array(numBlocks);
    this.#empty = Array.from({ length: numBlocks }, (_, index) => numBlocks - 1 - index);
  }

  /** Blocks that `allocate` could give out. */
  get numFree(): number {
    return this.#empty.length + this.#kept.size;
  }

  holders(block: number): number {
    return this.#holders[block]!;
  }

  /** A block for one holder. @throws SplitkvError `internal` when none is free: ask `numFree` first. */
  allocate(): number {
    let block = this.#empty.pop();
    if (block === undefined) {
      const oldest = this.#kept.values().next();
      if (oldest.done) throw new SplitkvError('internal', `all ${this.numBlocks} KV blocks are held`);
      block = oldest.value;
      this.#kept.delete(block);
      this.forget(block);
    }
    this.#holders[block] = 1;
    return block;
  }

  /** One more holder of a block that is held or kept. */
  hold(block: number): void {
    if (this.#holders[block]! === 0 && !this.#kept.delete(block)) {
      throw new SplitkvError('internal', `KV block ${block} is neither held nor kept`);
    }
    this.#holders[block]!++;
  }

  /** Gives up one hold on each block. The last ones are reused first: a prefix is of use without its tail, not the other way. */
  release(blocks: readonly number[]): void {
    for (let i = blocks.length - 1; i >= 0; i--) {
      const block = blocks[i]!;
      if (!(this.#holders[block]! > 0)) {
        throw new SplitkvError('internal', `KV block ${block} is released but not held`);
      }
      if (--this.#holders[block]! > 0) continue;
      if (this.isCached(block)) this.#kept.add(block);
      else this.#empty.push(block);
    }
  }
}
