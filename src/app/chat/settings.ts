import { didYouMean, usageError } from '../../base/errors.js';
import { checkSampling } from '../../engine/ranks/sampling/sampling.js';
import type { GenerateOptions, KvType, LoadOptions, SamplingOptions, WeightType } from '../../index.js';
import { listBrowserAdapters } from '../shared/adapter_list.js';
import { parseAttentionDp, parseMemory, parseRanks } from '../shared/rank_options.js';

/** Every attribute of the element, with what it says. The element reads no others. */
export const ATTRIBUTES = {
  model:
    'URL of a model folder or .gguf file, relative to the page; or a model of the Hugging Face Hub: hf:ORG/NAME[@REVISION][/FILE.gguf], ORG/NAME where the page has no such folder, or a name of the catalog',
  hub: 'address of the Hub that such names mean; default https://huggingface.co',
  ranks:
    '"auto": a rank on each GPU there is; a number; or adapters, such as "high-performance,low-power"; of a cluster: how many or which, such as "gpu-a,gpu-b"',
  cluster: 'wss://HOST of a NATS server, whose ranks run the model; the property also takes an object, with a token',
  'cluster-name': 'tells clusters of one server apart; default main',
  plan: '"auto", "tp", "sp" and so on, or "arranged": heads by what each keeps of a prompt; default: auto',
  copies: 'plan arranged: copies of heads beyond the first, at most so many a layer',
  tensor: 'in place of ranks and plan: degrees of parallelism, of heads and columns',
  token: 'of sequences over ranks without weights; an access token is no attribute, but the property',
  sequence: 'of the chunks of each sequence',
  pipeline: 'of layers',
  data: 'of requests over ranks, or groups of them, that keep whole ones',
  weights: 'f32, f16, q8 or q4; default: as the files have them',
  kv: 'auto, f32, f16 or q8: the KV cache',
  'kv-budget': "part of a prompt's KV cache that is kept, such as 0.2; default: all of it",
  'kv-profile': 'URL of a profile of what heads keep, for plan arranged; default: measured at the first load',
  'prefix-caching': 'present, with kv-budget: prompts are kept whole, too, and a turn computes what is new',
  variants: 'hardware or software: which variants of kernels run; default: those for what the adapter is',
  'no-tune': "present: a GPU's kernels aren't timed at load to choose among plans of equal bits",
  precision: 'exact or fast: how prompts are multiplied on GPUs; default: exact',
  context: 'tokens of the context',
  memory: 'bytes that a rank may take: 500MB, 1.5GB; or one for each with commas between',
  'attention-dp-config':
    'with plan adp, its products, or token: as in load, in JSON, such as {"enable_balance": false}',
  workers: 'present: each rank in a worker of its own',
  virtual: 'present: all ranks on one device',
  autostart: 'present: downloads without asking first',
  'no-self-test': 'present: answers are not checked before the first question',
  'max-tokens': 'tokens of an answer; default 512',
  temperature:
    "0: always the likeliest token; default, as of the four that follow: what the model's makers recommend, else 0",
  'top-p': 'share of the likeliest tokens to draw from; 1: all of them',
  'top-k': 'how many of the likeliest tokens to draw from; 0: all of them',
  'min-p': 'tokens less likely than this times the likeliest one are left out; 0: none',
  'repetition-penalty': 'above 1 makes repeats less likely; 1: off',
  'frequency-penalty': 'taken from a logit for each time its token was written, -2 to 2; default 0',
  'presence-penalty': 'taken from the logit of every token that was written, -2 to 2; default 0',
  seed: 'the same seed gives the same answers',
  system: 'the system message',
  thinking: 'on or off: whether a model that can thinks before it answers; default: as its makers do',
  about: 'a text that every question is about: each is asked by itself, after this text',
  suggestions: 'questions to offer, with | between',
  settings: 'present: people may change how it answers, the context and the weights',
  picker: 'present: people may choose another model, and delete those that this browser keeps',
  keep: 'a name: the conversation is kept in this browser by it, and is there after a reload',
  plain: 'present: answers are shown as they were written, without Markdown',
  label: "the chat's name, as screen readers say it; default: Chat",
  placeholder: 'in the empty field; default: Ask something',
} as const;

export type Attribute = keyof typeof ATTRIBUTES;

/** Attributes whose presence says all. */
export const SWITCHES = [
  'workers',
  'virtual',
  'autostart',
  'no-self-test',
  'no-tune',
  'prefix-caching',
  'settings',
  'picker',
  'plain',
] as const satisfies Attribute[];
/** Attributes that are a number. */
export const NUMBERS = [
  'tensor',
  'sequence',
  'pipeline',
  'data',
  'context',
  'copies',
  'kv-budget',
  'max-tokens',
  'temperature',
  'top-p',
  'top-k',
  'min-p',
  'repetition-penalty',
  'frequency-penalty',
  'presence-penalty',
  'seed',
] as const satisfies Attribute[];

