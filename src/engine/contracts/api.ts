/**
 * Room: what the engine's other rooms type against. Here is the public surface: what `load` takes and what a loaded model
 * offers. Types only. rank.ts is what a rank can do, prefill_worker.ts what computes prompts elsewhere.
 */

import type { Snake } from '../../base/names.js';
import type { ImageSource } from '../../images/decode.js';
import type { SoundSource } from '../../sound/decode.js';
import type { MatrixType } from '../../../shaders/linear/pack.js';
import type { TypeBytes } from '../../model/weights/weight_types.js';
import type { AdapterDescription } from '../../gpu/index.js';
import type { ChatOptions, ToolCall, ToolCallDelta } from '../../chat_formats/tools.js';
import type { TextForm } from '../../grammar/text_form.js';
import type { CatalogModel as ListedModel, Source } from '../../loader/index.js';
import type { KvPolicy } from '../../model/compression/options.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import type { ModelShape, Plan } from '../../placement/index.js';
import type { RecommendedSampling, SamplingOptions } from '../../../generated/option_types.js';

export type { LoadOptions, RecommendedSampling, SamplingOptions } from '../../../generated/option_types.js';
export type { KvPolicy } from '../../model/compression/options.js';
export type { KvType } from '../../model/layers/attention/cache.js';
export type { Profile } from '../../arrangement/index.js';
export type { ModelShape, Plan } from '../../placement/index.js';
export type { MatrixType, WeightType } from '../../../shaders/linear/pack.js';
export type { Variants } from '../../gpu/index.js';
export type { NetworkOptions } from '../../loader/index.js';
export type { ImageSource } from '../../images/decode.js';
export type { SoundSource } from '../../sound/decode.js';
export type { ResponseFormat, TextForm } from '../../grammar/text_form.js';
export type { ChatOptions, Tool, ToolCall, ToolCallDelta, ToolChoice } from '../../chat_formats/tools.js';

/** A model that runs here, by a name of its own: `load(name)`. */
export type CatalogModel = ListedModel<RecommendedSampling>;

export interface LoadProgress {
  /**
   * 'download' while files are read as a whole before any is used: those that `integrity` names, and in Node those of a model of the
   * Hub (bytes are those of such files); 'profile' while plan 'arranged' measures what heads keep; 'weights' while tensors are read, packed and uploaded; 'kernels' where they are still being
   * compiled then; 'ready' once, at the end.
   */
  readonly phase: 'download' | 'config' | 'tokenizer' | 'profile' | 'weights' | 'kernels' | 'ready';
  /** Of phase 'profile': what is being measured, for people. */
  readonly what?: string;
  readonly loadedBytes: number;
  /** Bytes of tensors that this load reads. */
  readonly totalBytes: number;
  readonly tensorsLoaded: number;
  readonly tensorsTotal: number;
  /** Kernels compiled, beside the weights, of those that are known to be needed. */
  readonly kernelsCompiled: number;
  readonly kernelsTotal: number;
  readonly tensor?: string;
  /**
   * Why nothing comes over the network at the moment, for people: told after three seconds without a byte, and while a request is
   * made again, which happens by itself.
   */
  readonly waiting?: string;
}

export interface AttentionDpOptions {
  /** 'cost' (default): by fitted times. 'trtllm': TensorRT-LLM's rules. */
  readonly mode?: 'cost' | 'trtllm';
  /**
   * Prompts wait for company on other ranks, rather than run as soon as they fit. Default: true with 'cost', which waits only where the
   * fitted times say that it gains; false with 'trtllm', as there.
   */
  readonly enable_balance?: boolean;
  /** Iterations that they wait for every rank to have one, at most; default 50 ... */
  readonly timeout_iters?: number;
  /** ... and then for more; default 10. */
  readonly batching_wait_iters?: number;
}

export interface PrefillOptions {
  /** 'splitkv': our own kernels; texts and logits are the same bits as without. */
  readonly kind: 'splitkv';
  /** A power preference, or in Node part of an adapter's name; default: the first rank's adapter. With a cluster a rank's name; default: a free one of the ranks' kind. */
  readonly adapter?: string;
}

