/**
 * Room: many requests at once: the scheduler's decisions, run on the ranks. Engine (here) takes requests and gives
 * tokens, loop/iteration_runner.ts runs an iteration, `text` makes tokens answers. Read loop/requests.ts next.
 */

import { nth, sum } from '../../base/lists.js';
import { defined } from '../../base/options.js';
import { pause } from '../../base/waits.js';
import {
  abortedError,
  internalError,
  isLoss,
  known,
  throwIfAborted,
  unsupportedError,
  usageError,
} from '../../base/errors.js';
import { draftStates } from '../contracts/rank.js';
import type { ModelRanks } from '../ranks/rank_group.js';
import { MAX_STEPS_IN_FLIGHT } from '../ranks/runner.js';
import { checkTogether, featuresOf, type Plan } from '../../placement/index.js';
import { attendsBothWays, hasState } from '../../model/config/model_config.js';
import type { Iteration, ScheduledSequence } from '../scheduler/index.js';
import { Scheduler } from '../scheduler/scheduler.js';
import type { Span } from '../scheduler/sequence.js';
import { Histogram } from './histogram.js';
import type { KeptPrefixes, KeptRows } from './kept_prefixes.js';
import { type IterationOutcome, IterationRunner, type Verified } from './loop/iteration_runner.js';
import { KeptFeed } from './loop/kept_feed.js';
import { PoolSlots } from './loop/pool_slots.js';
import { PromptFeed } from './loop/prompt_feed.js';
import type { RankBalanceMeter } from './loop/rank_balance.js';
import { Recovery } from './loop/recovery.js';
import {
  type EngineEnd,
  type EngineHandle,
  type EngineMetrics,
  type EngineOptions,
  type EngineRequest,
  endOf,
  type PromptRequest,
  type SlotState,
} from './loop/requests.js';
import { drawOptions, endDrafts, Running } from './loop/running.js';
import { openedFeatures, schedulerOptions } from './loop/scheduler_options.js';
import type { Speculation } from './speculation/speculation.js';

/** Rows that an iteration samples: which request each is of. */
interface InFlight {
  readonly iteration: Iteration;
  readonly slots: readonly { readonly id: string; readonly slot: number }[];
  /** Requests that sample nothing, whose prompt is computed then. */
  readonly computed: readonly { readonly id: string; readonly slot: number }[];
  readonly outcome: Promise<IterationOutcome>;
  readonly started: number;
}

/** Bounds of times that requests wait, in seconds. */
export const WAIT_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100];

const USUAL_IN_FLIGHT = 4;
/** Browsers take 2 to 4 ms to hand over what was read: shorter steps would wait for it. */
const SHORT_SECONDS = 4e-3;
/** So long an iteration waits for what may follow its tokens: requests that are told later are in a later one. */
const FORM_MS = 20;

/**
 * Continuous batching over the ranks of a model: requests join and leave with each iteration. Decisions are the scheduler's; this
 * runs them, reads the ids, and hands tokens on. A request's tokens are the same alone and in any batch.
 */
