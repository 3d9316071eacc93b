/**
 * Room: the `LanguageModel` of Chrome's Prompt API over a model of ours: `import { providePromptApi } from
 * 'splitkv/prompt-api'`. The class is here, what messages mean is in messages.ts, its types in types.ts. Holds no
 * engine: who loads the model says how.
 */
import { withAbort } from '../../base/errors.js';
import type {
  Conversation,
  GenerateOptions,
  LoadOptions,
  LoadProgress,
  Model,
  SavedConversation,
} from '../../index.js';
import { streamOf } from '../shared/stream.js';
import { checkOptions, MODES, readMessages, type TextMessage, turnsOf } from './messages.js';
import type {
  LanguageModelAvailability,
  LanguageModelClass,
  LanguageModelCreateOptions,
  LanguageModelOptions,
  LanguageModelParams,
  LanguageModelPrompt,
  LanguageModelPromptOptions,
  LanguageModelSamplingMode,
  LanguageModelSession,
} from './types.js';

export type * from './types.js';

/** A loaded model, or what loads it when a session is first asked for. */
export type PromptApiSource = Model | ((options: Pick<LoadOptions, 'onProgress'>) => Promise<Model>);

const MAX_TEMPERATURE = 2;
/** The event's name, and an older one of the same. */
const OVERFLOWS = ['contextoverflow', 'quotaoverflow'] as const;

/**
 * Gives pages the Prompt API where the browser has none: sets `globalThis.LanguageModel` and returns true; false where it is there
 * already, and stays.
 */
export function providePromptApi(source: PromptApiSource): boolean {
  const scope = globalThis as { LanguageModel?: unknown };
  if (scope.LanguageModel !== undefined) return false;
  scope.LanguageModel = promptApi(source);
  return true;
}

/**
 * A `LanguageModel` over a model. Its sessions share it; disposing of it is the caller's.
 *
 * @example
 * ```ts
 * import { load } from 'splitkv';
 * import { promptApi } from 'splitkv/prompt-api';
 *
 * const LanguageModel = promptApi((options) => load('smollm2-360m-instruct', options));
 * const session = await LanguageModel.create({ initialPrompts: [{ role: 'system', content: 'Be short.' }] });
 * console.log(await session.prompt('Is the sky blue?', { responseConstraint: /yes|no/ }));
 * ```
 */
export function promptApi(source: PromptApiSource): LanguageModelClass {
  let model = typeof source === 'function' ? undefined : source;
  let loading: Promise<Model> | undefined;
  const progress = new Set<(loaded: number) => void>();
  const load = (): Promise<Model> => {
    if (typeof source !== 'function') return Promise.resolve(source);
    const onProgress = ({ loadedBytes, totalBytes }: LoadProgress): void => {
      const loaded = totalBytes > 0 ? Math.min(1, loadedBytes / totalBytes) : 0;
      for (const tell of progress) tell(loaded);
    };
    loading ??= source({ onProgress }).then(
      (loaded) => (model = loaded),
      (error: unknown) => {
        loading = undefined;
        throw new DOMException(error instanceof Error ? error.message : String(error), 'OperationError');
      },
    );
    return loading;
  };

  class LanguageModel extends Session {
    static async availability(options: LanguageModelOptions = {}): Promise<LanguageModelAvailability> {
      if (checkOptions(options) !== undefined) return 'unavailable';
      if (model) return 'available';
      if (loading) return 'downloading';
      const { navigator } = globalThis as { readonly navigator?: { readonly gpu?: unknown } };
      // In Node the engine finds its adapters elsewhere.
      return navigator?.gpu || 'process' in globalThis ? 'downloadable' : 'unavailable';
    }

    static async params(): Promise<LanguageModelParams | null> {
      if (!model) return null;
      const { sampling, vocabSize } = model.info;
      return {
        defaultTopK: sampling.topK || vocabSize,
        maxTopK: vocabSize,
        defaultTemperature: sampling.temperature ?? 0,
        maxTemperature: MAX_TEMPERATURE,
      };
    }

    static async create(options: LanguageModelCreateOptions = {}): Promise<LanguageModelSession> {
      const { signal, monitor, initialPrompts } = options;
      signal?.throwIfAborted();
      const wrong = checkOptions(options);
      if (wrong !== undefined) throw new DOMException(wrong, 'NotSupportedError');
      const messages = initialPrompts ? readMessages(initialPrompts, true) : [];
      const target = new EventTarget();
      monitor?.(target);
      let last = -1;
      const tell = (loaded: number): void => {
        if (loaded <= last) return;
        last = loaded;
        target.dispatchEvent(progressEvent(loaded));
      };
      progress.add(tell);
      let loaded: Model;
      try {
        tell(0);
        loaded = await orAborted(load(), signal);
        tell(1);
      } finally {
        progress.delete(tell);
      }
      return new LanguageModel(start(loaded, messages), samplingOf(loaded, options), options.samplingMode ?? null);
    }
  }
  return LanguageModel;
}

