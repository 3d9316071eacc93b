import { abortedError, SplitkvError } from '../base/errors.js';
import type {
  AttentionStats,
  FinishReason,
  GenerateOptions,
  GenerateResult,
  GenerationDelta,
  KvCompressionStats,
} from './api.js';
import { attentionStats } from './attention_stats.js';
import { kvCompressionStats } from './kv_stats.js';
import { needTokenizer, type PromptReader } from './prompt_tokens.js';
import type { RankCounts } from './ranks/rank.js';
import { checkSampling, randomSeed } from './ranks/sampling.js';
import { engineSampling, stopTexts } from './ranks/sampling_options.js';
import { Answer } from './serving/text/answer.js';
import type { Engine, EngineRequest } from './serving/engine.js';
import { checkForm, type TextForms } from './serving/text/forms.js';
import { checkTools, frameOf, readerOf } from './serving/text/reading.js';
import { type ToolCall, withDelta } from '../chat_formats/tools.js';

export type FinishDetail = GenerateResult['finish_detail'];

const REASONS: Record<FinishDetail, FinishReason> = {
  eos: 'stop',
  stop_token: 'stop',
  stop_string: 'stop',
  max_tokens: 'length',
  context_full: 'length',
  aborted: 'abort',
};

export const DEFAULT_MAX_TOKENS = 256;

/** A prompt as ids, and how its rows are computed. */
export type PromptRows = Pick<EngineRequest, 'prompt' | 'generatedSpans'>;

/** ... and whether it is of messages. */
export interface GeneratedPrompt extends PromptRows {
  readonly isChat: boolean;
}

/** What a generation measured. */
export interface Speed {
  /** Of the tokens after the first. */
  readonly tokensPerSecond: number;
  readonly ttftMs: number;
  /** Of each rank, over the decode steps: bytes sent per token, and the mean time of an exchange. */
  readonly ranks: readonly { readonly bytesPerToken: number; readonly usPerExchange: number }[];
}

/** Where texts are generated. */
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
    readonly speed: Speed;
    readonly compressed: KvCompressionStats | undefined;
    readonly attention: AttentionStats | undefined;
  }
> {
  const started = performance.now();
  const { maxTokens = DEFAULT_MAX_TOKENS, onFirstLogits } = options;
  const stops = stopTexts(options.stop);
  const seed = options.seed ?? randomSeed();
  const { runner } = engine.ranks;
  checkSampling({ ...options, maxTokens, seed }, runner.config.vocabSize);
  checkForm(options);
  checkTools(options);
  const { prompt } = rows;
  const form = await forms.compile(options, frameOf(reader.tokenizer, prompt, options, isChat));
  const answer = new Answer(
    stops.length > 0 ? needTokenizer(reader, 'a stop text') : reader.tokenizer,
    stops,
    undefined,
    options.minTokens,
    0,
    readerOf(reader.tokenizer, prompt, options, isChat),
  );
  const tokens: number[] = [];
  let text = '';
  let reasoning = '';
  let calls: readonly ToolCall[] = [];
  const add = (delta: GenerationDelta): void => {
    text += delta.text;
    reasoning += delta.reasoning ?? '';
    if (delta.toolCalls) calls = withDelta(calls, delta.toolCalls);
    if (delta.text !== '' || delta.reasoning || delta.toolCalls) emit(delta);
  };
  let before: readonly RankCounts[] = [];
  let compressed: KvCompressionStats | undefined;
  let attention: AttentionStats | undefined;
  let firstAt = started;
  let lastAt = started;
  let cachedTokens = 0;
  let detail: FinishDetail = 'aborted';
  try {
    const constraint = await form?.start();
    if (signal.aborted) throw abortedError('generate', signal);
    const handle = engine.submit({
      ...rows,
      ...engineSampling(options, eosIds),
      seed,
      maxTokens,
      ...(options.cachePrompt === false && { fresh: true }),
      ...(onFirstLogits && { logits: 'first' as const }),
      ...(constraint && { constraint }),
      onPrompt: async (slot) => {
        // Steps in flight go on: what is asked below takes time that they don't.
        firstAt = performance.now();
        before = await runner.counts();
        compressed = await kvCompressionStats(runner, slot, prompt.length);
        attention = await attentionStats(runner, engine.lengths(slot, prompt.length + 1));
      },
      onToken: (token, logits) => {
        if (signal.aborted) return true;
        lastAt = performance.now();
        if (tokens.length === 0 && logits) onFirstLogits?.(logits);
        tokens.push(token);
        add(deltaOf(answer.push(token, undefined)));
        return answer.stopped;
      },
    });
    const abort = (): void => handle.abort();
    signal.addEventListener('abort', abort, { once: true });
    try {
      const end = await handle.ended;
      cachedTokens = handle.cachedTokens;
      const last = answer.finish(end);
      add(deltaOf(last));
      detail = last.finish;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'aborted')) throw error;
  }
  const later = tokens.length - 1;
  return {
    text,
    ...(reasoning !== '' && { reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
    tokens,
    ...(answer.reasoningTokens > 0 && { reasoning_tokens: answer.reasoningTokens }),
    prompt_tokens: prompt.length,
    finish_reason: calls.length > 0 && REASONS[detail] === 'stop' ? 'tool_calls' : REASONS[detail],
    finish_detail: detail,
    seed,
    cachedTokens,
    compressed,
    attention,
    speed: {
      ttftMs: firstAt - started,
      tokensPerSecond: later > 0 ? later / ((lastAt - firstAt) / 1000) : 0,
      ranks: perToken(before, await runner.counts(), later),
    },
  };
}

/** What of an event is told; probabilities aren't. */
const deltaOf = ({ text, reasoning, toolCalls }: GenerationDelta): GenerationDelta => ({
  text,
  ...(reasoning !== undefined && { reasoning }),
  ...(toolCalls && { toolCalls }),
});

function perToken(before: readonly RankCounts[], after: readonly RankCounts[], tokens: number): Speed['ranks'] {
  return after.map((now, rank) => {
    const then = before[rank] ?? now;
    const exchanges = now.exchanges - then.exchanges;
    return {
      bytesPerToken: tokens > 0 ? (now.bytesSent - then.bytesSent) / tokens : 0,
      usPerExchange: exchanges > 0 ? ((now.waitMs - then.waitMs) * 1000) / exchanges : 0,
    };
  });
}