export class Engine {
  #options: EngineOptions;
  /** That all below is set up for. */
  #plan: Plan;
  #scheduler: Scheduler;
  #slots: PoolSlots;
  #iterations: IterationRunner;
  readonly #feed: PromptFeed | undefined;
  readonly #recovery: Recovery;
  /** A request that is tried alone, as it may be what kills the device. */
  #trial: string | undefined;
  readonly #running = new Map<string, Running>();
  /** Where keys and values outlive the ranks. */
  kept: KeptPrefixes | undefined;
  readonly #keptFeed = new KeptFeed();
  readonly #inFlight: InFlight[] = [];
  #next = 0;
  #wake: (() => void) | undefined;
  #closed: unknown;
  readonly #loop: Promise<void>;
  #balance: RankBalanceMeter | undefined;
  #completedAt = 0;
  /** Nothing is scheduled before what is in flight is complete: what may follow its tokens is verified then. */
  #awaitsSteps = false;
  /** Of an iteration, about. */
  #seconds = Infinity;
  readonly #queued = new Histogram(WAIT_SECONDS);
  readonly #totals = {
    requestsTotal: { eos: 0, stop_token: 0, ended: 0, length: 0, context_full: 0, aborted: 0, failed: 0 },
    promptTokensTotal: 0,
    cachedTokensTotal: 0,
    generatedTokensTotal: 0,
    iterationsTotal: 0,
    preemptionsTotal: 0,
    movesTotal: 0,
    copyMovesTotal: 0,
    recoveriesTotal: 0,
  };

  /** @throws SplitkvError `usage` for impossible options. */
  constructor(
    readonly ranks: ModelRanks,
    options: EngineOptions,
  ) {
    this.#options = options;
    this.#plan = ranks.options.plan;
    const { prefiller } = options;
    const { prefixCaching, attentionDpConfig: attentionDp, kept: keptKv } = options;
    checkTogether(
      [...openedFeatures(ranks, prefiller), ...featuresOf({ prefixCaching, attentionDp, keptKv })],
      ranks.options.plan,
    );
    this.kept = keptKv;
    if (keptKv) this.checkKept();
    this.#recovery = new Recovery(options.recovery);
    this.#feed =
      prefiller &&
      new PromptFeed(
        prefiller,
        (id) => this.#running.get(id)!.request.prompt,
        () => this.#wake?.(),
      );
    this.#slots = new PoolSlots(ranks.runner.owners);
    this.#scheduler = this.#newScheduler();
    this.#balance = options.placing?.balanceMeter(this.#slots.places, ranks.runner.owners);
    this.#iterations = this.#newIterations();
    this.#loop = this.#run();
  }

  /** As given, and as the plan that runs has them. */
  get options(): EngineOptions {
    return this.#options;
  }

  /** The ranks may have another plan since they were rebuilt. */
  async #followPlan(): Promise<void> {
    const { plan } = this.ranks.options;
    if (plan === this.#plan) return;
    this.#options = { ...this.#options, ...(await this.#options.forPlan?.()) };
    this.#plan = plan;
    const { owners } = this.ranks.runner;
    this.#slots = new PoolSlots(owners);
    this.#balance = this.#options.placing?.balanceMeter(this.#slots.places, owners);
  }

  #newScheduler(): Scheduler {
    const { placing: placed } = this.options;
    if (this.#slots.pools.length > 1 && !placed) throw internalError('several places need `placing`');
    const options = schedulerOptions(this.ranks, this.#slots, this.options, this.#draftStates);
    return new Scheduler(options, placed?.contextPolicy);
  }

  /** Of a model with recurrent layers: the last ones of the kept states are those of sequences that have drafts. */
  get #draftStates(): number | undefined {
    const { config, options } = this.ranks.runner;
    return hasState(config) && this.#speculation ? Math.min(draftStates(options), options.keptStates ?? 0) : undefined;
  }

  get #speculation(): Speculation | undefined {
    const { config, options } = this.ranks.runner;
    return hasState(config) && !options.keptStates ? undefined : this.options.speculation;
  }

  #newIterations(): IterationRunner {
    return new IterationRunner(this.ranks.runner, this.#slots, {
      sampling: (id, drafts) => drawOptions(this.#running.get(id)!, drafts),
      handed: (id) => this.#keptFeed.take(id) ?? this.#feed!.take(id),
      adapter: (id) => this.#running.get(id)?.adapter?.place,
      promptRows: (id) => this.#running.get(id)?.request.promptRows,
      pictures: this.options.pictures,
      rows: (id) => (this.#mayDraft ? this.#running.get(id)?.rows : undefined),
    });
  }

  get metrics(): EngineMetrics {
    const { ranks } = this.#scheduler;
    const { runner } = this.ranks;
    return {
      running: this.#numRunning,
      waiting: this.#scheduler.numWaiting + [...this.#running.values()].filter(({ held }) => held).length,
      ...this.#totals,
      ...(this.#speculation && { speculation: this.#speculation.counts }),
      requestsTotal: { ...this.#totals.requestsTotal },
      copyMovesTotal: this.#totals.copyMovesTotal + runner.copyMoves,
      recovering: this.#recovery.isFailing,
      queued: this.#queued.counts,
      kvBlocks: ranks.reduce((sum, { limits }) => sum + limits.numBlocks, 0),
      kvBlocksFree: ranks.reduce((sum, { pool }) => sum + pool.numFree, 0),
      ...(this.#balance &&
        this.#balance.ranks > 1 && { balance: this.#balance.summary(this.#totals.generatedTokensTotal) }),
    };
  }

  /** By slot: what is in it, if anything. */
  get slots(): readonly (SlotState | undefined)[] {
    const slots: (SlotState | undefined)[] = this.#iterations.lengths.map(() => undefined);
    for (const [id, { emitted, cachedTokens: cached }] of this.#running) {
      const sequence = this.#scheduler.sequence(id);
      if (!sequence || sequence.slot < 0) continue;
      const { promptLength: prompt, confirmed, rank, slot } = sequence;
      slots[this.#slots.of(rank, slot)] = { prompt, cached, there: Math.min(confirmed, prompt), generated: emitted };
    }
    return slots;
  }

  /**
   * Queues a request.
   * @throws SplitkvError `usage` (empty prompt, id out of range), `context_full` (a prompt that never fits), and what closed the
   *   engine.
   */
  submit(request: EngineRequest): EngineHandle {
    if (this.#closed !== undefined) throw this.#closed;
    const { runner } = this.ranks;
    const { maxTokens, promptRows } = request;
    if (attendsBothWays(runner.config) && (maxTokens > 0 || (promptRows?.what ?? 'logits') === 'logits'))
      throw unsupportedError(
        `${runner.config.architecture} is an encoder: it makes no text; use embed (/v1/embeddings) or rerank (/v1/rerank)`,
      );
    runner.checkPrompt(request.prompt);
    this.options.pictures?.hold(request.prompt);
    const id = `r${this.#next++}`;
    const { adapter: name } = request;
    const held = name === undefined ? undefined : known(this.options.adapters, 'adapters').hold(name);
    const running = new Running(request, held);
    this.#running.set(id, running);
    try {
      this.#submit(id, running);
    } catch (error) {
      this.#running.delete(id);
      held?.release();
      this.options.pictures?.release(request.prompt);
      throw error;
    }
    this.#totals.promptTokensTotal += request.prompt.length;
    return {
      id,
      ended: running.ended,
      abort: () => this.#abort(id),
      get cachedTokens() {
        return running.cachedTokens;
      },
      get speculation() {
        return { ...running.speculation };
      },
    };
  }

  /**
   * Computes a prompt, and its continuation, and samples nothing.
   * @param what is done, for messages
   * @throws as `submit`; SplitkvError `aborted`
   */
  async compute(what: string, request: PromptRequest, signal: AbortSignal | undefined): Promise<void> {
    throwIfAborted(signal, what);
    const handle = this.submit({ maxTokens: 0, seed: 0, eosIds: [], onToken: () => true, ...request });
    if ((await endOf(handle, signal)) === 'aborted') throw abortedError(what, signal);
  }

  #submit(id: string, running: Running): void {
    const { request, firstTokenDeadline } = running;
    const { constraint } = request;
    constraint?.reset();
    running.allowed = constraint?.first.allowed;
    const { prompt, maxTokens, priority, client, generatedSpans, continuation, fresh, promptRows } = request;
    running.isDrafted = this.#isDrafted(request);
    endDrafts(running);
    running.rows = running.isDrafted ? this.#speculation?.options.rows?.() : undefined;
    const kept = this.#keptFor(running);
    this.#scheduler.submit({
      id,
      awaited: kept !== undefined,
      prompt,
      maxTokens,
      ...(generatedSpans && { generatedSpans }),
      ...(continuation && { continuation }),
      ...((fresh === true || promptRows?.all === true) && { computeFrom: 0 }),
      // What a prefill worker hands over has no logits, and it has no adapters.
      ...((promptRows || running.adapter) && { computedHere: true }),
      ...(running.adapter && { adapter: running.adapter.key }),
      stepwise: constraint !== undefined || this.ranks.runner.isStepwise,
      ...defined({ priority, client, firstTokenDeadline }),
    });
    if (kept) this.#lookUp(id, kept, request);
    this.#wake?.();
  }

  /** Where a request's beginning is looked for, if anywhere. Low-rank adapters are numbered anew by each engine. */
  #keptFor({ request: { fresh, promptRows, kept }, adapter }: Running): KeptPrefixes | undefined {
    const looks = fresh !== true && promptRows?.all !== true && !adapter;
    return looks && (this.kept?.keepsAll || this.kept?.shipped.length || kept) ? this.kept : undefined;
  }

  /** @throws SplitkvError `unsupported`, `usage` where keys and values can't be kept */
  checkKept(): void {
    checkTogether([...openedFeatures(this.ranks, this.options.prefiller), 'keptKv'], this.ranks.options.plan);
    if (!this.options.prefixCaching)
      throw usageError('kvDir, prefixes: what is kept is of the prefix cache; leave prefixCaching on');
  }

  /** A request waits until it is known what is kept of it. */
  #lookUp(id: string, kept: KeptPrefixes, request: EngineRequest): void {
    const scheduler = this.#scheduler;
    this.#keptFeed.look(
      id,
      () => kept.find(this.ranks.runner.layout, request, () => scheduler.cachedTokens(id)),
      (found) => {
        if (scheduler !== this.#scheduler || !this.#running.has(id)) return false;
        scheduler.hand(id, found?.span ?? [0, 0]);
        this.#wake?.();
        return true;
      },
    );
  }

  #keepPrompts(computed: readonly Running[]): void {
    for (const running of this.kept?.keepsAll ? computed : []) {
      if (running.isKept || running.adapter) continue;
      running.isKept = true;
      this.#keptFeed.run(this.keep({ ...running.request, continuation: [] }));
    }
  }

  /** Keeps what the prefix cache has of whole blocks of some tokens. @throws what a rank threw */
  async keep(rows: KeptRows): Promise<void> {
    const prompt = [...rows.prompt, ...(rows.continuation ?? [])];
    const generated: Span[] = rows.continuation?.length ? [[rows.prompt.length, prompt.length]] : [];
    const spans = [...(rows.generatedSpans ?? []), ...generated];
    let rank = 0;
    await this.kept?.keep(
      rows,
      () => {
        const found = this.#scheduler.cachedBlocks({ prompt, generatedSpans: spans });
        ({ rank } = found);
        return found.blocks;
      },
      (blocks) => this.ranks.runner.readBlocks(this.#slots.of(rank, 0), blocks),
    );
  }

  #abort(id: string): void {
    if (this.#scheduler.abort(id)) this.#iterations.drop(id);
    this.#finish(id, 'aborted');
    // Its row is made inactive with the next iteration.
    this.#wake?.();
  }

  /** @param error of one that failed */
  #finish(id: string, end: EngineEnd | 'failed', error?: unknown): void {
    const running = this.#running.get(id);
    if (!running) return;
    this.#running.delete(id);
    endDrafts(running);
    running.request.constraint?.dispose();
    running.adapter?.release();
    this.options.pictures?.release(running.request.prompt);
    this.#feed?.drop(id);
    this.#keptFeed.take(id);
    this.#totals.requestsTotal[end]++;
    if (end === 'failed') running.reject(error);
    else running.resolve(end);
    this.#tried(id);
  }

  /** Tokens that the sequences in the ranks' slots attend to, with another one: that in `slot`, of `length` tokens. */
  lengths(slot: number, length: number): number[] {
    const lengths = this.#iterations.lengths;
    lengths[slot] = length;
    return lengths;
  }

  /** What ended it, if it did. */
  get failure(): unknown {
    return this.#closed;
  }

  /** Ends every request with 'aborted'; the ranks are left as they are, with nothing under way. */
  async close(): Promise<void> {
    this.#closed ??= usageError('this engine was closed; open it again');
    for (const id of this.#running.keys()) this.#abort(id);
    this.#wake?.();
    await this.#loop;
    await this.#feed?.close();
    await this.#keptFeed.settled();
    await this.ranks.runner.settled();
  }

  async dispose(): Promise<void> {
    await this.close();
    await this.options.prefiller?.dispose();
    await this.options.speculation?.options.draft?.dispose();
    await this.ranks.dispose();
  }

  async #run(): Promise<void> {
    for (;;) {
      try {
        await this.#serve();
        return;
      } catch (error) {
        if (!(await this.#recover(error))) return;
      }
    }
  }

  /** Until the engine is closed. @throws what a rank threw */
  async #serve(): Promise<void> {
    while (this.#closed === undefined || this.#inFlight.length > 0) {
      if (this.#closed === undefined) this.#schedule();
      const oldest = this.#inFlight.shift();
      if (oldest) await this.#complete(oldest);
      else if (this.#closed === undefined) await this.#idle();
    }
  }

  #idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        resolve();
      };
    });
  }

  #schedule(): void {
    // Who wants logits wants those of this token, before the next step overwrites them.
    const single = [...this.#running.values()].some(
      ({ request: { logits }, emitted }) => logits === true || (logits === 'first' && emitted === 0),
    );
    const { iterationsInFlight: asked = 2 } = this.options;
    const auto = this.#seconds < SHORT_SECONDS ? MAX_STEPS_IN_FLIGHT : USUAL_IN_FLIGHT;
    const depth = single ? 1 : asked === 'auto' ? auto : asked;
    while (this.#inFlight.length < depth) {
      if (this.#awaitsSteps && this.#inFlight.length > 0) return;
      const started = performance.now();
      this.#feed?.pump(this.#scheduler);
      const iteration = this.#scheduler.schedule(started / 1000);
      if (!iteration) return;
      this.#totals.iterationsTotal++;
      const slots: { id: string; slot: number }[] = [];
      const computed: { id: string; slot: number }[] = [];
      for (const [pool, { moves, handed, prefills, decodes, preempted }] of iteration.ranks.entries()) {
        const starting = [...handed, ...prefills].filter(({ samples }) => samples).map(({ sequence }) => sequence);
        for (const { id, slot } of [...starting, ...decodes]) slots.push({ id, slot: this.#slots.of(pool, slot) });
        for (const { start, count, sequence } of prefills) {
          const { id, slot, prompt, sampled, maxTokens } = sequence;
          const isWhole = sampled === maxTokens && start + count === prompt.length + sampled;
          if (isWhole) computed.push({ id, slot: this.#slots.of(pool, slot) });
        }
        this.#totals.preemptionsTotal += preempted.length;
        this.#totals.movesTotal += moves.length;
        for (const { sequence, start } of [...handed, ...prefills]) this.#begins(sequence, start, started);
        // An answer that goes on may have no row to compute.
        for (const sequence of decodes) {
          if (this.#running.get(sequence.id)?.begun === false) this.#begins(sequence, sequence.cachedTokens, started);
        }
      }
      const outcome = this.#iterations.run(iteration.ranks);
      // Of those that began with what was cached meanwhile.
      for (const { sequence } of iteration.ranks.flatMap(({ prefills }) => prefills)) this.#keptFeed.take(sequence.id);
      outcome.catch(() => {}); // awaited in order
      this.#inFlight.push({ iteration, slots, computed, outcome, started });
    }
  }

  /** A sequence's tokens from `start` on are computed by an iteration: perhaps its first ones. */
  #begins({ id, cachedTokens, preemptions }: ScheduledSequence, start: number, started: number): void {
    const running = this.#running.get(id);
    if (running && !running.begun) {
      running.begun = true;
      running.request.onProgress?.(start);
      this.#queued.observe(started / 1000 - running.submitted);
    }
    if (start !== cachedTokens) return;
    this.#totals.cachedTokensTotal += start;
    if (running && preemptions === 0) running.cachedTokens = start;
  }

  async #complete({ iteration, slots, computed, outcome, started }: InFlight): Promise<void> {
    const { ids, evicted, verified } = await outcome;
    for (const { sequence, start, count } of iteration.ranks.flatMap(({ prefills }) => prefills))
      this.#running.get(sequence.id)?.request.onProgress?.(Math.min(start + count, sequence.promptLength));
    const ended: string[] = [];
    const goOn = new Map<string, readonly number[]>();
    const prompts = [...computed, ...slots].flatMap(({ id, slot }) => {
      const running = this.#running.get(id);
      return running?.emitted === 0 ? [{ running, slot }] : [];
    });
    for (const { running, slot } of prompts) await running.request.onPrompt?.(slot);
    const asked: Promise<void>[] = [];
    // Who is told later what may follow waits until then, not the others.
    let isLate = false;
    for (const { id, slot } of slots) {
      const running = this.#running.get(id);
      if (!running || running.over) continue;
      const { tokens, end } = await this.#emitRow(id, running, slot, ids, verified.get(id));
      if (end) {
        running.over = end;
        ended.push(id);
      } else if (running.request.constraint) {
        const scheduler = this.#scheduler;
        const told = this.#constrain(id, running, tokens).then((next) => {
          if (!next || scheduler !== this.#scheduler || this.#running.get(id) !== running) return;
          const last = next.end ? [id] : [];
          if (next.end) running.over = next.end;
          if (isLate) this.#ended(scheduler.goOn(new Map([[id, next.taken]]), last));
          else {
            goOn.set(id, next.taken);
            ended.push(...last);
          }
          if (isLate) this.#wake?.();
        });
        asked.push(told);
      } else if (this.ranks.runner.isStepwise) goOn.set(id, []);
    }
    if (asked.length > 0) await Promise.race([Promise.all(asked), pause(FORM_MS)]);
    isLate = true;
    // Of several in flight, each takes from the end of the one before.
    const now = performance.now();
    const seconds = (now - Math.max(started, this.#completedAt)) / 1000;
    const isAhead = started < this.#completedAt || this.#inFlight.length === 0;
    this.#completedAt = now;
    this.#seconds = Number.isFinite(this.#seconds) ? 0.8 * this.#seconds + 0.2 * seconds : seconds;
    this.#observe(iteration, verified, seconds, isAhead);
    const record = this.#balance?.add(iteration, seconds);
    if (record) this.options.onIteration?.(record);
    const finished = this.#scheduler.complete(iteration, {
      ids: this.#slots.pools.map((pool) => (ids ? pool.map((slot) => ids[slot]!) : [])),
      ended,
      seconds,
      evicted,
      goOn,
      ...(verified.size > 0 && { verified: new Map([...verified].map(([id, { tokens }]) => [id, tokens])) }),
    });
    this.#keepPrompts(prompts.map(({ running }) => running));
    this.#ended(finished);
    await this.#propose();
  }

  /** Pictures' ids are none of the vocabulary. */
  #isDrafted({ prompt, maxTokens, speculate }: EngineRequest): boolean {
    if (!this.#speculation || speculate === false || maxTokens <= 1) return false;
    const { vocabSize } = this.ranks.runner.config;
    return prompt.every((token) => token < vocabSize);
  }

  /** What may follow requests' tokens is verified in the next step of them all, where that pays. */
  async #propose(): Promise<void> {
    const speculation = this.#speculation;
    if (!speculation) return;
    const scheduler = this.#scheduler;
    const isAlone = this.#isAlone;
    const sequences = this.#mayDraft ? scheduler.decoding : [];
    const drafts = await speculation.draft(
      sequences.map((sequence) => ({ sequence, running: this.#running.get(sequence.id) })),
      {
        slots: this.options.slots,
        isAlone,
        states: this.#draftStates,
        isBusy: this.#inFlight.length > 0,
        isReady: () => this.ranks.runner.readyToVerify(),
      },
    );
    this.#awaitsSteps = drafts === 'awaits';
    if (drafts && drafts !== 'awaits')
      for (const [at, { id }] of sequences.entries()) scheduler.propose(id, nth(drafts, at));
  }

  get #numRunning(): number {
    return this.#scheduler.numUnfinished - this.#scheduler.numWaiting;
  }

  get #isAlone(): boolean {
    return this.#numRunning === 1;
  }

  /** A step has rows for drafts beside those that run. */
  get #mayDraft(): boolean {
    const most = this.#speculation?.mostRows(this.options.slots, this.#isAlone) ?? 0;
    return this.#numRunning < most;
  }

  /** How long a step took. @param isAhead it ran while the one before was read, where any do */
  #observe({ ranks }: Iteration, verified: IterationOutcome['verified'], seconds: number, isAhead: boolean): void {
    const sequences = sum(ranks.map(({ decodes }) => decodes.length));
    const others = ranks.some(({ prefills, handed }) => prefills.length + handed.length > 0);
    if (sequences > 0)
      this.#speculation?.take(sequences, [...verified.values()], others ? undefined : seconds, isAhead);
  }

  #ended(finished: readonly ScheduledSequence[]): void {
    for (const { id, endReason } of finished) this.#finish(id, this.#running.get(id)?.over ?? endReason!);
  }

  /** Hands on what came of a request's row, its token and those behind drafts, and the reason where one of them is the last. */
  async #emitRow(
    id: string,
    running: Running,
    slot: number,
    ids: Uint32Array | undefined,
    came: Verified | undefined,
  ): Promise<{ readonly tokens: readonly number[]; readonly end: EngineEnd | undefined }> {
    const tokens = came ? came.tokens : [nth(ids ?? [], slot)];
    if (came && came.drafted > 0) this.#speculation?.count(running.speculation, came.drafted, tokens.length - 1);
    let end: EngineEnd | undefined;
    // One of them may make the caller abort it.
    for (let row = 0; row < tokens.length && !end && this.#running.get(id) === running; row++) {
      end = await this.#emit(running, nth(tokens, row), slot, came && came.row + row);
    }
    return { tokens, end };
  }

  /** Hands a token on; the reason when it is the last. @param row of a verification */
  async #emit(running: Running, token: number, slot?: number, row?: number): Promise<EngineEnd | undefined> {
    const { request } = running;
    for (const drafter of running.drafters ?? []) drafter.take(token);
    if (request.eosIds.includes(token)) return 'eos';
    if (request.stopTokenIds?.includes(token)) return 'stop_token';
    if (running.replay > 0) {
      running.replay--;
      return undefined;
    }
    const wanted = slot !== undefined && (request.logits === 'first' ? running.emitted === 0 : request.logits);
    const logits = wanted ? await this.ranks.runner.slotLogits(slot, row) : undefined;
    running.emitted++;
    this.#totals.generatedTokensTotal++;
    if (this.#trial !== undefined && running === this.#running.get(this.#trial)) this.#tried(this.#trial);
    return request.onToken(token, logits) ? 'ended' : undefined;
  }

  /** What may follow new tokens of a constrained request is asked: tokens that follow as nothing else may, and whether it ends. */
  async #constrain(
    id: string,
    running: Running,
    tokens: readonly number[],
  ): Promise<{ readonly taken: readonly number[]; readonly end?: EngineEnd } | undefined> {
    const { constraint, logits, eosIds } = running.request;
    if (!constraint) return undefined;
    const scheduler = this.#scheduler;
    const taken: number[] = [];
    // The scheduler hears of those behind drafts later.
    const behind = tokens.length - 1;
    try {
      for (const token of tokens) constraint.accept(token);
      for (;;) {
        const before = scheduler.sequence(id);
        if (!before) return undefined; // aborted meanwhile
        // Where a token would end it, it isn't whole yet.
        const isLast = before.sampled + behind + taken.length >= before.maxTokens;
        if (eosIds.length > 0 && isLast) return { taken };
        const next = await constraint.next();
        if (this.#running.get(id) !== running || scheduler !== this.#scheduler) return undefined;
        if (!next) return { taken, end: 'eos' };
        running.allowed = next.allowed;
        if (next.only === undefined || logits === true || isLast) return { taken };
        const end = await this.#emit(running, next.only);
        if (end) return { taken, end };
        taken.push(next.only);
        constraint.accept(next.only);
      }
    } catch (error) {
      if (this.#running.get(id) !== running || scheduler !== this.#scheduler) return undefined;
      // One request's trouble isn't the others'.
      this.#finish(id, 'failed', error);
      if (scheduler.abort(id)) this.#iterations.drop(id);
      this.#wake?.();
      return undefined;
    }
  }

  /** After a failure: true when the ranks work again and every request was queued anew. */
  async #recover(error: unknown): Promise<boolean> {
    // Nothing of the old ranks may still run.
    await Promise.allSettled(this.#inFlight.splice(0).map(({ outcome }) => outcome));
    await this.#keptFeed.clear();
    await this.ranks.runner.settled();
    if (this.#closed === undefined && isLoss(error) && (this.options.recover ?? true)) {
      try {
        this.#totals.copyMovesTotal += this.ranks.runner.copyMoves;
        const { generatedTokensTotal: generated, requestsTotal: requests } = this.#totals;
        const ended = Object.values(requests).reduce((sum, count) => sum + count, -requests.failed);
        this.#recovery.count(generated + ended, error);
        this.#trial = undefined;
        for (const id of this.#recovery.suspects(this.#running)) this.#finish(id, 'failed', Recovery.refusal(error));
        await this.#recovery.rebuild(
          async () => {
            await this.ranks.recover();
            await this.options.adapters?.restore();
          },
          () => this.#closed !== undefined,
        );
        this.#totals.recoveriesTotal++;
        await this.#followPlan();
        this.#scheduler = this.#newScheduler();
        this.#iterations = this.#newIterations();
        for (const running of this.#running.values()) {
          // The same seed gives the same tokens again: those handed on before are passed over.
          running.replay = running.emitted;
          running.held = true;
        }
        this.#goOn();
        return true;
      } catch (again) {
        return this.#fail(again);
      }
    }
    return this.#fail(error);
  }

  /** Requests that wait after a loss are queued: all, or first the next that is to be tried, alone. */
  #goOn(): void {
    const held = [...this.#running].filter(([, running]) => running.held);
    this.#trial = this.#recovery.next(held.map(([id]) => id));
    for (const [id, running] of held) {
      if (this.#trial !== undefined && this.#trial !== id) continue;
      running.held = false;
      this.#submit(id, running);
    }
  }

  /** A request has shown that it kills nothing, or is over. */
  #tried(id: string): void {
    this.#recovery.clear(id);
    if (id === this.#trial && this.#closed === undefined) this.#goOn();
  }

  #fail(error: unknown): false {
    const isNew = this.#closed === undefined;
    this.#closed ??= error;
    for (const id of this.#running.keys()) this.#finish(id, 'failed', error);
    if (isNew) this.options.onFailure?.(error);
    return false;
  }
}
