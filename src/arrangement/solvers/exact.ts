import { assign, bins } from './place.js';
import { fairCopy, placeCut } from './fair_copy.js';
import { cutHeads, headShares, largestPiece, type Piece, piecesBound } from './pieces.js';
import {
  answer,
  type Answer,
  better,
  evenPeak,
  heaviestFirst,
  mostCopies,
  spareCopies,
  type Steps,
  type Task,
  TIE,
} from '../task.js';

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
function listSteps(task: Task): number {
  const { loads } = task;
  const copies = spareCopies(task);
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
  const { loads, batch } = task;
  const most = mostCopies(task);
  const target = limit * (1 - TIE);
  const none = { cuts: [], complete: true };
  let spare = spareCopies(task);

  // Copies without which a head's own piece is too large; what is left is free to use.
  const copies = loads.map((load) => {
    let needed = 1;
    while (needed <= most && largestPiece(load, needed, batch) >= target) needed++;
    spare -= needed - 1;
    return needed;
  });
  if (spare < 0 || copies.some((needed) => needed > most)) return none;

  const order = heaviestFirst(loads).map((head) => ({ head, load: loads[head], needed: copies[head] ?? 1 }));
  const even = evenPeak(task);
  const cuts: Cut[] = [];
  const allowance = steps.left / 2;
  let spent = 0;
  const walk = (at: number): void => {
    if (spent > allowance) return;
    const own = order[at];
    if (own === undefined) {
      const pieces = cutHeads(task, copies);
      const sizes = pieces.map(({ size }) => size);
      const bound = Math.max(even, piecesBound(sizes, task.room.length));
      if (bound < target) cuts.push({ copies: [...copies], pieces, bound });
      spent += LIST_STEPS * pieces.length;
      return;
    }
    const { head, load, needed } = own;
    const before = order[at - 1];
    // Heads of one load are the same but for their name: the earlier has no fewer copies.
    const limitHere = before && before.load === load ? (copies[before.head] ?? most) : most;
    for (let n = needed; n <= limitHere; n++) {
      if (n - needed > spare) break;
      spare -= n - needed;
      copies[head] = n;
      walk(at + 1);
      spare += n - needed;
    }
    copies[head] = needed;
  };
  walk(0);
  steps.left -= Math.ceil(spent);
  const total = (cut: Cut): number => cut.pieces.length;
  cuts.sort((a, b) => a.bound - b.bound || total(a) - total(b));
  return { cuts, complete: spent <= allowance };
}