export interface GenerateOptions extends SamplingOptions, TextForm, ChatOptions {
  /** Default 256. */
  readonly maxTokens?: number;
  /** Generation ends before any of these strings; the string itself isn't returned. */
  readonly stop?: string | readonly string[];
  readonly signal?: AbortSignal;
  /** Don't stop at the model's end-of-sequence tokens; for benchmarks. */
  readonly ignoreEos?: boolean;
  /** Of a model loaded with `speculate`: 'off' verifies no proposals, the others those of the load. Default: as it was loaded. */
  readonly speculate?: 'auto' | 'off' | 'ngram' | 'draft' | 'mtp';
  /** Default true. False: everything is computed, even what the cache holds of the prompt; the result is the same. */
  readonly cachePrompt?: boolean;
  /** Default false. True: `stats.attention.ms_per_step` tells what attention took on each rank, by the GPUs' own clocks. */
  readonly timeAttention?: boolean;
  /**
   * `GenerateResult.tokens` of an answer to the same prompt that was cut: it goes on behind them, with the bits, draws (by the same
   * `seed`) and penalties that it would have had. The result is that of the whole answer; iterating gives what is new, and `maxTokens`
   * is of what is new.
   */
  readonly continueFrom?: readonly number[];
  /** Name of the low-rank adapter that it is computed with; default: none. */
  readonly adapter?: string;
  /** Takes the f32 logits that the first token is drawn from, [vocabSize]. */
  readonly onFirstLogits?: (logits: Float32Array) => void;
  /** As of `CompletionOptions`: who asks, where several share the model. */
  readonly client?: string;
}

/** What `Conversation.save` gives: plain JSON, without keys and values. */
export interface SavedConversation {
  readonly version: number;
  /** Name of the model that it was held with. */
  readonly model: string;
  readonly system?: string;
  readonly turns: readonly {
    readonly user: string;
    /** Of a question with images or recordings, all of it; `user` is its text. */
    readonly parts?: readonly ContentPart[];
    /** Of tools, in place of a question. */
    readonly results?: readonly ChatMessage[];
    readonly answer: string;
    /** Tools that the answer called. */
    readonly calls?: readonly ToolCall[];
    /** The answer's ids, as they were generated. */
    readonly tokens: readonly number[];
    /** Of an answer that was cut in what isn't kept of it, as thoughts are: all its ids. */
    readonly cut?: readonly number[];
  }[];
  /** Its keys and values were kept, too: they are looked for where it goes on. */
  readonly kv?: boolean;
}

export interface ConversationOptions {
  /** The system message. */
  readonly system?: string;
  /** Goes on with a conversation that was saved, with the same bits; a `system` given here takes the place of its own. */
  readonly restore?: SavedConversation;
  /** When a message has no room any more: 'error' (default) throws `context_full`, 'forget' leaves the oldest turns out for good. */
  readonly whenFull?: 'error' | 'forget';
  /** A text that every message is about, put before it; messages then don't see each other. */
  readonly about?: string;
  /** Control tokens that questions spell out: text (default), or the tokens themselves. As in `Prompt`. */
  readonly special?: 'text' | 'token';
  /** Of its answers, where `send` names no other. */
  readonly adapter?: string;
}

/**
 * A conversation with a loaded model; a turn computes only what is new. One answer at a time: `fork` for more. Answers are sampled as
 * `ModelInfo.sampling` recommends, unless the options say otherwise.
 */
