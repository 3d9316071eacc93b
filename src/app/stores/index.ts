/**
 * A model and a conversation as stores, for frameworks of pages: `import { modelStore } from 'splitkv/stores'`. Holds no engine: the
 * library comes once a store is used, so a server that renders a page has none of it.
 */
import type { ChatMessage, Conversation, ConversationOptions, GenerateOptions } from '../../index.js';
import type { load, LoadOptions, LoadProgress, Model } from '../../index.js';

/** A state that changes, as Svelte's stores are. */
export interface Store<State> {
  /** Another object after each change. */
  readonly get: () => State;
  /** Calls `run` now and, at most once a frame, after changes, until what it returns is called. */
  readonly subscribe: (run: (state: State) => void) => () => void;
}

export interface ModelState {
  readonly model: Model | undefined;
  readonly progress: LoadProgress | undefined;
  /** Why there is no model. */
  readonly error: unknown;
}

export interface ModelStore extends Store<ModelState> {
  /** Ends the load for all who wait for it; `error` says so. */
  readonly abort: () => void;
  /** Loads again, after an error. */
  readonly retry: () => void;
}

/** As `load` takes it; undefined: none yet. */
export type ModelSource = Parameters<typeof load>[0] | undefined;
export type ModelStoreOptions = Omit<LoadOptions, 'signal' | 'onProgress'>;

export interface ConversationState {
  /** Without the system's; the last may be an answer that is being written. */
  readonly messages: readonly ChatMessage[];
  readonly isAnswering: boolean;
  /** Why what was asked last has no answer. */
  readonly error: unknown;
}

export interface ConversationStore extends Store<ConversationState> {
  /** Undefined without a model. */
  readonly conversation: Conversation | undefined;
  /** As a conversation's, until the answer's end. What fails is told by `error`. */
  readonly send: (content: Parameters<Conversation['send']>[0], options?: GenerateOptions) => Promise<void>;
  readonly regenerate: (options?: GenerateOptions) => Promise<void>;
  /** Ends the answer, which stays as far as it came. */
  readonly stop: () => void;
}

const FRAME_MS = 16;

/** @param used told when a first one subscribes (true), and when the last has left (false) */
function live<State extends object>(state: State, used: (isUsed: boolean) => void) {
  const runs = new Set<(state: State) => void>();
  let isUsed = false;
  let waits: unknown;
  const tell = (change: Partial<State>): void => {
    state = { ...state, ...change };
    waits ??= setTimeout(() => {
      waits = undefined;
      for (const run of runs) run(state);
    }, FRAME_MS);
  };
  const subscribe = (run: (state: State) => void): (() => void) => {
    const own = (now: State): void => run(now);
    runs.add(own);
    if (!isUsed) used((isUsed = true));
    run(state);
    return () => {
      runs.delete(own);
      // React's StrictMode leaves and comes back.
      queueMicrotask(() => isUsed && runs.size === 0 && used((isUsed = false)));
    };
  };
  return { get: () => state, tell, subscribe };
}

const EMPTY: ModelState = { model: undefined, progress: undefined, error: undefined };
const stores = new Map<string, WeakRef<ModelStore>>();
/** Models that nobody uses any more have left the GPU. */
let freed: Promise<unknown> = Promise.resolve();

/**
 * A model that loads when somebody subscribes, and is disposed of when the last has left. Equal sources and options give one store,
 * whatever their `onWarning`; what isn't plain data is equal to itself alone.
 *
 * @example
 * ```ts
 * import { modelStore } from 'splitkv/stores';
 *
 * const leave = modelStore('smollm2-360m-instruct').subscribe(({ model, progress, error }) => {
 *   console.log(error ?? (model ? 'ready' : (progress?.phase ?? 'waiting')));
 * });
 * leave();
 * ```
 */
