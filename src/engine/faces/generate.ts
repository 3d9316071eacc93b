import { DEFAULT_MAX_TOKENS } from '../contracts/options/sampling_rows.js';
import { abortedError, SplitkvError, usageError } from '../../base/errors.js';
import { defined } from '../../base/options.js';
import type {
  AttentionStats,
  FinishReason,
  GenerateOptions,
  GenerateResult,
  Generation,
  GenerationDelta,
  KvCompressionStats,
  RankStats,
  SpeculationStats,
} from '../contracts/api.js';
import { attentionMs, attentionStats, kvCompressionStats, timeAttention } from '../ranks/stats.js';
import { needTokenizer, type PromptReader } from '../serving/prompt_tokens.js';
import type { RankCounts } from '../contracts/rank.js';
import { checkSampling, randomSeed } from '../ranks/sampling/sampling.js';
import { engineSampling, stopTexts } from '../ranks/sampling/sampling_options.js';
import { Answer } from '../serving/text/answer.js';
import { EventQueue } from '../serving/text/event_queue.js';
import {
  type Constraint,
  type EngineEnd,
  type EngineHandle,
  type EngineRequest,
  endOf,
  type NextTokens,
} from '../serving/loop/requests.js';
import type { Engine } from '../serving/engine.js';
import { wantsDrafts } from '../serving/speculation/speculate_option.js';
import { checkForm, type TextForms } from '../serving/text/forms.js';
import { checkTools, frameOf, readerOf } from '../serving/text/reading.js';
import { type ToolCall, withDelta } from '../../chat_formats/tools.js';

type FinishDetail = GenerateResult['finish_detail'];

const REASONS: Record<FinishDetail, FinishReason> = {
  eos: 'stop',
  stop_token: 'stop',
  stop_string: 'stop',
  max_tokens: 'length',
  context_full: 'length',
  aborted: 'abort',
};

/** A prompt as ids, how its rows are computed, the tokens of an answer that goes on, and whether it may have been kept. */
export type PromptRows = Pick<EngineRequest, 'prompt' | 'generatedSpans' | 'continuation' | 'kept'>;

/** ... and whether it is of messages. */
export interface GeneratedPrompt extends PromptRows {
  readonly isChat: boolean;
}

/** What a rank sent, and what a token's time was. */
type RankSpeed = Omit<RankStats, 'adapter' | 'weight_bytes' | 'kv_bytes'>;

export const NO_SPEED: RankSpeed = {
  bytes_per_token: 0,
  us_per_exchange: 0,
  compute_ms_per_token: 0,
  exchange_ms_per_token: 0,
  wait_ms_per_token: 0,
};

export interface Speed {
  /** Of the tokens after the first. */
  readonly tokensPerSecond: number;
  readonly ttftMs: number;
  /** Of each rank, over the decode steps. */
  readonly ranks: readonly RankSpeed[];
}

export interface GenerateHost {
  readonly engine: Engine;
  readonly reader: PromptReader;
  readonly eosIds: readonly number[];
  readonly forms: TextForms;
}

/** Runs one generation to its end. Emits text as it becomes certain; resolves with the whole. */
export async function generate(
  { engine, reader, eosIds, forms }: GenerateHost,
  { isChat, ...rows }: GeneratedPrompt,
  options: GenerateOptions,
  signal: AbortSignal,
  emit: (delta: GenerationDelta) => void,
): Promise<
  Omit<GenerateResult, 'stats'> & {
    readonly cachedTokens: number;
    readonly speculation: SpeculationStats | undefined;
    readonly speed: Speed;
    readonly compressed: KvCompressionStats | undefined;
    readonly attention: AttentionStats | undefined;
  }
