import { SplitkvError } from '../../base/errors.js';

/**
 * One rank's KV blocks: free, held by sequences (a block may be held by several), or kept: held by nobody but with content that
 * the prefix cache knows. Kept blocks count as free; the one unused for longest is given out first, after all empty ones.
 *
 * Blocks are of lanes, as many of each: lane l has blocks [l * n, (l + 1) * n). A sequence that several ranks split takes each block from
 * the lane of its chunk.
 */
export class BlockPool {
  readonly #holders: Int32Array;
  readonly #lanes: readonly Lane[];

  /**
   * @param isCached whether the prefix cache knows a block's content
   * @param forget told when a kept block is given out for other content
   */
  constructor(
    readonly numBlocks: number,
    private readonly isCached: (block: number) => boolean = () => false,
    private readonly forget: (block: number) => void = () => {},
    lanes = 1,
  ) {
    this.#holders = new Int32Array(numBlocks);
    const each = numBlocks / lanes;
    this.#lanes = Array.from({ length: lanes }, (_, lane) => ({
      empty: Array.from({ length: each }, (_block, index) => (lane + 1) * each - 1 - index),
      kept: new Set<number>(),
    }));
  }

  /** Blocks that `allocate` could give out, of all lanes. */
  get numFree(): number {
    return this.#lanes.reduce((sum, lane) => sum + freeOf(lane), 0);
  }

  /** As `numFree`, of one lane. */
  freeIn(lane: number): number {
    return freeOf(this.#lanes[lane]!);
  }

  laneOf(block: number): number {
    return Math.floor((block * this.#lanes.length) / this.numBlocks);
  }

  holders(block: number): number {
    return this.#holders[block]!;
  }

  /** A block for one holder. @throws SplitkvError `internal` when none is free: ask `freeIn` first. */
  allocate(lane = 0): number {
    const { empty, kept } = this.#lanes[lane]!;
    let block = empty.pop();
    if (block === undefined) {
      const oldest = kept.values().next();
      if (oldest.done) throw new SplitkvError('internal', `all KV blocks of lane ${lane} are held`);
      block = oldest.value;
      kept.delete(block);
      this.forget(block);
    }
    this.#holders[block] = 1;
    return block;
  }

  /** One more holder of a block that is held or kept. */
  hold(block: number): void {
    if (this.#holders[block]! === 0 && !this.#lanes[this.laneOf(block)]!.kept.delete(block)) {
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
      const { empty, kept } = this.#lanes[this.laneOf(block)]!;
      if (this.isCached(block)) kept.add(block);
      else empty.push(block);
    }
  }
}

interface Lane {
  readonly empty: number[];
  /** In order of last use: a Set keeps the order of insertion. */
  readonly kept: Set<number>;
}

const freeOf = ({ empty, kept }: Lane): number => empty.length + kept.size;