export function modelStore(source: ModelSource, options: ModelStoreOptions = {}): ModelStore {
  const key = keyOf([source, options]);
  const known = stores.get(key)?.deref();
  if (known) return known;
  for (const [name, ref] of stores) if (!ref.deref()) stores.delete(name);
  let running: AbortController | undefined;
  let loading: Promise<Model> | undefined;
  const begin = async ({ signal }: AbortController): Promise<Model> => {
    await freed;
    signal.throwIfAborted();
    const { load } = await import('../../index.js');
    return load(source!, { ...options, signal, onProgress: (progress) => tell({ progress }) });
  };
  const start = (): void => {
    if (source === undefined) return;
    const own = (running = new AbortController());
    const told = (change: Partial<ModelState>): unknown => own === running && tell(change);
    tell(EMPTY);
    loading = begin(own);
    loading.then(
      (model) => told({ model }),
      (error: unknown) => told({ error }),
    );
  };
  const { get, tell, subscribe } = live(EMPTY, (isUsed) => {
    if (isUsed) return start();
    running?.abort();
    running = undefined;
    freed = Promise.allSettled([freed, loading?.then((model) => model.dispose())]);
    tell(EMPTY);
  });
  const store: ModelStore = {
    get,
    // Who holds it holds the store.
    subscribe: (run) => subscribe.call(store, run),
    abort: () => void (get().model ?? running?.abort()),
    retry: () => void (running && get().error !== undefined && start()),
  };
  stores.set(key, new WeakRef(store));
  return store;
}

const numbers = new WeakMap<object, number>();
let count = 0;

const keyOf = (all: readonly unknown[]): string =>
  JSON.stringify(all, (name, value: unknown) => {
    const isObject = typeof value === 'function' || (typeof value === 'object' && value !== null);
    if (name === 'onWarning' || !isObject || Array.isArray(value)) return name === 'onWarning' ? undefined : value;
    if (Object.getPrototypeOf(value) === Object.prototype)
      return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
    if (!numbers.has(value)) numbers.set(value, ++count);
    return [name, numbers.get(value)];
  });

/**
 * What is said with a model, as it is written; undefined: there is none yet. An answer ends when the last subscriber leaves.
 * @throws as `Model.conversation`
 */
export function conversationStore(model: Model | undefined, options: ConversationOptions = {}): ConversationStore {
  const conversation = model?.conversation(options);
  const messages = conversation?.messages.filter(({ role }) => role !== 'system') ?? [];
  const first: ConversationState = { messages, isAnswering: false, error: undefined };
  let running: AbortController | undefined;
  const stop = (): void => running?.abort();
  const { get, tell, subscribe } = live(first, (isUsed) => isUsed || stop());
  const answer = async (
    asked: readonly ChatMessage[],
    { signal, ...given }: GenerateOptions,
    ask: (talk: Conversation, own: GenerateOptions) => ReturnType<Conversation['send']>,
  ): Promise<void> => {
    const { messages: before } = get();
    const own = new AbortController();
    const write = (content: string, thought = '', calls?: ChatMessage['tool_calls']): void => {
      const more = { ...(thought && { reasoning_content: thought }), ...(calls && { tool_calls: calls }) };
      tell({ messages: [...asked, { role: 'assistant', content, ...more }] });
    };
    try {
      if (!conversation) throw new Error('there is no model yet: send once it is loaded');
      const until = AbortSignal.any([own.signal, ...(signal ? [signal] : [])]);
      const generation = ask(conversation, { ...given, signal: until });
      running = own;
      tell({ isAnswering: true, error: undefined });
      let [text, thought] = ['', ''];
      write(text);
      for await (const delta of generation.deltas()) write((text += delta.text), (thought += delta.reasoning ?? ''));
      const result = await generation.result;
      if (result.finish_reason === 'abort' && result.tokens.length === 0) tell({ messages: before });
      else write(result.text, result.reasoning, result.tool_calls);
    } catch (error) {
      tell(running === own ? { error, messages: before } : { error });
    }
    if (running !== own) return;
    running = undefined;
    tell({ isAnswering: false });
  };
  return {
    get,
    subscribe,
    conversation,
    stop,
    send: (content, given = {}) => {
      const isSaid = Array.isArray(content) && content.every((part) => 'role' in part);
      const asked = isSaid ? content : [{ role: 'user', content } as ChatMessage];
      return answer([...get().messages, ...asked], given, (talk, own) => talk.send(content, own));
    },
    regenerate: (given = {}) => {
      const asked = get().messages.findLastIndex(({ role }) => role !== 'assistant') + 1;
      return answer(get().messages.slice(0, asked), given, (talk, own) => talk.regenerate(own));
    },
  };
}