export interface Conversation {
  /** The system message, and questions and answers so far. */
  readonly messages: readonly ChatMessage[];
  /**
   * Asks (a text, or parts with images or recordings), or, where the last answer called tools, gives their results: messages {role: 'tool', tool_call_id, content}. `tools` are given
   * with each. Adds question and answer once the answer ends; an answer that was aborted is added as far as it came.
   */
  send(content: string | readonly ContentPart[] | readonly ChatMessage[], options?: GenerateOptions): Generation;
  /**
   * The last answer goes on where it was cut, as if it hadn't been: by `maxTokens`, an abort, or a full context. The result is that of the
   * whole answer; iterating gives what is new, and `maxTokens` is of what is new. Drawn answers go on alike by the `seed` of their result.
   */
  continue(options?: GenerateOptions): Generation;
  /** Another answer to the last question, in the old one's place. */
  regenerate(options?: GenerateOptions): Generation;
  /** Another last question, in the old one's place. */
  edit(content: string | readonly ContentPart[], options?: GenerateOptions): Generation;
  /** Takes back the last turns: default 1. */
  undo(turns?: number): void;
  /** A conversation that goes on from here by itself. */
  fork(): Conversation;
  /**
   * As without options, once keys and values are kept as well, so far as they are in the cache: in `LoadOptions.kvDir`, by default in the user's
   * cache, in a page in its private file system. Where there is no room for them a warning says so, and they are computed again.
   * @throws SplitkvError `usage` where nothing can be kept (a compressed cache, a prefill worker, an adapter)
   */
  save(options: { readonly kv: true }): Promise<SavedConversation>;
  /** Plain JSON that `conversation({restore})` goes on with, also after a reload. */
  save(): SavedConversation;
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  /** null: the assistant called tools and said nothing. Parts: of models that take images or sound (`LoadOptions.images`, `sound`). */
  readonly content: string | null | readonly ContentPart[];
  /** Of the assistant: what it thought before; templates leave it out of later turns as they see fit. */
  readonly reasoning_content?: string;
  /** Of the assistant: the tools that it called. */
  readonly tool_calls?: readonly ToolCall[];
  /** Of a tool: the call that its content is the result of. */
  readonly tool_call_id?: string;
  /** Of a tool: its name; default: that of the call. */
  readonly name?: string;
}

/** A part of a message: a text, an image or a recording, in words of this library or of OpenAI's API. */
export type ContentPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image'; readonly image: ImageSource }
  | { readonly type: 'image_url'; readonly image_url: { readonly url: string } }
  | { readonly type: 'audio'; readonly audio: SoundSource }
  | { readonly type: 'input_audio'; readonly input_audio: { readonly data: string; readonly format: string } };

/**
 * Text, token ids (with texts among them or not), chat messages (rendered with the model's chat template, which must exist), a text with a gap to fill, or a text or token
 * ids with images or recordings.
 */
export type Prompt =
  | string
  | readonly (number | string)[]
  | Uint32Array
  | Int32Array
  | {
      readonly messages: readonly ChatMessage[];
      /** Control tokens that the messages spell out, such as `<|user|>`: text (default), or the tokens themselves. */
      readonly special?: 'text' | 'token';
      /**
       * How the prompt ends: with the beginning of an answer (default), behind the last message, or within it: the answer goes on with its
       * text.
       */
      readonly ending?: 'answer' | 'none' | 'continue';
    }
  | FillPrompt
  | ImagePrompt;

/**
 * For models that take images or sound. Each of the model's own placeholders in the text, such as `<image>`, stands for the next image, or
 * recording; of token ids each placeholder's stands for the next row of one, as the model's processor writes them.
 */
export interface ImagePrompt {
  readonly prompt: string | readonly number[];
  readonly images?: readonly ImageSource[];
  readonly sounds?: readonly SoundSource[];
}

/** What precedes and follows a gap, for models with tokens of their own for it. Control tokens in it are text. */
export interface FillPrompt {
  readonly prefix: string;
  readonly suffix: string;
  /** Other files that it may refer to. */
  readonly files?: readonly { readonly name: string; readonly text: string }[];
}

export interface TokenizeOptions extends Pick<
  ChatOptions,
  'tools' | 'toolChoice' | 'enableThinking' | 'chatTemplateKwargs'
> {
  /** A text gets the special tokens that it is fed with, such as that of its beginning; default true. */
  readonly addSpecial?: boolean;
  /** Messages end with the beginning of an answer; default true. */
  readonly addGenerationPrompt?: boolean;
}

/** 'tool_calls': it ended with calls of tools. */
export type FinishReason = 'stop' | 'tool_calls' | 'length' | 'abort';

