import type { Bins } from './improve.js';
import type { Piece } from './pieces.js';
import { TIE } from '../task.js';

/** A budget of search steps, shared by searches: steps instead of seconds, so that the same input gives the same result. */
export interface Steps {
  left: number;
}

export interface Assignment {
  /** The rank of each piece, or undefined where no assignment beats the limit (or none was found in time). */
  readonly ranks: readonly number[] | undefined;
  /** Nothing better exists; false when the steps ran out. */
  readonly complete: boolean;
}

/**
 * Branch and bound: pieces on ranks so that the busiest has as little as can be, no two pieces of a head on one rank.
 *
 * Pieces are placed in order on ranks in order of load; ranks that differ in nothing count once, and equal pieces of a head
 * take ascending ranks. A branch ends when what is left no longer fits below the best peak.
 *
 * @param pieces as `cutHeads` orders them
 * @param limit only peaks below it count
 * @param enough stops at a peak as low as this: a lower bound
 */
export function assign(
  { room, base, speed }: Bins,
  pieces: readonly Piece[],
  limit: number,
  enough: number,
  steps: Steps,
): Assignment {
  const ranks = room.length;
  const load = Float64Array.from(base);
  const left = Float64Array.from(room);
  const holder = Int32Array.from(room, () => -1); // the last head placed there
  const rest = new Float64Array(pieces.length + 1);
  const smallest = new Float64Array(pieces.length + 1).fill(Infinity);
  for (let i = pieces.length - 1; i >= 0; i--) {
    rest[i] = rest[i + 1]! + pieces[i]!.size;
    smallest[i] = Math.min(smallest[i + 1]!, pieces[i]!.size);
  }
  const chosen = new Int32Array(pieces.length);
  const placeOf = new Int32Array(pieces.length); // the chosen rank's place in the order of loads
  // Equal pieces of a head go through one order of the ranks, so that they take ascending ones.
  const again = pieces.map(({ head, size }, i) => pieces[i - 1]?.head === head && pieces[i - 1]!.size === size);
  const orders: Int32Array[] = [];
  for (const [i, repeated] of again.entries()) orders.push(repeated ? orders[i - 1]! : new Int32Array(ranks));
  let target = limit * (1 - TIE);
  let best: number[] | undefined;
  let complete = true;
  let done = false;

  /** Ranks by load after this piece would lie there, of equals the one with more room, then the lower rank. */
  const sortRanks = (order: Int32Array, size: number): void => {
    for (let r = 0; r < ranks; r++) {
      let at = r;
      const time = (load[r]! + size) / speed[r]!;
      for (; at > 0; at--) {
        const before = order[at - 1]!;
        const other = (load[before]! + size) / speed[before]!;
        if (other < time || (other === time && left[before]! >= left[r]!)) break;
        order[at] = before;
      }
      order[at] = r;
    }
  };

  const fits = (i: number): boolean => {
    let free = 0;
    for (let r = 0; r < ranks; r++) {
      const gap = target * speed[r]! - load[r]!;
      if (gap > smallest[i]! && left[r]! > 0) free += gap;
    }
    return free > rest[i]! * (1 - TIE);
  };

  const place = (i: number): void => {
    if (i === pieces.length) {
      best = [...chosen];
      let peak = 0;
      for (let r = 0; r < ranks; r++) peak = Math.max(peak, load[r]! / speed[r]!);
      target = peak * (1 - TIE);
      done = target <= enough;
      return;
    }
    if (steps.left <= 0) {
      complete = false;
      done = true;
      return;
    }
    steps.left--;
    if (!fits(i)) return;
    const { head, size } = pieces[i]!;
    const order = orders[i]!;
    if (!again[i]) sortRanks(order, size);
    let previous = -1;
    for (let at = again[i] ? placeOf[i - 1]! + 1 : 0; at < ranks && !done; at++) {
      const rank = order[at]!;
      if (holder[rank] === head || left[rank]! <= 0) continue;
      const before = load[rank]!;
      if ((before + size) / speed[rank]! >= target) break;
      if (
        previous >= 0 &&
        before === load[previous] &&
        left[rank] === left[previous] &&
        speed[rank] === speed[previous]
      ) {
        continue;
      }
      previous = rank;
      const held = holder[rank]!;
      load[rank] = before + size;
      left[rank]!--;
      holder[rank] = head;
      chosen[i] = rank;
      placeOf[i] = at;
      place(i + 1);
      load[rank] = before; // not by subtraction: the sum must come back exactly
      left[rank]!++;
      holder[rank] = held;
    }
  };
  place(0);
  return { ranks: best, complete };
}
