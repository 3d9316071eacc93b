import { SplitkvError, usageError } from '../base/errors.js';
import type { Device } from '../gpu/index.js';
import type { ModelConfig } from '../model/config.js';
import type { DeviceModel } from '../model/family.js';
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
import { Mutex } from './mutex.js';
import type { Runner } from './runner.js';

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
  readonly #device: Device;
  readonly #config: ModelConfig;
  readonly #runner: Runner;
  readonly #tokenizer: Tokenizer | undefined;
  readonly #stepsInFlight: number;
  readonly #turn = new Mutex();
  readonly #disposal = new AbortController();
  #speed = { tokensPerSecond: 0, ttftMs: 0 };

  constructor(
    device: Device,
    config: ModelConfig,
    weights: DeviceModel,
    runner: Runner,
    tokenizer: Tokenizer | undefined,
    facts: { readonly name: string; readonly stepsInFlight: number; readonly loadSeconds: number },
  ) {
    this.#device = device;
    this.#config = config;
    this.#runner = runner;
    this.#tokenizer = tokenizer;
    this.#stepsInFlight = facts.stepsInFlight;
    this.info = {
      name: facts.name,
      architecture: config.architecture,
      numLayers: config.numLayers,
      hiddenSize: config.hiddenSize,
      vocabSize: config.vocabSize,
      contextLength: runner.contextLength,
      parameters: weights.parameters,
      weights: weights.type,
      kv: runner.kv.type,
      hasChatTemplate: tokenizer?.hasChatTemplate ?? false,
      adapter: { ...device.adapter, name: device.name },
      weightBytes: weights.bytes,
      kvBytes: runner.kv.bytes,
      kvBytesPerToken: runner.kv.bytesPerToken,
      loadSeconds: facts.loadSeconds,
    };
    this.chat = { completions: chatCompletions(facts.name, (prompt, options) => this.generate(prompt, options)) };
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return new GenerationStream((emit, left) => {
      const signals = [left, this.#disposal.signal, ...(options.signal ? [options.signal] : [])];
      return this.#turn.run(async () => {
        this.#assertUsable();
        for (const name of Object.keys(options)) {
          if (!OPTION_NAMES.includes(name))
            throw usageError(`generate: unknown option '${name}'; use ${OPTION_NAMES.join(', ')}`);
        }
        const { ttftMs, tokensPerSecond, ...result } = await generate(
          this.#runner,
          this.#tokenizer,
          this.#promptTokens(prompt),
          this.#eosIds(),
          { ...options, stepsInFlight: this.#stepsInFlight },
          AbortSignal.any(signals),
          emit,
        );
        this.#speed = { tokensPerSecond, ttftMs };
        return { ...result, stats: this.stats() };
      });
    });
  }

  logits(tokens: readonly number[] | Uint32Array | Int32Array, options: LogitsOptions = {}): Promise<LogitsResult> {
    return this.#turn.run(async () => {
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
    const { adapter, weightBytes, kvBytes } = this.info;
    return {
      tokens_per_second: this.#speed.tokensPerSecond,
      ttft_ms: this.#speed.ttftMs,
      dispatches_per_token: this.#runner.dispatchesPerToken,
      exchanges_per_token: 0,
      adapter: adapter.name,
      ranks: [{ adapter: adapter.name, weight_bytes: weightBytes, kv_bytes: kvBytes }],
      plan: 'single',
    };
  }

  async dispose(): Promise<void> {
    this.#disposal.abort(new Error('the model was disposed'));
    await this.#turn.idle();
    this.#device.dispose();
  }

  #assertUsable(): void {
    if (this.#disposal.signal.aborted) throw usageError('this model was disposed; load it again');
    this.#device.assertAlive();
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
