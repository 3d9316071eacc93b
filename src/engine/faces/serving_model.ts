import { type ErrorCode, SplitkvError, usageError } from '../../base/errors.js';
import { checkOptions, defined, type OptionsSchema, wholeNumber } from '../../base/options.js';
import type { Source } from '../../loader/index.js';
import type {
  EmbedOptions,
  EmbedResult,
  ModelAdapters,
  Prompt,
  RerankOptions,
  RerankResult,
  TokenizeOptions,
} from '../contracts/api.js';
import { loadSchema } from '../contracts/load_options.js';
import { type ModelFacts, modelInfo, type Seats } from './describe_model.js';
import { Adapters } from '../serving/adapters.js';
import { type JoinPlaces, type OpenedModel, openModel } from './load.js';
import {
  chatText,
  checkTaken,
  eosIds,
  hasMedia,
  isChat,
  mediaIn,
  needTokenizer,
  promptIds,
  type PromptReader,
  type PromptSource,
  promptTokens,
  type TextFacts,
  textFacts,
  withTokens,
} from '../serving/prompt_tokens.js';
import type { FormWait } from '../../grammar/threads/form_threads.js';
import type {
  Completion,
  CompletionOptions,
  ServeOptions,
  ServingInfo,
  ServingMetrics,
  ServingModel,
} from '../serving/api.js';
import { type CompletionHost, RunningCompletion } from '../serving/text/completion.js';
import { checkForm, TextForms } from '../serving/text/forms.js';
import { checkTools, frameOf, wantsFrame } from '../serving/text/reading.js';
import { embed, type EmbedHost, rerank, withPrompts } from '../serving/embed.js';
import type { SentenceFiles } from '../files/sentence_files.js';
import { Engine, WAIT_SECONDS } from '../serving/engine.js';
import type { EngineOptions } from '../serving/loop/requests.js';
import { mayShare, optionsOfPlan } from '../serving/loop/scheduler_options.js';
import type { Runner } from '../ranks/runner.js';
import { speculationOf } from '../serving/speculation/speculate_option.js';
import { Histogram } from '../serving/histogram.js';
import { kvBlocksOf } from './kv_pool.js';
import { microBatchesOf } from '../planning/seats.js';

const DEFAULT_SLOTS = 16;
const MAX_SLOTS = 256;
const DEFAULT_TOKENS_PER_ITERATION = 512;
const NEXT_TOKEN_SECONDS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5];

const { requests: _requests, stepsInFlight: _steps, share: _share, idle: _idle, ...shared } = loadSchema;
const serveSchema: OptionsSchema<ServeOptions> = {
  ...shared,
  slots: wholeNumber(1, MAX_SLOTS),
  kvBlocks: true,
  kvMemory: true,
  tokensPerIteration: wholeNumber(1, 2 ** 20),
  microBatches: true,
  onFailure: true,
};
const REQUESTS_FAULT: readonly ErrorCode[] = ['usage', 'context_full', 'aborted'];

