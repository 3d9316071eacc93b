import { internalError, usageError } from '../../base/errors.js';
import { nth, sum } from '../../base/lists.js';
import { checkOptions, generationRoom, type SchedulerConfig, type SchedulerOptions } from './config.js';
import { type Iteration, type IterationResults, WorkList } from './iteration.js';
import { Clients, inOrder, nextInTurn, victimFor } from './priority.js';
import { RankState } from './rank_state.js';
import { type ContextPolicy, OnePool } from './routing.js';
import { shiftSlots } from './groups/micro_batches.js';
import {
  checkSpec,
  type EndReason,
  type RequestSpec,
  type ScheduledSequence,
  Sequence,
  type Span,
} from './sequence.js';
import type { CachedBlock } from './prefix_cache.js';
import { WaitingQueue } from './waiting_queue.js';

/** Of a sequence's beginning, on a rank. */
export interface CachedBlocks {
  readonly rank: number;
  readonly blocks: readonly CachedBlock[];
}

/**
 * Continuous batching, without a GPU and without a clock: what the next iteration runs follows from the calls made so far and
 * nothing else, so every rank that makes the same calls takes the same decisions. A round is `schedule`, run it, `complete`;
 * `schedule` may be called again before earlier iterations are complete, and they complete in order.
 */
export class Scheduler {
  readonly config: SchedulerConfig;
  readonly ranks: readonly RankState[];
  readonly #policy: ContextPolicy;
  readonly #waiting = new WaitingQueue();
  readonly #clients = new Clients();
  readonly #sequences = new Map<string, Sequence>();
  readonly #inFlight: Iteration[] = [];
  #iteration = 0;
  #submitted = 0;

