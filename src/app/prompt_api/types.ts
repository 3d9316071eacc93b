/** The surface of https://webmachinelearning.github.io/prompt-api/. */

export type LanguageModelAvailability = 'unavailable' | 'downloadable' | 'downloading' | 'available';
export type LanguageModelSamplingMode = 'most-predictable' | 'predictable' | 'balanced' | 'creative' | 'most-creative';

export type LanguageModelImage = ImageBitmapSource | ArrayBuffer | ArrayBufferView;
export type LanguageModelAudio = AudioBuffer | Blob | ArrayBuffer | ArrayBufferView;

/** Images and recordings are of the user, in sessions that expect them. */
export type LanguageModelMessageContent =
  | { readonly type: 'text'; readonly value: string }
  | { readonly type: 'image'; readonly value: LanguageModelImage }
  | { readonly type: 'audio'; readonly value: LanguageModelAudio };

export interface LanguageModelMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string | readonly LanguageModelMessageContent[];
  readonly prefix?: boolean;
}

/** A text is a message of the user. */
export type LanguageModelPrompt = string | readonly LanguageModelMessage[];

export interface LanguageModelExpected {
  /** 'text'; as an input 'image' and 'audio', where the model takes them; with tools 'tool-response' as an input, and 'tool-call' as an output. */
  readonly type: string;
  readonly languages?: readonly string[];
}

export interface LanguageModelTool {
  readonly name: string;
  readonly description: string;
  /** JSON schema of the arguments, an object. */
  readonly inputSchema: object;
  /** Is called with the arguments; the model goes on with what it gives. */
  readonly execute: (args: never) => Promise<string> | string;
}

export interface LanguageModelOptions {
  /** 0 to 2, together with `topK`; default: as the model's makers recommend. */
  readonly temperature?: number;
  /** At least 1. */
  readonly topK?: number;
  readonly samplingMode?: LanguageModelSamplingMode;
  readonly expectedInputs?: readonly LanguageModelExpected[];
  readonly expectedOutputs?: readonly LanguageModelExpected[];
  /** Functions that the model may call, where its chat template knows tools. What one rejects with, the prompt does. */
  readonly tools?: readonly LanguageModelTool[];
}

export interface LanguageModelCreateOptions extends LanguageModelOptions {
  /** Ends the session, too, when it fires later. */
  readonly signal?: AbortSignal;
  /** Its target hears of 'downloadprogress': `loaded` from 0 to 1. */
  readonly monitor?: (target: EventTarget) => void;
  readonly initialPrompts?: readonly LanguageModelMessage[];
}

export interface LanguageModelPromptOptions {
  readonly signal?: AbortSignal;
  /** A JSON schema, or a regular expression that the whole answer matches, with the beginning that is given (`prefix`). */
  readonly responseConstraint?: object;
  /** The constraint isn't told to the model in either case. */
  readonly omitResponseConstraintInput?: boolean;
}

export interface LanguageModelParams {
  readonly defaultTopK: number;
  readonly maxTopK: number;
  readonly defaultTemperature: number;
  readonly maxTemperature: number;
}

type Signalled = { readonly signal?: AbortSignal };

/** A session. What is asked of it while it answers waits its turn. */
export interface LanguageModelSession extends EventTarget {
  readonly topK: number;
  readonly temperature: number;
  readonly samplingMode: LanguageModelSamplingMode | null;
  /** Tokens of what was said so far, and how many there may be; the names after them are older ones of the same. */
  readonly contextUsage: number;
  readonly contextWindow: number;
  readonly inputUsage: number;
  readonly inputQuota: number;
  /** The oldest questions and answers had to be left out. */
  oncontextoverflow: ((event: Event) => void) | null;
  onquotaoverflow: ((event: Event) => void) | null;
  /**
   * Asks, and gives the whole answer. A prompt that fails hasn't been said.
   * @throws DOMException `QuotaExceededError` (with `requested` and `quota`), `NotSupportedError`, `InvalidStateError` where it is or
   *   was destroyed, the signal's reason; TypeError for what is no prompt
   */
  prompt(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<string>;
  /** The same in pieces. */
  promptStreaming(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): ReadableStream<string>;
  /** Says something that isn't answered yet. */
  append(input: LanguageModelPrompt, options?: Signalled): Promise<undefined>;
  /** Tokens that an input would take. */
  measureContextUsage(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<number>;
  measureInputUsage(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<number>;
  /** A session that goes on from here by itself. */
  clone(options?: Signalled): Promise<LanguageModelSession>;
  /** Ends what it answers, and all that waits. */
  destroy(): void;
}

export interface LanguageModelClass {
  /** 'downloadable' until the model is asked for, whether or not it has to come over the network then. */
  availability(options?: LanguageModelOptions): Promise<LanguageModelAvailability>;
  create(options?: LanguageModelCreateOptions): Promise<LanguageModelSession>;
  /** Null until the model is loaded. */
  params(): Promise<LanguageModelParams | null>;
}
