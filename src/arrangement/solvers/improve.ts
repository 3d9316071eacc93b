import type { Piece } from './pieces.js';

/** Above this many pieces on two ranks, only single moves and swaps are tried instead of every division. */
const DIVIDE_LIMIT = 10;
const PROGRESS = 1 - 1e-12;

/** Where pieces may go: ranks with room for so many of them, what they have to do already, how fast each is (1, but for groups of ranks). */
export interface Bins {
  readonly room: readonly number[];
  readonly base: readonly number[];
  readonly speed: readonly number[];
}

/**
 * Divides the pieces of the busiest rank and another anew, until that lightens no busiest rank any more.
 *
 * @param ranks the rank of each piece; a head's pieces on different ranks, and they stay so
 * @returns the rank of each piece
 */
export function improve(bins: Bins, pieces: readonly Piece[], ranks: readonly number[]): number[] {
  const out = [...ranks];
  const on = bins.room.map((): number[] => []);
  for (const [i, rank] of out.entries()) on[rank]!.push(i);
  const time = (rank: number): number =>
    on[rank]!.reduce((total, i) => total + pieces[i]!.size, bins.base[rank]!) / bins.speed[rank]!;
  const times = on.map((_, rank) => time(rank));
  for (;;) {
    const busiest = times.indexOf(Math.max(...times));
    // The lightest partner first: the most to gain.
    const partners = [...on.keys()].filter((rank) => rank !== busiest).sort((a, b) => times[a]! - times[b]! || a - b);
    const found = partners.some((other) => {
      const division = divide(bins, pieces, on, busiest, other, times[busiest]! * PROGRESS);
      if (!division) return false;
      [on[busiest], on[other]] = division;
      for (const rank of [busiest, other]) times[rank] = time(rank);
      return true;
    });
    if (!found) break;
  }
  for (const [rank, list] of on.entries()) for (const i of list) out[i] = rank;
  return out;
}

/** The best new division of two ranks' pieces that makes both faster than `limit`. */
function divide(
  { room, base, speed }: Bins,
  pieces: readonly Piece[],
  on: readonly (readonly number[])[],
  a: number,
  b: number,
  limit: number,
): [number[], number[]] | undefined {
  const headsOf = (list: readonly number[]): Set<number> => new Set(list.map((i) => pieces[i]!.head));
  const [headsA, headsB] = [headsOf(on[a]!), headsOf(on[b]!)];
  const stays = (i: number): boolean => headsA.has(pieces[i]!.head) && headsB.has(pieces[i]!.head);
  const fixed = [a, b].map((rank) => on[rank]!.filter(stays)) as [number[], number[]];
  const free = [a, b].map((rank) => on[rank]!.filter((i) => !stays(i))) as [number[], number[]];
  const size = (list: readonly number[]): number => list.reduce((total, i) => total + pieces[i]!.size, 0);
  const start = base[a]! + size(fixed[0]);
  const all = start + base[b]! + size(fixed[1]) + size(free[0]) + size(free[1]);
  const movable = [...free[0], ...free[1]];
  const fewest = fixed[1].length + movable.length - room[b]!;
  const most = room[a]! - fixed[0].length;

  let best: readonly number[] | undefined;
  let bestTime = limit;
  const consider = (first: readonly number[], load: number): void => {
    if (first.length < fewest || first.length > most) return;
    const time = Math.max(load / speed[a]!, (all - load) / speed[b]!);
    if (time < bestTime) [best, bestTime] = [[...first], time * PROGRESS];
  };
  if (movable.length <= DIVIDE_LIMIT) {
    const chosen: number[] = [];
    const walk = (at: number, load: number): void => {
      if (load / speed[a]! >= bestTime) return;
      if (at === movable.length) return consider(chosen, load);
      const i = movable[at]!;
      chosen.push(i);
      walk(at + 1, load + pieces[i]!.size);
      chosen.pop();
      walk(at + 1, load);
    };
    walk(0, start);
  } else {
    const load = start + size(free[0]);
    for (const i of free[0]) {
      const rest = free[0].filter((piece) => piece !== i);
      const without = load - pieces[i]!.size;
      consider(rest, without);
      for (const j of free[1]) consider([...rest, j], without + pieces[j]!.size);
    }
  }
  if (!best) return undefined;
  const first = new Set(best);
  return [
    [...fixed[0], ...best],
    [...fixed[1], ...movable.filter((i) => !first.has(i))],
  ];
}