export interface RankStats {
  readonly adapter: string;
  readonly weight_bytes: number;
  readonly kv_bytes: number;
  /** Sent to other ranks for a decoded token, and the mean time that an exchange adds to a rank's own work, in the last generation. */
  readonly bytes_per_token: number;
  readonly us_per_exchange: number;
  /**
   * What the time of a decoded token (1000 / tokens_per_second ms) went to on this rank, in the last generation; the three add up to it.
   * Its own work, on the GPU and around it; moving bytes to and from other ranks; waiting for what they send. Ranks on one device
   * aren't told apart: their work is of both. 0 before a second token has come.
   */
  readonly compute_ms_per_token: number;
  readonly exchange_ms_per_token: number;
  readonly wait_ms_per_token: number;
}

/** Drafts that were verified, those that were right, and the steps that verified them: each gave a token besides. */
export interface SpeculationStats {
  readonly drafted: number;
  readonly accepted: number;
  readonly steps: number;
}

/** What compression left of a prompt's cache. */
export interface KvCompressionStats {
  readonly policy: KvPolicy;
  readonly budget: number;
  readonly prompt_tokens: number;
  /** Entries that a head kept: mean, fewest, most. */
  readonly kept_tokens: { readonly mean: number; readonly least: number; readonly most: number };
  /** Of the blocks that the prompt took before, and takes now; the others are free. */
  readonly bytes_before: number;
  readonly bytes_after: number;
  readonly ranks: readonly { readonly bytes_before: number; readonly bytes_after: number }[];
}

/** How attention was spread over several ranks, by what the first decode step read of the cache. */
export interface AttentionStats {
  /** KV tokens by rank, added up over layers and kv heads. */
  readonly kv_tokens_per_step: readonly number[];
  /** Of the rank that read most in each layer, added up: all ranks wait for it. */
  readonly busiest_kv_tokens_per_step: number;
  /** All tokens / (ranks * busiest): 1 when no rank waits. */
  readonly utilisation: number;
  /** Of an arranged plan: what `splitkv arrange` expected. */
  readonly predicted_utilisation?: number;
  /**
   * With `timeAttention`: milliseconds that attention took on each rank, in all layers of a decode step, mean of up to 16 steps, by the
   * device's own clock. Left out where an adapter has none (`timestamp-query`), or where ranks share a device (`virtualRanks`).
   */
  readonly ms_per_step?: readonly number[];
}

/** What a stopwatch chose at load among plans of equal bits for a GPU's kernels; added up over ranks. */
export interface TuningStats {
  /** 'off': not asked for (`tune: false`); 'software': kernels for the CPU have one plan. */
  readonly state: 'on' | 'off' | 'software';
  /** Kernels and shapes with a choice; of them those whose was known from before, was made at this load, and wasn't reached in time. */
  readonly choices: number;
  readonly known: number;
  readonly measured: number;
  readonly left: number;
  /** What won over the plan that kernels have by themselves, and for how many shapes: { 'linear lanes': 2 }. */
  readonly chosen: Readonly<Record<string, number>>;
  /** Of the load. */
  readonly ms: number;
}

export interface RunStats {
  readonly tokens_per_second: number;
  readonly ttft_ms: number;
  readonly dispatches_per_token: number;
  readonly exchanges_per_token: number;
  readonly adapter: string;
  readonly ranks: readonly RankStats[];
  readonly plan: string;
  readonly tuning: TuningStats;
  /** Of prompts: 'fast' where a kernel that multiplies them is in `variants` with what is fast of it. */
  readonly precision: 'exact' | 'fast';
  /**
   * Which variant of each kernel runs, by its name: 'hardware' or 'software', with what is fast of it, as in 'hardware, dot4'; with ' + '
   * between several, where ranks or weights differ.
   */
  readonly variants: Readonly<Record<string, string>>;
  /** Of a generation: tokens of its prompt that were in the cache, and not computed again. */
  readonly cached_tokens?: number;
  /** Of a model loaded with `speculate`: the generation's. */
  readonly speculation?: SpeculationStats;
  /** Of a generation on several ranks. */
  readonly attention?: AttentionStats;
  /** Of a generation whose prompt was compressed. */
  readonly kv_compression?: KvCompressionStats;
  /** Of a generation: what the planner expected of it, where it chose the plan. */
  readonly predicted?: { readonly tokens_per_second: number; readonly ttft_ms: number };
}

