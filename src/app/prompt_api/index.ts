/**
 * Room: the `LanguageModel` of Chrome's Prompt API over a model of ours: `import { providePromptApi } from
 * 'splitkv/prompt-api'`. The class is here, what messages mean is in messages.ts, its types in types.ts. Holds no
 * engine: who loads the model says how.
 */
import { pause } from '../../base/waits.js';
import { anySignal, messageOf, withAbort } from '../../base/errors.js';
import { parsed } from '../../base/json.js';
import type {
  ChatMessage,
  Conversation,
  GenerateOptions,
  Generation,
  LoadOptions,
  LoadProgress,
  Model,
  SavedConversation,
  Tool,
  ToolCall,
} from '../../index.js';
import { streamOf } from '../shared/stream.js';
import { readContent } from './media.js';
import {
  askedOf,
  checkOptions,
  checkSampling,
  expectedMedia,
  joined,
  type Media,
  MODES,
  type ReadMessage,
  readMessages,
  readTools,
  type Said,
  turnsOf,
} from './messages.js';
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

/** A loaded model, or what loads it when a session is first asked for: with images or sound, where that session expects them. */
export type PromptApiSource =
  | Model
  | ((options: Pick<LoadOptions, 'onProgress' | 'images' | 'sound'>) => Promise<Model>);

const MAX_TEMPERATURE = 2;
/** Progress is told in steps of that many. */
const PARTS = 65_536;
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
  const load = (takes: readonly Media[]): Promise<Model> => {
    if (typeof source !== 'function') return Promise.resolve(source);
    const onProgress = ({ loadedBytes, totalBytes }: LoadProgress): void => {
      const loaded = totalBytes > 0 ? Math.min(1, loadedBytes / totalBytes) : 0;
      for (const tell of progress) tell(loaded);
    };
    loading ??= source({ onProgress, ...encodersOf(takes) }).then(
      (loaded) => (model = loaded),
      (error: unknown) => {
        loading = undefined;
        throw new DOMException(messageOf(error), 'OperationError');
      },
    );
    return loading;
  };

  class LanguageModel extends Session {
    static async availability(options: LanguageModelOptions = {}): Promise<LanguageModelAvailability> {
      if ((checkOptions(options) ?? checkSampling(options)) !== undefined) return 'unavailable';
      if (model) return lacking(model, expectedMedia(options)) === undefined ? 'available' : 'unavailable';
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
      const range = checkSampling(options);
      if (range !== undefined) throw new RangeError(range);
      const takes = expectedMedia(options);
      const messages = initialPrompts ? readMessages(initialPrompts, takes) : [];
      const tools = readTools(options.tools);
      const target = new EventTarget();
      monitor?.(target);
      let last = -1;
      const tell = (part: number): void => {
        const loaded = Math.floor(part * PARTS) / PARTS;
        if (loaded <= last || signal?.aborted) return;
        last = loaded;
        target.dispatchEvent(progressEvent(loaded));
      };
      progress.add(tell);
      let loaded: Model;
      try {
        tell(0);
        loaded = await orAborted(load(takes), signal);
        tell(1);
        await pause(0);
        signal?.throwIfAborted();
      } finally {
        progress.delete(tell);
      }
      const lack = lacking(loaded, takes);
      if (lack !== undefined) throw new DOMException(lack, 'NotSupportedError');
      const given = { sampling: samplingOf(loaded, options), tools, takes, samplingMode: options.samplingMode ?? null };
      const shown = tools.map(({ execute: _, inputSchema: parameters, ...of }): Tool => ({
        type: 'function',
        function: { ...of, parameters: parameters as Record<string, unknown>, strict: true },
      }));
      const state = start(loaded, await orAborted(settled(messages), signal), shown);
      return new LanguageModel(state, given, signal, await orAborted(usageOf(state), signal));
    }
  }
  return LanguageModel;
}

interface State {
  readonly model: Model;
  readonly conversation: Conversation;
  /** Of the user, and not yet answered. */
  readonly pending: readonly Said[];
  readonly tools: readonly Tool[];
}

type Sampling = Pick<GenerateOptions, 'temperature' | 'topK'>;

/** What a session was created with, and its clones are. */
interface Given {
  readonly sampling: Sampling;
  readonly tools: ReturnType<typeof readTools>;
  readonly takes: readonly Media[];
  readonly samplingMode: LanguageModelSamplingMode | null;
}