> {
  const started = performance.now();
  const { maxTokens = DEFAULT_MAX_TOKENS, onFirstLogits } = options;
  const seed = options.seed ?? randomSeed();
  const { runner } = engine.ranks;
  const { prompt, continuation: given = [] } = rows;
  checkSampling({ ...options, maxTokens: given.length + maxTokens, seed }, runner.config.vocabSize);
  checkForm(options);
  checkTools(options);
  if (given.length > 0) runner.checkPrompt(given);
  if (stopTexts(options.stop).length > 0) needTokenizer(reader, 'a stop text');
  const answer = new Answer(reader.tokenizer, options, readerOf(reader.tokenizer, prompt, options, isChat));
  const tokens = [...given];
  let text = '';
  let reasoning = '';
  let calls: readonly ToolCall[] = [];
  const take = (delta: GenerationDelta): void => {
    text += delta.text;
    reasoning += delta.reasoning ?? '';
    if (delta.toolCalls) calls = withDelta(calls, delta.toolCalls);
  };
  const add = (delta: GenerationDelta): void => {
    take(delta);
    if (delta.text !== '' || delta.reasoning || delta.toolCalls) emit(delta);
  };
  for (const token of given) take(answer.push(token, undefined));
  let before: readonly RankCounts[] = [];
  let compressed: KvCompressionStats | undefined;
  let attention: AttentionStats | undefined;
  let firstAt = started;
  let lastAt = started;
  let cachedTokens = 0;
  let speculation: SpeculationStats | undefined;
  let detail: FinishDetail = 'aborted';
  try {
    const frame = frameOf(reader.tokenizer, prompt, options, isChat);
    const whole = (await forms.compile(options, frame, { signal }))?.start();
    const constraint = whole && given.length > 0 ? await behind(whole, given) : whole;
    if (signal.aborted) throw abortedError('generate', signal);
    const finish = (end: EngineEnd): void => {
      const last = answer.finish(end);
      add(deltaOf(last));
      detail = last.finish;
    };
    const run = (): EngineHandle =>
      engine.submit({
        ...rows,
        ...engineSampling(options, eosIds),
        seed,
        maxTokens,
        speculate: wantsDrafts(engine, options.speculate),
        adapter: options.adapter,
        ...defined({ client: options.client }),
        ...(options.cachePrompt === false && { fresh: true }),
        ...(onFirstLogits && { logits: 'first' as const }),
        ...(constraint && { constraint }),
        onPrompt: async (slot) => {
          // Steps in flight go on: what is asked below takes time that they don't.
          firstAt = performance.now();
          if (options.timeAttention) await timeAttention(engine.ranks);
          before = await runner.counts();
          compressed = await kvCompressionStats(runner, slot, prompt.length);
          attention = await attentionStats(runner, engine.lengths(slot, prompt.length + given.length + 1));
        },
        onToken: (token, logits) => {
          if (signal.aborted) return true;
          lastAt = performance.now();
          if (tokens.length === given.length && logits) onFirstLogits?.(logits);
          tokens.push(token);
          add(deltaOf(answer.push(token, undefined)));
          return answer.stopped;
        },
      });
    // What is given may be all of it.
    if (answer.stopped) finish('ended');
    else if (whole && !constraint) finish('eos');
    else {
      const handle = run();
      const end = await endOf(handle, signal);
      cachedTokens = handle.cachedTokens;
      if (engine.options.speculation) speculation = handle.speculation;
      finish(end);
    }
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'aborted')) throw error;
  }
  const later = Math.max(0, tokens.length - given.length - 1);
  const after = await runner.counts();
  const ms = options.timeAttention ? attentionMs(after, before) : undefined;
  return {
    text,
    ...(reasoning !== '' && { reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
    tokens,
    ...(answer.reasoningTokens > 0 && { reasoning_tokens: answer.reasoningTokens }),
    prompt_tokens: prompt.length + given.length,
    finish_reason: calls.length > 0 && REASONS[detail] === 'stop' ? 'tool_calls' : REASONS[detail],
    finish_detail: detail,
    seed,
    cachedTokens,
    speculation,
    compressed,
    attention: attention && { ...attention, ...(ms && { ms_per_step: ms }) },
    speed: {
      ttftMs: firstAt - started,
      tokensPerSecond: later > 0 ? later / ((lastAt - firstAt) / 1000) : 0,
      ranks: perToken(before, after, later, lastAt - firstAt),
    },
  };
}

/**
 * The constraint of an answer that goes on behind tokens; undefined where they are all of it.
 * @throws SplitkvError `usage` for tokens that its form doesn't allow
 */
async function behind(constraint: Constraint, tokens: readonly number[]): Promise<Constraint | undefined> {
  const reset = (): void => {
    constraint.reset();
    for (const token of tokens) constraint.accept(token);
  };
  let first: NextTokens | undefined;
  try {
    reset();
    first = await constraint.next();
  } catch (error) {
    constraint.dispose();
    if (!(error instanceof SplitkvError && error.code === 'internal')) throw error;
    throw usageError("continueFrom: these aren't tokens of a text of the form that is asked for");
  }
  if (!first) {
    constraint.dispose();
    return undefined;
  }
  return {
    first,
    reset,
    accept: (token) => constraint.accept(token),
    next: () => constraint.next(),
    ahead: (ids) => constraint.ahead(ids),
    dispose: () => constraint.dispose(),
  };
}

/** What of an event is told; probabilities aren't. */
const deltaOf = ({ text, reasoning, toolCalls }: GenerationDelta): GenerationDelta => ({
  text,
  ...defined({ reasoning, toolCalls }),
});

/**
 * Steps that were under way when the last token came are counted too: bytes and times are means over steps, so that parts of a token's
 * time are never more than it.
 */
function perToken(
  before: readonly RankCounts[],
  after: readonly RankCounts[],
  tokens: number,
  ms: number,
): RankSpeed[] {
  return after.map((now, rank) => {
    const then = before[rank] ?? now;
    const exchanges = now.exchanges - then.exchanges;
    const steps = now.steps - then.steps;
    const [moved, waited] = [now.moveMs - then.moveMs, now.waitMs - then.waitMs];
    const tokenMs = tokens > 0 ? ms / tokens : 0;
    // A rank whose exchanges are those of a prompt beside may be at them longer than at steps.
    const stepMs = Math.max(now.stepMs - then.stepMs, moved + waited);
    const part = (of: number): number => (stepMs > 0 ? (tokenMs * of) / stepMs : 0);
    const [exchangeMs, waitMs] = [part(moved), part(waited)];
    return {
      bytes_per_token: steps > 0 ? (now.stepBytes - then.stepBytes) / steps : 0,
      us_per_exchange: exchanges > 0 ? ((moved + waited) * 1000) / exchanges : 0,
      compute_ms_per_token: Math.max(0, tokenMs - exchangeMs - waitMs),
      exchange_ms_per_token: exchangeMs,
      wait_ms_per_token: waitMs,
    };
  });
}

/**
 * A generation that runs whether or not anyone iterates it. Leaving the iteration early aborts the run; `result` then
 * resolves with what there is.
 */
export class GenerationStream implements Generation {
  readonly result: Promise<GenerateResult>;
  readonly #deltas = new EventQueue<GenerationDelta>(
    'this generation is being iterated already; await its result, or generate again',
  );
  readonly #leave = new AbortController();

  /** `run` gets a function that emits what is new, and a signal for an iteration that was left early. */
  constructor(run: (emit: (delta: GenerationDelta) => void, left: AbortSignal) => Promise<GenerateResult>) {
    this.result = run((delta) => this.#deltas.push(delta), this.#leave.signal);
    // Also marks the rejection as handled: who only iterates sees the error there.
    this.result.then(
      () => this.#deltas.end(),
      (reason: unknown) => this.#deltas.end({ reason }),
    );
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    for await (const { text } of this.deltas()) if (text !== '') yield text;
  }

  async *deltas(): AsyncGenerator<GenerationDelta, void, undefined> {
    const deltas = this.#deltas.read();
    let finished = false;
    try {
      yield* deltas;
      finished = true;
    } finally {
      if (!finished) this.#leave.abort(new Error('the iteration was left'));
    }
  }
}