/** What a chat is to be, as its attributes say. */
export interface ChatSettings {
  readonly load: LoadOptions;
  readonly sampling: SamplingOptions & { readonly maxTokens: number };
  readonly chat: Pick<GenerateOptions, 'enableThinking'>;
  readonly autostart: boolean;
  readonly selfTest: boolean;
  readonly system: string | undefined;
  readonly about: string | undefined;
}

export const DEFAULT_MAX_TOKENS = 512;

/** @throws SplitkvError `usage` for a value that can't be read, with its attribute; the library judges the rest. */
export function readSettings(attribute: (name: Attribute) => string | null): ChatSettings {
  const text = (name: Attribute): string | undefined => attribute(name) ?? undefined;
  const has = (name: Attribute): boolean => attribute(name) !== null;
  const read = <T>(name: Attribute, parse: (value: string, given: string) => T): T | undefined => {
    const value = text(name);
    return value === undefined ? undefined : parse(value, `${name}="${value}"`);
  };
  const sampling = defined({
    temperature: read('temperature', number),
    topP: read('top-p', number),
    topK: read('top-k', number),
    minP: read('min-p', number),
    repetitionPenalty: read('repetition-penalty', number),
    frequencyPenalty: read('frequency-penalty', signedNumber),
    presencePenalty: read('presence-penalty', signedNumber),
    seed: read('seed', number),
  });
  checkSampling({ seed: 0, ...sampling });
  const ranks = attribute('ranks') === 'auto' ? undefined : read('ranks', parseRanks);
  return {
    load: defined({
      hub: text('hub'),
      cluster: readCluster(text('cluster'), text('cluster-name')),
      ranks,
      plan: text('plan'),
      tensor: read('tensor', wholeNumber),
      token: read('token', degree),
      sequence: read('sequence', wholeNumber),
      pipeline: read('pipeline', wholeNumber),
      data: read('data', wholeNumber),
      copies: read('copies', number),
      kvBudget: read('kv-budget', number),
      kvProfile: text('kv-profile'),
      prefixCaching: has('prefix-caching') || undefined,
      weights: text('weights') as WeightType | undefined,
      kv: text('kv') as KvType | 'auto' | undefined,
      variants: text('variants') as LoadOptions['variants'],
      tune: has('no-tune') ? false : undefined,
      precision: text('precision') as LoadOptions['precision'],
      contextLength: read('context', wholeNumber),
      memory: read('memory', parseMemory),
      attentionDpConfig: read('attention-dp-config', parseAttentionDp),
      workers: has('workers') || undefined,
      virtualRanks: has('virtual') || undefined,
    }),
    sampling: { maxTokens: read('max-tokens', wholeNumber) ?? DEFAULT_MAX_TOKENS, ...sampling },
    chat: defined({ enableThinking: read('thinking', onOrOff) }),
    autostart: has('autostart'),
    selfTest: !has('no-self-test'),
    system: text('system'),
    about: text('about'),
  };
}

/** Whoever gives an object gives it as a property. @throws SplitkvError `usage` */
function readCluster(servers: string | undefined, name: string | undefined): LoadOptions['cluster'] {
  if (servers === undefined) return undefined;
  const addresses = servers.split(',').map((server) => server.trim());
  return { servers: addresses, ...(name !== undefined && { name }) };
}

/** The ranks of `ranks="auto"`: one on each different GPU. @throws SplitkvError `no_webgpu` */
export async function everyAdapter(): Promise<number | readonly string[]> {
  const entries = await listBrowserAdapters();
  const different = entries.filter(({ same_as: same }) => same === undefined);
  return different.length > 1 ? different.map(({ request }) => request) : 1;
}

/** Attributes that look like one of the element's own, but aren't: a slip, which would otherwise be silent. */
export function misspelt(names: readonly string[]): string[] {
  const known = Object.keys(ATTRIBUTES);
  const foreign = names.filter(
    (name) => !known.includes(name) && !/^(data-|aria-|on)/.test(name) && !GLOBAL.includes(name),
  );
  return foreign.flatMap((name) => {
    const hint = didYouMean(name, known);
    return hint === '' ? [] : [`<splitkv-chat> has no attribute '${name}'.${hint}`];
  });
}

const GLOBAL = ['class', 'id', 'style', 'slot', 'part', 'title', 'lang', 'dir', 'hidden', 'role', 'tabindex', 'is'];

type Defined<T> = { [K in keyof T]: Exclude<T[K], undefined> };

/** Without what isn't given. */
const defined = <T extends object>(values: T): Partial<Defined<T>> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<Defined<T>>;

function wholeNumber(text: string, given: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw usageError(`${given}: expected a whole number above 0`);
  return Number(text);
}

/** The text may be somebody's secret. */
const degree = (text: string): number => wholeNumber(text, 'token');

function onOrOff(text: string, given: string): boolean {
  if (text !== 'on' && text !== 'off') throw usageError(`${given}: expected on or off`);
  return text === 'on';
}

function number(text: string, given: string): number {
  if (!/^\d+(\.\d+)?$/.test(text)) throw usageError(`${given}: expected a number from 0 on`);
  return Number(text);
}

const signedNumber = (text: string, given: string): number =>
  text.startsWith('-') ? -number(text.slice(1), given) : number(text, given);
