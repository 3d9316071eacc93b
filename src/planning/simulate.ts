import { usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { sum } from '../base/lists.js';
import { checkOptions, type OptionsSchema, wholeNumber, within } from '../base/options.js';
import { quantile } from '../base/stats.js';
import { solTps } from '../engine/scheduler/index.js';
import type { AttentionDpOptions } from '../engine/contracts/api.js';
import { BLOCK_TOKENS, type LoggedIteration, type Room, schedulerOf, simulate as run } from '../simulate/simulate.js';
import { type Trace, type TraceRequest, syntheticTrace as makeTrace } from '../simulate/trace.js';

/** How long an iteration takes: baseSeconds + secondsPerToken * tokens + secondsPerCachedToken * cached tokens, of the slowest rank. */
export interface SimulatedTime {
  readonly baseSeconds: number;
  readonly secondsPerToken: number;
  /** Of the tokens that a rank's sequences attend to; default 0. */
  readonly secondsPerCachedToken?: number;
}

export interface SimulateOptions {
  readonly ranks: number;
  readonly time: SimulatedTime;
  /** Requests that a rank runs side by side; default 16. */
  readonly slots?: number;
  /** Rows of an iteration on one rank; default: a full batch and the longest prompt. */
  readonly tokensPerIteration?: number;
  /** Requests that clients have open at once; default: five for every four slots. */
  readonly concurrency?: number;
  /** Prompts are cut to the rows of an iteration; default false. */
  readonly chunkedPrefill?: boolean;
  /** KV tokens of a rank; default: enough for any batch. */
  readonly kvTokens?: number;
  /** As `serve` takes it. */
  readonly attentionDpConfig?: AttentionDpOptions;
}

/** What a simulated run came to. */
export interface SimulateReport {
  /** Generated. */
  readonly tokensPerSecond: number;
  /** If every iteration were balanced. */
  readonly solTokensPerSecond: number;
  /** Mean over iterations of tokens of a rank, over those of the rank that has most: 1 / ranks to 1. */
  readonly balance: number;
  /** The same with iterations weighed by the tokens of their largest rank. */
  readonly weightedBalance: number;
  /** Of cached tokens in place of rows: those of a rank, on average, over those of the rank that has most; weighed by the latter. */
  readonly kvBalance: number;
  /** Sequences that went to another rank while they ran. */
  readonly moves: number;
  readonly iterations: number;
  /** From the start to the last token. */
  readonly seconds: number;
  readonly outputTokens: number;
  readonly ttft: { readonly meanSeconds: number; readonly p95Seconds: number };
  /** Sequences that lost their blocks to others, and were computed again. */
  readonly preemptions: number;
  readonly log: readonly LoggedIteration[];
}

export interface SyntheticLengths {
  readonly requests: number;
  /** Mean tokens of a prompt, and of what is generated. */
  readonly meanInput: number;
  readonly meanOutput: number;
  /** Default 1. */
  readonly seed?: number;
  /** No prompt is longer; default: no limit but that of the distribution. */
  readonly maxInput?: number;
}

const MOST_RANKS = 1024;
const MOST_REQUESTS = 1_000_000;

const schema: OptionsSchema<SimulateOptions> = {
  ranks: wholeNumber(1, MOST_RANKS),
  time: (value) => (isObject(value) ? undefined : `${show(value)}: expected { baseSeconds, secondsPerToken }`),
  slots: wholeNumber(1),
  tokensPerIteration: wholeNumber(2),
  concurrency: wholeNumber(1),
  chunkedPrefill: (value) => (typeof value === 'boolean' ? undefined : `${show(value)}: expected true or false`),
  kvTokens: wholeNumber(1),
  attentionDpConfig: true,
};
const timeSchema: OptionsSchema<SimulatedTime> = {
  baseSeconds: within({ low: 0 }),
  secondsPerToken: within({ above: 0 }),
  secondsPerCachedToken: within({ low: 0 }),
};
const traceSchema: OptionsSchema<TraceRequest> = {
  inputTokens: wholeNumber(1),
  outputTokens: wholeNumber(1),
  arrivalSeconds: within({ low: 0 }),
  priority: wholeNumber(-100, 100),
  ttftDeadlineSeconds: within({ low: 0 }),
};
const lengthsSchema: OptionsSchema<SyntheticLengths> = {
  requests: wholeNumber(1, MOST_REQUESTS),
  meanInput: within({ low: 1 }),
  meanOutput: within({ low: 1 }),
  seed: wholeNumber(0),
  maxInput: wholeNumber(1),
};

/**
 * Runs a trace through the scheduler that serves requests, on a clock in place of GPUs: attention data parallelism, where each rank
 * computes its own sequences and all wait for the one with most tokens.
 *
 * @example
 * ```ts
 * import { simulate, syntheticTrace } from 'splitkv/planning';
 *
 * const trace = syntheticTrace({ requests: 500, meanInput: 200, meanOutput: 100 });
 * const time = { baseSeconds: 0.02, secondsPerToken: 1e-4 };
 * const attentionDpConfig = { mode: 'trtllm', enable_balance: true } as const;
 * console.log(simulate(trace, { ranks: 8, time, attentionDpConfig }).tokensPerSecond);
 * ```
 *
 * @param trace requests; only their lengths are needed
 * @throws SplitkvError `usage` for options and requests that make no sense, and for a request that could never run
 */
export function simulate(
  trace: readonly (Pick<TraceRequest, 'inputTokens' | 'outputTokens'> & Partial<TraceRequest>)[],
  options: SimulateOptions,
): SimulateReport {
  const requests = readTrace(trace);
  if (!isObject(options)) throw usageError(`simulate: options ${show(options)}: expected { ranks, time }`);
  checkOptions('simulate', options, schema);
  const { ranks, time, slots = 16, chunkedPrefill = false, kvTokens, attentionDpConfig = {} } = options;
  needed('simulate', options, ['ranks', 'time']);
  checkOptions('time', time, timeSchema);
  needed('time', time, ['baseSeconds', 'secondsPerToken']);
  const longest = requests.reduce((most, { inputTokens }) => Math.max(most, inputTokens), 0);
  const study = {
    trace: requests,
    ranks,
    maxBatch: slots,
    maxTokensPerIteration: options.tokensPerIteration ?? slots + longest,
    concurrency: options.concurrency ?? Math.ceil(1.25 * slots * ranks),
    chunkedPrefill,
    kvTokens,
    time,
  };
  checkRoom(study);
  const result = run(requests, {
    concurrency: study.concurrency,
    time,
    scheduler: { ...schedulerOf(study), attentionDpConfig },
  });
  const { balance, outputTokens, seconds, preemptions, log } = result;
  const ttft = [...result.ttftSeconds];
  const tokensPerSecond = outputTokens / seconds;
  return {
    tokensPerSecond,
    solTokensPerSecond: solTps(tokensPerSecond, balance),
    balance: balance.balance,
    weightedBalance: balance.weighedBalance,
    kvBalance: result.kvBalance,
    moves: result.moves,
    iterations: balance.iterations,
    seconds,
    outputTokens,
    ttft: {
      meanSeconds: sum(ttft) / ttft.length,
      p95Seconds: quantile(ttft, 0.95),
    },
    preemptions,
    log,
  };
}

/**
 * A seeded trace: lengths are lognormal and scaled so that their means come out as asked; all requests are there from the start.
 * @throws SplitkvError `usage`
 */
export function syntheticTrace(lengths: SyntheticLengths): Trace {
  if (!isObject(lengths))
    throw usageError(`syntheticTrace ${show(lengths)}: expected { requests, meanInput, meanOutput }`);
  checkOptions('syntheticTrace', lengths, lengthsSchema);
  needed('syntheticTrace', lengths, ['requests', 'meanInput', 'meanOutput']);
  const { seed = 1, maxInput = Infinity, ...rest } = lengths;
  if (rest.meanInput > 0.9 * maxInput) {
    throw usageError(
      `meanInput ${rest.meanInput}: prompts may have ${maxInput} tokens; raise maxInput, or lower the mean`,
    );
  }
  return makeTrace({ ...rest, seed, maxInput });
}

function readTrace(trace: Parameters<typeof simulate>[0]): Trace {
  if (!Array.isArray(trace) || trace.length === 0 || trace.length > MOST_REQUESTS) {
    throw usageError(`simulate: a trace is a list of 1 to ${MOST_REQUESTS} requests: { inputTokens, outputTokens }`);
  }
  return trace.map((request, index) => {
    const what = `request ${index} of the trace`;
    if (!isObject(request)) throw usageError(`${what} is ${show(request)}: expected { inputTokens, outputTokens }`);
    checkOptions(what, request as Partial<TraceRequest>, traceSchema);
    needed(what, request, ['inputTokens', 'outputTokens']);
    return { arrivalSeconds: 0, priority: 0, ttftDeadlineSeconds: undefined, ...request } as TraceRequest;
  });
}

/** Every request can run: its prompt in an iteration, and all of it in a rank's cache. */
function checkRoom(study: Room): void {
  const { maxTokensPerIteration: rows, chunkedPrefill, kvTokens = Infinity } = study;
  for (const [index, { inputTokens, outputTokens }] of study.trace.entries()) {
    if (!chunkedPrefill && inputTokens > rows) {
      throw usageError(
        `request ${index} of the trace has a prompt of ${inputTokens} tokens; an iteration takes ${rows}: raise tokensPerIteration, ` +
          'or set chunkedPrefill',
      );
    }
    const blocks = Math.ceil((inputTokens + outputTokens) / BLOCK_TOKENS);
    if (blocks > Math.floor(kvTokens / BLOCK_TOKENS)) {
      throw usageError(
        `kvTokens ${kvTokens}: request ${index} of the trace alone takes ${blocks * BLOCK_TOKENS} (in blocks of ${BLOCK_TOKENS})`,
      );
    }
  }
}

function needed(what: string, given: object, names: readonly string[]): void {
  const missing = names.find((name) => (given as Record<string, unknown>)[name] === undefined);
  if (missing !== undefined) throw usageError(`${what}: ${missing} is missing`);
}