/** What a session holds. */
interface State {
  readonly model: Model;
  readonly conversation: Conversation;
  /** Of the user, and not yet answered. */
  readonly pending: readonly string[];
}

type Sampling = Pick<GenerateOptions, 'temperature' | 'topK'>;

abstract class Session extends EventTarget implements LanguageModelSession {
  readonly topK: number;
  readonly temperature: number;
  #state: State;
  #usage: number;
  #last: Promise<unknown> = Promise.resolve();
  readonly #destroyed = new AbortController();
  oncontextoverflow: ((event: Event) => void) | null = null;
  onquotaoverflow: ((event: Event) => void) | null = null;

  constructor(
    state: State,
    private readonly sampling: Sampling,
    readonly samplingMode: LanguageModelSamplingMode | null,
  ) {
    super();
    const { sampling: recommended, vocabSize } = state.model.info;
    this.topK = (sampling.topK ?? recommended.topK) || vocabSize;
    this.temperature = sampling.temperature ?? recommended.temperature ?? 0;
    this.#state = state;
    this.#usage = usageOf(state);
    if (this.#usage > this.contextWindow) throw quotaExceeded(this.#usage, this.contextWindow);
    for (const type of OVERFLOWS) this.addEventListener(type, (event) => this[`on${type}`]?.(event));
  }

  get contextUsage(): number {
    return this.#usage;
  }

  get contextWindow(): number {
    return this.#state.model.info.contextLength;
  }

  get inputUsage(): number {
    return this.#usage;
  }

  get inputQuota(): number {
    return this.contextWindow;
  }

  async prompt(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): Promise<string> {
    let text = '';
    for await (const piece of this.#pieces(input, options, new AbortController())) text += piece;
    return text;
  }

  promptStreaming(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): ReadableStream<string> {
    const left = new AbortController();
    const pieces = this.#pieces(input, options, left);
    return streamOf(pieces, (reason) => left.abort(reason));
  }

  async append(input: LanguageModelPrompt, { signal }: { readonly signal?: AbortSignal } = {}): Promise<undefined> {
    const messages = readMessages(input, false);
    await this.#inTurn([signal], async () => {
      const state = extended(this.#state, messages);
      const usage = usageOf(state);
      if (usage > this.contextWindow) throw quotaExceeded(usage, this.contextWindow);
      this.#state = state;
      this.#usage = usage;
    });
  }

  async measureContextUsage(
    input: LanguageModelPrompt,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<number> {
    this.#check([signal]);
    return Math.max(0, usageOf(extended(this.#state, readMessages(input, false))) - usageOf(this.#state));
  }

  measureInputUsage(input: LanguageModelPrompt, options: { readonly signal?: AbortSignal } = {}): Promise<number> {
    return this.measureContextUsage(input, options);
  }

  async clone({ signal }: { readonly signal?: AbortSignal } = {}): Promise<LanguageModelSession> {
    return this.#inTurn([signal], async () => {
      const { conversation } = this.#state;
      const own = this.constructor as new (...given: ConstructorParameters<typeof Session>) => LanguageModelSession;
      return new own({ ...this.#state, conversation: conversation.fork() }, this.sampling, this.samplingMode);
    });
  }

  destroy(): void {
    this.#destroyed.abort(new DOMException('the session was destroyed', 'AbortError'));
  }

  async *#pieces(
    input: LanguageModelPrompt,
    { signal, responseConstraint }: LanguageModelPromptOptions,
    left: AbortController,
  ): AsyncGenerator<string, void, undefined> {
    const messages = readMessages(input, false, true);
    const form = formOf(responseConstraint);
    const signals = [signal, left.signal];
    const leave = await this.#enter(signals);
    try {
      // What fails, or is left, hasn't been said.
      const begun = messages.find(({ prefix }) => prefix)?.content ?? '';
      const asked = messages.filter(({ prefix }) => !prefix);
      const { model, conversation, pending } = extended(this.#state, asked);
      if (pending.length === 0)
        throw new TypeError('the prompt ends with an answer; end it with a message of the user');
      const question = pending.join('\n\n');
      const begins = begun === '' ? [] : [{ user: question, answer: begun, tokens: [] }];
      const talk = begun === '' ? conversation.fork() : withTurns(model, conversation, begins);
      const before = conversation.messages.length;
      const all = AbortSignal.any([this.#destroyed.signal, ...given(signals)]);
      const maxTokens = this.contextWindow;
      const options = { ...this.sampling, ...form, maxTokens, signal: all };
      const generation = begun === '' ? talk.send(question, options) : talk.continue(options);
      for await (const piece of generation) if (piece !== '') yield piece;
      const { prompt_tokens, tokens } = await generation.result;
      all.throwIfAborted();
      this.#state = { model, conversation: talk, pending: [] };
      this.#usage = prompt_tokens + tokens.length;
      if (talk.messages.length < before + 2) {
        for (const type of OVERFLOWS) this.dispatchEvent(new Event(type));
      }
    } catch (error) {
      throw this.#told(error, messages);
    } finally {
      // Who leaves in the middle ends the answer, too.
      left.abort(new DOMException('the answer was left', 'AbortError'));
      leave();
    }
  }

  /** An error as the browser's would be. */
  #told(error: unknown, messages: readonly TextMessage[]): unknown {
    const { code, message } = error as { readonly code?: unknown; readonly message?: string };
    if (code === 'context_full') return quotaExceeded(usageOf(extended(this.#state, messages)), this.contextWindow);
    if (code === 'usage' || code === 'unsupported') return new DOMException(message, 'NotSupportedError');
    if (typeof code === 'string') return new DOMException(message, 'OperationError');
    return error;
  }

  /** @throws the reason of a signal that has fired; `InvalidStateError` once it was destroyed */
  #check(signals: readonly (AbortSignal | undefined)[]): void {
    if (this.#destroyed.signal.aborted) throw new DOMException('the session was destroyed', 'InvalidStateError');
    for (const signal of given(signals)) signal.throwIfAborted();
  }

  /** Waits for what was asked before. Call what it gives when it is over. */
  async #enter(signals: readonly (AbortSignal | undefined)[]): Promise<() => void> {
    this.#check(signals);
    let leave!: () => void;
    const before = this.#last;
    this.#last = Promise.allSettled([before, new Promise<void>((resolve) => (leave = resolve))]);
    try {
      await orAborted(before, AbortSignal.any([this.#destroyed.signal, ...given(signals)]));
    } catch (error) {
      leave();
      throw error;
    }
    return leave;
  }

  async #inTurn<T>(signals: readonly (AbortSignal | undefined)[], work: () => Promise<T>): Promise<T> {
    const leave = await this.#enter(signals);
    try {
      return await work();
    } finally {
      leave();
    }
  }
}

const given = (signals: readonly (AbortSignal | undefined)[]): AbortSignal[] =>
  signals.filter((signal) => signal !== undefined);

/** A session that begins with these messages. */
function start(model: Model, messages: readonly TextMessage[]): State {
  const [first] = messages;
  const isSystem = first?.role === 'system';
  const conversation = model.conversation({ whenFull: 'forget', ...(isSystem && { system: first.content }) });
  return extended({ model, conversation, pending: [] }, isSystem ? messages.slice(1) : messages);
}

/** With more messages, none of which is answered now. */
function extended({ model, conversation, pending }: State, messages: readonly TextMessage[]): State {
  const { turns, pending: left } = turnsOf(pending, messages);
  if (turns.length === 0) return { model, conversation, pending: left };
  return { model, conversation: withTurns(model, conversation, turns), pending: left };
}

function withTurns(model: Model, conversation: Conversation, turns: SavedConversation['turns']): Conversation {
  const saved = conversation.save();
  return model.conversation({ whenFull: 'forget', restore: { ...saved, turns: [...saved.turns, ...turns] } });
}

/** Tokens of all messages so far. */
function usageOf({ model, conversation, pending }: State): number {
  const open = pending.length === 0 ? [] : [{ role: 'user' as const, content: pending.join('\n\n') }];
  const messages = [...conversation.messages, ...open];
  return messages.length === 0 ? 0 : model.tokenize({ messages }, { addGenerationPrompt: false }).length;
}

function samplingOf({ info }: Model, { temperature, topK, samplingMode }: LanguageModelOptions): Sampling {
  const base = info.sampling.temperature || 1;
  const warmth = samplingMode === undefined ? temperature : base * MODES[samplingMode];
  return {
    ...(warmth !== undefined && { temperature: Math.min(MAX_TEMPERATURE, warmth) }),
    ...(topK !== undefined && { topK: Math.min(info.vocabSize, Math.floor(topK)) }),
  };
}

/** What an answer is held to. */
function formOf(constraint: object | undefined): Pick<GenerateOptions, 'regex' | 'responseFormat'> {
  if (constraint === undefined) return {};
  if (constraint instanceof RegExp) {
    const flags = constraint.flags.replaceAll(/[dgsuvy]/g, '');
    if (flags !== '')
      throw new DOMException(`responseConstraint: the flag ${flags[0]} is not supported`, 'NotSupportedError');
    return { regex: constraint.source };
  }
  return { responseFormat: { type: 'json_schema', json_schema: { schema: constraint as Record<string, unknown> } } };
}

function quotaExceeded(requested: number, quota: number): Error {
  const message = `the input has ${requested} tokens with what was said before; the context window holds ${quota}`;
  const { QuotaExceededError: own } = globalThis as {
    readonly QuotaExceededError?: new (message: string, options: object) => Error;
  };
  return own
    ? new own(message, { requested, quota })
    : Object.assign(new DOMException(message, 'QuotaExceededError'), { requested, quota });
}

function progressEvent(loaded: number): Event {
  if (typeof ProgressEvent === 'function') {
    return new ProgressEvent('downloadprogress', { loaded, total: 1, lengthComputable: true });
  }
  return Object.assign(new Event('downloadprogress'), { loaded, total: 1, lengthComputable: true });
}

/** @throws the signal's reason as soon as it fires */
const orAborted = <T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> =>
  withAbort(work, signal, ({ reason }) => reason as unknown);
