import { nth, sum } from '../../../base/lists.js';
import type { SchedulerConfig } from '../config.js';
import type { Iteration, WorkList } from '../iteration.js';
import { KvPolicy } from '../kv/kv_policy.js';
import type { RankState } from '../rank_state.js';
import type { ContextPolicy, Situation } from '../routing.js';
import type { Sequence } from '../sequence.js';
import type { WaitingQueue } from '../waiting_queue.js';
import type { AttentionDpConfig } from './config.js';
import { ArrivalRate, DecayingMean, LinearFit, SecondSlope } from './fits.js';
import { placeContexts, type Placement } from './placement.js';

/** What a request's wait for its first token costs beyond its idle slot, in idle slots. */
const FIRST_TOKEN_PRICE = 4;
/** Runs of contexts that their mean cost is taken over, about. */
const RUNS = 20;
/** Requests that might yet come, looked ahead for company. */
const LOOKAHEAD = 48;
/** Observations before a fit is believed. */
const ENOUGH = 4;
const MEMORY = 512;
/** Reading the cached tokens of the rank that has most takes at least this share of a step where it is heeded. */
const READING = 0.02;

/**
 * Our own balancer. Requests stay in one queue until contexts run; then the oldest are spread over the ranks (placement.ts). They
 * run when waiting no longer pays. With `n` requests able to run, that is when no `m` more would be worth waiting for:
 *
 *     longer(m) + held(m) >= rows(m) * cost
 *
 * longer(m): seconds by which m more contexts, of rows(m) rows, would lengthen the iteration; none while they fill up ranks that
 *            would idle.
 * held(m):   what the n waiting ones, and then the new ones, lose until the m-th has come. A second of one request's wait is an
 *            idle slot, a 1/(running) part of a second's output, and its first token comes later: priced at 4 more idle slots.
 * cost:      what a context row has cost on average under this very rule, wait included; no more than one costs that runs at once
 *            alone, otherwise waits that were too long would make the next ones look worthwhile.
 *
 * They also run at once when no rank generates, when one has waited long enough (`patience`), and when one would miss its
 * deadline. Until times are known they run once each rank has one, or after `batching_wait_iters`. Of those that could run, the ones that would keep one rank busy long after the others stay
 * behind, and wait anew: once, then they run.
 *
 * Sequences that run go to another rank where reading the cache takes long on theirs, as with token parallelism (kv_policy.ts).
 */
export class CostPolicy implements ContextPolicy {
  readonly #times = new IterationTimes();
  readonly #arrivals = new ArrivalRate();
  /** Seconds a row of the contexts so far: what they added to iterations, and what was lost while they waited. */
  readonly #costs = new DecayingMean(RUNS);
  /** Rows of the contexts run last. */
  readonly #recent: number[] = [];
  #started = 0;
  #leftWaiting = 0;
  #lastSeconds = 0;
  /** Seconds times requests waited since contexts ran last. */
  #held = 0;
  readonly #kv: KvPolicy;

  constructor(private readonly config: SchedulerConfig) {
    this.#kv = KvPolicy.of(config);
  }

  move(ranks: readonly RankState[], work: readonly WorkList[]): void {
    this.#kv.move(ranks, work, this.#times.cachedSeconds > 0);
  }

  observe(iteration: Iteration, seconds: number): void {
    this.#times.add(iteration, seconds);
    this.#lastSeconds = seconds;
  }

