/**
 * Policies that papers describe, on our scheduler and clock, to compare with. They follow the papers' abstracts where the details differ
 * from a scheduler of one iteration at a time; none is in the product.
 */

import { nth, sum } from '../../src/base/lists.js';
import { quantile } from '../../src/base/stats.js';
import type { Iteration } from '../../src/engine/scheduler/index.js';
import type { RankState } from '../../src/engine/scheduler/rank_state.js';
import type { ContextPolicy, Situation } from '../../src/engine/scheduler/routing.js';
import type { Sequence } from '../../src/engine/scheduler/sequence.js';
import type { WaitingQueue } from '../../src/engine/scheduler/waiting_queue.js';

type Ranks = readonly RankState[];

/** KV tokens that a rank attends to once all that is bound to it runs. */
const loadOf = (rank: RankState): number => rank.attended + sum([...rank.pending].map(({ target }) => target));

/** Binds waiting requests, as many as slots are free, to where `choose` says, a rank of those that have a slot. */
function bindAll(
  waiting: WaitingQueue,
  ranks: Ranks,
  requests: readonly Sequence[],
  choose: (of: Sequence, free: Ranks) => RankState,
) {
  for (const request of requests) {
    const free = ranks.filter((rank) => rank.numFreeSlots > rank.pending.length && rank.canEverHold(request));
    if (free.length === 0) continue;
    waiting.remove(request);
    choose(request, free).bind(request);
  }
}

const freeSlots = (ranks: Ranks): number =>
  sum(ranks.map((rank) => Math.max(0, rank.numFreeSlots - rank.pending.length)));

/** The rank with the least of `measures`, of which later ones decide between equals; the first of those. */
function least(ranks: Ranks, measures: (rank: RankState) => readonly number[]): RankState {
  const scored = ranks.map((rank) => ({ rank, of: measures(rank) }));
  return scored.reduce((best, one) => {
    const at = one.of.findIndex((value, i) => value !== best.of[i]);
    return at >= 0 && nth(one.of, at) < nth(best.of, at) ? one : best;
  }).rank;
}

/**
 * BR-0 of BalanceRoute (arXiv 2605.06113): a request stays on its rank, and goes where an admission leaves least idle beside the rank
 * with most KV tokens. With envelope E, the largest load, and margin E - load of a rank, admitting s tokens scores
 *
 *     F(s) = s                                     within the margin
 *            margin - (ranks - 1) * (s - margin)   beyond it: every other rank waits for what exceeds the envelope
 *
 * which is by how much the sum over ranks of (E - load) falls. Prompts run whenever they fit.
 */
export class BalanceRoute implements ContextPolicy {
  route(waiting: WaitingQueue, ranks: Ranks): void {
    const load = new Map(ranks.map((rank) => [rank, loadOf(rank)]));
    const of = (rank: RankState): number => load.get(rank) ?? 0;
    bindAll(waiting, ranks, waiting.inTurn(freeSlots(ranks)), ({ target }, free) => {
      const envelope = Math.max(...load.values());
      const score = (rank: RankState): number => {
        const margin = envelope - of(rank);
        return target <= margin ? target : margin - (ranks.length - 1) * (target - margin);
      };
      const rank = least(free, (each) => [-score(each), of(each)]);
      load.set(rank, of(rank) + target);
      return rank;
    });
  }
}

/** Iterations with contexts whose mean time is the interval, about. */
const RECENT = 16;

/**
 * Staggered batches (arXiv 2512.16134): requests are held for an interval and then go out together, so that they wait where they can
 * still be placed. The interval is what an iteration with contexts has taken lately. Prompts go to the rank with fewest prompt tokens,
 * longest first; of equal ones to that with fewest requests, then fewest KV tokens. Ranks whose KV tokens lie above the others' (beyond
 * the third quartile by 1.5 interquartile ranges) get none while others have room.
 */
export class StaggeredBatches implements ContextPolicy {
  #interval = 0;
  #opened = -Infinity;

  opens(waiting: WaitingQueue, { ranks, now, work }: Situation): boolean {
    const isIdle = work.every(({ decodes }) => decodes.length === 0);
    if (waiting.length === 0 || (now - this.#opened < this.#interval && !isIdle)) return true;
    this.#opened = now;
    const prompts = new Map(ranks.map((rank) => [rank, sum([...rank.pending].map(({ target }) => target))]));
    const loads = ranks.map(loadOf);
    const [first, third] = [quantile(loads, 0.25), quantile(loads, 0.75)];
    const isOutlier = (rank: RankState): boolean => loadOf(rank) > third + 1.5 * (third - first);
    const longestFirst = waiting.inTurn(freeSlots(ranks)).toSorted((a, b) => b.target - a.target);
    bindAll(waiting, ranks, longestFirst, ({ target }, free) => {
      const usual = free.filter((rank) => !isOutlier(rank));
      const rank = least(usual.length > 0 ? usual : free, (each) => [
        prompts.get(each) ?? 0,
        each.numActive,
        each.attended,
      ]);
      prompts.set(rank, (prompts.get(rank) ?? 0) + target);
      return rank;
    });
    return true;
  }

  observe({ ranks }: Iteration, seconds: number): void {
    if (ranks.every(({ contextTokens }) => contextTokens === 0)) return;
    this.#interval = this.#interval === 0 ? seconds : this.#interval + (seconds - this.#interval) / RECENT;
  }
}