/** What splitkv's `serve` does (src/entry.ts). @param join as of `load` */
export async function serve(
  where: string | URL | readonly File[] | Source,
  options: ServeOptions = {},
  join?: JoinPlaces,
): Promise<ServingModel> {
  const {
    slots = DEFAULT_SLOTS,
    kvBlocks,
    kvMemory,
    tokensPerIteration,
    microBatches = 'auto',
    onFailure,
    ...loadOptions
  } = options;
  const { prefixCaching, attentionDpConfig } = loadOptions;
  for (const name of ['requests', 'stepsInFlight']) {
    if (name in options) throw usageError(`serve: option '${name}' is load's; serve takes slots`);
  }
  checkOptions('serve', options, serveSchema);
  const pool = defined({ kvBlocks, kvMemory });
  const { memory } = loadOptions;
  const seats = (facts: ModelFacts): Seats => {
    const { worldSize } = facts.plan;
    // On fewer ranks than there were, any of them may be the one with least.
    const same = typeof memory === 'number' || memory?.length === worldSize ? memory : memory && Math.min(...memory);
    const budgets = typeof same === 'number' ? Array.from({ length: worldSize }, () => same) : same;
    const { count } = microBatchesOf(facts.plan, slots, microBatches);
    const own = Math.ceil(slots / count);
    return { slots: own, batches: count, kvBlocks: kvBlocksOf(facts, own * count, pool, budgets, count) };
  };
  const opened = await openModel(where, loadOptions, seats, { together: slots, join });
  try {
    const forPlan = async () => {
      const { plan, options: set } = opened.group.runner;
      return {
        slots: set.slots * (set.batches ?? 1),
        rowsPerMicroBatch: microBatchesOf(plan, slots, microBatches).rowsEach,
        ...(await optionsOfPlan(opened.group, { attentionDpConfig })),
      };
    };
    const files = (await opened.sentenceFiles?.()) ?? {};
    const engineOptions: EngineOptions = {
      ...(await forPlan()),
      forPlan,
      tokensPerIteration: tokensPerIteration ?? DEFAULT_TOKENS_PER_ITERATION,
      prefixCaching: prefixCaching ?? mayShare(opened.group, opened.prefiller),
      prefiller: opened.prefiller,
      pictures: opened.pictures,
      speculation: await speculationOf(loadOptions.speculate, opened.draft),
      kept: await opened.openKept?.(),
      onFailure,
    };
    return new EngineServingModel(opened, engineOptions, files);
  } catch (error) {
    await opened.prefiller?.dispose();
    await opened.draft?.dispose();
    await opened.group.dispose();
    throw error;
  }
}

/** Text over the engine. */
export class EngineServingModel implements ServingModel {
  readonly promptSource: PromptSource;
  readonly texts: TextFacts;
  readonly adapters: ModelAdapters;
  readonly #engine: Engine;
  #told: { readonly of: readonly [EngineOptions, Runner]; readonly info: ServingInfo } | undefined;
  readonly #reader: PromptReader;
  readonly #host: CompletionHost;
  readonly #firstToken = new Histogram(WAIT_SECONDS);
  readonly #nextToken = new Histogram(NEXT_TOKEN_SECONDS);
  #unfinished = 0;
  failure: unknown;

