import { BlockPool } from '../block_pool.js';
import type { PromptEviction } from '../config.js';
import type { PromptCopy } from '../iteration.js';
import { PrefixCache, type PrefixMatch } from '../prefix_cache.js';
import type { Sequence } from '../sequence.js';

/**
 * What prompts begin with, where their cache is compressed when they end: whole, in blocks of a pool of its own. They are copied from a
 * sequence before its prompt's last chunk, which compresses it, and to sequences that begin alike.
 */
export class KeptPrompts {
  readonly #cache: PrefixCache;
  readonly pool: BlockPool;

  constructor(
    readonly numBlocks: number,
    readonly blockTokens: number,
    readonly eviction: PromptEviction,
  ) {
    this.#cache = new PrefixCache(blockTokens, undefined, undefined, ({ keptBlocks }) => keptBlocks);
    this.pool = new BlockPool(
      numBlocks,
      (block) => this.#cache.has(block),
      (block) => this.#cache.forget(block),
    );
  }

  /** The longest beginning of a waiting sequence that is there. Its blocks are this pool's. */
  match(sequence: Sequence): PrefixMatch {
    return this.#cache.match(sequence, this.#before(sequence));
  }

  /** Tokens before the chunk that compresses the prompt, which has its whole window. */
  #before({ promptLength }: Sequence): number {
    return promptLength - Math.max(1, this.eviction.windowOf(promptLength));
  }

  /** Where the last chunk of a sequence is to begin at the earliest, so that what is before can be kept: none where that is there already. */
  edgesOf(sequence: Sequence, { tokens }: PrefixMatch): number[] {
    const edge = Math.floor(this.#before(sequence) / this.blockTokens) * this.blockTokens;
    return edge > tokens ? [edge] : [];
  }

  /** A sequence is admitted, and begins with what was found: what is to be copied to it, if anything. */
  begin(sequence: Sequence, { blocks, partial }: PrefixMatch): PromptCopy | undefined {
    for (const block of blocks) this.pool.hold(block);
    sequence.keptBlocks = [...blocks];
    if (sequence.keepsAt.length === 0) this.leave(sequence);
    const all = partial ? [...blocks, partial.block] : blocks;
    return all.length > 0 ? { sequence, first: 0, blocks: [...all] } : undefined;
  }

  /** All tokens before the edge are computed by the iteration: what is to be copied from the sequence then, as far as there is room. */
  keep(sequence: Sequence, edge: number): PromptCopy | undefined {
    const first = sequence.keptBlocks.length;
    const count = Math.min(edge / this.blockTokens - first, this.pool.numFree);
    if (count <= 0) return undefined;
    const blocks = Array.from({ length: count }, () => this.pool.allocate());
    sequence.keptBlocks.push(...blocks);
    return { sequence, first, blocks };
  }

  /** The iteration that did so is over: others may begin with it. */
  confirm(sequence: Sequence): void {
    this.#cache.register(sequence, 0, sequence.keptBlocks.length * this.blockTokens, false);
    this.leave(sequence);
  }

  /** What the sequence held is of others only. */
  leave(sequence: Sequence): void {
    this.pool.release(sequence.keptBlocks);
    sequence.keptBlocks = [];
  }
}
