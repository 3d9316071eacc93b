/**
 * Room: one model for all tabs of an origin (`share`). Here is what a tab's user gets, and by what tabs meet; share_client.ts is
 * a tab's side that asks, share_host.ts the side that has the model, a tab or the worker of all tabs (share_line.ts),
 * share_protocol.ts what they say to each other.
 */

import { anySignal, unsupportedError, usageError, withAbort } from '../../../base/errors.js';
import { checkOptions, defined } from '../../../base/options.js';
import { baseAddress } from '../../../base/platform.js';
import { VERSION } from '../../../base/version.js';
import { hashName, keepStorage } from '../../../loader/cache/opfs.js';
import { catalogModel } from '../../../loader/hub/catalog.js';
import { hubForm } from '../../../loader/hub/hub_options.js';
import type { Source } from '../../../loader/index.js';
import type {
  ChatCompletions,
  Conversation,
  ConversationOptions,
  EmbedOptions,
  EmbedResult,
  GenerateOptions,
  GenerateResult,
  Generation,
  GenerationDelta,
  IndexedResult,
  KeptEntries,
  LoadOptions,
  LoadProgress,
  LogitsOptions,
  LogitsResult,
  Model,
  ModelAdapters,
  ModelInfo,
  Prompt,
  RerankOptions,
  RerankResult,
  RunStats,
  SelfTestResult,
  TokenizeOptions,
} from '../../contracts/api.js';
import { checkLoadOptions } from '../../contracts/load_options.js';
import { LOAD_ROWS } from '../../contracts/options/load_rows.js';
import { isSwitch, type OptionRow } from '../../contracts/options/row.js';
import { randomSeed } from '../../ranks/sampling/sampling.js';
import {
  hasMedia,
  needTokenizer,
  promptIds,
  type PromptReader,
  promptReader,
  tokenIds,
} from '../../serving/prompt_tokens.js';
import { chatCompletions } from '../chat_api.js';
import { type GeneratedPrompt, GenerationStream, type PromptRows } from '../generate.js';
import { type JoinPlaces, load, NO_PROGRESS } from '../load.js';
import {
  asTheyEnd,
  checkMany,
  generateSchema,
  type LoadedModel,
  type TalkOf,
  talkWith,
  tokenizeWith,
} from '../model.js';
import { ShareClient } from './share_client.js';
import { type ForWorker, putInLine } from './share_line.js';
import type { AskedPrompt, Given, HostFacts, ShareWorld } from './share_protocol.js';
import { startShared } from './share_script.js';

/** What each tab has of its own, and what says who may read the files: the model is the same. */
const OWN = ['share', 'fetch', 'headers', 'hubToken', 'cache', 'onProgress', 'onWarning', 'signal'];

/** What may be relative to a page, as the model's own place. */
const PLACES = ['adapters', 'draft', 'kvProfile', 'prefixes'];

type Told = Pick<LoadOptions, 'onProgress' | 'onWarning' | 'signal'>;

/**
 * What `load` does with `share` (src/entry.ts).
 * @throws as `load`; SplitkvError `unsupported` where tabs can't meet, `usage` for what is of one tab only
 */
export async function loadShared(
  where: string | URL | readonly File[] | Source,
  options: LoadOptions,
  join: JoinPlaces,
): Promise<Model> {
  checkLoadOptions(options);
  const locks = (globalThis.navigator as Partial<Navigator> | undefined)?.locks;
  if (!locks || typeof BroadcastChannel === 'undefined') {
    throw unsupportedError(
      'share: this page has no Web Locks or no BroadcastChannel: serve it over https or from localhost, or load without share',
    );
  }
  const { share: _, idle, ...own } = options;
  const key = await shareKey(where, options);
  const world: ShareWorld = {
    locks,
    idle,
    channel: (name) => new BroadcastChannel(name),
    open: async (told) => (await load(where, { ...own, ...told }, join)) as LoadedModel,
    putWorkerInLine: workerFor(key, String(where as string | URL), options), // shareKey takes nothing else
  };
  return joinShared(key, world, options);
}

/** Undefined where the worker couldn't load the model: it has neither a page's functions nor, in Chrome, workers of its own. */
function workerFor(key: string, where: string, options: LoadOptions): ShareWorld['putWorkerInLine'] {
  const { share, fetch, onProgress: _onProgress, onWarning, signal: _signal, ...own } = options;
  const address = share && share !== true ? addressOf(share) : undefined;
  const start = address ? (name: string) => new SharedWorker(address, { type: 'module', name }) : startShared;
  const warn = (why: string): void => onWarning?.(`share: ${address!.href} doesn't get the model: ${why}; a tab does`);
  if (fetch || own.workers) return address && (async () => warn('with `workers` or `fetch` no worker of all tabs can'));
  if (!start || typeof SharedWorker === 'undefined') return undefined;
  if (own.cache !== false) keepStorage(); // workers can't ask
  const asked: ForWorker = { key, where, options: withoutUrls(own) as LoadOptions, base: baseAddress() };
  return async () => {
    const wrong = await putInLine(start, asked);
    if (address && wrong !== undefined) warn(wrong);
  };
}

