import type { Estimate } from '../statistics.js';
import type { GpuCalls } from './kernels/count_calls.js';

/** What one runtime did of one task. */
export interface PeerResult {
  readonly task: string;
  /** Tokens of the prompt or of the cache, where the task has any. */
  readonly tokens?: number;
  readonly runtime: string;
  readonly device: string;
  /** Tokens per second from the first token on, or microseconds of one operator. */
  readonly unit: 'tokens/s' | 'us';
  /** Median of the samples. */
  readonly value: number;
  /** Our speed over this one's, run by run: above 1 ours is faster. */
  readonly speed_ratio: Estimate;
  readonly ttft_ms?: number;
  readonly ttft_ratio?: Estimate;
  /** Of a token, where they can be counted. */
  readonly calls?: GpuCalls;
  /** Of the greedy tokens, how many from the first on are the same as ours. */
  readonly same_tokens?: number;
  /** Largest difference from ours, over the largest number: of the logits after the prompt, or of an operator's output. */
  readonly error?: number;
  readonly samples: readonly number[];
  readonly ttft_samples?: readonly number[];
}
