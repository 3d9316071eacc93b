/**
 * Room: a provider of the AI SDK over models of ours: `import { createSplitkv } from 'splitkv/ai-sdk'`. The provider and its
 * models are here, prompt.ts says what their calls mean. Holds no engine and nothing of the SDK but types.
 */
import { defined } from '../../base/options.js';
import type {
  EmbeddingModelV3,
  EmbeddingModelV4,
  LanguageModelV3,
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4Content,
  LanguageModelV4FinishReason,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
  ProviderV3,
  ProviderV4,
} from '@ai-sdk/provider';
import type { GenerateResult, Generation, GenerationDelta, Model } from '../../index.js';
import { streamOf } from '../shared/stream.js';
import { type AskedCall, callOf } from './prompt.js';

/** A loaded model, or what loads it when it is first asked; loaded once. */
export type SplitkvSource = Model | (() => Promise<Model>);

export interface SplitkvProvider extends ProviderV4 {
  /** The model that answers. @param modelId what it is called; default: the model's own name */
  (modelId?: string): LanguageModelV4;
  languageModel(modelId?: string): LanguageModelV4;
  /** The same model's vectors of texts. */
  embeddingModel(modelId?: string): EmbeddingModelV4;
}

/** For `ai` 6, whose calls have no `reasoning`. */
export interface SplitkvProviderV3 extends ProviderV3 {
  (modelId?: string): LanguageModelV3;
  languageModel(modelId?: string): LanguageModelV3;
  embeddingModel(modelId?: string): EmbeddingModelV3;
}

/** Of one request: vectors are computed side by side anyway. */
const MAX_EMBEDDINGS = 2048;

/**
 * A provider whose calls are answered here: `generateText({ model: createSplitkv(await load(where))(), prompt })`. Settings that the SDK
 * has no names for go into `providerOptions.splitkv`: options of `generate`, and of `embed` for vectors.
 *
 * @example
 * ```ts
 * import { generateText } from 'ai';
 * import { load } from 'splitkv';
 * import { createSplitkv } from 'splitkv/ai-sdk';
 *
 * const splitkv = createSplitkv(() => load('smollm2-360m-instruct'));
 * const options = { prompt: 'Why is the sky blue?', maxOutputTokens: 50 };
 * console.log((await generateText({ model: splitkv(), ...options })).text);
 * ```
 */
export function createSplitkv(source: SplitkvSource, options?: { readonly specification?: 'v4' }): SplitkvProvider;
/** @param options `specification: 'v3'` is for `ai` 6 */
export function createSplitkv(source: SplitkvSource, options: { readonly specification: 'v3' }): SplitkvProviderV3;
export function createSplitkv(
  source: SplitkvSource,
  { specification = 'v4' }: { readonly specification?: Specification } = {},
): SplitkvProvider | SplitkvProviderV3 {
  let loading: Promise<Model> | undefined;
  const open = (): Promise<Model> => {
    if (typeof source !== 'function') return Promise.resolve(source);
    loading ??= source().catch((error: unknown) => {
      loading = undefined;
      throw error;
    });
    return loading;
  };
  const named = (modelId?: string): string => modelId ?? (typeof source === 'function' ? 'splitkv' : source.info.name);
  const languageModel = (modelId?: string) => new Answers(named(modelId), open, specification);
  const embeddingModel = (modelId?: string) => new Vectors(named(modelId), open, specification);
  const imageModel = (): never => {
    throw new Error('splitkv has no models of images');
  };
  const own = { specificationVersion: specification, languageModel, embeddingModel, imageModel };
  // All that is written here means the same in both.
  return Object.assign((modelId?: string) => languageModel(modelId), own) as SplitkvProvider | SplitkvProviderV3;
}

type Specification = 'v3' | 'v4';

class Provided {
  readonly provider = 'splitkv';

  constructor(
    readonly modelId: string,
    protected readonly open: () => Promise<Model>,
    readonly specificationVersion: Specification,
  ) {}
}

class Answers extends Provided implements Omit<LanguageModelV4, 'specificationVersion'> {
  readonly supportedUrls = {};

  async doGenerate(options: LanguageModelV4CallOptions) {
    const { generation, call } = await this.#ask(options);
    const result = await generation.result;
    if (result.finish_reason === 'abort') throw abortReason(options);
    const content: LanguageModelV4Content[] = [];
    if (result.reasoning) content.push({ type: 'reasoning', text: result.reasoning });
    if (result.text !== '') content.push({ type: 'text', text: result.text });
    for (const { id, function: of } of result.tool_calls ?? []) {
      content.push({ type: 'tool-call', toolCallId: id, toolName: of.name, input: of.arguments });
    }
    return {
      content,
      finishReason: finishOf(result),
      usage: usageOf(result),
      request: { body: call.given },
      response: { modelId: this.modelId, timestamp: new Date() },
      warnings: call.warnings,
    };
  }

  async doStream(options: LanguageModelV4CallOptions) {
    const { generation, call } = await this.#ask(options);
    const first: LanguageModelV4StreamPart[] = [
      { type: 'stream-start', warnings: call.warnings },
      { type: 'response-metadata', modelId: this.modelId, timestamp: new Date() },
    ];
    return { stream: streamOf(partsOf(first, generation, options)), request: { body: call.given } };
  }

