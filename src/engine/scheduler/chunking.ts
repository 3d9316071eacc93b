import type { SchedulerConfig } from './config.js';
import type { Sequence } from './sequence.js';

/**
 * Rows of a sequence's next prefill chunk, from `computed` on; 0 when it doesn't fit the budget. A chunk never mixes prompt and
 * generated rows. Without chunked prefill a prompt runs whole or not at all; generated rows to recompute may always be cut,
 * since together with the prompt they may be more than any budget.
 */
export function chunkRows(
  config: Pick<SchedulerConfig, 'chunkedPrefill' | 'maxChunkTokens' | 'chunkEnd' | 'eviction'>,
  sequence: Sequence,
  computed: number,
  budget: number,
): number {
  const inPrompt = sequence.roleAt(computed) === 'prompt';
  const remaining = sequence.runEnd(computed) - computed;
  if (inPrompt && !config.chunkedPrefill) return remaining <= budget ? remaining : 0;
  let rows = Math.min(remaining, budget, config.maxChunkTokens);
  if (!inPrompt) return rows;
  if (rows > 0 && config.chunkEnd) rows = config.chunkEnd(sequence.offset, computed, computed + rows) - computed;
  if (rows === remaining) return rows;
  // The last chunk of a prompt that is compressed has its whole window.
  return Math.min(rows, remaining - (config.eviction?.windowOf(sequence.promptLength) ?? 0));
}