function addressOf(share: string | URL): URL {
  if (URL.canParse(share, baseAddress())) return new URL(share, baseAddress());
  throw usageError(`share ${String(share)}: expected true, false or the address of a worker`);
}

/** URLs can't be sent. */
const withoutUrls = (value: unknown): unknown => mapTexts(value, (text) => text);

/** Plain data with other texts; URLs are texts. */
function mapTexts(value: unknown, of: (text: string) => string): unknown {
  if (typeof value === 'string' || value instanceof URL) return of(String(value));
  if (Array.isArray(value)) return value.map((each) => mapTexts(each, of));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, mapTexts(each, of)]));
}

/** Equal for tabs that share: of the model's place, the options and the library's version. @throws SplitkvError `usage` */
export async function shareKey(
  where: string | URL | readonly File[] | Source,
  options: LoadOptions,
  base = baseAddress(),
): Promise<string> {
  if (typeof where !== 'string' && !(where instanceof URL)) {
    throw usageError('share: files and Source objects are of one tab: give a URL or a name of a model');
  }
  const placeOf = (text: string): string => {
    const form = hubForm(text);
    const isKnown = text === 'auto' || catalogModel(text) !== undefined;
    const isName = form === 'hub' || form === 'pinned' || (form === 'word' && isKnown);
    return isName || !URL.canParse(text, base) ? text : new URL(text, base).href;
  };
  const place = placeOf(String(where));
  const given = Object.entries(defined(options))
    .filter(([name, value]) => !OWN.includes(name) && !isDefault(name, value))
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  for (const [name, value] of given) {
    if (!isPlain(value))
      throw usageError(`share: ${name} has an object of one tab: give plain data, or leave share out`);
  }
  const meant = given.map(([name, value]) => [name, PLACES.includes(name) ? mapTexts(value, placeOf) : value]);
  return `splitkv-share ${await hashName(JSON.stringify([place, meant]))} ${VERSION}`;
}

/** Tabs with another version of the library have a model of their own. */
async function warnOfVersions(key: string, { locks }: ShareWorld, onWarning: Told['onWarning']): Promise<void> {
  const { held = [] } = await locks.query().catch(() => ({ held: [] })); // what may not be asked is told by the request
  const [same, own] = [key.slice(0, key.lastIndexOf(' ') + 1), key.slice(key.lastIndexOf(' ') + 1)];
  const other = held.map(({ name = '' }) => name).find((name) => name.startsWith(same) && name !== key);
  if (other)
    onWarning?.(
      `share: another tab has this model by splitkv ${other.slice(same.length)}, this one has ${own}: each loads it; reload that tab to use one`,
    );
}

const isDefault = (name: string, value: unknown): boolean => {
  const row: OptionRow = LOAD_ROWS[name as keyof LoadOptions];
  return value === (isSwitch(row) ? row.isOn === true : row.default);
};

/** Numbers, texts, URLs, and lists and records of these. */
const isPlain = (value: unknown): boolean =>
  typeof value !== 'object' || value === null || value instanceof URL
    ? typeof value !== 'function'
    : (Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype) &&
      Object.values(value).every(isPlain);

/** The model of all tabs of a key. @throws as `load` */
export async function joinShared(
  key: string,
  world: ShareWorld,
  { onProgress, onWarning, signal }: Told,
): Promise<Model> {
  signal?.throwIfAborted();
  await warnOfVersions(key, world, onWarning);
  let last: LoadProgress = { ...NO_PROGRESS, phase: 'config' };
  const client = new ShareClient(key, world, {
    onProgress: (progress) => {
      if (progress.phase !== 'ready') onProgress?.((last = progress));
    },
    onWarning,
  });
  try {
    await withAbort(client.ready, signal, 'loading');
    const reader = await promptReader(client.facts!.prompts);
    onProgress?.({ ...last, phase: 'ready' });
    return new SharedModel(client, reader);
  } catch (error) {
    void client.close();
    throw error;
  }
}

/** A model that a tab has, this one or another: calls go there, what prompts and conversations are is here. */
class SharedModel implements Model, TalkOf {
  readonly chat: { readonly completions: ChatCompletions };
  readonly pictures: TalkOf['pictures'];

