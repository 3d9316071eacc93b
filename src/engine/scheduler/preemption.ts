import type { Sequence } from './sequence.js';

/**
 * Whom a rank sends back when its blocks run out: the running sequence last in order, so that the first one always gets on and
 * every sequence becomes the first in time. One that only waits for its last token is left alone: it frees its blocks next.
 */
export function victimOf(running: readonly Sequence[]): Sequence | undefined {
  for (let i = running.length - 1; i >= 0; i--) {
    const sequence = running[i]!;
    if (sequence.sampled < sequence.maxTokens) return sequence;
  }
  return undefined;
}