  /**
   * @param files what they say of vectors of texts
   * @throws SplitkvError `usage` for impossible options
   */
  constructor(
    private readonly opened: OpenedModel,
    options: EngineOptions,
    private readonly files: SentenceFiles = {},
  ) {
    const { config, tokenizer, tokenizerFiles, noTokenizer, group } = opened;
    const { contextLength } = group.runner;
    const onFailure = (error: unknown): void => {
      this.failure ??= error;
      options.onFailure?.(error);
    };
    const { adapters = new Adapters(group) } = opened;
    this.adapters = adapters;
    this.#engine = new Engine(group, { ...options, adapters, onFailure });
    const { prefixCaching = false } = options;
    this.#reader = withPrompts({ tokenizer, noTokenizer, contextLength }, files);
    const why = noTokenizer && { code: noTokenizer.code, message: noTokenizer.message };
    this.texts = textFacts(tokenizer, opened.source?.gguf === undefined ? 'safetensors' : 'gguf');
    this.promptSource = { tokenizerFiles, noTokenizer: why, contextLength, prompts: this.#reader.prompts };
    this.#host = {
      engine: this.#engine,
      tokenizer,
      eosIds: eosIds(config, tokenizer),
      forms: new TextForms(this.#reader, config.vocabSize, eosIds(config, tokenizer)),
      vocabSize: config.vocabSize,
      sharesPrompt: prefixCaching,
      firstToken: this.#firstToken,
      nextToken: this.#nextToken,
      count: (change) => (this.#unfinished += change),
    };
  }

  get info(): ServingInfo {
    const { options, metrics, ranks } = this.#engine;
    const { runner } = ranks;
    // After a recovery ranks, and their plan, may be others.
    if (this.#told?.of[0] !== options || this.#told.of[1] !== runner) {
      const { slots, prefixCaching = false } = options;
      const { batches = 1 } = runner.options;
      const { kvBlocks } = metrics;
      const info = { ...modelInfo(this.opened), slots, microBatches: batches, kvBlocks, prefixCaching };
      this.#told = { of: [options, runner], info };
    }
    return this.#told.info;
  }

  get slots(): ServingModel['slots'] {
    return this.#engine.slots;
  }

  get metrics(): ServingMetrics {
    return {
      ...this.#engine.metrics,
      unfinished: this.#unfinished,
      firstToken: this.#firstToken.counts,
      nextToken: this.#nextToken.counts,
    };
  }

  async prepare(options: CompletionOptions, prompts: readonly Prompt[] = [], wait?: FormWait): Promise<void> {
    checkForm(options);
    checkTools(options);
    const { tokenizer } = this.#reader;
    if (!wantsFrame(options)) return;
    const frames = prompts.flatMap((prompt) => {
      try {
        return [frameOf(tokenizer, promptTokens(prompt, this.#reader, options), options, isChat(prompt))];
      } catch {
        return []; // complete tells it
      }
    });
    if (frames.length === 0) frames.push(frameOf(tokenizer, [], options, false));
    await Promise.all(frames.map((frame) => this.#host.forms.compile(options, frame, wait)));
  }

  readPrompt(prompt: Prompt, options?: TokenizeOptions): Promise<readonly number[]> {
    return promptIds(prompt, this.#reader, this.opened.pictures, options);
  }

  complete(prompt: Prompt, options: CompletionOptions = {}): Completion {
    return this.completeAll([prompt], options);
  }

  completeAll(prompts: readonly Prompt[], options: CompletionOptions = {}): Completion {
    if (this.failure !== undefined) throw this.failure;
    if (prompts.length === 0) throw usageError('complete: there is no prompt; give at least one');
    // An answer of ids has no text for them to be in.
    if (options.stop !== undefined && options.stop.length > 0) needTokenizer(this.#reader, 'a stop text');
    const tokens = prompts.map((prompt) => promptTokens(prompt, this.#reader, options));
    try {
      const ending = withTokens(prompts, options, this.#reader);
      return new RunningCompletion(this.#host, tokens, ending, prompts.map(isChat));
    } catch (error) {
      if (!(error instanceof SplitkvError && REQUESTS_FAULT.includes(error.code))) this.failure ??= error;
      throw error;
    }
  }

  embed(texts: string | readonly Prompt[], options: EmbedOptions = {}): Promise<EmbedResult> {
    return this.#embedded((host) => embed(host, texts, options));
  }

  rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<RerankResult> {
    return this.#embedded((host) => rerank(host, query, documents, options));
  }

  async #embedded<T>(body: (host: EmbedHost) => Promise<T>): Promise<T> {
    if (this.failure !== undefined) throw this.failure;
    const { engine, count } = this.#host;
    const { pooling } = this.opened;
    try {
      return await body({ engine, reader: this.#reader, files: this.files, pooling, count });
    } catch (error) {
      this.failure ??= engine.failure;
      throw error;
    }
  }

  tokenize(prompt: Prompt, options: TokenizeOptions = {}): number[] {
    return [...promptTokens(prompt, { ...this.#reader, contextLength: Infinity }, options)];
  }

  chatText(prompt: Prompt, options?: TokenizeOptions): string {
    const { vision: images, sound: sounds } = this.opened.pictures ?? {};
    if (hasMedia(prompt)) checkTaken(mediaIn(prompt), { images, sounds });
    return chatText(prompt, needTokenizer(this.#reader, 'a chat prompt'), options, true);
  }

  detokenize(tokens: readonly number[]): string {
    return needTokenizer(this.#reader, 'detokenize').decode(tokens, { skipSpecial: false });
  }

  tokenBytes(token: number): Uint8Array {
    return needTokenizer(this.#reader, 'tokenBytes').piece(token, false)?.bytes ?? new Uint8Array();
  }

  dispose(): Promise<void> {
    this.#host.forms.dispose();
    return this.#engine.dispose();
  }
}