  /** Binds what is to run now. Contexts that are bound and not finished always go on. */
  opens(waiting: WaitingQueue, situation: Situation): boolean {
    const able = this.#ableToRun(waiting, situation);
    if (able.length === 0) return true;
    let placement = placeContexts(this.config, situation, this.#times.rowSeconds, able);
    if (this.#weighs(situation)) {
      const mustRun = this.#mustRun(able.length < waiting.length, placement, situation);
      // Any of them: priorities may put later ones first.
      if (!able.some(mustRun) && this.#waitingPays(able, placement, waiting, situation)) return true;
      const cost = this.#rowCost(situation);
      if (cost !== undefined) placement = placement.cut(cost, (each) => each.leftOut || mustRun(each));
      if (placement.assigned.length > 0) leaveOut(able, placement, situation.iteration);
      this.#account(placement, situation);
    } else if (this.#awaitsCompany(able, placement, situation)) return true;
    this.#bind(placement, waiting);
    this.#keepPlace(nth(able, 0), waiting, situation);
    return true;
  }

  #ableToRun(waiting: WaitingQueue, { ranks, iteration }: Situation): Sequence[] {
    const able = waiting.inTurn(freeSlots(ranks));
    for (const sequence of able) if (sequence.readySince < 0) sequence.readySince = iteration;
    this.#arrivals.add(Math.max(0, able.length - this.#leftWaiting));
    this.#held += able.length * this.#lastSeconds;
    this.#leftWaiting = able.length;
    return able;
  }

  /** Whether waiting is an option at all. */
  #weighs(situation: Situation): boolean {
    return this.config.attentionDp.enableBalance && this.#times.known && running(situation) > 0;
  }

  /** Times aren't known yet, a rank would idle beside these contexts, and they may come to have company soon. */
  #awaitsCompany(able: readonly Sequence[], { assigned }: Placement, situation: Situation): boolean {
    const { enableBalance, batchingWaitIters } = this.config.attentionDp;
    if (!enableBalance || this.#times.known || running(situation) === 0) return false;
    const served = new Set(assigned.map(({ rank }) => rank));
    const mayWait = ({ readySince, firstTokenDeadline }: Sequence): boolean =>
      situation.iteration - readySince < batchingWaitIters && firstTokenDeadline === Infinity;
    return situation.ranks.some((rank) => rank.numFreeSlots > 0 && !served.has(rank)) && able.every(mayWait);
  }

  /** Tells who may not wait one iteration more: by its patience, or its deadline. */
  #mustRun(queueing: boolean, placement: Placement, situation: Situation): (sequence: Sequence) => boolean {
    const { iteration, now, ranks } = situation;
    const most = patience(this.config.attentionDp, ranks.length, this.#arrivals.perIteration, queueing);
    const rows = mostRows(situation);
    // One iteration of waiting, then one with the contexts.
    const generation = 2 * this.#times.generationSeconds(rows);
    const firstToken = now + generation + this.#times.contextOverhead(rows) + placement.excess;
    return ({ readySince, firstTokenDeadline }) => iteration - readySince >= most || firstToken >= firstTokenDeadline;
  }

  #waitingPays(able: readonly Sequence[], placement: Placement, waiting: WaitingQueue, situation: Situation): boolean {
    if (placement.assigned.length === 0) return true;
    const cost = this.#rowCost(situation) ?? placement.excess / placement.rows;
    const gap = this.#times.generationSeconds(mostRows(situation)) / this.#arrivals.perIteration;
    const worth = holdingCost(situation);
    const slots = freeSlots(situation.ranks);
    const lengthening = placement.lengthening(waiting.length >= slots);
    lengthening.next();
    const line = waiting.inTurn(slots + LOOKAHEAD);
    let held = 0;
    let spared = 0;
    for (let more = 1; more <= LOOKAHEAD; more++) {
      // Requests that only wait for a slot are known; others are imagined to be like the last ones.
      const rows = line[slots + more - 1]?.target ?? this.#imaginedRows(more);
      const longer = lengthening.next(rows).value;
      if (longer === undefined) return false;
      held += worth * (able.length + more - 1) * gap;
      spared += rows * cost;
      if (longer + held < spared) return true;
    }
    return false;
  }

  /** Seconds that a context row is expected to cost; undefined before the first was accounted for. */
  #rowCost(situation: Situation): number | undefined {
    const { mean: perRow } = this.#costs;
    if (perRow === undefined) return undefined;
    const rows = this.#recent.reduce((sum, each) => sum + each, 0) / this.#recent.length;
    const alone = this.#times.rowSeconds.context + this.#times.contextOverhead(mostRows(situation)) / rows;
    return Math.min(perRow, alone);
  }

  #imaginedRows(more: number): number {
    const { length } = this.#recent;
    return length === 0 ? 1 : nth(this.#recent, (this.#started + more) % length);
  }

  #account(placement: Placement, situation: Situation): void {
    const { assigned, excess } = placement;
    if (assigned.length === 0) return;
    const overhead = this.#times.contextOverhead(mostRows(situation));
    this.#costs.add(overhead + excess + holdingCost(situation) * this.#held, placement.rows);
    this.#held = 0;
  }

  #bind({ assigned }: Placement, waiting: WaitingQueue): void {
    for (const { sequence, rank } of assigned) {
      waiting.remove(sequence);
      rank.bind(sequence);
      this.#recent[this.#started++ % LOOKAHEAD] = sequence.target;
    }
    this.#leftWaiting -= assigned.length;
    if (!this.#times.known) this.#held = 0;
  }

  /** One too large for what is free, that has waited its time, gets the rank with most blocks free: nothing starts there before it. */
  #keepPlace(oldest: Sequence, waiting: WaitingQueue, { ranks, iteration }: Situation): void {
    const { timeoutIters, batchingWaitIters } = this.config.attentionDp;
    if (oldest.rank >= 0 || iteration - oldest.readySince <= timeoutIters + batchingWaitIters) return;
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

