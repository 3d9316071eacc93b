/** What `serve` takes and what a model that answers many requests at once offers. Types only. */

import type {
  EmbedOptions,
  EmbedResult,
  ChatOptions,
  GenerateOptions,
  GenerateResult,
  GenerationDelta,
  LoadOptions,
  ModelAdapters,
  ModelInfo,
  Prompt,
  RerankOptions,
  RerankResult,
  SamplingOptions,
  TextForm,
  TokenizeOptions,
} from '../contracts/api.js';
import type { FormWait } from '../../grammar/threads/form_threads.js';
import type { PromptSource, TextFacts } from './prompt_tokens.js';
import type { EngineMetrics, SlotState } from './loop/requests.js';
import type { HistogramCounts } from './histogram.js';

export type { FormWait } from '../../grammar/threads/form_threads.js';
export type { EngineMetrics } from './loop/requests.js';
export type { IterationRecord, RankBalance } from './loop/rank_balance.js';
export type { HistogramCounts } from './histogram.js';

export interface ServeOptions extends Omit<LoadOptions, 'requests' | 'stepsInFlight' | 'share' | 'idle'> {
  /** Sequences decoded side by side; default 16. More wait their turn. */
  readonly slots?: number;
  /** KV blocks of 64 tokens that the sequences share; instead of `kvMemory`. */
  readonly kvBlocks?: number;
  /** Bytes of each rank's KV cache. Default: what the slots can use at most, up to 1 GiB, and one whole context at least. */
  readonly kvMemory?: number;
  /** Rows of an iteration, prompt and generated ones together: more gives prompts, fewer give running sequences their turn sooner; default 512. */
  readonly tokensPerIteration?: number;
  /**
   * Groups of sequences whose steps run side by side, so that a rank which waits for others in one works on another; 1 to `slots`, which
   * is rounded up to a multiple. Default 'auto': as many as a pipeline's stages; 2 with plan 'token' and more than 8 slots, from 9
   * running sequences on; otherwise 1 (docs/token.md).
   */
  readonly microBatches?: number | 'auto';
  /** Hears once why the model can answer nothing any more: its ranks are lost for good. `failure` has it, too. */
  readonly onFailure?: (error: unknown) => void;
}

export interface CompletionOptions
  extends
    SamplingOptions,
    TextForm,
    ChatOptions,
    Pick<GenerateOptions, 'stop' | 'ignoreEos' | 'signal' | 'speculate' | 'adapter'> {
  /** Answers to the prompt, each with a seed of its own that follows from `seed`; default 1. */
  readonly n?: number;
  /** Default 256; with `echo` it may be 0. */
  readonly maxTokens?: number;
  /** Each answer begins with the prompt's text and, with `logprobs`, that of its tokens: NaN for the first, which nothing predicts. */
  readonly echo?: boolean;
  /** Natural logarithms of probabilities, of each token and of this many likeliest ones at its place, 0 to 20; default: none. */
  readonly logprobs?: number;
  /** Events tell how much of the prompt is there, before it and after each step. */
  readonly progress?: boolean;
  /** From -100 to 100, higher is sooner; default 0. */
  readonly priority?: number;
  /**
   * Who asks, by any name: answers that wait get their slots in rounds by client, and none has all slots while others wait. Default:
   * one client asks for all that names none.
   */
  readonly client?: string;
  /**
   * Seconds from the call by which each answer's first token should be there. Where prompts wait for company on other ranks
   * (`attentionDpConfig`, mode cost), they wait no longer than that allows; 0 doesn't wait. Otherwise it changes nothing.
   */
  readonly firstTokenSeconds?: number;
}

/** A token and how likely it was, as the model says: before temperature, penalties and the choice among few. */
export interface TokenChance {
  readonly id: number;
  /** The token by itself; bytes that are only part of a character show as U+FFFD. */
  readonly text: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
}

export interface TokenLogprobs extends TokenChance {
  /** Where the token's text begins in the answer, in UTF-16 units. */
  readonly offset: number;
  /** The likeliest tokens at its place, likeliest first. */
  readonly top: readonly TokenChance[];
}

export interface CompletionEvent extends GenerationDelta {
  /** Which answer: `prompt number * n + answer number`. */
  readonly index: number;
  /** Of the tokens whose text is out by now; empty where no logprobs were asked for. Tokens of a stop text are left out. */
  readonly logprobs: readonly TokenLogprobs[];
  /** The answer's tokens since its event before. */
  readonly tokens?: readonly number[];
  /** With `progress`: tokens of the prompt, of these what was in the cache and what is there by now, and milliseconds since the call. */
  readonly progress?: Readonly<Record<'total' | 'cached' | 'there' | 'ms', number>>;
  /** With the last event of each answer: why it ended. */
  readonly finish?: GenerateResult['finish_detail'];
  /** With 'stop_string': which of them ended it. */
  readonly stop?: string;
}