/** The document that `generate --json` prints. Names are stable: other tools read them. */
export interface GenerateResult {
  readonly text: string;
  /** What the model thought before it answered, where it says which is which. */
  readonly reasoning?: string;
  /** Tools that the model called. */
  readonly tool_calls?: readonly ToolCall[];
  readonly tokens: readonly number[];
  /** Of them, those of what was thought; left out where there are none. */
  readonly reasoning_tokens?: number;
  readonly prompt_tokens: number;
  readonly finish_reason: FinishReason;
  /** Says more where 'length' alone leaves it open: the token budget or a full context. */
  readonly finish_detail: 'eos' | 'stop_token' | 'stop_string' | 'max_tokens' | 'context_full' | 'aborted';
  readonly seed: number;
  readonly stats: RunStats;
}

/** A result of `generateMany`. */
export interface IndexedResult extends GenerateResult {
  readonly index: number;
}

/** What is new of a running generation. */
export interface GenerationDelta {
  /** What is certain of the answer; may be empty. */
  readonly text: string;
  /** What the model thinks before it answers, where it says which is which. */
  readonly reasoning?: string;
  /** Of its calls of tools. */
  readonly toolCalls?: readonly ToolCallDelta[];
}

/** A running generation: iterate for text pieces, await `result` for the whole. */
export interface Generation extends AsyncIterable<string> {
  readonly result: Promise<GenerateResult>;
  /** The same with what is thought, and calls of tools, as they come; in place of iterating for text. */
  deltas(): AsyncIterable<GenerationDelta>;
}

export interface ModelInfo {
  readonly name: string;
  readonly architecture: string;
  readonly numLayers: number;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly parameters: number;
  /** The type of most of them. */
  readonly weights: MatrixType;
  /** Of the whole model's matrices, that of the most bytes first; experts and routers may have types of their own. */
  readonly weightTypes: readonly TypeBytes[];
  readonly kv: KvType;
  readonly hasChatTemplate: boolean;
  /** Where prompts may have images: what stands for one in a text. */
  readonly imagePlaceholder?: string;
  /** Where prompts may have recordings: likewise. */
  readonly soundPlaceholder?: string;
  /** As generation_config.json says, `general.sampling` of a GGUF file, or the catalog of its files; the chat's defaults. */
  readonly sampling: RecommendedSampling;
  readonly adapter: AdapterDescription & { readonly name: string };
  readonly weightBytes: number;
  /** Of the whole KV cache, and of one token in it over all layers. */
  readonly kvBytes: number;
  readonly kvBytesPerToken: number;
  /** How prompts' caches are compressed, where they are. */
  readonly compression?: { readonly policy: KvPolicy; readonly budget: number };
  readonly loadSeconds: number;
  /** Why it was chosen, where `load` was asked for 'auto'. */
  readonly modelReason?: string;
  readonly plan: Plan;
  /** Why the planner picked it, where it had a choice; why heads are arranged as they are. */
  readonly planReason?: string;
  /** The counts that the plan's numbers refer to. */
  readonly shape: ModelShape;
  /** What each rank holds, in words. */
  readonly ranks: readonly {
    readonly adapter: string;
    /** Of a rank of a cluster; of another one after `recover` where that took a spare. */
    readonly name?: string;
    readonly weightBytes: number;
    readonly kvBytes: number;
  }[];
  /** The devices that compute prompts, where they have some: `weightBytes` of all together. */
  readonly prefill?: {
    readonly kind: 'splitkv';
    readonly adapter: string;
    readonly weightBytes: number;
    readonly workers: number;
  };
}

export interface LogitsOptions {
  /** Every position, not only the last. */
  readonly all?: boolean;
  /**
   * Tokens that are the prompt, default all. Those behind it are computed one by one, as if they had been generated: their logits see a
   * cache whose prompt was compressed.
   */
  readonly promptLength?: number;
  /** As of `GenerateOptions`. */
  readonly adapter?: string;
  /** Takes each row as it comes, in order of positions; the result then has no rows. For large vocabularies. */
  readonly onRow?: (position: number, logits: Float32Array) => void;
  readonly signal?: AbortSignal;
}

