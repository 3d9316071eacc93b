import { sum } from '../../base/lists.js';
import { fairCopy } from './fair_copy.js';
import { cutHeads, equalSharesBound } from './pieces.js';
import { improveUnits } from './units.js';
import {
  type Answer,
  type Steps,
  TIE,
  type Task,
  answer,
  better,
  evenPeak,
  heaviestFirst,
  rankCopies,
  renamed,
  spareCopies,
} from '../task.js';
import type { HeadShare, LayerPlacement } from '../types.js';
import { assign, improve, placeLongestFirst } from './place.js';

/**
 * McNaughton's wrap-around: heads in a line, cut where a rank is full, the rest of the cut head to the next rank. That takes
 * ranks - 1 copies at most, also where more are allowed, and leaves no rank with more than the mean. With fewer copies, or too
 * little room, ranks are put into groups that each wrap their own heads; with requests in a batch the shares are rounded and
 * then improved request by request.
 *
 * @param task of one layer
 */
export function wrap(task: Task, steps: Steps): Answer {
  const copies = Math.min(task.room.length - 1, task.copies);
  if (copies === 0 || task.batch === 1) {
    const whole = { ...task, copies: 0 };
    return answer(task, fairCopy(whole).heads, equalSharesBound(whole));
  }
  const limited = { ...task, copies };
  let bound = evenPeak(task);
  const answerOf = (heads: LayerPlacement): Answer =>
    answer(task, task.batch === Infinity ? heads : improveUnits(limited, heads), bound);
  let best: Answer | undefined;
  for (let n = copies; n > 0 && !best; n--) {
    const grouped = groupRanks(limited, n, steps);
    if (n === copies) bound = grouped.bound;
    const heads = intoRoom(limited, wrapGroups(limited, grouped.groups));
    best = heads && answerOf(heads);
  }
  const isLeast = (found: Answer): boolean => found.peak <= bound * (1 + TIE);
  // Equal shares are shares, too; and where wrapping isn't perfect they may be better.
  if (!best || !isLeast(best)) {
    const equal = answerOf(fairCopy(limited).heads);
    best = best ? better(best, equal) : equal;
  }
  const filled = isLeast(best) ? undefined : fill(limited, best.peak);
  return answer(task, (filled ? better(best, answerOf(filled)) : best).heads, bound);
}

function wrapGroups(task: Task, groups: readonly RankGroup[]): LayerPlacement {
  const out = task.loads.map((): HeadShare[] => []);
  let first = 0;
  for (const { ranks, heads } of groups) {
    wrapLine(task.loads, heads, first, ranks, out);
    first += ranks;
  }
  return out;
}

/** One line of heads around the ranks first .. first + ranks - 1, each filled to the mean. */
function wrapLine(
  loads: readonly number[],
  heads: readonly number[],
  first: number,
  ranks: number,
  out: HeadShare[][],
): void {
  const each = sum(heads.map((head) => loads[head] ?? 0)) / ranks;
  const slack = each * (TIE / 4);
  let rank = first;
  let gap = each;
  for (const head of inTurns(heads)) {
    const load = loads[head] ?? 0;
    let left = load;
    let share = 1;
    while (left > gap + slack && rank < first + ranks - 1) {
      if (gap > slack) {
        out[head]?.push({ rank, share: gap / load });
        share -= gap / load;
        left -= gap;
      }
      rank++;
      gap = each;
    }
    out[head]?.push({ rank, share });
    gap -= left;
  }
}

/** Of heads by falling load: the heaviest, the lightest, the second heaviest ..., so that ranks hold about equally many. */
const inTurns = (heads: readonly number[]): number[] =>
  heads.flatMap((_, i) => heads.at(i % 2 === 0 ? i / 2 : -(i + 1) / 2) ?? []);

/** The same placement under other names of the ranks, so that all copies find room; undefined where no names do. */
function intoRoom({ room }: Task, heads: LayerPlacement): LayerPlacement | undefined {
  const copies = rankCopies(heads, room.length);
  const fullest = heaviestFirst(copies);
  const roomiest = heaviestFirst(room);
  const fits = (rank: number, place: number): boolean => (copies[rank] ?? 0) <= (room[place] ?? 0);
  if (!fullest.every((rank, i) => fits(rank, roomiest[i] ?? rank))) return undefined;
  if (copies.every((_, rank) => fits(rank, rank))) return heads;
  return renamed(
    heads,
    copies.map((_, rank) => roomiest[fullest.indexOf(rank)] ?? rank),
  );
}

/** Halvings of the interval in which the lowest peak is looked for. */
const HALVINGS = 40;

/**
 * Fills ranks one after the other, cutting heads where a rank is full, to the lowest peak below `limit` at which all heads find a
 * place that way.
 */
function fill(task: Task, limit: number): LayerPlacement | undefined {
  let low = evenPeak(task) * (1 + TIE / 4);
  let best = fillTo(task, low);
  if (best) return best;
  let high = limit;
  for (let i = 0; i < HALVINGS; i++) {
    const middle = (low + high) / 2;
    const found = fillTo(task, middle);
    if (found) [best, high] = [found, middle];
    else low = middle;
  }
  return best;
}

/** No rank above `peak`: the largest heads that still fit, then as many requests of one head as fit, if a copy is allowed. */
function fillTo(task: Task, peak: number): LayerPlacement | undefined {
  const { loads, room, batch } = task;
  const heads = loads.map((load) => ({ load, left: 1, copies: [] as HeadShare[] }));
  const open = new Set(heads.toSorted((a, b) => b.load - a.load));
  let spare = spareCopies(task);
  for (const [rank, places] of room.entries()) {
    let gap = peak;
    let free = places;
    const give = ({ load, copies }: (typeof heads)[number], share: number): void => {
      copies.push({ rank, share });
      gap -= load * share;
      free--;
    };
    // Rests of heads cut before go first: whole heads can wait, a rest that must be cut again costs another copy.
    for (const head of [...open].sort((a, b) => Number(b.left < 1) - Number(a.left < 1))) {
      if (free <= 0 || head.load * head.left > gap) continue;
      give(head, head.left);
      open.delete(head);
    }
    let cut: (typeof heads)[number] | undefined;
    let share = 0;
    for (const head of free > 0 && spare > 0 ? open : []) {
      const fits = gap / head.load;
      const part = batch === Infinity ? fits : Math.floor(fits * batch) / batch;
      const size = part > TIE ? head.load * part : 0;
      if (size > (cut ? cut.load * share : 0)) [cut, share] = [head, part];
    }
    if (!cut) continue;
    give(cut, share);
    cut.left -= share;
    spare--;
  }
  return open.size === 0 ? heads.map(({ copies }) => copies) : undefined;
}

/** Ways to put ranks into groups that are looked at, at most. */
const MOST_WAYS = 200;
/** What placing heads by the heuristic costs, in search steps a piece and group: about the time it takes. */
const TRY_STEPS = 2;

/** Ranks that share heads among themselves only. */
interface RankGroup {
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
function groupRanks(
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
