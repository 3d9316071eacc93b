import { sum } from '../../base/lists.js';
import { assign } from './assign.js';
import { cutHeads } from './pieces.js';
import { improve, placeLongestFirst } from './place.js';
import { evenPeak, type Steps, type Task, TIE } from '../task.js';

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
  const pieces = cutHeads({ ...task, batch: Infinity }, []);
  const ways = partitions(ranks, ranks - copies, MOST_WAYS + 1);
  let complete = ways.length <= MOST_WAYS;
  let best: readonly RankGroup[] = [];
  let peak = Infinity;
  for (const [i, way] of ways.slice(0, MOST_WAYS).entries()) {
    const bins = { room: way.map(() => Infinity), speed: way };
    const consider = (places: readonly number[] = []): void => {
      const groups = way.map((size, group) => {
        const own = pieces.filter((_, at) => places[at] === group);
        return { ranks: size, heads: own.map(({ head }) => head), load: sum(own.map((piece) => piece.size)) };
      });
      const found = Math.max(...groups.map(({ load, ranks: size }) => load / size));
      if (found < peak * (1 - TIE)) [best, peak] = [groups, found];
    };
    steps.left -= TRY_STEPS * pieces.length * way.length;
    consider(improve(bins, pieces, placeLongestFirst(bins, pieces) ?? []));
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
  return { groups: best, bound: complete || peak <= mean * (1 + TIE) ? peak : mean };
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
