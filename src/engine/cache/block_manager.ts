/**
 * Room: KV blocks on the host: which block holds which tokens of a sequence (here), by head where caches are
 * compressed or heads are copied (head_pages.ts), and caches that move between ranks (kv_move.ts).
 */

import { SplitkvError } from '../../base/errors.js';
import { ceilDiv } from '../../base/math.js';

/** Hands out KV blocks: which physical block holds tokens [i * block, (i + 1) * block) of a sequence. Pure bookkeeping. */
export class BlockManager {
  readonly #free: number[];

  constructor(
    readonly numBlocks: number,
    /** Tokens per block. */
    readonly block: number,
  ) {
    this.#free = Array.from({ length: numBlocks }, (_, index) => numBlocks - 1 - index);
  }

  get numFree(): number {
    return this.#free.length;
  }

  blocksFor(tokens: number): number {
    return ceilDiv(tokens, this.block);
  }

  /** Physical blocks for `tokens` tokens. @throws SplitkvError `context_full` when too few are free; nothing is taken then. */
  allocate(tokens: number): number[] {
    const count = this.blocksFor(tokens);
    if (count > this.#free.length) {
      throw new SplitkvError(
        'context_full',
        `${tokens} tokens need ${count} KV blocks of ${this.block}; ${this.#free.length} of ${this.numBlocks} are free`,
      );
    }
    return this.#free.splice(this.#free.length - count, count).reverse();
  }

  /** Returns blocks. @throws SplitkvError `internal` for a block that isn't handed out. */
  release(blocks: readonly number[]): void {
    const free = new Set(this.#free);
    for (const block of blocks) {
      if (!Number.isInteger(block) || block < 0 || block >= this.numBlocks || free.has(block)) {
        throw new SplitkvError(
          'internal',
          `KV block ${block} is released but not in use (blocks 0 to ${this.numBlocks - 1})`,
        );
      }
      free.add(block);
    }
    for (const block of [...blocks].reverse()) this.#free.push(block);
  }
}
