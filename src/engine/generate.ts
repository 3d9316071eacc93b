import { abortedError, SplitkvError, throwIfAborted } from '../base/errors.js';
import { StopScanner } from '../tokenizer/index.js';
import type { AttentionStats, FinishReason, GenerateOptions, GenerateResult, KvCompressionStats } from './api.js';
import { attentionStats } from './attention_stats.js';
import { kvCompressionStats } from './kv_stats.js';
import type { PrefillWorker } from './prefill/prefill_worker.js';
import type { DrawOptions, RankCounts } from './ranks/rank.js';
import type { Runner } from './ranks/runner.js';
import { needTokenizer, type PromptReader } from './prompt_tokens.js';
import { checkSampling, randomSeed } from './ranks/sampling.js';
import { heldBack } from './ranks/sampling_options.js';

export type FinishDetail = GenerateResult['finish_detail'];

const REASONS: Record<FinishDetail, FinishReason> = {
  eos: 'stop',
  stop_token: 'stop',
  stop_string: 'stop',
  max_tokens: 'length',
  context_full: 'length',
  aborted: 'abort',
};

const DEFAULT_MAX_TOKENS = 256;

export interface TokenLoopOptions {
  readonly maxTokens: number;
  readonly eosIds: readonly number[];
  readonly stopTokenIds?: readonly number[] | undefined;
  readonly stepsInFlight: number;
  readonly signal: AbortSignal;
  /** The batch of one slot that the prompt is in. */
  readonly slot: number;
}

/**
 * Generated ids, in order, of the prompt in the slot. The sampled id never waits for the host: up to `stepsInFlight` steps are
 * submitted ahead, and what was computed past the end is dropped. Ends only when no step is in flight any more.
 */
export async function* tokenLoop(
  runner: Runner,
  prompt: readonly number[],
  options: TokenLoopOptions,
): AsyncGenerator<number, FinishDetail, undefined> {
  const { maxTokens, signal, stepsInFlight, slot } = options;
  // The first token comes from the prompt's last row; each later one writes a KV entry.
  const room = runner.contextLength - prompt.length + 1;
  const budget = Math.min(maxTokens, room);
  const eos = new Set(options.eosIds);
  const inFlight: Promise<number>[] = [];
  let submitted = 0;
  const submit = (): void => {
    const read = submitted === 0 ? runner.sampleFirst(slot) : runner.step(slot);
    const id = read.then((ids) => ids[0]!);
    id.catch(() => {}); // awaited below, or in the drain
    inFlight.push(id);
    submitted++;
  };
  try {
    for (let emitted = 0; emitted < budget; emitted++) {
      if (signal.aborted) return 'aborted';
      while (inFlight.length < stepsInFlight && submitted < budget) submit();
      const id = await inFlight.shift()!;
      if (eos.has(id)) return 'eos';
      if (options.stopTokenIds?.includes(id)) return 'stop_token';
      yield id;
    }
    return budget === maxTokens ? 'max_tokens' : 'context_full';
  } finally {
    await Promise.allSettled(inFlight);
  }
}

/** What a generation measured. */
export interface Speed {
  readonly tokensPerSecond: number;
  readonly ttftMs: number;
  /** Of each rank, over the decode steps: bytes sent per token, and the mean time of an exchange. */
  readonly ranks: readonly { readonly bytesPerToken: number; readonly usPerExchange: number }[];
}

/** Runs one generation to its end. Emits text as it becomes certain; resolves with the whole. */
export async function generate(
  runner: Runner,
  reader: PromptReader,
  prompt: readonly number[],
  eosIds: readonly number[],
  options: GenerateOptions & {
    readonly stepsInFlight: number;
    readonly slot: number;
    readonly prefiller?: PrefillWorker | undefined;
  },
  signal: AbortSignal,
  emit: (text: string) => void,
): Promise<
  Omit<GenerateResult, 'stats'> & {
    readonly speed: Speed;
    readonly compressed: KvCompressionStats | undefined;
    readonly attention: AttentionStats | undefined;
  }
