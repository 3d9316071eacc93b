import type { Sequence } from './sequence.js';

/** Tokens that an answer which was sent back goes on for at least before it makes room again: less would be spent on computing it again. */
const KEPT_TOKENS = 16;

/** One that only waits for its last token is left alone: it frees its slot and its blocks next. */
const goesOn = ({ sampled, maxTokens }: Sequence): boolean => sampled < maxTokens;

/**
 * Whom a rank sends back when its blocks run out: the last of its running sequences, which have clients in turn, so that the first one
 * always gets on and every sequence becomes the first in time.
 */
export const victimOf = (running: readonly Sequence[]): Sequence | undefined => running.findLast(goesOn);

/**
 * Whom a rank sends back for a client that waits with fewer slots: the last in order of the client with most, if that has more than the
 * one that waits would have. None of a higher priority, and none that has hardly gone on since it was sent back.
 */
export function victimFor(next: Sequence, running: readonly Sequence[]): Sequence | undefined {
  let victim: Sequence | undefined;
  for (const sequence of running) {
    const { client, priority, sampled, sampledBefore, preemptions } = sequence;
    if (client.running < next.client.running + 2 || priority > next.priority || !goesOn(sequence)) continue;
    if (preemptions > 0 && sampled - sampledBefore < KEPT_TOKENS) continue;
    if (!victim || client.running >= victim.client.running) victim = sequence;
  }
  return victim;
}
