// Made of src/engine/contracts/options by `npm run options`: change the rows there.

import type { AttentionDpOptions } from '../../index.js';
import type { ClusterRanksOptions } from '../../engine/contracts/cluster_options.js';

export type Gone = null | undefined;
/** A list is written with commas between. */
type TextList = number | string | readonly (number | string)[];

/**
 * A property for each attribute, named in camel case (`maxTokens` is `max-tokens`): what is set becomes the attribute, null and
 * undefined take it away. Frameworks set properties where an element has them.
 */
export interface ChatProperties {
  /** URL of a model folder or .gguf file, relative to the page. */
  get model(): string | undefined;
  set model(value: string | URL | Gone);
  /** Tells clusters of one server apart; default main. */
  get clusterName(): string | undefined;
  set clusterName(value: string | Gone);
  /** Downloads without asking first; default off. */
  get autostart(): boolean;
  set autostart(value: boolean | '' | Gone);
  /** Turns off the check of a few tokens before the first question. */
  get noSelfTest(): boolean;
  set noSelfTest(value: boolean | '' | Gone);
  /** Tokens of an answer; default 512. */
  get maxTokens(): number | undefined;
  set maxTokens(value: number | string | Gone);
  /** The system message. */
  get system(): string | undefined;
  set system(value: string | Gone);
  /** Whether a model that can thinks before it answers; default as the model's makers do. */
  get thinking(): string | undefined;
  set thinking(value: string | Gone);
  /** A text that every question is about: each is asked by itself, after this text. */
  get about(): string | undefined;
  set about(value: string | Gone);
  /** Questions to offer, with | between. */
  get suggestions(): string | undefined;
  set suggestions(value: string | Gone);
  /** People may change how it answers, the context and the weights; default off. */
  get settings(): boolean;
  set settings(value: boolean | '' | Gone);
  /** People may choose another model, and delete those that this browser keeps; default off. */
  get picker(): boolean;
  set picker(value: boolean | '' | Gone);
  /** A name. */
  get keep(): string | undefined;
  set keep(value: string | Gone);
  /** Answers are shown as they were written, without Markdown; default off. */
  get plain(): boolean;
  set plain(value: boolean | '' | Gone);
  /** The chat's name, as screen readers say it; default Chat. */
  get label(): string | undefined;
  set label(value: string | Gone);
  /** Shown in the empty field; default Ask something. */
  get placeholder(): string | undefined;
  set placeholder(value: string | Gone);
  /** How matrices are kept on the GPU; default auto, as they are stored. */
  get weights(): string | undefined;
  set weights(value: string | Gone);
  /** Tokens that the KV cache holds for a sequence, prompt and answer. */
  get context(): number | undefined;
  set context(value: number | string | Gone);
  /** The Hub that names such as ORG/NAME mean. */
  get hub(): string | undefined;
  set hub(value: string | URL | Gone);
  /** How the KV cache keeps its numbers. */
  get kv(): string | undefined;
  set kv(value: string | Gone);
  /** Part of a prompt's KV cache that is kept, such as 0.2. */
  get kvBudget(): number | undefined;
  set kvBudget(value: number | string | Gone);
  /** What each head kept in a measurement, as `splitkv profile` writes it. */
  get kvProfile(): string | undefined;
  set kvProfile(value: string | URL | Gone);
  /** Prompts that begin alike share the beginning's cache, and a conversation's turns theirs. */
  get prefixCaching(): boolean;
  set prefixCaching(value: boolean | '' | Gone);
  /** Which variants of kernels run. */
  get variants(): string | undefined;
  set variants(value: string | Gone);
  /** How prompts are multiplied on GPUs. */
  get precision(): string | undefined;
  set precision(value: string | Gone);
  /** Turns off the timing of a GPU's kernels at load, for half a second at most, to choose among plans of equal bits. */
  get noTune(): boolean;
  set noTune(value: boolean | '' | Gone);
  /** GPU devices that run the model together. */
  get ranks(): string | undefined;
  set ranks(value: TextList | Gone);
  /** Who holds what. */
  get plan(): string | undefined;
  set plan(value: string | Gone);
  /** Plan arranged. */
  get copies(): number | undefined;
  set copies(value: number | string | Gone);
  /** Degrees of parallelism name a plan and its ranks in place of plan and ranks. */
  get tensor(): number | undefined;
  set tensor(value: number | string | Gone);
  /** Of the degrees. */
  get token(): number | string | undefined;
  set token(value: number | string | Gone);
  /** Of the degrees: ranks that split the chunks of each sequence (sp). */
  get sequence(): number | undefined;
  set sequence(value: number | string | Gone);
  /** Of the degrees: stages of layers (pp). */
  get pipeline(): number | undefined;
  set pipeline(value: number | string | Gone);
  /** Of the degrees: ranks, or groups of ranks, with requests of their own (adp). */
  get data(): number | undefined;
  set data(value: number | string | Gone);
  /** All ranks on one device: tries a plan without more GPUs; default off. */
  get virtual(): boolean;
  set virtual(value: boolean | '' | Gone);
  /** Each rank in a worker of its own: a Web Worker in a page, a worker_thread in Node; default off. */
  get workers(): boolean;
  set workers(value: boolean | '' | Gone);
  /**
   * A cluster whose ranks on other machines run the model: ranks are their names, or how many; a text is the
   * attribute, an object may have a token, which markup never shows.
   */
  get cluster(): string | ClusterRanksOptions | undefined;
  set cluster(value: string | ClusterRanksOptions | Gone);
  /** GPU memory that each rank may take, such as 500MB or 2GB; "1GB,500MB" gives each its own. */
  get memory(): string | undefined;
  set memory(value: TextList | Gone);
  /** Which rank, or group of ranks, a request goes to and when its prompt runs, where a plan keeps each request on one. */
  get attentionDpConfig(): string | undefined;
  set attentionDpConfig(value: string | AttentionDpOptions | Gone);
  /** How evenly tokens are drawn; 0 takes the likeliest one; default 0. */
  get temperature(): number | undefined;
  set temperature(value: number | string | Gone);
  /** The likeliest tokens that hold this probability together are drawn from; 1 is all of them; default 1. */
  get topP(): number | undefined;
  set topP(value: number | string | Gone);
  /** How many of the likeliest tokens to draw from; 0 is all of them; default 0. */
  get topK(): number | undefined;
  set topK(value: number | string | Gone);
  /** Tokens less likely than this times the likeliest one, after temperature, are left out. */
  get minP(): number | undefined;
  set minP(value: number | string | Gone);
  /** Of tokens of the prompt and generated ones, positive logits are divided by it and negative ones multiplied. */
  get repetitionPenalty(): number | undefined;
  set repetitionPenalty(value: number | string | Gone);
  /** Subtracted from a token's logit for each time it was generated; default 0. */
  get frequencyPenalty(): number | undefined;
  set frequencyPenalty(value: number | string | Gone);
  /** Subtracted from the logit of each token that was generated; default 0. */
  get presencePenalty(): number | undefined;
  set presencePenalty(value: number | string | Gone);
  /** The same seed gives the same text; default a random one, reported in the result. */
  get seed(): number | undefined;
  set seed(value: number | string | Gone);
}

/** What properties take that are more than a text, a number or a switch. */
export interface WideProperties {
  readonly model: string | URL;
  readonly hub: string | URL;
  readonly kvProfile: string | URL;
  readonly ranks: TextList;
  readonly cluster: string | ClusterRanksOptions;
  readonly memory: TextList;
  readonly attentionDpConfig: string | AttentionDpOptions;
}
