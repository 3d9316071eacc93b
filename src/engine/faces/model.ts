import { anySignal, isLoss, messageOf, throwIfAborted, usageError } from '../../base/errors.js';
import { commonPrefix, nth, sum } from '../../base/lists.js';
import { checkOptions, defined, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { KV_BLOCK } from '../../base/kv_units.js';
import type {
  AttentionStats,
  ChatCompletions,
  Conversation,
  ConversationOptions,
  EmbedOptions,
  EmbedResult,
  RerankOptions,
  RerankResult,
  IndexedResult,
  GenerateOptions,
  GenerateResult,
  Generation,
  KeptEntries,
  LoadOptions,
  LogitsOptions,
  LogitsResult,
  Model,
  ModelInfo,
  Prompt,
  RunStats,
  TokenizeOptions,
  TuningStats,
  SelfTestResult,
} from '../contracts/api.js';
import { chatCompletions } from './chat_api.js';
import { generate, type GeneratedPrompt, GenerationStream, NO_SPEED, type PromptRows, type Speed } from './generate.js';
import { type ConversationHost, TalkingConversation } from './conversation.js';
import { Adapters } from '../serving/adapters.js';
import type { OpenedModel } from './load.js';
import { modelInfo } from './describe_model.js';
import {
  eosIds,
  isChat,
  needTokenizer,
  promptIds,
  type PromptReader,
  promptTokens,
  tokenIds,
} from '../serving/prompt_tokens.js';
import { roundsPrompts } from '../ranks/rank_group.js';
import type { Runner } from '../ranks/runner.js';
import type { EmbedHost } from '../serving/embed.js';
import { Engine } from '../serving/engine.js';
import { mayShare, optionsOfPlan } from '../serving/loop/scheduler_options.js';
import type { PromptRequest } from '../serving/loop/requests.js';
import type { Pictures } from '../serving/pictures.js';
import type { KeptPrefixes } from '../serving/kept_prefixes.js';
import type { Speculation } from '../serving/speculation/speculation.js';
import { planName } from '../../placement/index.js';
import { TextForms } from '../serving/text/forms.js';
import { answerSchema } from '../serving/text/reading.js';

type OptionsOfPlan = Awaited<ReturnType<typeof optionsOfPlan>>;

const logitsSchema: OptionsSchema<LogitsOptions> = {
  all: true,
  promptLength: true,
  adapter: true,
  onRow: true,
  signal: true,
};

export const generateSchema: OptionsSchema<GenerateOptions> = {
  ...answerSchema,
  maxTokens: wholeNumber(1),
  cachePrompt: true,
  timeAttention: true,
  continueFrom: true,
  onFirstLogits: true,
  client: true,
};

export type TalkOf = Pick<ConversationHost, 'reader' | 'pictures' | 'keep'> & {
  readonly info: ModelInfo;
  generation(rows: () => Promise<GeneratedPrompt>, options: GenerateOptions): Generation;
};

/** A conversation whose answers are sampled as the model's makers recommend; a caller's value wins. */
export function talkWith(model: TalkOf, options: ConversationOptions = {}): Conversation {
  const generate = (rows: () => Promise<PromptRows>, given: GenerateOptions): Generation => {
    checkOptions('send', given, generateSchema);
    if (given.continueFrom) throw usageError("send: a conversation's last answer goes on by continue()");
    return model.generation(async () => ({ ...(await rows()), isChat: true }), {
      ...model.info.sampling,
      ...(options.adapter !== undefined && { adapter: options.adapter }),
      ...given,
    });
  };
  const { reader, pictures, info } = model;
  const keep = (rows: PromptRows): Promise<void> => model.keep(rows);
  return new TalkingConversation({ reader, pictures, name: info.name, generate, keep }, options);
}

/** @throws SplitkvError `usage` for options that `generateMany` doesn't take */
export function checkMany(options: GenerateOptions): void {
  checkOptions('generateMany', options, generateSchema);
  if (options.continueFrom) throw usageError('generateMany: continueFrom is of one answer; use generate');
}

/**
 * Results as they end, with their numbers; leaving the iteration aborts the rest.
 * @param run one of them, with options that end it
 */
export async function* asTheyEnd(
  count: number,
  signal: AbortSignal | undefined,
  run: (index: number, options: { readonly signal: AbortSignal }) => Generation,
): AsyncGenerator<IndexedResult, void, undefined> {
  const left = new AbortController();
  const both = anySignal(left.signal, signal);
  const running = new Map(
    Array.from({ length: count }, (_, index) => {
      const { result } = run(index, { signal: both });
      return [index, result.then((done) => ({ index, ...done }))];
    }),
  );
  for (const result of running.values()) result.catch(() => {}); // awaited below, or left
  try {
    while (running.size > 0) {
      const next = await Promise.race(running.values());
      running.delete(next.index);
      yield next;
    }
  } finally {
    left.abort();
    await Promise.allSettled(running.values());
  }
}

export class LoadedModel implements Model {
  info: ModelInfo;
  readonly adapters: Adapters;
  readonly chat: { readonly completions: ChatCompletions };
  readonly reader: PromptReader;
  readonly #eosIds: readonly number[];
  readonly #forms: TextForms;
  #engine: Engine;
  readonly #disposal = new AbortController();
  #kept: KeptPrefixes | undefined;
  #toldOfIdle = false;
  #repair: Promise<void> | undefined;
  #speed: Speed = { tokensPerSecond: 0, ttftMs: 0, ranks: [] };

  constructor(
    readonly opened: OpenedModel,
    readonly how: Pick<LoadOptions, 'prefixCaching' | 'attentionDpConfig' | 'onWarning'> & {
      readonly stepsInFlight: number | 'auto';
      readonly speculation?: Speculation | undefined;
    },
    ofPlan: OptionsOfPlan = {},
    kept?: KeptPrefixes,
  ) {
    this.#kept = kept;
    const { config, group, tokenizer, noTokenizer } = opened;
    this.adapters = opened.adapters ?? new Adapters(group);
    this.reader = { tokenizer, noTokenizer, contextLength: group.runner.contextLength };
    this.#eosIds = eosIds(config, tokenizer);
    this.#forms = new TextForms(this.reader, config.vocabSize, this.#eosIds);
    this.#engine = this.#open(ofPlan);
    this.info = modelInfo(opened);
    this.chat = { completions: chatCompletions(opened.name, (prompt, options) => this.generate(prompt, options)) };
  }

  /** Opens a model whose ranks are ready. */
  static async of(opened: OpenedModel, how: LoadedModel['how']): Promise<LoadedModel> {
    return new LoadedModel(opened, how, await optionsOfPlan(opened.group, how), await opened.openKept?.());
  }

  get pictures(): Pictures | undefined {
    return this.opened.pictures;
  }

  #open(ofPlan: OptionsOfPlan): Engine {
    const { runner } = this.opened.group;
    const { slots, batches = 1 } = runner.options;
    return new Engine(this.opened.group, {
      slots: slots * batches,
      tokensPerIteration: runner.promptTokens + slots * batches,
      iterationsInFlight: this.how.stepsInFlight,
      ...ofPlan,
      prefixCaching: this.how.prefixCaching ?? mayShare(this.opened.group, this.opened.prefiller),
      prefiller: this.opened.prefiller,
      pictures: this.opened.pictures,
      adapters: this.adapters,
      speculation: this.how.speculation,
      kept: this.#kept,
      recover: false,
    });
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return this.generation(async () => {
      checkOptions('generate', options, generateSchema);
      const { continueFrom } = options;
      return {
        prompt: await this.readPrompt(prompt, options),
        ...(continueFrom && { continuation: tokenIds(continueFrom) }),
        isChat: isChat(prompt),
      };
    }, options);
  }

  /** Runs what `rows` gives, once the model is known to be usable. */
  generation(rows: () => GeneratedPrompt | Promise<GeneratedPrompt>, options: GenerateOptions): Generation {
    return new GenerationStream(async (emit, left) => {
      await this.#ready();
      const host = { engine: this.#engine, reader: this.reader, eosIds: this.#eosIds, forms: this.#forms };
      const found = await rows();
      // What can't be looked for is computed.
      if (found.kept) await this.#keeps().catch((error: unknown) => this.how.onWarning?.(messageOf(error)));
      const done = await generate(host, found, options, anySignal(this.#disposal.signal, left, options.signal), emit);
      const { speed, compressed, attention, cachedTokens, speculation, ...result } = done;
      this.#speed = speed;
      if (attention) this.#warnOfIdle(attention);
      return {
        ...result,
        stats: {
          ...this.stats(),
          cached_tokens: cachedTokens,
          ...defined({ speculation, attention, kv_compression: compressed }),
          ...this.#predicted(result),
        },
      };
    });
  }

  async *generateMany(
    prompts: readonly Prompt[],
    options: GenerateOptions = {},
  ): AsyncGenerator<IndexedResult, void, undefined> {
    checkMany(options);
    const rows: GeneratedPrompt[] = [];
    for (const prompt of prompts) rows.push({ prompt: await this.readPrompt(prompt, options), isChat: isChat(prompt) });
    const shared = commonPrefix(rows.map(({ prompt }) => prompt));
    // Together they would each compute it.
    if (rows.length > 1 && shared.length >= KV_BLOCK && this.#engine.options.prefixCaching) {
      await this.#compute('generateMany', options.signal, { prompt: shared, adapter: options.adapter });
    }
    yield* asTheyEnd(rows.length, options.signal, (index, ends) =>
      this.generation(() => nth(rows, index), { ...options, ...ends }),
    );
  }

  conversation(options?: ConversationOptions): Conversation {
    this.#assertOpen();
    return talkWith(this, options);
  }

  async keep(rows: PromptRows): Promise<void> {
    await this.#ready();
    await this.#keeps();
    await this.#engine.keep(rows);
  }

  /** From now on keys and values may be kept, and looked for. @throws SplitkvError as `Engine.checkKept` */
  async #keeps(): Promise<void> {
    this.#engine.checkKept();
    if (!this.#kept?.kept) this.#kept = await this.opened.openKept?.(true);
    if (this.#kept) this.#engine.kept = this.#kept;
  }

  async logits(
    tokens: readonly number[] | Uint32Array | Int32Array,
    options: LogitsOptions = {},
  ): Promise<LogitsResult> {
    this.#assertUsable();
    checkOptions('logits', options, logitsSchema);
    const positions: number[] = [];
    const rows: Float32Array[] = [];
    const ids = tokenIds(tokens);
    const { promptLength = ids.length } = options;
    if (
      options.promptLength !== undefined &&
      !(Number.isInteger(promptLength) && promptLength >= 1 && promptLength <= ids.length)
    ) {
      throw usageError(`promptLength ${promptLength}: expected an integer from 1 to the ${ids.length} tokens given`);
    }
    this.opened.group.runner.checkPrompt(ids);
    const onRow = (position: number, row: Float32Array): void => {
      positions.push(position);
      if (options.onRow) options.onRow(position, row);
      else rows.push(row);
    };
    await this.#compute('logits', options.signal, {
      prompt: ids.slice(0, promptLength),
      continuation: ids.slice(promptLength),
      promptRows: { all: options.all ?? false, onRow },
      adapter: options.adapter,
    });
    return { positions, rows };
  }

  /** As `Engine.compute`, once the model is known to be usable. */
  async #compute(what: string, signal: AbortSignal | undefined, request: PromptRequest): Promise<void> {
    const signals = anySignal(this.#disposal.signal, signal);
    throwIfAborted(signals, what);
    await this.#ready();
    await this.#engine.compute(what, request, signals);
  }

  async embed(texts: string | readonly Prompt[], options: EmbedOptions = {}): Promise<EmbedResult> {
    await this.#ready();
    const { embed } = await import('../serving/embed.js');
    return embed(await this.#embedHost(), texts, {
      ...options,
      signal: anySignal(this.#disposal.signal, options.signal),
    });
  }

  async rerank(query: string, documents: readonly string[], options: RerankOptions = {}): Promise<RerankResult> {
    await this.#ready();
    const { rerank } = await import('../serving/embed.js');
    return rerank(await this.#embedHost(), query, documents, {
      ...options,
      signal: anySignal(this.#disposal.signal, options.signal),
    });
  }

  async #embedHost(): Promise<EmbedHost> {
    const { withPrompts } = await import('../serving/embed.js');
    const { sentenceFiles, pooling } = this.opened;
    const files = (await sentenceFiles?.()) ?? {};
    return { engine: this.#engine, reader: withPrompts(this.reader, files), files, pooling };
  }

  async selfTest({ signal }: { readonly signal?: AbortSignal } = {}): Promise<SelfTestResult> {
    const { readSelfTest, runSelfTest } = await import('./self_test.js');
    const result = await runSelfTest(
      this,
      this.opened.source ? await readSelfTest(this.opened.source, signal) : [],
      signal,
    );
    const damage = result.passed ? undefined : await this.opened.source?.damage?.(signal);
    return damage === undefined ? result : { ...result, problem: damage, damaged: true };
  }

  async kept(prompt: Prompt, options: { readonly signal?: AbortSignal } = {}): Promise<KeptEntries> {
    this.#assertUsable();
    const { runner } = this.opened.group;
    if (!runner.options.compression) {
      throw usageError('kept: nothing is compressed; load the model with a kvBudget, such as 0.2');
    }
    const tokens = await this.readPrompt(prompt);
    const { numLayers, kvHeads } = this.info.shape;
    const layers = Array.from({ length: numLayers }, () => new Array<number>(kvHeads).fill(tokens.length));
    await this.#compute('kept', options.signal, {
      prompt: tokens,
      onPrompt: async (slot) => {
        for (const { kept } of await runner.cacheUse(slot)) {
          for (const { layer, head, entries } of kept) nth(layers, layer)[head] = entries;
        }
      },
    });
    return { promptTokens: tokens.length, layers };
  }

  readPrompt(prompt: Prompt, options?: TokenizeOptions): Promise<readonly number[]> {
    return promptIds(prompt, this.reader, this.opened.pictures, options);
  }

  tokenize(prompt: Prompt, options: TokenizeOptions = {}): number[] {
    return tokenizeWith(this.reader, prompt, options);
  }

  detokenize(tokens: readonly number[]): string {
    return needTokenizer(this.reader, 'detokenize').decode([...tokens], { skipSpecial: true });
  }

  stats(): RunStats {
    const { runner } = this.opened.group;
    const adapters = [...new Set(this.info.ranks.map(({ adapter }) => adapter))];
    return {
      tokens_per_second: this.#speed.tokensPerSecond,
      ttft_ms: this.#speed.ttftMs,
      dispatches_per_token: runner.dispatchesPerToken,
      exchanges_per_token: runner.exchangesPerToken,
      adapter: adapters.join(' + '),
      ranks: this.info.ranks.map(({ adapter, weightBytes: weight_bytes, kvBytes: kv_bytes }, rank) => ({
        adapter,
        weight_bytes,
        kv_bytes,
        ...(this.#speed.ranks[rank] ?? NO_SPEED),
      })),
      plan: this.info.plan.policy,
      precision: roundsPrompts(runner.ranks) ? 'fast' : 'exact',
      variants: variantsOf(runner),
      tuning: tuningOf(runner),
    };
  }

  /** Once, of ranks that keep whole sequences and had none, as only one request ran. */
  #warnOfIdle({ kv_tokens_per_step: read }: AttentionStats): void {
    const { owners, plan } = this.opened.group.runner;
    const keepers = read.filter((_, rank) => owners.keptPlaces(rank).length === 1 && owners.keptSlots(rank) > 0);
    const idle = keepers.filter((tokens) => tokens === 0).length;
    if (idle === 0 || idle < keepers.length / 2 || this.#toldOfIdle) return;
    this.#toldOfIdle = true;
    const instead = plan.stages.some(({ kind }) => kind === 'token') ? 'token x sp' : 'tp';
    this.how.onWarning?.(
      `${planName(plan)}: ${idle} of ${keepers.length} ranks that keep caches had none to attend to, as a request is on one of ` +
        `them: send several at once, or use plan '${instead}', which splits each`,
    );
  }

  #predicted({ prompt_tokens: prompt, tokens }: Omit<GenerateResult, 'stats'>): Pick<RunStats, 'predicted'> {
    const picked = this.opened.planned?.chosen.picked;
    if (!picked || tokens.length === 0) return {};
    const { tokensPerSecond, ttftMs } = picked.predict(prompt, tokens.length);
    return { predicted: { tokens_per_second: tokensPerSecond, ttft_ms: ttftMs } };
  }

  async recover({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    this.#assertOpen();
    await this.#engine.close();
    await this.opened.group.recover(signal);
    await this.adapters.restore();
    await this.opened.prefiller?.recover(signal);
    // Adapters, too.
    if (this.#kept) this.#kept = await this.opened.openKept?.(this.#kept.kept !== undefined);
    this.#engine = this.#open(await optionsOfPlan(this.opened.group, this.how));
    // Other devices may have taken the place of those that were lost, and the plan may be another.
    this.info = modelInfo(this.opened);
  }

  async dispose(): Promise<void> {
    this.#disposal.abort(new Error('the model was disposed'));
    this.#forms.dispose();
    await this.#engine.dispose();
  }

  /** @throws SplitkvError where only `recover` helps, or nothing. What ended the engine otherwise is over: it begins anew. */
  async #ready(): Promise<void> {
    this.#assertUsable();
    const { failure } = this.#engine;
    if (failure === undefined || isLoss(failure)) return;
    this.#repair ??= this.recover().finally(() => (this.#repair = undefined));
    await this.#repair;
  }

  #assertOpen(): void {
    if (this.#disposal.signal.aborted) throw usageError('this model was disposed; load it again');
  }

  #assertUsable(): void {
    this.#assertOpen();
    this.opened.group.assertUsable();
    this.opened.prefiller?.assertUsable();
  }
}

