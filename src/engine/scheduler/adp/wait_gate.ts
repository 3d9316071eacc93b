import type { AttentionDpConfig } from './config.js';

/** What one rank could run in an iteration. */
export interface RankOffer {
  /** Whether a context request would run. */
  readonly hasContext: boolean;
  /** Generation requests that run. */
  readonly generations: number;
  /** Sequences it may run. */
  readonly slots: number;
}

/**
 * TensorRT-LLM's ADP balancer: whether contexts run in this iteration, the same on every rank. Two counters, kept as they are
 * there, with what is odd about them: `wait` advances though nobody may have a context; one rank without a free slot holds all
 * up until the timeout; the batching wait compares nothing; `batch` outlives a lost synchronisation.
 */
export class WaitGate {
  wait = 0;
  batch = 0;

  constructor(private readonly config: Pick<AttentionDpConfig, 'timeoutIters' | 'batchingWaitIters'>) {}

  opens(ranks: readonly RankOffer[]): boolean {
    const free = ranks.every(({ generations, slots }) => generations < slots);
    const contexts = ranks.every(({ hasContext }) => hasContext);
    const generating = ranks.every(({ generations }) => generations > 0);
    if (free && contexts) {
      this.wait = 0;
      if (!generating) return true;
      if (this.batch < this.config.batchingWaitIters) {
        this.batch++;
        return false;
      }
      this.batch = 0;
      return true;
    }
    this.wait++;
    if (this.wait < this.config.timeoutIters && generating) return false;
    this.wait = 0;
    return true;
  }
}
