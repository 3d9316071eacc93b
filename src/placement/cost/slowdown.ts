import type { Slowdown } from './measure.js';

/** The slowdown of `busy` ranks at once, also where that is an average. More than were measured count as those. */
export function slowdownAt(slowdown: Slowdown, busy: number): number {
  const at = Math.min(Math.max(busy, 1), slowdown.length);
  const below = Math.floor(at);
  const low = slowdown[below - 1]!;
  return low + (at - below) * ((slowdown[below] ?? low) - low);
}
