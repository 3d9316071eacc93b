import { sum } from '../../base/lists.js';
import type { RankGroup } from './groups.js';
import { rename } from '../rank_names.js';
import { rankCopies, type Task, TIE } from '../task.js';
import type { HeadShare, LayerPlacement } from '../types.js';

/** Each group of ranks wraps its own heads. */
export function wrapGroups(task: Task, groups: readonly RankGroup[]): LayerPlacement {
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
  const each = sum(heads.map((head) => loads[head]!)) / ranks;
  const slack = each * (TIE / 4);
  let rank = first;
  let gap = each;
  for (const head of inTurns(heads)) {
    let left = loads[head]!;
    let share = 1;
    while (left > gap + slack && rank < first + ranks - 1) {
      if (gap > slack) {
        out[head]!.push({ rank, share: gap / loads[head]! });
        share -= gap / loads[head]!;
        left -= gap;
      }
      rank++;
      gap = each;
    }
    out[head]!.push({ rank, share });
    gap -= left;
  }
}

/** Of heads by falling load: the heaviest, the lightest, the second heaviest ..., so that ranks hold about equally many. */
function inTurns(heads: readonly number[]): number[] {
  return heads.map((_, i) => heads[i % 2 === 0 ? i / 2 : heads.length - (i + 1) / 2]!);
}

/** The same placement under other names of the ranks, so that all copies find room; undefined where no names do. */
export function intoRoom(task: Task, heads: LayerPlacement): LayerPlacement | undefined {
  const ranks = task.room.length;
  const copies = rankCopies(heads, ranks);
  const fullest = [...copies.keys()].sort((a, b) => copies[b]! - copies[a]! || a - b);
  const roomiest = [...copies.keys()].sort((a, b) => task.room[b]! - task.room[a]! || a - b);
  if (fullest.some((rank, i) => copies[rank]! > task.room[roomiest[i]!]!)) return undefined;
  if (copies.every((n, rank) => n <= task.room[rank]!)) return heads;
  const names = new Array<number>(ranks);
  for (const [i, rank] of fullest.entries()) names[rank] = roomiest[i]!;
  return rename(heads, names);
}
