/** The scheduler, the real one, on a clock: traces in, throughput and balance out. */

import { nth, range, sum } from '../../src/base/lists.js';
import { BalanceMeter, type BalanceSummary } from '../../src/engine/scheduler/adp/metrics.js';
import { type Iteration, Scheduler, type SchedulerOptions, contextPolicy } from '../../src/engine/scheduler/index.js';
import type { ContextPolicy } from '../../src/engine/scheduler/routing.js';
import { MOVING } from '../../src/engine/scheduler/kv/kv_policy.js';
import type { Trace, TraceRequest } from './trace.js';

/** Seconds of an iteration: base + perToken * (tokens that count) + perCachedToken * (cached tokens read); of the slowest rank. */
export interface LinearTime {
  readonly baseSeconds: number;
  readonly secondsPerToken: number;
  /** Tokens that count: of the rank that has most (default; ranks wait for the slowest), or of all, where ranks share a device. */
  readonly counts?: 'most' | 'all';
  /** For each token that a rank's sequences attend to; a token that moves to another rank costs 8 times that. Default 0. */
  readonly secondsPerCachedToken?: number | undefined;
}

/** Of an iteration, by what each rank has. */
export const countedTokens = (tokens: readonly number[], counts: LinearTime['counts']): number =>
  counts === 'all' ? sum(tokens) : Math.max(1, ...tokens);

/** @param cached tokens that each rank's sequences attend to */
function iterationSeconds(time: LinearTime, tokens: readonly number[], cached: readonly number[]): number {
  const { baseSeconds, secondsPerToken, secondsPerCachedToken: reading = 0, counts } = time;
  if (reading === 0 || counts === 'all') {
    return baseSeconds + secondsPerToken * countedTokens(tokens, counts) + reading * sum(cached);
  }
  return baseSeconds + Math.max(...tokens.map((count, rank) => secondsPerToken * count + reading * nth(cached, rank)));
}

export interface SimulationOptions {
  readonly scheduler: SchedulerOptions;
  /** Requests that clients have open at once. */
  readonly concurrency: number;
  readonly time: LinearTime;
  /** In place of the scheduler's own. */
  readonly policy?: ContextPolicy;
}

/** One iteration as the log keeps it. */
export interface LoggedIteration {
  /** Of each rank. */
  readonly tokens: Uint32Array;
  readonly seconds: number;
  readonly contextTokens: number;
}

export interface SimulationResult {
  readonly log: readonly LoggedIteration[];
  readonly balance: BalanceSummary;
  /** Cached tokens of a rank, on average, over those of the rank that has most; iterations weighed by the latter. */
  readonly kvBalance: number;
  /** Sequences that went to another rank while they ran. */
  readonly moves: number;
  readonly outputTokens: number;
  /** From the start to the last token. */
  readonly seconds: number;
  /** Of each request of the trace, in its order. */
  readonly ttftSeconds: Float64Array;
  readonly preemptions: number;
}

/** Runs the scheduler on a clock that the time model moves: what would be computed is not. */
export function simulate(trace: Trace, options: SimulationOptions): SimulationResult {
  const { secondsPerCachedToken: reading = 0 } = options.time;
  const scheduler = new Scheduler(options.scheduler, (config) => options.policy ?? contextPolicy(config));
  const clients = new Clients(trace, options.concurrency);
  const sentAt = new Float64Array(trace.length);
  const ttftSeconds = new Float64Array(trace.length);
  const log: LoggedIteration[] = [];
  const meter = new BalanceMeter();
  const kvMeter = new BalanceMeter();
  let moves = 0;
  let clock = 0;
  let preemptions = 0;

  for (;;) {
    for (let index = clients.next(clock); index !== undefined; index = clients.next(clock)) {
      sentAt[index] = clock;
      submit(scheduler, trace, index, clock);
    }
    const iteration = scheduler.schedule(clock);
    if (!iteration) {
      const arrival = clients.nextArrival;
      if (arrival === undefined) break;
      clock = arrival;
      continue;
    }
    const tokens = tokensOf(iteration);
    const work = iteration.ranks.map((rank) => rank.tokens);
    const cached = scheduler.ranks.map(({ attended }) => attended);
    const moved = iteration.ranks.flatMap((rank) => rank.moves.map((move) => move.to.length * BLOCK_TOKENS));
    const seconds = iterationSeconds(options.time, work, cached) + reading * MOVING * sum(moved);
    clock += seconds;
    moves += moved.length;
    kvMeter.add(cached, seconds);
    for (const { preempted, prefills } of iteration.ranks) {
      preemptions += preempted.length;
      for (const { sequence, samples } of prefills) {
        if (samples) ttftSeconds[Number(sequence.id)] = clock - nth(sentAt, Number(sequence.id));
      }
    }
    meter.add(tokens, seconds);
    log.push({ tokens, seconds, contextTokens: sum(iteration.ranks.map((rank) => rank.contextTokens)) });
    for (const _ of scheduler.complete(iteration, { seconds })) clients.done();
  }
  const outputTokens = sum(trace.map((request) => request.outputTokens));
  const { weighedBalance: kvBalance } = kvMeter.summary;
  return { log, balance: meter.summary, kvBalance, moves, outputTokens, seconds: clock, ttftSeconds, preemptions };
}

