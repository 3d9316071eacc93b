import { blocksFor } from './config.js';
import type { BlockPool } from './block_pool.js';
import type { PrefixMatch } from './prefix_cache.js';

export interface BlockDemand {
  /** Blocks to allocate. */
  readonly fresh: number;
  /** Kept blocks that the prefix cache gives back to use. */
  readonly revived: number;
}

/** Blocks for `tokens` tokens of which a beginning is cached. */
export function blockDemand(pool: BlockPool, tokens: number, blockTokens: number, match: PrefixMatch): BlockDemand {
  const revived = match.blocks.filter((block) => pool.holders(block) === 0).length;
  return { fresh: blocksFor(tokens, blockTokens) - match.blocks.length, revived };
}

/**
 * Admission: a sequence gets the blocks of all its known tokens at once, and must leave the watermark free, so that the running
 * ones can grow for a while before one is preempted. One that was preempted must also leave each of them a block, else it would
 * come back only to be sent away again. On an idle rank neither counts: something must run.
 */
export function mayAdmit(
  pool: BlockPool,
  { fresh, revived }: BlockDemand,
  { running, watermarkBlocks, preempted }: AdmissionState,
): boolean {
  const headroom = running === 0 ? 0 : watermarkBlocks + (preempted ? running : 0);
  return pool.numFree - revived - fresh >= headroom;
}

export interface AdmissionState {
  /** Sequences running on the rank. */
  readonly running: number;
  readonly watermarkBlocks: number;
  /** Whether the sequence has been preempted before. */
  readonly preempted: boolean;
}