  /**
   * @param policyOf where requests go and when their prompts run (`contextPolicy`); needed with several ranks
   * @throws SplitkvError `usage` for impossible options.
   */
  constructor(options: SchedulerOptions, policyOf: (config: SchedulerConfig) => ContextPolicy = () => new OnePool()) {
    this.config = checkOptions(options);
    const groupRows = (nth(this.config.ranks, 0).microBatches ?? [0]).map(() => 0);
    this.ranks = this.config.ranks.map(
      (limits, index) => new RankState(index, limits, this.config, groupRows, this.#clients),
    );
    this.#policy = policyOf(this.config);
  }

  get numUnfinished(): number {
    return this.#sequences.size;
  }

  get numWaiting(): number {
    return this.ranks.reduce((sum, rank) => sum + rank.pending.length, this.#waiting.length);
  }

  sequence(id: string): ScheduledSequence | undefined {
    return this.#sequences.get(id);
  }

  /** Of the requests that wait for their prompts to be handed over, the first in order; `under`: those that are being computed. */
  nextToHand(under: ReadonlyMap<string, unknown>): ScheduledSequence | undefined {
    return this.#firstOfAll(({ id, hasPrompt }) => !hasPrompt && !under.has(id));
  }

  /** Of those that wait, wherever, the one whose turn it is. */
  #firstOfAll(meets: (sequence: Sequence) => boolean): Sequence | undefined {
    const queues = [this.#waiting, ...this.ranks.map(({ pending }) => pending)];
    return nextInTurn(queues.flatMap((queue) => queue.firsts(meets)));
  }

  /**
   * A request's tokens in `span` (default: its prompt) were computed elsewhere and may be taken over where what is before them is cached.
   * False when no such request waits.
   */
  hand(id: string, span?: Span): boolean {
    const sequence = this.#sequences.get(id);
    if (sequence?.status !== 'waiting') return false;
    sequence.handed = true;
    sequence.handedSpan = span ?? [0, sequence.promptLength];
    return true;
  }

  /** Tokens of a waiting request that are cached, on whichever rank. */
  cachedTokens(id: string): number {
    const sequence = this.#sequences.get(id);
    return sequence ? Math.min(...this.ranks.map((rank) => rank.cachedTokens(sequence))) : 0;
  }

  /** Where whole blocks of these tokens are cached: on the rank that has most of them. */
  cachedBlocks(tokens: Pick<RequestSpec, 'prompt' | 'generatedSpans'>): CachedBlocks {
    const spec = { ...tokens, id: 'cached', maxTokens: 0 };
    const sequence = new Sequence(spec, 0, 0, 0, this.config.agingIterations);
    const found = this.ranks.map(({ cache }, rank) => ({ rank, blocks: cache?.pathOf(sequence) ?? [] }));
    return found.reduce((most, one) => (one.blocks.length > most.blocks.length ? one : most));
  }

  /** @throws SplitkvError `usage` (impossible request, id in use), `context_full` (the prompt never fits). */
  submit(spec: RequestSpec): ScheduledSequence {
    checkSpec(spec);
    if (this.#sequences.has(spec.id)) throw usageError(`request ${spec.id}: a request of this id isn't finished yet`);
    const maxTokens = Math.min(spec.maxTokens, generationRoom(this.config, spec));
    const { agingIterations, eviction, handover } = this.config;
    const { generatedSpans, ...plain } = spec;
    // Rows that were computed elsewhere, or scored, are prompt rows.
    const of = generatedSpans && !eviction && !handover ? spec : plain;
    const sequence = new Sequence(
      { ...of, computedHere: spec.awaited !== true && (!handover || spec.computedHere === true) },
      this.#submitted++,
      this.#iteration,
      maxTokens,
      agingIterations,
      this.#clients.join(spec.client ?? ''),
    );
    this.#sequences.set(spec.id, sequence);
    this.#waiting.insert(sequence);
    return sequence;
  }

  /** Frees all that a request holds, at once; what is in flight of it is ignored. False when no such request is unfinished. */
  abort(id: string): boolean {
    const sequence = this.#sequences.get(id);
    if (!sequence) return false;
    this.#finish(sequence, 'aborted');
    return true;
  }

  /**
   * The next iteration's work. Undefined when nothing can run before a request is submitted or an iteration in flight completes.
   * @param now seconds on the clock that deadlines are on; the same on every rank
   */
  schedule(now = 0): Iteration | undefined {
    const { ranks } = this;
    const work = ranks.map(() => new WorkList());
    if (this.#clients.several && this.numWaiting > 0) this.#shareOut(work);
    this.#policy.route?.(this.#waiting, ranks);
    this.#policy.move?.(ranks, work);
    if (this.config.shiftsSlots) shiftSlots(ranks, work, this.config.rowsPerMicroBatch);
    for (const [index, rank] of ranks.entries()) rank.planDecodes(nth(work, index));
    this.#clients.planned(work.map(({ decodes }) => decodes));
    const situation = { iteration: this.#iteration, now, ranks, work };
    if (this.#policy.opens?.(this.#waiting, situation) ?? true) {
      if (this.config.sharedRows) this.#planShared(work);
      else for (const [index, rank] of ranks.entries()) rank.planPrefills(nth(work, index));
    }
    if (!work.some(({ tokens, tables, preempted }) => tokens + tables.length + preempted.length > 0)) return undefined;
    const iteration = { number: this.#iteration++, ranks: work };
    this.#clients.iteration = this.#iteration;
    this.#inFlight.push(iteration);
    return iteration;
  }

  /** A client with fewer slots than another has none free for its next sequence: one of the other's makes room, one an iteration. */
  #shareOut(work: readonly WorkList[]): void {
    const { ranks } = this;
    // Whoever waits again may go to another rank, and others to the one that it waits for.
    if (ranks.length > 1) {
      for (const rank of ranks) for (const sequence of rank.unbindPending(true)) this.#waiting.insert(sequence);
    }
    const next = this.#firstOfAll(({ outstanding, hasPrompt }) => outstanding === 0 && hasPrompt);
    if (!next) return;
    const places = ranks.filter((rank) => (next.rank < 0 ? rank.canEverHold(next) : rank.index === next.rank));
    const victim = victimFor(
      next,
      places.flatMap(({ running }) => running),
    );
    if (!victim || places.some((rank) => rank.numFreeSlots > 0 && rank.wouldAdmit(next))) return;
    const { rank } = victim;
    nth(ranks, rank).sendBack(victim, nth(work, rank));
    this.#waiting.insert(victim);
  }

  #planShared(work: readonly WorkList[]): void {
    let rows = this.config.maxTokensPerIteration - sum(work.map(({ tokens }) => tokens));
    for (const rank of inOrderOfPrompts(this.ranks)) {
      const own = nth(work, rank.index);
      rank.planPrefills(own, rows);
      rows -= own.contextTokens;
    }
  }

  /**
   * Takes the results of the oldest iteration in flight. Returns the sequences that finished with it.
   * @throws SplitkvError `internal` for another iteration, `usage` when ids are missing and prefix caching needs them
   */
  complete(iteration: Iteration, results: IterationResults = {}): ScheduledSequence[] {
    if (this.#inFlight[0] !== iteration) {
      throw internalError(`iteration ${iteration.number} isn't the oldest in flight`);
    }
    const { ids, ended = [], seconds, evicted, goOn = [] } = results;
    if (!ids && this.config.prefixCaching) {
      throw usageError(`iteration ${iteration.number}: prefix caching needs the sampled ids`);
    }
    this.#inFlight.shift();
    for (const [id, tokens] of evicted ?? []) {
      const sequence = this.#sequences.get(id);
      if (sequence) sequence.toEvict = tokens;
    }
    const complete = this.#advanceAll(iteration, results);
    complete.push(...this.#goOn(goOn));
    const finished = this.#finishAll(complete, ended);
    if (seconds !== undefined) {
      this.#policy.observe?.(iteration, seconds);
      const decodes = Math.max(...iteration.ranks.map((rank) => rank.decodes.length));
      this.#clients.observe(decodes, Math.max(...iteration.ranks.map((rank) => rank.contextTokens)), seconds);
    }
    return finished;
  }

  /** Takes what came of an iteration's rows and chunks. Those that are complete with it. */
  #advanceAll({ ranks }: Iteration, { ids, verified }: IterationResults): Sequence[] {
    const complete: Sequence[] = [];
    for (const [index, { handed, prefills, decodes }] of ranks.entries()) {
      const rank = nth(this.ranks, index);
      const own = ids?.[index];
      for (const { sequence, end, samples } of handed)
        if (this.#advance(sequence, rank, end, samples, own)) complete.push(sequence);
      for (const { sequence, start, count, samples } of prefills)
        if (this.#advance(sequence, rank, start + count, samples, own)) complete.push(sequence);
      for (const sequence of decodes) {
        const tokens = verified?.get(sequence.id);
        const isLast = tokens
          ? this.#takeVerified(sequence, rank, tokens)
          : this.#advance(sequence, rank, sequence.confirmed + 1, true, own);
        if (isLast) complete.push(sequence);
      }
    }
    return complete;
  }

  /** Between iterations, of sequences that wait: what `goOn` and `ended` of results say. */
  goOn(goOn: NonNullable<IterationResults['goOn']>, ended: readonly string[]): ScheduledSequence[] {
    return this.#finishAll(this.#goOn(goOn), ended);
  }

  /** Sequences that may have another row. */
  get decoding(): readonly ScheduledSequence[] {
    const mayDecode = ({ status, held, sampled, maxTokens }: Sequence): boolean =>
      status === 'decode' && !held && sampled < maxTokens;
    return this.ranks.flatMap(({ running }) => running.filter(mayDecode));
  }

  /**
   * What may follow the tokens so far of a sequence that decodes, and has no row in flight, is to be fed beside its next row. None: its row
   * runs with those that have some.
   */
  propose(id: string, drafts: readonly number[]): void {
    const sequence = this.#sequences.get(id);
    if (sequence?.status === 'decode' && sequence.outstanding === 0) sequence.drafts = drafts;
  }

  /** Those that are complete with it. */
  #goOn(goOn: Iterable<readonly [string, readonly number[]]>): Sequence[] {
    const complete: Sequence[] = [];
    for (const [id, tokens] of goOn) {
      const sequence = this.#sequences.get(id);
      if (!sequence) continue;
      sequence.goOn(tokens);
      if (tokens.length > 0 && sequence.status === 'decode') nth(this.ranks, sequence.rank).comesAgain(sequence);
      if (tokens.length > 0 && sequence.received >= sequence.maxTokens) complete.push(sequence);
    }
    return complete;
  }

  #finishAll(complete: readonly Sequence[], ended: readonly string[]): Sequence[] {
    const finished: Sequence[] = [];
    for (const id of ended) {
      const sequence = this.#sequences.get(id);
      // Its end may have been told already, with an earlier iteration.
      if (sequence) finished.push(this.#finish(sequence, 'ended'));
    }
    for (const sequence of complete) {
      if (sequence.status === 'finished') continue;
      finished.push(this.#finish(sequence, sequence.clamped ? 'context_full' : 'length'));
    }
    return finished;
  }

  /** Takes one row's or chunk's result; true when it was the last. */
  #advance(
    sequence: Sequence,
    rank: RankState,
    end: number,
    samples: boolean,
    ids: ArrayLike<number> | undefined,
  ): boolean {
    sequence.outstanding--;
    if (sequence.status === 'finished') return false;
    if (samples) {
      sequence.received++;
      if (ids) sequence.generated.push(idOf(ids, sequence));
    }
    if (sequence.stale > 0) sequence.stale--;
    else rank.confirm(sequence, end);
    if (sequence.prefillOnly) return sequence.confirmed >= sequence.target;
    return samples && sequence.received >= sequence.maxTokens;
  }

  /** Takes what came of a row with drafts; true when its last token is among it. */
  #takeVerified(sequence: Sequence, rank: RankState, tokens: readonly number[]): boolean {
    sequence.outstanding--;
    if (sequence.status === 'finished') return false;
    const right = tokens.length - 1;
    const isAhead = right < (sequence.drafts?.length ?? 0) && sequence.draftState !== undefined;
    sequence.held = sequence.stepwise;
    sequence.drafts = undefined;
    sequence.generated.push(...tokens);
    sequence.received += tokens.length;
    sequence.sampled += right;
    const isLast = sequence.received >= sequence.maxTokens;
    if (sequence.stale > 0) sequence.stale--;
    else if (isAhead && !isLast) {
      sequence.computed--;
      sequence.takesBack = true;
      rank.comesAgain(sequence);
    } else if (!isAhead) {
      sequence.draftState = undefined;
      sequence.computed += right;
      rank.confirm(sequence, sequence.confirmed + tokens.length);
    }
    return isLast;
  }

  #finish(sequence: Sequence, reason: EndReason): Sequence {
    if (sequence.rank < 0) this.#waiting.remove(sequence);
    else nth(this.ranks, sequence.rank).remove(sequence);
    sequence.status = 'finished';
    sequence.endReason = reason;
    this.#sequences.delete(sequence.id);
    this.#clients.leave(sequence.client);
    return sequence;
  }
}

function idOf(ids: ArrayLike<number>, { id, rank, slot }: Sequence): number {
  const token = ids[slot];
  if (token === undefined) throw usageError(`request ${id}: no sampled id for slot ${slot} of rank ${rank}`);
  return token;
}

/** Pools in the order of the first sequence of each that has prompt rows to run. */
function inOrderOfPrompts(ranks: readonly RankState[]): RankState[] {
  const first = (rank: RankState): Sequence | undefined =>
    rank.running.find(({ status }) => status === 'prefill') ?? rank.pending.first;
  return ranks.toSorted((a, b) => {
    const [one, other] = [first(a), first(b)];
    return one && other ? one.client.computed - other.client.computed || inOrder(one, other) : one ? -1 : other ? 1 : 0;
  });
}
