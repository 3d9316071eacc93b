import { sum } from '../../base/lists.js';
import { assign, type Steps } from './assign.js';
import { bins, fairCopy, placeCut } from './fair_copy.js';
import { cutHeads, headShares, largestPiece, type Piece } from './pieces.js';
import { piecesBound } from './pieces_bound.js';
import { answer, type Answer, better, evenPeak, mostCopies, type Task, TIE } from '../task.js';

/** What listing a cut and placing it by the heuristic cost, in search steps a piece: about the time they take. */
const LIST_STEPS = 4;
const TRY_STEPS = 40;
/** Cuts that are placed by the heuristic before any is searched, at most. */
const TRIED_CUTS = 40;
/** As near to the bound as this, relative, an answer is left alone if there are too many cuts to prove a better one. */
const NEAR = 1e-3;

interface Cut {
  readonly copies: readonly number[];
  readonly pieces: readonly Piece[];
  readonly bound: number;
}

/**
 * The best arrangement with equal shares: every cut of heads within the budgets that could beat the best known, those with the
 * lowest bound first, each searched by branch and bound. The bound is the peak where every cut was searched to the end.
 */
export function exact(task: Task, steps: Steps): Answer {
  let best = fairCopy(task);
  const floor = best.bound;
  const isOptimal = (): boolean => best.peak <= floor * (1 + TIE);
  if (isOptimal() || (best.peak <= floor * (1 + NEAR) && listSteps(task) > steps.left / 2)) return best;

  const { cuts, complete } = promisingCuts(task, best.peak, steps);
  for (const { copies, pieces } of cuts.slice(0, TRIED_CUTS)) {
    steps.left -= TRY_STEPS * pieces.length;
    if (steps.left <= 0) break;
    const found = placeCut(task, copies, floor);
    if (found) best = better(best, found);
    if (isOptimal()) return best;
  }
  let open = Infinity; // the lowest bound of a cut that wasn't searched to the end
  for (const { pieces, bound } of cuts) {
    if (bound >= best.peak * (1 - TIE)) break; // and so are all after it
    // No cut may take all the steps: another may give a better peak sooner.
    const own = { left: Math.ceil(steps.left / 4) };
    steps.left -= own.left;
    const found = assign(bins(task), pieces, best.peak, Math.max(floor, bound), own);
    steps.left += own.left;
    if (found.ranks) best = answer(task, headShares(task.loads.length, pieces, found.ranks), floor);
    if (!found.complete) open = Math.min(open, bound);
    if (isOptimal()) return best;
  }
  return answer(task, best.heads, complete ? Math.max(floor, Math.min(open, best.peak)) : floor);
}

/** What listing every way to spend the copies costs at most. */
function listSteps({ loads, budgets, room }: Task): number {
  const copies = Math.min(sum(budgets), sum(room) - loads.length);
  let cuts = 1;
  for (let n = 1; n <= copies && cuts < Number.MAX_SAFE_INTEGER; n++) cuts *= (loads.length + n) / n;
  return cuts * LIST_STEPS * loads.length;
}

/** The cuts within the budgets whose bound is below `limit`, lowest bound first, of equals that with fewer copies. */
function promisingCuts(
  task: Task,
  limit: number,
  steps: Steps,
): { readonly cuts: readonly Cut[]; readonly complete: boolean } {
  const { loads, budgetOf, batch } = task;
  const most = mostCopies(task);
  const target = limit * (1 - TIE);
  const order = [...loads.keys()].sort((a, b) => loads[b]! - loads[a]! || a - b);
  const copies = loads.map(() => 1);
  const left = [...task.budgets];
  let spare = sum(task.room) - loads.length;
  const take = (head: number, n: number): void => {
    left[budgetOf[head]!]! -= n;
    spare -= n;
    copies[head]! += n;
  };

  // Copies without which a head's own piece is too large; what is left of the budgets is free to use.
  for (const head of order) {
    let needed = 1;
    while (needed <= most && largestPiece(loads[head]!, needed, batch) >= target) needed++;
    if (needed > most) return { cuts: [], complete: true };
    take(head, needed - 1);
  }
  if (spare < 0 || left.some((budget) => budget < 0)) return { cuts: [], complete: true };

  const needed = [...copies];
  const even = evenPeak(task);
  const cuts: Cut[] = [];
  const allowance = steps.left / 2;
  let spent = 0;
  const walk = (at: number): void => {
    if (spent > allowance) return;
    const head = order[at];
    if (head === undefined) {
      const pieces = cutHeads(task, copies);
      const bound = Math.max(
        even,
        piecesBound(
          pieces.map(({ size }) => size),
          task.room.length,
        ),
      );
      if (bound < target) cuts.push({ copies: [...copies], pieces, bound });
      spent += LIST_STEPS * pieces.length;
      return;
    }
    const before = order[at - 1];
    // Heads of one load are the same but for their name: the earlier has no fewer copies.
    const twin = before !== undefined && loads[before] === loads[head] && budgetOf[before] === budgetOf[head];
    const limitHere = twin ? copies[before]! : most;
    for (let n = needed[head]!; n <= limitHere; n++) {
      const extra = n - needed[head]!;
      if (extra > spare || extra > left[budgetOf[head]!]!) break;
      take(head, extra);
      walk(at + 1);
      take(head, -extra);
    }
  };
  walk(0);
  steps.left -= Math.ceil(spent);
  const total = (cut: Cut): number => cut.pieces.length;
  cuts.sort((a, b) => a.bound - b.bound || total(a) - total(b));
  return { cuts, complete: spent <= allowance };
}