/**
 * Answers under way; they run whether or not anyone iterates. An answer ends with an event that has `finish`. Leaving the
 * iteration early aborts all of them; the iteration throws when the ranks fail for good.
 */
export interface Completion extends AsyncIterable<CompletionEvent> {
  /** Their ids, as they are run. */
  readonly prompts: readonly (readonly number[])[];
  /** Tokens of the prompts. */
  readonly promptTokens: number;
  /** Of those, as many as the cache held for each prompt's first answer; final once the iteration has ended. */
  readonly cachedTokens: number;
  /** Tokens generated so far, over all answers; final once the iteration has ended. */
  readonly completionTokens: number;
  /** Of these, those that the model thought with, where it says which is which. */
  readonly reasoningTokens: number;
  /** Of each prompt's first answer. */
  readonly seed: number;
  /** Frees what the answers hold, at once; each that hasn't ended ends with 'aborted'. */
  abort(): void;
}

export interface ServingInfo extends ModelInfo {
  readonly slots: number;
  readonly microBatches: number;
  /** KV blocks of 64 tokens. */
  readonly kvBlocks: number;
  readonly prefixCaching: boolean;
}

export interface ServingMetrics extends EngineMetrics {
  /** Answers asked for and not ended: more than run and wait in the engine, while answers wait for the first to share its prompt. */
  readonly unfinished: number;
  /** Seconds from the request to an answer's first token, and between each two of its tokens after that. */
  readonly firstToken: HistogramCounts;
  readonly nextToken: HistogramCounts;
}

/** A model that answers many requests at once, each the same alone and in any company. */
export interface ServingModel {
  readonly info: ServingInfo;
  readonly metrics: ServingMetrics;
  readonly adapters: ModelAdapters;
  /** By slot: the answer or the text that is in it, if any. */
  readonly slots: readonly (SlotState | undefined)[];
  /** What reads prompts as this model does, for a thread of its own. */
  readonly promptSource: PromptSource;
  readonly texts: TextFacts;
  /** Why it can't go on, once its ranks have failed for good. */
  readonly failure: unknown;
  /**
   * Makes ready what answers with these options need before they begin: the grammar of `responseFormat` and its like. `complete` does it
   * by itself, and tells what is wrong with one only where its events are read.
   * @param prompts those to come, which say what is around a form: thoughts before it
   * @param wait ends the waiting, and says when forms that aren't known get their turn
   * @throws SplitkvError `usage` for what is no form of a text, for what can't be held to (it is named), and for what takes too long or too much memory
   */
  prepare(options: CompletionOptions, prompts?: readonly Prompt[], wait?: FormWait): Promise<void>;
  /** As `Model.readPrompt`. */
  readPrompt(prompt: Prompt, options?: TokenizeOptions): Promise<readonly number[]>;
  /**
   * Asks for answers to a prompt, which has no images (`readPrompt`).
   * @throws SplitkvError `usage` for an impossible request, `context_full` for a prompt that never fits, `aborted`, and `failure`
   */
  complete(prompt: Prompt, options?: CompletionOptions): Completion;
  /** Answers to several prompts, each as it would be alone. @throws as `complete`; none of them runs then */
  completeAll(prompts: readonly Prompt[], options?: CompletionOptions): Completion;
  /** As `Model.embed`. @throws as `complete` */
  embed(texts: string | readonly Prompt[], options?: EmbedOptions): Promise<EmbedResult>;
  /** As `Model.rerank`. @throws as `complete` */
  rerank(query: string, documents: readonly string[], options?: RerankOptions): Promise<RerankResult>;
  /** The ids that a prompt feeds, however many. @throws SplitkvError `usage`, `io` or `unsupported` where there is no tokenizer */
  tokenize(prompt: Prompt, options?: TokenizeOptions): number[];
  /** What its chat template makes of messages. @throws SplitkvError `usage`, `io` or `unsupported` */
  chatText(prompt: Prompt, options?: TokenizeOptions): string;
  /** @throws SplitkvError `usage` for what is no token id; `io` or `unsupported` */
  detokenize(tokens: readonly number[]): string;
  /** What a token adds to a text, in UTF-8: perhaps a part of a character. @throws as `detokenize` */
  tokenBytes(token: number): Uint8Array;
  /** Ends every request with 'aborted' and frees the ranks. */
  dispose(): Promise<void>;
}
