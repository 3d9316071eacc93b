import type { SchedulerOptions } from '../engine/scheduler/index.js';
import type { Trace } from './trace.js';

export const BLOCK_TOKENS = 64;

/** What the ranks of a simulation have room for. */
export interface Room {
  readonly trace: Trace;
  readonly ranks: number;
  /** Requests that a rank may run. */
  readonly maxBatch: number;
  readonly maxTokensPerIteration: number;
  readonly chunkedPrefill: boolean;
  /** KV tokens of a rank; undefined: enough for any batch. */
  readonly kvTokens: number | undefined;
}

/** What the scheduler is told beside a policy. */
export function schedulerOf(options: Room): Omit<SchedulerOptions, 'attentionDpConfig'> {
  const { trace, maxBatch, kvTokens, maxTokensPerIteration, chunkedPrefill } = options;
  const longest = trace.reduce((most, { inputTokens, outputTokens }) => Math.max(most, inputTokens + outputTokens), 0);
  const blocks = Math.ceil(longest / BLOCK_TOKENS);
  // More than a full batch takes is never used.
  const most = maxBatch * blocks;
  const numBlocks = kvTokens === undefined ? most : Math.min(most, Math.max(1, Math.floor(kvTokens / BLOCK_TOKENS)));
  return {
    ranks: Array.from({ length: options.ranks }, () => ({ numBlocks, slots: maxBatch })),
    blockTokens: BLOCK_TOKENS,
    contextLength: longest,
    maxTokensPerIteration,
    chunkedPrefill,
    watermark: numBlocks < most ? 0.01 : 0,
  };
}