> {
  const started = performance.now();
  const maxTokens = options.maxTokens ?? DEFAULT_MAX_TOKENS;
  const stops = options.stop == null ? [] : typeof options.stop === 'string' ? [options.stop] : options.stop;
  const seed = options.seed ?? randomSeed();
  checkSampling({ ...options, maxTokens, seed }, runner.config.vocabSize);

  const scanner = new StopScanner(stops);
  // Text after a prompt keeps the blank that a sentence's first token would lose.
  const tokenizer = stops.length > 0 ? needTokenizer(reader, 'a stop text') : reader.tokenizer;
  const stream = tokenizer?.stream({ continues: true });
  const tokens: number[] = [];
  let text = '';
  let detail: FinishDetail = 'aborted';
  let loop: ReturnType<typeof tokenLoop> | undefined;
  let before: readonly RankCounts[] = [];
  let compressed: KvCompressionStats | undefined;
  let attention: AttentionStats | undefined;
  let prefilledAt = started;
  let firstAt = started;
  let lastAt = started;
  // Stop texts are looked for in what comes after minTokens.
  const scan = (piece: string): { readonly text: string; readonly stopped?: string } =>
    tokens.length <= (options.minTokens ?? 0) ? { text: piece } : scanner.push(piece);
  const add = (piece: { readonly text: string }): void => {
    text += piece.text;
    emit(piece.text);
  };

  try {
    if (signal.aborted) throw abortedError('generate', signal);
    await computePrompt(runner, prompt, maxTokens, { ...options, ...heldBack(options, eosIds), seed }, signal);
    before = await runner.counts();
    prefilledAt = performance.now();
    compressed = await kvCompressionStats(runner, options.slot, prompt.length);
    attention = await attentionStats(runner);
    loop = tokenLoop(runner, prompt, {
      maxTokens,
      eosIds: options.ignoreEos ? [] : eosIds,
      stopTokenIds: options.stopTokenIds,
      stepsInFlight: options.stepsInFlight,
      signal,
      slot: options.slot,
    });
    let stopped = false;
    for (;;) {
      const next = await loop.next();
      if (next.done) {
        if (!stopped) detail = next.value;
        break;
      }
      lastAt = performance.now();
      if (tokens.length === 0) firstAt = lastAt;
      tokens.push(next.value);
      const piece = scan(stream?.push(next.value) ?? '');
      add(piece);
      if (piece.stopped !== undefined) {
        stopped = true;
        detail = 'stop_string';
        await loop.return('stop_string');
        break;
      }
    }
    if (!stopped) {
      const last = scan(stream?.flush() ?? '');
      add(last);
      if (last.stopped === undefined) add({ text: scanner.flush() });
      else detail = 'stop_string';
    }
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'aborted')) throw error;
  } finally {
    // Whatever ended it, no step may be in flight when the slot is freed.
    await loop?.return('aborted');
    await runner.release(options.slot);
  }
  // From the end of the prompt: between two reads there may be several steps, or none.
  const seconds = (lastAt - prefilledAt) / 1000;
  return {
    text,
    tokens,
    prompt_tokens: prompt.length,
    finish_reason: REASONS[detail],
    finish_detail: detail,
    seed,
    compressed,
    attention,
    speed: {
      ttftMs: firstAt - started,
      tokensPerSecond: tokens.length > 0 ? tokens.length / seconds : 0,
      ranks: perToken(before, await runner.counts(), tokens.length),
    },
  };
}

/** Where there is a prefill worker it computes the prompt, and the ranks take over what it gives. */
async function computePrompt(
  runner: Runner,
  prompt: readonly number[],
  maxTokens: number,
  { prefiller, slot, ...options }: DrawOptions & Pick<Parameters<typeof generate>[4], 'prefiller' | 'slot'>,
  signal: AbortSignal,
): Promise<void> {
  if (!prefiller) return runner.prefill(prompt, maxTokens, options, signal, slot);
  runner.checkPrompt(prompt);
  const kv = await prefiller.prefill(prompt, signal);
  throwIfAborted(signal, 'prefill');
  await runner.takeOver(prompt, maxTokens, options, kv, slot);
}

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