/** Which of a text's hidden states make its vector: their mean, the last token's, the first one's. */
export type Pooling = 'mean' | 'last' | 'cls';

export interface EmbedOptions {
  /** Of a text's final hidden states: their mean, or that of its last token, or of its first. Default: what `load` was told, what the model's files say, the mean. */
  readonly pooling?: Pooling;
  /** Put before each text; '' for nothing. */
  readonly prompt?: string;
  /** The same by its name in the model's files, such as 'query'. Default: the one that they name, if any. */
  readonly promptName?: string;
  /** Numbers that vectors are cut to, before their length is made 1; default and most: all that the model gives. */
  readonly dimensions?: number;
  /** Texts that have no room are cut at their ends, behind which the model's own last tokens stay. Default false: `context_full`. */
  readonly truncate?: boolean;
  /** As of `CompletionOptions`, where many requests are served. */
  readonly client?: string;
  readonly signal?: AbortSignal;
}

/** `truncate` cuts the longer text of a pair; of models that judge the document. */
export interface RerankOptions extends Pick<EmbedOptions, 'truncate' | 'client' | 'signal'> {
  /** Results to give, those of the best documents; default: all. */
  readonly topN?: number;
  /** What is to be found, for models that judge by it; default: passages that answer a web search. */
  readonly instruction?: string;
}

export interface RerankResult {
  /** Best first; of equal ones the first given. `index`: of the document. */
  readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
  /** Of all pairs. */
  readonly prompt_tokens: number;
}

export interface EmbedResult {
  /** f32 [what the model gives, or `dimensions`] of each text, of Euclidean length 1. */
  readonly embeddings: readonly Float32Array[];
  /** Of all texts. */
  readonly prompt_tokens: number;
}

/** What compression keeps of a prompt. */
export interface KeptEntries {
  readonly promptTokens: number;
  /** [layer][kv head]: entries. */
  readonly layers: readonly (readonly number[])[];
}

/** f32 logits of the reported positions. */
export interface LogitsResult {
  readonly positions: readonly number[];
  /** One row of vocabSize values a position. */
  readonly rows: readonly Float32Array[];
}

/** Options by their names in JSON; null is as good as left out. */
type Fields<Options> = {
  readonly [Name in keyof Options & string as Snake<Name>]?: Options[Name] | null | undefined;
};
export type SamplingFields = Fields<SamplingOptions>;

/** Beside these, what options of `generate` with the same names say; `separateReasoning` is true by default. */
export interface ChatCompletionRequest extends Fields<
  SamplingOptions & TextForm & ChatOptions & Pick<GenerateOptions, 'maxTokens' | 'stop'>
> {
  /** Accepted and ignored: a loaded model is the one that answers. */
  readonly model?: string;
  readonly messages: readonly ChatMessage[];
  /** As in `Prompt`. */
  readonly special?: 'text' | 'token';
  readonly stream?: boolean;
  /** With `stream`: a last chunk has the usage, and no choices. */
  readonly stream_options?: { readonly include_usage?: boolean } | null;
}

export interface ChatCompletionChunk extends Pick<ChatCompletion, 'id' | 'created' | 'model'> {
  readonly object: 'chat.completion.chunk';
  readonly choices: readonly {
    readonly index: 0;
    readonly delta: {
      readonly role?: 'assistant';
      readonly content?: string;
      readonly reasoning_content?: string;
      /** The first of each call has id, type and name, those after it pieces of its arguments. */
      readonly tool_calls?: readonly {
        readonly index: number;
        readonly id?: string;
        readonly type?: 'function';
        readonly function: { readonly name?: string; readonly arguments: string };
      }[];
    };
    readonly finish_reason: ChatFinishReason | null;
  }[];
  /** Where it is asked for: of the last chunk; before it null. */
  readonly usage?: ChatCompletion['usage'] | null;
}

