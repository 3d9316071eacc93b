import type { Bins } from './place.js';
import type { Piece } from './pieces.js';
import { type Steps, TIE } from '../task.js';

export interface Assignment {
  /** The rank of each piece, or undefined where no assignment beats the limit (or none was found in time). */
  readonly ranks: readonly number[] | undefined;
  /** Nothing better exists; false when the steps ran out. */
  readonly complete: boolean;
}

/** A rank while pieces are placed. */
interface Place {
  readonly rank: number;
  readonly speed: number;
  load: number;
  left: number;
  /** The last head placed there. */
  holder: number;
}

/** A piece, and what is to be placed from it on. */
interface Open extends Piece {
  readonly rest: number;
  readonly smallest: number;
  /** The piece before is an equal one of the same head: it goes through that one's order of the ranks, so that they take ascending ones. */
  readonly twin: Open | undefined;
  order: readonly Place[];
  /** Where in the order it is. */
  at: number;
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
  { room, speed }: Bins,
  pieces: readonly Piece[],
  limit: number,
  enough: number,
  steps: Steps,
): Assignment {
  const places = room.map((left, rank): Place => ({ rank, speed: speed[rank] ?? 1, load: 0, left, holder: -1 }));
  let [rest, smallest] = [0, Infinity];
  const sums = pieces.toReversed().map(({ size }) => {
    [rest, smallest] = [rest + size, Math.min(smallest, size)];
    return { rest, smallest };
  });
  const open: Open[] = [];
  for (const [i, piece] of pieces.entries()) {
    const before = open[i - 1];
    const twin = before?.head === piece.head && before.size === piece.size ? before : undefined;
    open.push({ ...piece, rest: 0, smallest: 0, ...sums[pieces.length - 1 - i], twin, order: [], at: -1 });
  }
  let target = limit * (1 - TIE);
  let best: number[] | undefined;
  let complete = true;
  let done = false;

  /** Ranks by load after a piece would lie there, of equals the one with more room, then the lower rank. */
  const byLoad = (size: number): Place[] =>
    places.toSorted((a, b) => (a.load + size) / a.speed - (b.load + size) / b.speed || b.left - a.left);

  const fits = (piece: Open): boolean => {
    let free = 0;
    for (const { load, speed: own, left } of places) {
      const gap = target * own - load;
      if (gap > piece.smallest && left > 0) free += gap;
    }
    return free > piece.rest * (1 - TIE);
  };

  const place = (i: number): void => {
    const piece = open[i];
    if (!piece) {
      best = open.map(({ order, at }) => order[at]?.rank ?? 0);
      target = Math.max(...places.map(({ load, speed: own }) => load / own)) * (1 - TIE);
      done = target <= enough;
      return;
    }
    if (steps.left <= 0) {
      complete = false;
      done = true;
      return;
    }
    steps.left--;
    if (!fits(piece)) return;
    const { head, size, twin } = piece;
    piece.order = twin ? twin.order : byLoad(size);
    let previous: Place | undefined;
    for (const [at, rank] of piece.order.entries()) {
      if (done) break;
      if ((twin && at <= twin.at) || rank.holder === head || rank.left <= 0) continue;
      const { load, holder } = rank;
      if ((load + size) / rank.speed >= target) break;
      if (previous && load === previous.load && rank.left === previous.left && rank.speed === previous.speed) continue;
      previous = rank;
      rank.load = load + size;
      rank.left--;
      rank.holder = head;
      piece.at = at;
      place(i + 1);
      rank.load = load; // not by subtraction: the sum must come back exactly
      rank.left++;
      rank.holder = holder;
    }
  };
  place(0);
  return { ranks: best, complete };
}
