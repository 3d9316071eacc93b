import { SplitkvError, usageError } from '../base/errors.js';
import type { ModelConfig } from '../model/config.js';
import { modelShape } from '../model/shape.js';
import { weightBytes } from '../model/weight_bytes.js';
import type { Tokenizer } from '../tokenizer/index.js';
import type {
  ChatCompletions,
  GenerateOptions,
  Generation,
  LogitsOptions,
  LogitsResult,
  Model,
  ModelInfo,
  Prompt,
  RunStats,
} from './api.js';
import { chatCompletions } from './chat_api.js';
import { generate } from './generate.js';
import { GenerationStream } from './generation_stream.js';
import type { Speed } from './generate.js';
import type { ModelRanks } from './rank_group.js';
import type { Runner } from './runner.js';
import { Turns } from './turns.js';

const OPTION_NAMES = [
  'temperature',
  'topK',
  'topP',
  'repetitionPenalty',
  'seed',
  'maxTokens',
  'stop',
  'signal',
  'ignoreEos',
];

export class LoadedModel implements Model {
  readonly info: ModelInfo;
  readonly chat: { readonly completions: ChatCompletions };
  readonly #config: ModelConfig;
  readonly #group: ModelRanks;
  readonly #tokenizer: Tokenizer | undefined;
  readonly #stepsInFlight: number;
  readonly #turns: Turns;
  readonly #disposal = new AbortController();
  #speed: Speed = { tokensPerSecond: 0, ttftMs: 0, ranks: [] };

  constructor(
    config: ModelConfig,
    group: ModelRanks,
    tokenizer: Tokenizer | undefined,
    facts: { readonly name: string; readonly stepsInFlight: number; readonly loadSeconds: number },
  ) {
    const { runner } = group;
    const { type, plan } = group.options;
    this.#config = config;
    this.#group = group;
    this.#tokenizer = tokenizer;
    this.#stepsInFlight = facts.stepsInFlight;
    this.#turns = new Turns(runner.options.batches ?? 1);
    this.info = {
      name: facts.name,
      architecture: config.architecture,
      numLayers: config.numLayers,
      hiddenSize: config.hiddenSize,
      vocabSize: config.vocabSize,
      contextLength: runner.contextLength,
      parameters: weightBytes(config, type).parameters,
      weights: type,
      kv: runner.kv.type,
      hasChatTemplate: tokenizer?.hasChatTemplate ?? false,
      adapter: group.adapter,
      weightBytes: runner.ranks.reduce((sum, { facts: { weightBytes: bytes } }) => sum + bytes, 0),
      kvBytes: runner.kv.bytes,
      kvBytesPerToken: runner.kv.bytesPerToken,
      loadSeconds: facts.loadSeconds,
      plan,
      shape: modelShape(config),
      ranks: runner.ranks.map(({ facts: { adapter, weightBytes: bytes, kvBytes } }) => ({
        adapter,
        weightBytes: bytes,
        kvBytes,
      })),
    };
    this.chat = { completions: chatCompletions(facts.name, (prompt, options) => this.generate(prompt, options)) };
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return new GenerationStream((emit, left) => {
      const signals = [left, this.#disposal.signal, ...(options.signal ? [options.signal] : [])];
      return this.#turns.run(async (slot) => {
        this.#assertUsable();
        for (const name of Object.keys(options)) {
          if (!OPTION_NAMES.includes(name))
            throw usageError(`generate: unknown option '${name}'; use ${OPTION_NAMES.join(', ')}`);
        }
        const { speed, ...result } = await generate(
          this.#runner,
          this.#tokenizer,
          this.#promptTokens(prompt),
          this.#eosIds(),
          { ...options, stepsInFlight: this.#stepsInFlight, slot },
          AbortSignal.any(signals),
          emit,
        );
        this.#speed = speed;
        return { ...result, stats: this.stats() };
      });
    });
  }

  logits(tokens: readonly number[] | Uint32Array | Int32Array, options: LogitsOptions = {}): Promise<LogitsResult> {
    return this.#turns.alone(async () => {
      this.#assertUsable();
      const signal = AbortSignal.any([this.#disposal.signal, ...(options.signal ? [options.signal] : [])]);
      const positions: number[] = [];
      const rows: Float32Array[] = [];
      await this.#runner.logits(
        tokenIds(tokens),
        options.all ?? false,
        (position, row) => {
          positions.push(position);
          if (options.onRow) options.onRow(position, row);
          else rows.push(row);
        },
        signal,
      );
      return { positions, rows };
    });
  }

  tokenize(text: string): number[] {
    return [...this.#needTokenizer('tokenize').encode(text, { addSpecial: true })];
  }

  detokenize(tokens: readonly number[]): string {
    return this.#needTokenizer('detokenize').decode([...tokens], { skipSpecial: true });
  }

  stats(): RunStats {
    const { runner } = this.#group;
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
        bytes_per_token: this.#speed.ranks[rank]?.bytesPerToken ?? 0,
        us_per_exchange: this.#speed.ranks[rank]?.usPerExchange ?? 0,
      })),
      plan: this.info.plan.policy,
    };
  }

  recover({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    return this.#turns.alone(async () => {
      this.#assertOpen();
      await this.#group.recover(signal);
    });
  }

  async dispose(): Promise<void> {
    this.#disposal.abort(new Error('the model was disposed'));
    await this.#turns.idle();
    await this.#group.dispose();
  }

  get #runner(): Runner {
    return this.#group.runner;
  }

  #assertOpen(): void {
    if (this.#disposal.signal.aborted) throw usageError('this model was disposed; load it again');
  }

  #assertUsable(): void {
    this.#assertOpen();
    this.#group.assertUsable();
  }

  #promptTokens(prompt: Prompt): readonly number[] {
    if (typeof prompt === 'object' && !('messages' in (prompt ?? {}))) return tokenIds(prompt);
    if (typeof prompt === 'string') {
      if (prompt === '') throw usageError('the prompt is empty: give at least one character');
      return this.tokenize(prompt);
    }
    const messages: unknown = (prompt as { messages?: unknown } | undefined)?.messages;
    if (!Array.isArray(messages))
      throw usageError(`a prompt must be a text, token ids or {messages: [...]}; got ${typeof prompt}`);
    const tokenizer = this.#needTokenizer('a chat prompt');
    const text = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
    // The template writes the special tokens itself.
    return tokenizer.encode(text, { addSpecial: false });
  }

  #eosIds(): readonly number[] {
    return [...new Set([...this.#config.eosTokenIds, ...(this.#tokenizer?.eosIds ?? [])])];
  }

  #needTokenizer(what: string): Tokenizer {
    if (!this.#tokenizer) {
      throw new SplitkvError(
        'io',
        `${what} needs a tokenizer, and the model folder has no tokenizer.json; pass token ids, or add the file`,
      );
    }
    return this.#tokenizer;
  }
}

/** Token ids in any list-like form as an array. @throws SplitkvError `usage` for anything else. */
function tokenIds(tokens: unknown): readonly number[] {
  if (Array.isArray(tokens)) return tokens as number[];
  if (tokens instanceof Uint32Array || tokens instanceof Int32Array) return [...tokens];
  throw usageError(
    `token ids must be an array, Uint32Array or Int32Array; got ${tokens === null ? 'null' : typeof tokens}`,
  );
}
