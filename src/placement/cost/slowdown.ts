import type { Slowdown } from './measure.js';

/** The slowdown of `busy` ranks at once, also where that is an average. More than were measured count as those. */
export function slowdownAt(slowdown: Slowdown, busy: number): number {
  const at = Math.min(Math.max(busy, 1), slowdown.length);
  const below = Math.floor(at);
  const low = slowdown[below - 1]!;
  return low + (at - below) * ((slowdown[below] ?? low) - low);
}

/**
 * Until the last of some ranks is done whose work takes these times alone: they slow each other down as long as they work side by
 * side. `others`: how many times as many ranks are busy beside them.
 */
export function sideBySide(times: readonly number[], slowdown: Slowdown, others = 1): number {
  let ended = 0;
  let total = 0;
  for (const [i, time] of times.toSorted((a, b) => a - b).entries()) {
    total += (time - ended) * slowdownAt(slowdown, (times.length - i) * others);
    ended = time;
  }
  return total;
}