abstract class Session extends EventTarget implements LanguageModelSession {
  readonly topK: number;
  readonly temperature: number;
  readonly samplingMode: LanguageModelSamplingMode | null;
  readonly #given: Given;
  #state: State;
  #usage: number;
  #last: Promise<unknown> = Promise.resolve();
  readonly #destroyed = new AbortController();
  /** Fires when it ends: it was destroyed, or the signal fired that it was created with. */
  readonly #ended: AbortSignal;
  oncontextoverflow: ((event: Event) => void) | null = null;
  onquotaoverflow: ((event: Event) => void) | null = null;

  constructor(state: State, given: Given, signal: AbortSignal | undefined, usage: number) {
    super();
    const { sampling: recommended, vocabSize } = state.model.info;
    const { sampling } = given;
    this.topK = (sampling.topK ?? recommended.topK) || vocabSize;
    this.temperature = sampling.temperature ?? recommended.temperature ?? 0;
    this.samplingMode = given.samplingMode;
    this.#given = given;
    this.#state = state;
    this.#usage = usage;
    this.#ended = anySignal(this.#destroyed.signal, signal);
    if (usage > this.contextWindow) throw quotaExceeded(usage, this.contextWindow);
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
    for await (const piece of this.#pieces(this.#readAsked(input, options), new AbortController())) text += piece;
    return text;
  }

  promptStreaming(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): ReadableStream<string> {
    anySignal(this.#ended, options.signal).throwIfAborted();
    const left = new AbortController();
    const pieces = this.#pieces(this.#readAsked(input, options), left);
    return streamOf(pieces, (reason) => left.abort(reason));
  }

  async append(input: LanguageModelPrompt, { signal }: { readonly signal?: AbortSignal } = {}): Promise<undefined> {
    const messages = readMessages(input, this.#given.takes);
    await this.#inTurn(signal, async () => {
      const asked = this.#extended(await settled(messages));
      const { turns } = asked.conversation.save();
      // As many of the oldest questions go as must.
      let [state, usage] = [asked, await usageOf(asked)];
      for (let forgotten = 1; usage > this.contextWindow && forgotten <= turns.length; forgotten++) {
        state = { ...asked, conversation: withTurns(asked.model, asked.conversation, turns.slice(forgotten)) };
        usage = await usageOf(state);
      }
      if (usage > this.contextWindow) throw quotaExceeded(await usageOf(asked), this.contextWindow);
      this.#state = state;
      this.#usage = usage;
      if (state !== asked) this.#overflows();
    });
  }

  async measureContextUsage(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): Promise<number> {
    const asked = this.#readAsked(input, options);
    const until = anySignal(this.#ended, options.signal);
    until.throwIfAborted();
    const messages = await orAborted(settled(asked.messages), until);
    // What begins a session is measured by itself.
    const isFirst = messages[0]?.role === 'system';
    const before = isFirst ? 0 : await usageOf(this.#state);
    const after = isFirst ? start(this.#state.model, messages, []) : this.#extended(messages);
    return Math.max(0, (await orAborted(usageOf(after), until)) - before);
  }

  measureInputUsage(input: LanguageModelPrompt, options: LanguageModelPromptOptions = {}): Promise<number> {
    return this.measureContextUsage(input, options);
  }

  async clone({ signal }: { readonly signal?: AbortSignal } = {}): Promise<LanguageModelSession> {
    return this.#inTurn(signal, async () => {
      const { conversation } = this.#state;
      const own = this.constructor as new (...given: ConstructorParameters<typeof Session>) => LanguageModelSession;
      return new own({ ...this.#state, conversation: conversation.fork() }, this.#given, undefined, this.#usage);
    });
  }

  destroy(): void {
    this.#destroyed.abort(new DOMException('the session was destroyed', 'InvalidStateError'));
  }

  async *#pieces({ messages, form, signal }: Asked, left: AbortController): AsyncGenerator<string, void, undefined> {
    const until = anySignal(this.#ended, signal, left.signal);
    const leave = await this.#enter(until);
    let told: readonly ReadMessage<Said>[] = [];
    try {
      told = await orAborted(settled(messages), until);
      // What fails, or is left, hasn't been said.
      const begun = (told.find(({ prefix }) => prefix)?.content as string | undefined) ?? '';
      const asked = told.filter(({ prefix }) => !prefix);
      const { model, conversation, pending, tools } = this.#extended(asked);
      if (pending.length === 0 && asked.at(-1)?.role === 'assistant')
        throw new TypeError('the prompt ends with an answer; end it with a message of the user');
      // A conversation has no empty messages.
      const question = joined(pending) || ' ';
      let results: readonly ChatMessage[] | undefined;
      // A form is held to from the beginning on.
      const ids = form ? model.tokenize(begun, { addSpecial: false }) : [];
      const begins = [...conversation.save().turns, { ...askedOf(question), answer: begun, tokens: ids }];
      const talk = begun === '' ? conversation.fork() : withTurns(model, conversation, begins);
      const options = { ...this.#given.sampling, ...form, tools, maxTokens: this.contextWindow, signal: until };
      let expected = conversation.messages.length;
      for (let goesOn = begun !== ''; ; goesOn = false) {
        const generation: Generation = goesOn ? talk.continue(options) : talk.send(results ?? question, options);
        for await (const piece of generation) if (piece !== '') yield piece;
        const { prompt_tokens, tokens, tool_calls: calls = [] } = await generation.result;
        until.throwIfAborted();
        expected += 1 + (results?.length ?? 1);
        if (calls.length > 0) {
          results = await orAborted(this.#called(calls), until);
          continue;
        }
        this.#state = { model, conversation: talk, pending: [], tools };
        this.#usage = prompt_tokens + tokens.length;
        if (talk.messages.length < expected) this.#overflows();
        return;
      }
    } catch (error) {
      throw await this.#told(error, told);
    } finally {
      // Who leaves in the middle ends the answer, too.
      left.abort(new DOMException('the answer was left', 'AbortError'));
      leave();
    }
  }

  /** What the tools give that an answer calls. @throws what a tool does */
  #called(calls: readonly ToolCall[]): Promise<ChatMessage[]> {
    return Promise.all(
      calls.map(async ({ id, function: { name, arguments: args } }): Promise<ChatMessage> => {
        const tool = this.#given.tools.find((one) => one.name === name);
        const content = tool ? await tool.execute(parsed(args) as never) : `there is no tool ${name}`;
        return { role: 'tool', tool_call_id: id, content: String(content) };
      }),
    );
  }

  #overflows(): void {
    for (const type of OVERFLOWS) this.dispatchEvent(new Event(type));
  }

  /** With more messages, none of which is answered now. @throws TypeError for a system's message behind others */
  #extended(messages: readonly ReadMessage<Said>[]): State {
    const { model, conversation, pending, tools } = this.#state;
    if (messages[0]?.role !== 'system') return extended(this.#state, messages);
    if (conversation.messages.length + pending.length > 0)
      throw new TypeError("a system's message must be the session's first");
    return start(model, messages, tools);
  }

  /** An error as the browser's would be. */
  async #told(error: unknown, messages: readonly ReadMessage<Said>[]): Promise<unknown> {
    const { code, message } = error as { readonly code?: unknown; readonly message?: string };
    if (code === 'context_full') return quotaExceeded(await usageOf(this.#extended(messages)), this.contextWindow);
    if (code === 'usage' || code === 'unsupported') return new DOMException(message, 'NotSupportedError');
    if (typeof code === 'string') return new DOMException(message, 'OperationError');
    return error;
  }

  #readAsked(input: LanguageModelPrompt, options: LanguageModelPromptOptions): Asked {
    const { responseConstraint, omitResponseConstraintInput, signal } = options;
    if (omitResponseConstraintInput && responseConstraint === undefined)
      throw new TypeError('omitResponseConstraintInput is said where there is no responseConstraint');
    return { messages: readMessages(input, this.#given.takes, true), form: formOf(responseConstraint), signal };
  }

  /** Waits for what was asked before. Call what it gives when it is over. @throws the signal's reason */
  async #enter(until: AbortSignal): Promise<() => void> {
    until.throwIfAborted();
    let leave!: () => void;
    const before = this.#last;
    this.#last = Promise.allSettled([before, new Promise<void>((resolve) => (leave = resolve))]);
    try {
      await orAborted(before, until);
      return leave;
    } catch (error) {
      leave();
      throw error;
    }
  }

  async #inTurn<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const leave = await this.#enter(anySignal(this.#ended, signal));
    try {
      return await work();
    } finally {
      leave();
    }
  }
}

interface Asked {
  readonly messages: readonly ReadMessage[];
  readonly form: Form | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Messages with the bytes of their images and recordings. */
const settled = (messages: readonly ReadMessage[]): Promise<ReadMessage<Said>[]> =>
  Promise.all(messages.map(async (message) => ({ ...message, content: await readContent(message.content) })));

const encodersOf = (takes: readonly Media[]): Pick<LoadOptions, 'images' | 'sound'> => ({
  ...(takes.includes('image') && { images: true }),
  ...(takes.includes('audio') && { sound: true }),
});

/** What a model doesn't take of what is expected; undefined: nothing. */
function lacking({ info }: Model, takes: readonly Media[]): string | undefined {
  const { imagePlaceholder: image, soundPlaceholder: audio } = info;
  const missing = takes.find((media) => ({ image, audio })[media] === undefined);
  return missing && `${missing} is not supported: ${info.name} takes none, or was loaded without (images, sound)`;
}

function start(model: Model, messages: readonly ReadMessage<Said>[], tools: readonly Tool[]): State {
  const [first] = messages;
  const isSystem = first?.role === 'system';
  const conversation = model.conversation({ whenFull: 'forget', ...(isSystem && { system: first.content as string }) });
  return extended({ model, conversation, pending: [], tools }, isSystem ? messages.slice(1) : messages);
}

/** With more messages, none of which is answered now. */
function extended(state: State, messages: readonly ReadMessage<Said>[]): State {
  const { model, conversation } = state;
  const { turns, pending } = turnsOf(state.pending, messages);
  if (turns.length === 0) return { ...state, pending };
  return { ...state, conversation: withTurns(model, conversation, [...conversation.save().turns, ...turns]), pending };
}

const withTurns = (model: Model, conversation: Conversation, turns: SavedConversation['turns']): Conversation =>
  model.conversation({ whenFull: 'forget', restore: { ...conversation.save(), turns } });

async function usageOf({ model, conversation, pending, tools }: State): Promise<number> {
  const open = pending.length === 0 ? [] : [{ role: 'user' as const, content: joined(pending) }];
  const messages = [...conversation.messages, ...open];
  if (messages.length === 0) return 0;
  const options = { addGenerationPrompt: false, tools };
  if (!messages.some(({ content }) => Array.isArray(content))) return model.tokenize({ messages }, options).length;
  try {
    return (await model.readPrompt({ messages }, options)).length;
  } catch (error) {
    // Of pictures that don't fit: as many at least.
    const { code, details } = error as { readonly code?: string; readonly details?: { readonly tokens: number } };
    if (code !== 'context_full') throw error;
    return details?.tokens ?? model.info.contextLength + 1;
  }
}

function samplingOf({ info }: Model, { temperature, topK, samplingMode }: LanguageModelOptions): Sampling {
  const base = info.sampling.temperature || 1;
  const warmth = samplingMode === undefined ? temperature : base * MODES[samplingMode];
  return {
    ...(warmth !== undefined && { temperature: Math.min(MAX_TEMPERATURE, Number(warmth)) }),
    ...(topK !== undefined && { topK: Math.min(info.vocabSize, Math.floor(topK)) }),
  };
}

type Form = Pick<GenerateOptions, 'regex' | 'responseFormat'>;

/** What an answer is held to. */
function formOf(constraint: unknown): Form | undefined {
  if (constraint === undefined) return undefined;
  if (typeof constraint !== 'object' || constraint === null) throw new TypeError('responseConstraint is no object');
  if (constraint instanceof RegExp) {
    const flags = constraint.flags.replaceAll(/[dgsuvy]/g, '');
    if (flags !== '')
      throw new DOMException(`responseConstraint: the flag ${flags[0]} is not supported`, 'NotSupportedError');
    return { regex: constraint.source };
  }
  try {
    const schema = JSON.parse(JSON.stringify(constraint)) as Record<string, unknown>;
    return { responseFormat: { type: 'json_schema', json_schema: { schema } } };
  } catch (error) {
    throw new DOMException(`responseConstraint: ${messageOf(error)}`, 'NotSupportedError');
  }
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
  const told = { loaded, total: 1, lengthComputable: true };
  return typeof ProgressEvent === 'function'
    ? new ProgressEvent('downloadprogress', told)
    : Object.assign(new Event('downloadprogress'), told);
}

/** @throws the signal's reason as soon as it fires, and where it fires in the same task */
async function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  const done = await withAbort(work, signal, ({ reason }) => reason as unknown);
  signal?.throwIfAborted();
  return done;
}
