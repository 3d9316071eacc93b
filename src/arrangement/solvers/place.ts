import type { Piece } from './pieces.js';
import { type Steps, TIE, type Task } from '../task.js';

/** Above this many pieces on two ranks, only single moves and swaps are tried instead of every division. */
const DIVIDE_LIMIT = 10;
const PROGRESS = 1 - 1e-12;

/** Where pieces may go: ranks with room for so many of them, and how fast each is (1, but for groups of ranks). */
export interface Bins {
  readonly room: readonly number[];
  readonly speed: readonly number[];
}

export const bins = ({ room }: Task): Bins => ({ room, speed: room.map(() => 1) });

/**
 * LPT: each piece in turn goes where it ends first, of the ranks that have room and no piece of the same head.
 *
 * @returns the rank of each piece, or undefined where a copy finds no place
 */
export function placeLongestFirst({ room, speed }: Bins, pieces: readonly Piece[]): number[] | undefined {
  const ranks = room.map((left, rank) => ({ rank, left, load: 0, speed: speed[rank] ?? 1, holds: new Set<number>() }));
  const out: number[] = [];
  for (const { head, size } of pieces) {
    let chosen: (typeof ranks)[number] | undefined;
    let earliest = Infinity;
    for (const rank of ranks) {
      const end = (rank.load + size) / rank.speed;
      if (rank.left > 0 && !rank.holds.has(head) && end < earliest) [chosen, earliest] = [rank, end];
    }
    if (!chosen) return undefined;
    chosen.load += size;
    chosen.left--;
    chosen.holds.add(head);
    out.push(chosen.rank);
  }
  return out;
}

interface Filled {
  readonly room: number;
  readonly speed: number;
  pieces: readonly NumberedPiece[];
}
type NumberedPiece = Piece & { readonly i: number };

const sizeOf = (pieces: readonly Piece[]): number => pieces.reduce((total, { size }) => total + size, 0);
const timeOf = ({ pieces, speed }: Filled): number => sizeOf(pieces) / speed;

/**
 * Divides the pieces of the busiest rank and another anew, until that lightens no busiest rank any more.
 *
 * @param ranks the rank of each piece; a head's pieces on different ranks, and they stay so
 * @returns the rank of each piece
 */
export function improve({ room, speed }: Bins, pieces: readonly Piece[], ranks: readonly number[]): number[] {
  const numbered = pieces.map((piece, i): NumberedPiece => ({ ...piece, i }));
  const all = room.map((places, rank): Filled => ({
    room: places,
    speed: speed[rank] ?? 1,
    pieces: numbered.filter(({ i }) => ranks[i] === rank),
  }));
  for (;;) {
    const most = Math.max(...all.map(timeOf));
    const busiest = all.find((rank) => timeOf(rank) === most);
    // The lightest partner first: the most to gain.
    const partners = all.filter((rank) => rank !== busiest).sort((a, b) => timeOf(a) - timeOf(b));
    if (!busiest || !partners.some((other) => divide(busiest, other, most * PROGRESS))) break;
  }
  const out = [...ranks];
  for (const [rank, { pieces: held }] of all.entries()) for (const { i } of held) out[i] = rank;
  return out;
}

/** Gives two ranks' pieces the best new division that makes both faster than `limit`, if there is one. */
function divide(a: Filled, b: Filled, limit: number): boolean {
  const [headsA, headsB] = [a, b].map(({ pieces }) => new Set(pieces.map(({ head }) => head)));
  const stays = ({ head }: Piece): boolean => Boolean(headsA?.has(head) && headsB?.has(head));
  const moves = (piece: Piece): boolean => !stays(piece);
  const [fixedA, fixedB] = [a.pieces.filter(stays), b.pieces.filter(stays)];
  const [freeA, freeB] = [a.pieces.filter(moves), b.pieces.filter(moves)];
  const start = sizeOf(fixedA);
  const all = start + sizeOf(fixedB) + sizeOf(freeA) + sizeOf(freeB);
  const movable = [...freeA, ...freeB];
  const fewest = fixedB.length + movable.length - b.room;
  const most = a.room - fixedA.length;

  let best: readonly NumberedPiece[] | undefined;
  let bestTime = limit;
  const consider = (first: readonly NumberedPiece[], load: number): void => {
    if (first.length < fewest || first.length > most) return;
    const time = Math.max(load / a.speed, (all - load) / b.speed);
    if (time < bestTime) [best, bestTime] = [[...first], time * PROGRESS];
  };
  if (movable.length <= DIVIDE_LIMIT) {
    const chosen: NumberedPiece[] = [];
    const walk = (at: number, load: number): void => {
      if (load / a.speed >= bestTime) return;
      const piece = movable[at];
      if (!piece) return consider(chosen, load);
      chosen.push(piece);
      walk(at + 1, load + piece.size);
      chosen.pop();
      walk(at + 1, load);
    };
    walk(0, start);
  } else {
    const load = start + sizeOf(freeA);
    for (const piece of freeA) {
      const rest = freeA.filter((other) => other !== piece);
      const without = load - piece.size;
      consider(rest, without);
      for (const other of freeB) consider([...rest, other], without + other.size);
    }
  }
  if (!best) return false;
  const first = new Set(best);
  a.pieces = [...fixedA, ...best];
  b.pieces = [...fixedB, ...movable.filter((piece) => !first.has(piece))];
  return true;
}

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