export interface ChatCompletion {
  readonly id: string;
  readonly object: 'chat.completion';
  readonly created: number;
  readonly model: string;
  readonly choices: readonly {
    readonly index: 0;
    readonly message: {
      readonly role: 'assistant';
      /** null where tools were called and nothing was said. */
      readonly content: string | null;
      readonly reasoning_content?: string;
      readonly tool_calls?: readonly ToolCall[];
    };
    readonly finish_reason: ChatFinishReason;
  }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly total_tokens: number;
    readonly completion_tokens_details: { readonly reasoning_tokens: number };
  };
}

export type ChatFinishReason = 'stop' | 'length' | 'tool_calls';

export interface ChatCompletions {
  create(
    request: ChatCompletionRequest & { readonly stream: true },
    options?: { signal?: AbortSignal },
  ): Promise<AsyncIterable<ChatCompletionChunk>>;
  create(
    request: ChatCompletionRequest & { readonly stream?: false },
    options?: { signal?: AbortSignal },
  ): Promise<ChatCompletion>;
}

export interface SelfTestResult {
  readonly passed: boolean;
  /** The model's folder has a self_test.json; without one the model is checked against itself only. */
  readonly stored: boolean;
  /** What is wrong and what to do about it, where it didn't pass. */
  readonly problem?: string;
  /** It didn't pass, and a downloaded file is damaged, which explains it: `deleteCached(url)` and loading again mend it. */
  readonly damaged?: boolean;
}

/** A low-rank adapter's files: a folder as PEFT saves it, or a GGUF file. `scale`: of what it adds; default 1. */
export interface AdapterPart {
  readonly from: string | URL | readonly File[] | Source;
  readonly scale?: number;
}
/** One, or several that are added up. */
export type AdapterGiven = AdapterPart['from'] | AdapterPart | readonly AdapterPart[];

export interface AdapterInfo {
  readonly name: string;
  /** The highest of its matrices. */
  readonly rank: number;
  /** On all ranks. */
  readonly bytes: number;
}

/** Low-rank adapters beside a model's matrices. Requests that run meanwhile go on. */
export interface ModelAdapters {
  readonly list: readonly AdapterInfo[];
  /**
   * @param name of letters, digits, `_`, `.` and `-`
   * @throws SplitkvError `format` for one of another model, `unsupported` for what isn't done, `limit` where there is no room; then all
   *   is as before
   */
  add(name: string, given: AdapterGiven, options?: { readonly signal?: AbortSignal | undefined }): Promise<AdapterInfo>;
  /** Requests can name it no more; resolves when those that have it have ended, and its memory is free. */
  remove(name: string): Promise<void>;
}