  async #ask(options: LanguageModelV4CallOptions): Promise<{ generation: Generation; call: AskedCall }> {
    const model = await this.open();
    options.abortSignal?.throwIfAborted();
    const call = callOf(options, model.info);
    const given = { ...call.given, ...defined({ signal: options.abortSignal }) };
    return { generation: model.generate({ messages: call.messages }, given), call };
  }
}

class Vectors extends Provided implements Omit<EmbeddingModelV4, 'specificationVersion'> {
  readonly maxEmbeddingsPerCall = MAX_EMBEDDINGS;
  readonly supportsParallelCalls = true;

  async doEmbed({ values, dimensions, abortSignal, providerOptions }: Parameters<EmbeddingModelV4['doEmbed']>[0]) {
    const model = await this.open();
    abortSignal?.throwIfAborted();
    const { embeddings, prompt_tokens } = await model.embed(values, {
      ...providerOptions?.['splitkv'],
      ...defined({ dimensions, signal: abortSignal }),
    });
    return {
      embeddings: embeddings.map((vector) => [...vector]),
      usage: { tokens: prompt_tokens },
      warnings: [],
    };
  }
}

/** The first parts, and an answer's as they come. */
async function* partsOf(
  first: readonly LanguageModelV4StreamPart[],
  generation: Generation,
  options: LanguageModelV4CallOptions,
): AsyncGenerator<LanguageModelV4StreamPart, void, undefined> {
  const writer = new PartWriter();
  try {
    yield* first;
    for await (const delta of generation.deltas()) yield* writer.write(delta);
    const result = await generation.result;
    if (result.finish_reason === 'abort') throw abortReason(options);
    yield* writer.close();
    yield { type: 'finish', finishReason: finishOf(result), usage: usageOf(result) };
  } catch (error) {
    if (options.abortSignal?.aborted) throw error;
    yield { type: 'error', error };
  }
}

type Opened = { readonly id: string } & (
  | { readonly kind: 'text' | 'reasoning' }
  | { readonly kind: 'tool'; readonly toolName: string; input: string }
);

/** Writes what is new of an answer as parts that begin and end. */
class PartWriter {
  #open: Opened | undefined;
  #count = 0;

  *write({ text, reasoning = '', toolCalls = [] }: GenerationDelta): Generator<LanguageModelV4StreamPart> {
    if (reasoning !== '') yield* this.#add('reasoning', reasoning);
    if (text !== '') yield* this.#add('text', text);
    for (const { id, name, arguments: delta } of toolCalls) {
      if (id !== undefined) {
        yield* this.close();
        const toolName = name ?? '';
        this.#open = { kind: 'tool', id, toolName, input: '' };
        yield { type: 'tool-input-start', id, toolName };
      }
      const open = this.#open;
      if (open?.kind !== 'tool' || delta === '') continue;
      open.input += delta;
      yield { type: 'tool-input-delta', id: open.id, delta };
    }
  }

  *close(): Generator<LanguageModelV4StreamPart> {
    const open = this.#open;
    this.#open = undefined;
    if (!open) return;
    const { id } = open;
    if (open.kind !== 'tool') {
      yield { type: `${open.kind}-end`, id };
      return;
    }
    yield { type: 'tool-input-end', id };
    yield { type: 'tool-call', toolCallId: id, toolName: open.toolName, input: open.input };
  }

  *#add(kind: 'text' | 'reasoning', delta: string): Generator<LanguageModelV4StreamPart> {
    if (this.#open?.kind !== kind) {
      yield* this.close();
      this.#open = { kind, id: `${kind}-${this.#count++}` };
      yield { type: `${kind}-start`, id: this.#open.id };
    }
    yield { type: `${kind}-delta`, id: this.#open.id, delta };
  }
}

const REASONS: Readonly<Record<GenerateResult['finish_reason'], LanguageModelV4FinishReason['unified']>> = {
  stop: 'stop',
  tool_calls: 'tool-calls',
  length: 'length',
  abort: 'interrupted',
};

const finishOf = ({ finish_reason, finish_detail }: GenerateResult): LanguageModelV4FinishReason => ({
  unified: REASONS[finish_reason],
  raw: finish_detail,
});

function usageOf({ prompt_tokens, tokens, reasoning_tokens = 0, stats }: GenerateResult): LanguageModelV4Usage {
  const cached = stats.cached_tokens ?? 0;
  return {
    inputTokens: { total: prompt_tokens, noCache: prompt_tokens - cached, cacheRead: cached, cacheWrite: undefined },
    outputTokens: { total: tokens.length, text: tokens.length - reasoning_tokens, reasoning: reasoning_tokens },
  };
}

/** Of an answer that ended because it was asked to, or because its model was disposed of. */
const abortReason = ({ abortSignal }: LanguageModelV4CallOptions): unknown =>
  abortSignal?.aborted ? abortSignal.reason : new DOMException('the answer was aborted', 'AbortError');