  constructor(
    readonly client: ShareClient,
    readonly reader: PromptReader,
  ) {
    const { imagePlaceholder: images, soundPlaceholder: sounds } = this.info;
    this.chat = { completions: chatCompletions(this.info.name, (prompt, options) => this.generate(prompt, options)) };
    this.pictures =
      images === undefined && sounds === undefined
        ? undefined
        : {
            placeholders: () => defined({ images, sounds }),
            ids: (prompt, _, options) => this.readPrompt(prompt, options),
          };
  }

  get #facts(): HostFacts {
    return this.client.facts!;
  }

  get info(): ModelInfo {
    return this.#facts.info;
  }

  get adapters(): ModelAdapters {
    const refuse = async (): Promise<never> => {
      throw usageError('adapters of a shared model are named when it is loaded: load(name, { share: true, adapters })');
    };
    return { list: this.#facts.adapters, add: refuse, remove: refuse };
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    return this.#ask(
      async () => ({ prompt }),
      options,
      () => checkOptions('generate', options, generateSchema),
    );
  }

  generation(rows: () => Promise<GeneratedPrompt>, options: GenerateOptions): Generation {
    return this.#ask(async () => ({ rows: await rows() }), options);
  }

  /** The seed is fixed here, so that every host draws the same tokens. */
  #ask(asked: () => Promise<AskedPrompt>, options: GenerateOptions, check = (): void => {}): Generation {
    const { signal, onFirstLogits, client: _, seed = randomSeed(), ...plain } = options;
    return new GenerationStream(async (emit, left): Promise<GenerateResult> => {
      check();
      const ends = anySignal(left, signal);
      // As they were told first.
      const ids: (string | undefined)[] = [];
      const result = await this.client.ask(
        'generate',
        async (): Promise<Given<'generate'>> => [await asked(), { ...plain, seed }, onFirstLogits !== undefined],
        ends,
        (event) => {
          if (!('delta' in event)) return onFirstLogits?.(event.row);
          for (const { index, id } of event.delta.toolCalls ?? []) ids[index] ??= id;
          emit(event.delta satisfies GenerationDelta);
        },
      );
      const calls = result.tool_calls?.map((call, index) => ({ ...call, id: ids[index] ?? call.id }));
      return { ...result, ...(calls && { tool_calls: calls }) };
    });
  }

  async *generateMany(
    prompts: readonly Prompt[],
    options: GenerateOptions = {},
  ): AsyncGenerator<IndexedResult, void, undefined> {
    checkMany(options);
    yield* asTheyEnd(prompts.length, options.signal, (index, ends) =>
      this.generate(prompts[index]!, { ...options, ...ends }),
    );
  }

  conversation(options?: ConversationOptions): Conversation {
    return talkWith(this, options);
  }

  keep(rows: PromptRows): Promise<void> {
    return this.client.ask('keep', [rows]);
  }

  async logits(
    tokens: readonly number[] | Uint32Array | Int32Array,
    { signal, onRow, ...options }: LogitsOptions = {},
  ): Promise<LogitsResult> {
    const positions: number[] = [];
    const rows: Float32Array[] = [];
    await this.client.ask('logits', [tokenIds(tokens), options], signal, (event) => {
      if (!('row' in event)) return;
      positions.push(event.position);
      if (onRow) onRow(event.position, event.row);
      else rows.push(event.row);
    });
    return { positions, rows };
  }

  embed(texts: string | readonly Prompt[], { signal, client: _, ...options }: EmbedOptions = {}): Promise<EmbedResult> {
    return this.client.ask('embed', [texts, options], signal);
  }

  rerank(
    query: string,
    documents: readonly string[],
    { signal, client: _, ...options }: RerankOptions = {},
  ): Promise<RerankResult> {
    return this.client.ask('rerank', [query, documents, options], signal);
  }

  kept(prompt: Prompt, { signal }: { readonly signal?: AbortSignal } = {}): Promise<KeptEntries> {
    return this.client.ask('kept', [prompt], signal);
  }

  async readPrompt(prompt: Prompt, options: TokenizeOptions = {}): Promise<readonly number[]> {
    if (!hasMedia(prompt)) return promptIds(prompt, this.reader, undefined, options);
    return this.client.ask('readPrompt', [prompt, options]);
  }

  tokenize(prompt: Prompt, options: TokenizeOptions = {}): number[] {
    return tokenizeWith(this.reader, prompt, options);
  }

  detokenize(tokens: readonly number[]): string {
    return needTokenizer(this.reader, 'detokenize').decode([...tokens], { skipSpecial: true });
  }

  selfTest({ signal }: { readonly signal?: AbortSignal } = {}): Promise<SelfTestResult> {
    return this.client.ask('selfTest', [], signal);
  }

  stats(): RunStats {
    return this.#facts.stats;
  }

  recover({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    return this.client.ask('recover', [], signal);
  }

  dispose(): Promise<void> {
    return this.client.close();
  }
}