/** A loaded model. `LoadOptions.requests` generations run at once; others wait their turn. */
export interface Model {
  readonly info: ModelInfo;
  readonly adapters: ModelAdapters;
  /**
   * @example
   * ```ts
   * import { load } from 'splitkv';
   *
   * const model = await load('smollm2-360m-instruct');
   * const answer = model.generate({ messages: [{ role: 'user', content: 'Hello!' }] }, { maxTokens: 50, temperature: 0.7 });
   * for await (const piece of answer) console.log(piece);
   * console.log((await answer.result).finish_reason);
   * ```
   */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /**
   * Answers several prompts side by side, each as `generate` would alone; a beginning that all have is computed once. Yields results as
   * they end, with the prompt's number. Leaving the iteration aborts the rest.
   *
   * @example
   * ```ts
   * import { load } from 'splitkv';
   *
   * const model = await load('smollm2-360m-instruct', { requests: 2 });
   * const prompts = ['A colour:', 'A number:'];
   * for await (const { index, text } of model.generateMany(prompts, { maxTokens: 5 })) console.log(prompts[index], text);
   * ```
   */
  generateMany(prompts: readonly Prompt[], options?: GenerateOptions): AsyncIterable<IndexedResult>;
  /**
   * A conversation by the model's chat template.
   *
   * @example
   * ```ts
   * import { load } from 'splitkv';
   *
   * const model = await load('smollm2-360m-instruct');
   * const talk = model.conversation({ system: 'Answer in one sentence.', whenFull: 'forget' });
   * await talk.send('Why is the sky blue?', { maxTokens: 50 }).result;
   * const other = model.conversation({ restore: talk.save() });
   * console.log((await other.send('And at sunset?', { maxTokens: 50 }).result).text);
   * ```
   *
   * @throws SplitkvError `unsupported` where it has none
   */
  conversation(options?: ConversationOptions): Conversation;
  /**
   * @example
   * ```ts
   * import { load } from 'splitkv';
   *
   * const model = await load('smollm2-360m-instruct');
   * const [row] = (await model.logits(model.tokenize('The sky is'))).rows;
   * console.log(model.detokenize([row!.indexOf(Math.max(...row!))])); // the likeliest next token
   * ```
   */
  logits(tokens: readonly number[] | Uint32Array | Int32Array, options?: LogitsOptions): Promise<LogitsResult>;
  /**
   * Vectors of texts: their final hidden states (behind the last norm), pooled, and what dense layers the model's files put behind that make of it. The same bits on every plan, and whatever else runs.
   *
   * @example
   * ```ts
   * import { load } from 'splitkv';
   *
   * const model = await load('smollm2-360m-instruct');
   * const [cat, dog] = (await model.embed(['a cat', 'a dog'])).embeddings;
   * console.log(cat!.reduce((sum, value, i) => sum + value * dog![i]!, 0)); // the cosine of their angle
   * ```
   *
   * @param texts one, or a list of texts, token ids or chat messages; computed side by side
   */
  embed(texts: string | readonly Prompt[], options?: EmbedOptions): Promise<EmbedResult>;
  /**
   * How well documents answer a query, by a reranker: a classifier of pairs, or a model that judges by "yes" or "no". The same bits
   * alone or together.
   * @throws SplitkvError `unsupported` where the model gives no score
   */
  rerank(query: string, documents: readonly string[], options?: RerankOptions): Promise<RerankResult>;
  /** How many entries each kv head keeps of a prompt: all of it where it isn't longer than what is kept. Needs a kvBudget. */
  kept(prompt: Prompt, options?: { readonly signal?: AbortSignal }): Promise<KeptEntries>;
  /**
   * Token ids of a prompt that may have images or recordings, which are computed: each row of one has an id of its own that only this model knows, equal
   * for equal ones. Where there are none, as `tokenize`.
   * @throws SplitkvError `context_full`, `usage`; `format`, `unsupported` and `limit` of an image or a recording
   */
  readPrompt(prompt: Prompt, options?: TokenizeOptions): Promise<readonly number[]>;
  /** Token ids of a prompt, as `generate` would feed them, however many. */
  tokenize(prompt: Prompt, options?: TokenizeOptions): number[];
  detokenize(tokens: readonly number[]): string;
  /**
   * @example
   * ```ts
   * import { load } from 'splitkv';
   *
   * const model = await load('smollm2-360m-instruct');
   * const messages = [{ role: 'user', content: 'Hello!' }] as const;
   * const stream = await model.chat.completions.create({ messages, max_tokens: 50, stream: true });
   * for await (const { choices } of stream) console.log(choices[0]?.delta.content ?? '');
   * ```
   */
  readonly chat: { readonly completions: ChatCompletions };
  /**
   * Runs a few tokens and tells whether the GPU computed them rightly: against the ids stored in the model's folder
   * (self_test.json: {"cases": [{"prompt": [ids], "tokens": [ids]}]}), and prompt kernels against those of generated tokens. Where
   * they differ, the files that this browser keeps are checked too, before the GPU is blamed.
   * @throws SplitkvError as `generate`; `format` where the file can't be read
   */
  selfTest(options?: { readonly signal?: AbortSignal }): Promise<SelfTestResult>;
  /** Stats of `logits` runs and loading: adapter, memory, dispatches. */
  stats(): RunStats;
  /**
   * After a rank lost its device, or its worker ended: opens a new one, loads that rank's weights again (from the cache, where
   * there is one) and links the ranks anew. Generations that ran have failed by then; the model can be used again.
   * Where no rank of a cluster takes the place of one that is gone, those that are left take all shares by another plan: `info` has it, and
   * a warning names it.
   */
  recover(options?: { readonly signal?: AbortSignal }): Promise<void>;
  /** Frees every buffer and the device. Running generations end with 'abort'. */
  dispose(): Promise<void>;
}