/**
 * Iterations that a request which could run is made to wait for company at most.
 *
 * While others queue for slots, `timeout_iters + batching_wait_iters`: their first tokens come the sooner the more is generated,
 * and the wait of a few is little beside the queue. Otherwise the wait is all there is between a request and its first token,
 * and waiting for each rank to get one takes `ranks * (1 + 1/2 + ... + 1/ranks) / arrivals` iterations on average (collecting
 * coupons): that, if less than `timeout_iters`, and `batching_wait_iters` more.
 */
function patience(config: AttentionDpConfig, ranks: number, arrivals: number, queueing: boolean): number {
  const { timeoutIters, batchingWaitIters } = config;
  if (queueing) return timeoutIters + batchingWaitIters;
  let draws = 0;
  for (let rank = 1; rank <= ranks; rank++) draws += ranks / rank;
  return Math.min(timeoutIters, draws / arrivals) + batchingWaitIters;
}

/** Those that stay behind when contexts run wait anew, once. */
function leaveOut(able: readonly Sequence[], { assigned }: Placement, iteration: number): void {
  const runs = new Set(assigned.map(({ sequence }) => sequence));
  for (const sequence of able) {
    if (runs.has(sequence) || sequence.leftOut) continue;
    sequence.leftOut = true;
    sequence.readySince = iteration;
  }
}

const freeSlots = (ranks: readonly RankState[]): number => ranks.reduce((sum, rank) => sum + rank.numFreeSlots, 0);

const running = ({ work }: Situation): number => work.reduce((sum, { decodes }) => sum + decodes.length, 0);

const mostRows = ({ work }: Situation): number => Math.max(...work.map(({ decodes }) => decodes.length));

/** Seconds lost for a second of one request's wait. */
const holdingCost = (situation: Situation): number => (1 + FIRST_TOKEN_PRICE) / Math.max(1, running(situation));

/**
 * What iterations take, fitted as they run; the slowest rank is taken to be the one with most rows:
 *
 *     without contexts   a + b * (decode rows of the slowest rank)    e * (cached tokens of the rank with most) is told apart
 *     with contexts      c + d * (context rows of the slowest rank)
 *
 * c takes in the decode rows, whose number changes little between one context and the next.
 */
class IterationTimes {
  readonly #generation = new LinearFit(MEMORY, 'constant');
  readonly #context = new LinearFit(MEMORY, 'proportional');
  readonly #cached = new SecondSlope(MEMORY);
  /** Of the last step without contexts. */
  #last = { cached: 0, seconds: 0 };

  get known(): boolean {
    return this.#context.weight >= ENOUGH;
  }

  add({ ranks }: Iteration, seconds: number): void {
    if (ranks.every(({ contextTokens }) => contextTokens === 0)) {
      const rows = Math.max(...ranks.map(({ decodes }) => decodes.length));
      const cached = Math.max(...ranks.map(({ decodes }) => sum(decodes.map(({ computed }) => computed))));
      this.#generation.add(rows, seconds);
      this.#cached.add(rows, cached, seconds);
      this.#last = { cached, seconds };
      return;
    }
    const slowest = ranks.reduce((most, rank) => (rank.tokens > most.tokens ? rank : most));
    this.#context.add(slowest.contextTokens, seconds);
  }

  /** An iteration of decode rows only. */
  generationSeconds(rows: number): number {
    const known = this.#generation.weight >= ENOUGH;
    const { intercept, slope } = known ? this.#generation.line : this.#context.line;
    return known ? intercept + slope * rows : intercept;
  }

  /** What running contexts at all adds to an iteration of so many decode rows. */
  contextOverhead(rows: number): number {
    return Math.max(0, this.#context.line.intercept - this.generationSeconds(rows));
  }

  /** What reading a cached token takes in a step; 0 where all of them take little. */
  get cachedSeconds(): number {
    const { cached, seconds } = this.#last;
    const { slope } = this.#cached;
    return this.#generation.weight >= ENOUGH && slope * cached > READING * seconds ? slope : 0;
  }

  /** Seconds a row; in proportion only while nothing is known. A decode row counts as a context row until its own is known. */
  get rowSeconds(): { readonly generation: number; readonly context: number; readonly cached: number } {
    if (!this.known) return { generation: 1, context: 1, cached: 0 };
    const context = this.#context.line.slope;
    return { generation: this.#generation.line.slope || context, context, cached: this.cachedSeconds };
  }
}