function submit(scheduler: Scheduler, trace: Trace, index: number, now: number): void {
  const { inputTokens, outputTokens, priority, ttftDeadlineSeconds } = nth(trace, index);
  scheduler.submit({
    id: String(index),
    prompt: { length: inputTokens },
    maxTokens: outputTokens,
    priority,
    ...(ttftDeadlineSeconds !== undefined && { firstTokenDeadline: now + ttftDeadlineSeconds }),
  });
}

/** Rows of each rank. In lockstep a rank without work joins in with one padding row. */
const tokensOf = ({ ranks }: Iteration): Uint32Array =>
  Uint32Array.from(ranks, ({ tokens }) => (ranks.length > 1 ? Math.max(1, tokens) : tokens));

/** Clients that send a trace's requests in order of arrival, with a limit to how many are open at once. */
export class Clients {
  /** Requests by their index, those to send last first. */
  readonly #waiting: (readonly [index: number, request: TraceRequest])[];
  #open = 0;

  constructor(
    trace: Trace,
    private readonly concurrency: number,
  ) {
    this.#waiting = [...trace.entries()].sort(([i, a], [j, b]) => b.arrivalSeconds - a.arrivalSeconds || j - i);
  }

  /** The index of a request to send at this time; undefined when there is none, or no client is free. */
  next(clock: number): number | undefined {
    if (this.#open >= this.concurrency || !((this.nextArrival ?? Infinity) <= clock)) return undefined;
    this.#open++;
    return this.#waiting.pop()?.[0];
  }

  /** When the next request comes; undefined after the last. */
  get nextArrival(): number | undefined {
    return this.#waiting.at(-1)?.[1].arrivalSeconds;
  }

  /** An open request has finished. */
  done(): void {
    this.#open--;
  }
}

export const BLOCK_TOKENS = 64;

/** What the ranks of a simulation have room for. */
export interface Room {
  readonly trace: Trace;
  readonly ranks: number;
  /** Requests that a rank may run. */
  readonly maxBatch: number;
  readonly maxTokensPerIteration: number;
  readonly chunkedPrefill: boolean;
  /** KV tokens of a rank; undefined: enough for any batch. */
  readonly kvTokens: number | undefined;
}

/** What the scheduler is told beside a policy. */
export function schedulerOf(options: Room): Omit<SchedulerOptions, 'attentionDpConfig'> {
  const { trace, maxBatch, kvTokens, maxTokensPerIteration, chunkedPrefill } = options;
  const longest = trace.reduce((most, { inputTokens, outputTokens }) => Math.max(most, inputTokens + outputTokens), 0);
  const blocks = Math.ceil(longest / BLOCK_TOKENS);
  // More than a full batch takes is never used.
  const most = maxBatch * blocks;
  const numBlocks = kvTokens === undefined ? most : Math.min(most, Math.max(1, Math.floor(kvTokens / BLOCK_TOKENS)));
  return {
    ranks: range(0, options.ranks).map(() => ({ numBlocks, slots: maxBatch })),
    blockTokens: BLOCK_TOKENS,
    contextLength: longest,
    maxTokensPerIteration,
    chunkedPrefill,
    watermark: numBlocks < most ? 0.01 : 0,
  };
}