/** As of `Model.tokenize`. */
export function tokenizeWith(reader: PromptReader, prompt: Prompt, options: TokenizeOptions): number[] {
  return [...promptTokens(prompt, { ...reader, contextLength: Infinity }, options)];
}

/** What runs of each kernel, on all ranks. */
function variantsOf({ ranks }: Runner): RunStats['variants'] {
  const all = new Map<string, Set<string>>();
  for (const { facts } of ranks) {
    for (const [kernel, own] of Object.entries(facts.variants)) {
      all.set(kernel, new Set([...(all.get(kernel) ?? []), ...own.split(' + ')]));
    }
  }
  return Object.fromEntries([...all].map(([kernel, found]) => [kernel, [...found].sort().join(' + ')]));
}

function tuningOf({ ranks }: Runner): TuningStats {
  const all = ranks.flatMap(({ facts }) => facts.tuning ?? []);
  const total = (of: 'choices' | 'known' | 'measured' | 'left' | 'ms'): number => sum(all.map((tuning) => tuning[of]));
  const chosen: Record<string, number> = {};
  for (const [what, count] of all.flatMap((tuning) => Object.entries(tuning.chosen))) {
    chosen[what] = (chosen[what] ?? 0) + count;
  }
  return {
    state: all.find(({ state }) => state === 'on')?.state ?? all[0]?.state ?? 'off',
    choices: total('choices'),
    known: total('known'),
    measured: total('measured'),
    left: total('left'),
    chosen,
    ms: total('ms'),
  };
}
