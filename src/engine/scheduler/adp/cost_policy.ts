import type { SchedulerConfig } from '../config.js';
import type { Iteration } from '../iteration.js';
import type { RankState } from '../rank_state.js';
import type { ContextPolicy, Situation } from '../routing.js';
import type { Sequence } from '../sequence.js';
import type { WaitingQueue } from '../waiting_queue.js';
import { ArrivalRate } from './arrival_rate.js';
import { IterationTimes } from './iteration_times.js';
import { Placement } from './placement.js';

/** What a request's wait for its first token costs beyond its idle slot, in idle slots. */
const FIRST_TOKEN_PRICE = 4;
/** Requests that might yet come, looked ahead for company. */
const LOOKAHEAD = 48;
/** The cost of a context is a mean over about this many runs of contexts. */
const COST_MEMORY = 20;

/**
 * Our own balancer. Requests stay in one queue until contexts run; then the oldest are spread over the ranks (placement.ts). They
 * run when waiting no longer pays. With `n` requests able to run, that is when no `m` more would be worth waiting for:
 *
 *     more(m) + held(m) >= m * cost
 *
 * more(m): seconds by which m more contexts would lengthen the iteration; free while they fill up ranks that would idle.
 * held(m): what the n waiting ones, and then the new ones, lose until the m-th has come. A second of one request's wait is an
 *          idle slot, a 1/(running) part of a second's output, and its first token comes later: priced at 4 more idle slots.
 * cost:    what a context has cost on average under this very rule, wait included.
 *
 * They also run at once when no rank generates, when times aren't known yet, when one has waited timeout_iters +
 * batching_wait_iters iterations, and when one would miss its deadline.
 */
export class CostPolicy implements ContextPolicy {
  readonly #times = new IterationTimes();
  readonly #arrivals = new ArrivalRate();
  readonly #patience: number;
  readonly #keepAfter: number;
  /** Rows of the contexts run last. */
  readonly #recent: number[] = [];
  #started = 0;
  /** Requests that could have run in the last iteration and didn't. */
  #leftWaiting = 0;
  #lastSeconds = 0;
  /** Seconds times requests waited since contexts ran last. */
  #held = 0;
  #costSeconds = 0;
  #costRequests = 0;

  constructor(private readonly config: SchedulerConfig) {
    const { enableBalance, timeoutIters, batchingWaitIters } = config.attentionDp;
    this.#patience = enableBalance ? timeoutIters + batchingWaitIters : 0;
    this.#keepAfter = Math.max(1, timeoutIters + batchingWaitIters);
  }

  /** Nothing is bound before it runs. */
  route(): void {}

  observe(iteration: Iteration, seconds: number): void {
    this.#times.add(iteration, seconds);
    this.#lastSeconds = seconds;
  }

  /** Binds what is to run now. Contexts that are bound and not finished always go on. */
  opens(waiting: WaitingQueue, situation: Situation): boolean {
    const { ranks, iteration } = situation;
    const slots = ranks.reduce((sum, rank) => sum + rank.numFreeSlots, 0);
    const able: Sequence[] = [];
    for (let i = 0; i < slots && i < waiting.length; i++) {
      const sequence = waiting.at(i)!;
      if (sequence.readySince < 0) sequence.readySince = iteration;
      able.push(sequence);
    }
    this.#arrivals.add(Math.max(0, able.length - this.#leftWaiting));
    this.#held += able.length * this.#lastSeconds;
    this.#leftWaiting = able.length;
    if (able.length === 0) return true;

    const placement = new Placement(this.config, situation, this.#times.rowSeconds);
    placement.place(able);
    if (!this.#runsNow(able, placement, waiting, situation)) return true;
    this.#account(placement, situation);
    for (const { sequence, rank } of placement.assigned) {
      waiting.remove(sequence);
      rank.bind(sequence);
    }
    this.#leftWaiting -= placement.assigned.length;
    this.#keepPlace(able[0]!, waiting, situation);
    return true;
  }

  #runsNow(able: readonly Sequence[], placement: Placement, waiting: WaitingQueue, situation: Situation): boolean {
    const { iteration, ranks } = situation;
    const generating = running(situation);
    if (this.#patience === 0 || generating === 0 || !this.#times.known) return true;
    // The head is the oldest but for priorities; each becomes the head in time.
    if (able.some((sequence) => iteration - sequence.readySince >= this.#patience)) return true;
    if (this.#endangersDeadline(able, placement, situation)) return true;
    const count = placement.assigned.length;
    if (count === 0) return false;

    const now = placement.excess;
    const cost = this.#costRequests > 0 ? this.#costSeconds / this.#costRequests : now / count;
    const mostRows = Math.max(...situation.work.map(({ decodes }) => decodes.length));
    const gap = this.#times.generationSeconds(mostRows) / this.#arrivals.perIteration;
    const worth = this.#holdingCost(generating);
    let held = 0;
    const slots = ranks.reduce((sum, rank) => sum + rank.numFreeSlots, 0);
    for (let more = 1; more <= LOOKAHEAD; more++) {
      // Requests that only wait for a slot are known; others are imagined to be like the last ones.
      const rows = waiting.at(slots + more - 1)?.target ?? this.#imaginedRows(more);
      if (!placement.imagine(rows)) break;
      held += worth * (able.length + more - 1) * gap;
      if (placement.excess - now + held < more * cost) return false;
    }
    return true;
  }

  #endangersDeadline(able: readonly Sequence[], placement: Placement, { now, work }: Situation): boolean {
    const earliest = able.reduce((least, { firstTokenDeadline }) => Math.min(least, firstTokenDeadline), Infinity);
    if (earliest === Infinity) return false;
    const rows = Math.max(...work.map(({ decodes }) => decodes.length));
    const generation = this.#times.generationSeconds(rows);
    // One iteration more of waiting, then one with the contexts.
    return now + 2 * generation + this.#times.contextOverhead + placement.excess >= earliest;
  }

  #holdingCost(generating: number): number {
    return (1 + FIRST_TOKEN_PRICE) / generating;
  }

  #imaginedRows(more: number): number {
    const { length } = this.#recent;
    return length === 0 ? 1 : this.#recent[(this.#started + more) % length]!;
  }

  #account(placement: Placement, situation: Situation): void {
    const count = placement.assigned.length;
    if (count === 0) return;
    const generating = Math.max(1, running(situation));
    if (this.#times.known) {
      const seconds = this.#times.contextOverhead + placement.excess + this.#holdingCost(generating) * this.#held;
      const keep = 1 - 1 / COST_MEMORY;
      this.#costSeconds = this.#costSeconds * keep + seconds;
      this.#costRequests = this.#costRequests * keep + count;
    }
    for (const { sequence } of placement.assigned) this.#recent[this.#started++ % LOOKAHEAD] = sequence.target;
    this.#held = 0;
  }

  /** A request too large for what is free, that has waited its time, gets the rank with the most room: nothing starts there before it. */
  #keepPlace(oldest: Sequence, waiting: WaitingQueue, { ranks, iteration }: Situation): void {
    if (oldest.rank >= 0 || iteration - oldest.readySince < this.#keepAfter) return;
    let roomiest: RankState | undefined;
    for (const rank of ranks) {
      if (!rank.canEverHold(oldest) || rank.pending.length > 0) continue;
      if (!roomiest || rank.pool.numFree > roomiest.pool.numFree) roomiest = rank;
    }
    if (!roomiest) return;
    waiting.remove(oldest);
    roomiest.bind(oldest);
    this.#leftWaiting--;
  }
}

const running = ({ work }: Situation): number => work.reduce((sum, { decodes }) => sum + decodes.length, 0);
