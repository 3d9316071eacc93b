import { assign, type Steps } from './assign.js';
import { improve } from './improve.js';
import { placeLongestFirst } from './longest_first.js';
import { cutHeads } from './pieces.js';
import { evenPeak, type Task, TIE } from '../task.js';

/** Ways to put ranks into groups that are looked at, at most. */
const MOST_WAYS = 200;
/** What placing heads by the heuristic costs, in search steps a piece and group: about the time it takes. */
const TRY_STEPS = 2;

/** Ranks that share heads among themselves only. */
export interface RankGroup {
  readonly ranks: number;
  readonly heads: readonly number[];
}

/**
 * The best groups of ranks for so many copies: k ranks that wrap around their heads need k - 1 copies, so `copies` copies allow
 * ranks - copies groups, each with the mean of its heads' loads as peak. No placement with that many copies, whatever its
 * shares, does better: heads and ranks that copies join form at least so many separate groups.
 *
 * @param task of one layer, on ranks that do nothing yet
 * @param copies 1 to ranks - 1
 * @returns the groups, and the lower bound: their peak where every way was searched to the end
 */
export function groupRanks(
  task: Task,
  copies: number,
  steps: Steps,
): { readonly groups: readonly RankGroup[]; readonly bound: number } {
  const ranks = task.room.length;
  const mean = evenPeak(task);
  const pieces = cutHeads(
    { ...task, batch: Infinity },
    task.loads.map(() => 1),
  );
  const ways = partitions(ranks, ranks - copies, MOST_WAYS + 1);
  let complete = ways.length <= MOST_WAYS;
  let best: { readonly way: readonly number[]; readonly places: readonly number[] } | undefined;
  let peak = Infinity;
  for (const [i, way] of ways.slice(0, MOST_WAYS).entries()) {
    const bins = { room: way.map(() => Infinity), base: way.map(() => 0), speed: way };
    const consider = (places: readonly number[]): void => {
      const loads = way.map(() => 0);
      for (const [at, place] of places.entries()) loads[place]! += pieces[at]!.size;
      const found = Math.max(...loads.map((load, group) => load / way[group]!));
      if (found < peak * (1 - TIE)) [best, peak] = [{ way, places }, found];
    };
    steps.left -= TRY_STEPS * pieces.length * way.length;
    consider(improve(bins, pieces, placeLongestFirst(bins, pieces)!));
    if (peak <= mean * (1 + TIE)) break;
    if (steps.left <= 0) {
      complete = false;
      break;
    }
    const own = { left: Math.ceil(steps.left / (ways.length - i)) };
    steps.left -= own.left;
    const found = assign(bins, pieces, peak, mean, own);
    steps.left += own.left;
    if (found.ranks) consider(found.ranks);
    complete &&= found.complete;
  }
  const { way, places } = best!;
  const groups = way.map((size, group) => ({
    ranks: size,
    heads: pieces.filter((_, at) => places[at] === group).map(({ head }) => head),
  }));
  return { groups, bound: complete || peak <= mean * (1 + TIE) ? peak : mean };
}

/** Ways to write n as a sum of `parts` whole numbers of at least 1, largest first in each; the first `most` of them. */
function partitions(n: number, parts: number, most: number): number[][] {
  const out: number[][] = [];
  const current: number[] = [];
  const walk = (left: number, largest: number): void => {
    const open = parts - current.length;
    if (out.length >= most) return;
    if (open === 0) {
      if (left === 0) out.push([...current]);
      return;
    }
    // The others take at least one each, and at most as much as this one.
    for (let part = Math.ceil(left / open); part <= Math.min(largest, left - open + 1); part++) {
      current.push(part);
      walk(left - part, part);
      current.pop();
    }
  };
  walk(n, n);
  return out;
}
