// Made of src/engine/contracts/options by `npm run options`: change the rows there.

import type { AttentionDpOptions } from '../src/index.js';
import type { ClusterRanksOptions } from '../src/engine/contracts/cluster_options.js';

export type Gone = null | undefined;
/** A list is written with commas between. */
type TextList = number | string | readonly (number | string)[];

/**
 * A property for each attribute, named in camel case (`maxTokens` is `max-tokens`): what is set becomes the attribute,
 * undefined takes it away. Frameworks set properties where an element has them.
 */
export interface ChatProperties {
  /** URL of a model folder or .gguf file, relative to the page. */
  get model(): string | undefined;
  set model(value: string | URL | Gone);
  /** Tells clusters of one server apart; default main. */
  clusterName: string | undefined;
  /** Downloads without asking first; default off. */
  autostart: boolean;
  /** Turns off the check of a few tokens before the first question. */
  noSelfTest: boolean;
  /** Tokens of an answer; default 512. */
  maxTokens: number | undefined;
  /** The system message. */
  system: string | undefined;
  /** Whether a model that can thinks before it answers; default as the model's makers do. */
  thinking: string | undefined;
  /** A text that every question is about: each is asked by itself, after this text. */
  about: string | undefined;
  /** Questions to offer, with | between. */
  suggestions: string | undefined;
  /** People may change how it answers, the context and the weights; default off. */
  settings: boolean;
  /** People may choose another model, and delete those that this browser keeps; default off. */
  picker: boolean;
  /** A name. */
  keep: string | undefined;
  /** Answers are shown as they were written, without Markdown; default off. */
  plain: boolean;
  /** The chat's name, as screen readers say it; default Chat. */
  label: string | undefined;
  /** Shown in the empty field; default Ask something. */
  placeholder: string | undefined;
  /** How matrices are kept on the GPU; default auto, as they are stored. */
  weights: string | undefined;
  /** Tokens that the KV cache holds for a sequence, prompt and answer. */
  context: number | undefined;
  /** Prompts may have images: the model's encoder is loaded, too, on the first rank; default off. */
  images: boolean;
  /** Prompts may have recordings. */
  sound: boolean;
  /** The Hub that names such as ORG/NAME mean. */
  get hub(): string | undefined;
  set hub(value: string | URL | Gone);
  /** How the KV cache keeps its numbers. */
  kv: string | undefined;
  /** Part of a prompt's KV cache that is kept, such as 0.2. */
  kvBudget: number | undefined;
  /** What each head kept in a measurement, as `splitkv profile` writes it. */
  get kvProfile(): string | undefined;
  set kvProfile(value: string | URL | Gone);
  /** Prompts that begin alike share the beginning's cache, and a conversation's turns theirs. */
  prefixCaching: boolean;
  /** Files of `splitkv prefix make`, by URL or in Node by path. */
  get prefixes(): string | undefined;
  set prefixes(value: TextList | Gone);
  /** Which variants of kernels run. */
  variants: string | undefined;
  /** How prompts are multiplied on GPUs. */
  precision: string | undefined;
  /** Turns off the timing of a GPU's kernels at load, for half a second at most, to choose among plans of equal bits. */
  noTune: boolean;
  /** Tokens that may come next are proposed, and verified many in a step where that pays. */
  speculate: string | undefined;
  /** A smaller model of the same vocabulary, named as the model is, that proposes tokens, too. */
  get draft(): string | undefined;
  set draft(value: string | URL | Gone);
  /** GPU devices that run the model together. */
  get ranks(): string | undefined;
  set ranks(value: TextList | Gone);
  /** Who holds what. */
  plan: string | undefined;
  /** Plan arranged. */
  copies: number | undefined;
  /** Degrees of parallelism name a plan and its ranks in place of plan and ranks. */
  tensor: number | undefined;
  /** Of the degrees. */
  token: number | undefined;
  /** Of the degrees: ranks that split the chunks of each sequence (sp). */
  sequence: number | undefined;
  /** Of the degrees: stages of layers (pp). */
  pipeline: number | undefined;
  /** Of the degrees: ranks, or groups of ranks, with requests of their own (adp). */
  data: number | undefined;
  /** All ranks on one device: tries a plan without more GPUs; default off. */
  virtual: boolean;
  /** Each rank in a worker of its own: a Web Worker in a page, a worker_thread in Node; default off. */
  workers: boolean;
  /** All pages of an origin that load the same model with the same options use one; default off. */
  get share(): string | undefined;
  set share(value: boolean | string | URL | Gone);
  /** Frees a shared model after so many seconds without a question; default never. */
  idle: number | undefined;
  /**
   * A cluster whose ranks on other machines, or in tabs; a text is the attribute, an object may have a token, which
   * markup never shows.
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
  temperature: number | undefined;
  /** The likeliest tokens that hold this probability together are drawn from; 1 is all of them; default 1. */
  topP: number | undefined;
  /** How many of the likeliest tokens to draw from; 0 is all of them; default 0. */
  topK: number | undefined;
  /** Tokens less likely than this times the likeliest one, after temperature, are left out. */
  minP: number | undefined;
  /** Of tokens of the prompt and generated ones, positive logits are divided by it and negative ones multiplied. */
  repetitionPenalty: number | undefined;
  /** Subtracted from a token's logit for each time it was generated; default 0. */
  frequencyPenalty: number | undefined;
  /** Subtracted from the logit of each token that was generated; default 0. */
  presencePenalty: number | undefined;
  /** The same seed gives the same text; default a random one, reported in the result. */
  seed: number | undefined;
}

/** What properties take that are more than a text, a number or a switch. */
export interface WideProperties {
  readonly model: string | URL;
  readonly hub: string | URL;
  readonly kvProfile: string | URL;
  readonly prefixes: TextList;
  readonly draft: string | URL;
  readonly ranks: TextList;
  readonly share: boolean | string | URL;
  readonly cluster: string | ClusterRanksOptions;
  readonly memory: TextList;
  readonly attentionDpConfig: string | AttentionDpOptions;
}
