import type { BlockPool } from './block_pool.js';

/** Blocks that a waiting sequence would take, by lane of the pool. */
export interface BlockDemand {
  /** The sequence's offset: of the beginning that is cached, or the best one. */
  readonly offset: number;
  /** Blocks to allocate. */
  readonly fresh: readonly number[];
  /** Kept blocks that the prefix cache gives back to use. */
  readonly revived: readonly number[];
}

/**
 * Admission: a sequence gets the blocks of all its known tokens at once, and must leave the watermark free, so that the running
 * ones can grow for a while before one is preempted. One that was preempted must also leave each of them a block, otherwise it would
 * come back only to be sent away again. On an idle rank neither counts: something must run.
 */
export function mayAdmit(
  pool: BlockPool,
  { fresh, revived }: BlockDemand,
  { running, watermarkBlocks, preempted }: AdmissionState,
): boolean {
  const headroom = running === 0 ? 0 : watermarkBlocks + (preempted ? running : 0);
  const rest = fresh.map((count, lane) => pool.freeIn(lane) - revived[lane]! - count);
  return rest.every((left) => left >= 0) && rest.reduce((sum, left) => sum + left, 0) >= headroom;
}

export interface AdmissionState {
  /** Sequences running on the rank. */
  readonly running: number;
  readonly watermarkBlocks: number;
  /** Whether the sequence has been preempted before. */
  readonly preempted: boolean;
}
