import { usageError } from '../base/errors.js';
import { checkOptions, type OptionsSchema, wholeNumber } from '../base/options.js';
import type { Source } from '../loader/index.js';
import type { ModelConfig } from '../model/config/model_config.js';
import type {
  ChatCompletions,
  GenerateOptions,
  GenerateResult,
  Generation,
  KeptEntries,
  LogitsOptions,
  LogitsResult,
  Model,
  ModelInfo,
  Prompt,
  RunStats,
  SelfTestResult,
} from './api.js';
import { chatCompletions } from './chat_api.js';
import type { PickedPlan } from './planning/choose_plan.js';
import { generate } from './generate.js';
import { GenerationStream } from './generation_stream.js';
import type { Speed } from './generate.js';
import type { OpenedModel } from './load.js';
import { modelInfo } from './model_info.js';
import { eosIds, needTokenizer, type PromptReader, promptTokens, tokenIds } from './prompt_tokens.js';
import type { PrefillWorker } from './prefill/prefill_worker.js';
import type { ModelRanks } from './ranks/rank_group.js';
import type { Runner } from './ranks/runner.js';
import { samplingSchema } from './ranks/sampling_options.js';
import { Turns } from './turns.js';

const schema: OptionsSchema<GenerateOptions> = {
  ...samplingSchema,
  maxTokens: wholeNumber(1),
  stop: true,
  signal: true,
  ignoreEos: true,
};

export class LoadedModel implements Model {
  readonly info: ModelInfo;
  readonly chat: { readonly completions: ChatCompletions };
  readonly #config: ModelConfig;
  readonly #group: ModelRanks;
  readonly #prefiller: PrefillWorker | undefined;
  readonly #reader: PromptReader;
  readonly #stepsInFlight: number;
  readonly #turns: Turns;
  readonly #picked: PickedPlan | undefined;
  readonly #source: Source | undefined;
  readonly #disposal = new AbortController();
  #speed: Speed = { tokensPerSecond: 0, ttftMs: 0, ranks: [] };

  constructor(opened: OpenedModel, stepsInFlight: number) {
    const { config, group, tokenizer, noTokenizer } = opened;
    this.#config = config;
    this.#group = group;
    this.#prefiller = opened.prefiller;
    this.#reader = { tokenizer, noTokenizer, contextLength: group.runner.contextLength };
    this.#stepsInFlight = stepsInFlight;
    this.#turns = new Turns(group.runner.options.batches ?? 1);
    this.#picked = opened.picked;
    this.#source = opened.source;
    this.info = modelInfo(opened);
    this.chat = { completions: chatCompletions(opened.name, (prompt, options) => this.generate(prompt, options)) };
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return new GenerationStream((emit, left) => {
      const signals = [left, this.#disposal.signal, ...(options.signal ? [options.signal] : [])];
      return this.#turns.run(async (slot) => {
        this.#assertUsable();
        checkOptions('generate', options, schema);
        const { speed, compressed, attention, ...result } = await generate(
          this.#runner,
          this.#reader,
          promptTokens(prompt, this.#reader),
          eosIds(this.#config, this.#reader.tokenizer),
          { ...options, stepsInFlight: this.#stepsInFlight, slot, prefiller: this.#prefiller },
          AbortSignal.any(signals),
          emit,
        );
        this.#speed = speed;
        return {
          ...result,
          stats: {
            ...this.stats(),
            ...(attention && { attention }),
            ...(compressed && { kv_compression: compressed }),
            ...this.#predicted(result),
          },
        };
      });
    });
  }

  logits(tokens: readonly number[] | Uint32Array | Int32Array, options: LogitsOptions = {}): Promise<LogitsResult> {
    return this.#turns.alone(async () => {
      this.#assertUsable();
      const signal = AbortSignal.any([this.#disposal.signal, ...(options.signal ? [options.signal] : [])]);
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
      await this.#runner.logits(
        ids,
        options.all ?? false,
        (position, row) => {
          positions.push(position);
          if (options.onRow) options.onRow(position, row);
          else rows.push(row);
        },
        signal,
        promptLength,
      );
      return { positions, rows };
    });
  }

  async selfTest({ signal }: { readonly signal?: AbortSignal } = {}): Promise<SelfTestResult> {
    const { readSelfTest, runSelfTest } = await import('./self_test.js');
    const result = await runSelfTest(this, this.#source ? await readSelfTest(this.#source, signal) : [], signal);
    const damage = result.passed ? undefined : await this.#source?.damage?.(signal);
    return damage === undefined ? result : { ...result, problem: damage, damaged: true };
  }

  kept(prompt: Prompt, options: { readonly signal?: AbortSignal } = {}): Promise<KeptEntries> {
    return this.#turns.alone(async () => {
      this.#assertUsable();
      if (!this.#runner.options.compression) {
        throw usageError('kept: nothing is compressed; load the model with a kvBudget, such as 0.2');
      }
      const tokens = promptTokens(prompt, this.#reader);
      const signal = AbortSignal.any([this.#disposal.signal, ...(options.signal ? [options.signal] : [])]);
      return { promptTokens: tokens.length, layers: await this.#runner.kept(tokens, signal) };
    });
  }

  tokenize(text: string): number[] {
    return [...needTokenizer(this.#reader, 'tokenize').encode(text, { addSpecial: true })];
  }

  detokenize(tokens: readonly number[]): string {
    return needTokenizer(this.#reader, 'detokenize').decode([...tokens], { skipSpecial: true });
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

  #predicted({ prompt_tokens: prompt, tokens }: Omit<GenerateResult, 'stats'>): Pick<RunStats, 'predicted'> {
    if (!this.#picked || tokens.length === 0) return {};
    const { tokensPerSecond, ttftMs } = this.#picked.predict(prompt, tokens.length);
    return { predicted: { tokens_per_second: tokensPerSecond, ttft_ms: ttftMs } };
  }

  recover({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    return this.#turns.alone(async () => {
      this.#assertOpen();
      await this.#group.recover(signal);
      await this.#prefiller?.recover(signal);
    });
  }

  async dispose(): Promise<void> {
    this.#disposal.abort(new Error('the model was disposed'));
    await this.#turns.idle();
    await this.#prefiller?.dispose();
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
    this.#prefiller?.assertUsable();
  }
}
