import type { PlainLoadOptions } from '../app/host_protocol.js';
import type { ProgressPart } from '../app/shared/progress.js';
import { parseMemory, parseRanks } from '../app/shared/rank_options.js';
import { usageError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import type { AttentionDpOptions, NetworkOptions, PrefillOptions } from '../index.js';
import { parseProfile, type Profile } from '../arrangement/index.js';
import { parsePlanFile, type PlanFile } from '../placement/index.js';
import { commonOptions, type Terminal } from './command.js';
import type { HostRequest, ModelHost } from './hosts/model_host.js';
import { clusterOptions, readCluster } from './cluster/cluster_options.js';
import { defined, inGroup, type Options, type OptionSpecs, readGiven } from './options.js';

/** Which Hub is asked, and as whom. */
export const hubOptions = inGroup('Model', {
  hub: { value: 'URL', help: 'the Hub; default HF_ENDPOINT, or https://huggingface.co' },
  'hub-token': {
    value: 'TOKEN',
    help: 'for gated and private models of the Hub; better in HF_TOKEN, or by `hf auth login`, as others see a command line',
  },
  token: { value: 'TOKEN', help: 'the same; a number is a degree of parallelism where a model is loaded' },
} as const satisfies OptionSpecs);

/** Degrees of parallelism, which name a plan and its ranks. */
const degreeOptions = {
  tensor: {
    value: 'M',
    help: 'in place of --plan and --ranks, degrees of parallelism, whose product is the number of ranks (1 where left out); beside --plan how it is cut. Ranks with different heads and columns (tp)',
  },
  token: {
    value: 'N',
    help: 'ranks that sequences are shared out to for each rank with weights, itself among them (token); a text is an access token, as --hub-token',
  },
  sequence: { value: 'S', help: 'ranks that split the chunks of each sequence (sp)' },
  pipeline: { value: 'P', help: 'stages of layers (pp)' },
  data: { value: 'D', help: 'ranks, or groups of ranks, with requests of their own (adp)' },
} as const satisfies OptionSpecs;

/** Options of every command that loads a model. */
export const modelOptions = {
  ...inGroup('Model', {
    model: {
      value: 'MODEL',
      help: 'a model folder (config.json, tokenizer.json, *.safetensors) or a .gguf file, its URL, or a model of the Hugging Face Hub: ORG/NAME[@REVISION][/FILE.gguf], ORG/NAME:Q4_K_M, or a name that `splitkv models` lists; it is downloaded first',
    },
  } as const satisfies OptionSpecs),
  // Here a token is a degree, too.
  hub: hubOptions.hub,
  'hub-token': hubOptions['hub-token'],
  ...inGroup('Model', {
    weights: { value: 'TYPE', help: 'f32, f16, q8, q4; default: as stored' },
    context: { value: 'N', help: "tokens the KV cache holds; default: the model's maximum, at most 4096" },
  } as const satisfies OptionSpecs),
  ...inGroup('KV cache', {
    kv: { value: 'TYPE', help: 'KV cache: f32, f16 or q8 (bytes); default: auto, f16 on GPUs and f32 on the CPU' },
    'kv-budget': {
      value: 'B',
      help: "part of a prompt's KV cache that is kept, above 0 and at most 1, such as 0.2; default: all of it",
    },
    'kv-policy': {
      value: 'POLICY',
      help: "how much of it each kv head keeps: ada (default) by its share of the layer's attention, snap all alike, static by --kv-profile; none keeps everything",
    },
    'kv-window': { value: 'N', help: 'the last tokens of a prompt, which choose what is kept; 1 to 256, default 32' },
    'kv-kernel': { value: 'N', help: 'neighbouring entries chosen alike: an odd number, default 7' },
    'kv-alpha': { value: 'A', help: 'ada: the part of the budget that every head gets, 0 to 1, default 0.2' },
    'kv-profile': {
      value: 'FILE',
      help: 'what heads kept in a measurement (`splitkv profile --out FILE`; its file or URL): static keeps by it, --plan arranged arranges by it',
    },
    'prefix-caching': {
      help: 'with --kv-budget: prompts are kept whole, too, in room for one context besides; what others begin with like them is not computed again. Without a budget it is done unasked',
    },
  } as const satisfies OptionSpecs),
  ...inGroup('Where and how it runs', {
    host: { value: 'HOST', help: 'node (default: WebGPU by Dawn) or chrome' },
    adapter: {
      value: 'NAME',
      help: "part of an adapter's name (--host node; see `splitkv adapters`); default: a GPU, else the fastest software adapter",
    },
    variants: {
      value: 'WHICH',
      help: 'which variants of kernels run: hardware (as on GPUs), software (as on CPU adapters), auto (default: what the adapter is)',
    },
    precision: {
      value: 'HOW',
      help: 'how prompts are multiplied on GPUs: exact (default), or fast (in f16 or bytes, by matrix units where there are)',
    },
    'no-tune': { help: "doesn't time a GPU's kernels at load to choose among plans of equal bits" },
    'prefill-chunk': {
      value: 'N',
      help: 'prompt tokens computed in one go; default 512 (pipelines 256); never changes the result',
    },
    'steps-in-flight': {
      value: 'N',
      help: 'decode steps submitted ahead, 1 to 8; default 4, and 8 where they are short; never changes the result',
    },
  } as const satisfies OptionSpecs),
  ...inGroup('Several GPUs', {
    ranks: {
      value: 'N',
      help: 'GPU devices that run the model: how many (default 1), or an adapter each: "high-performance,low-power", or names (Node)',
    },
    plan: {
      value: 'PLAN',
      help: 'auto (default), tp, sp, tp+sp, pp, ep, token, adp, products such as "pp x tp", arranged or "pp x arranged" (heads by what each keeps; see --kv-budget), or a FILE.json: a plan, or what arrange --out wrote',
    },
    copies: {
      value: 'C',
      help: '--plan arranged: copies of heads beyond the first, at most so many a layer; default: as many as it takes where whole heads would leave ranks idle',
    },
    ...degreeOptions,
    'virtual-ranks': { help: 'all ranks on one device: tries a plan without more GPUs' },
    mixed: {
      help: '--cluster: ranks with other adapters or drivers are taken, too; answers are then near, not the same bits',
    },
    'rank-patience': {
      value: 'SECONDS',
      help: '--cluster: how long a rank that is gone may take to come back, before others take its share; default 10',
    },
    workers: { help: 'each rank in a worker of its own: a worker_thread (Node), a Web Worker (Chrome)' },
    memory: { value: 'SIZE', help: 'GPU memory a rank may take, such as 500MB or 2GB; "1GB,500MB" gives each its own' },
    'attention-dp-mode': {
      value: 'MODE',
      help: 'with plan adp, its products, or token: which rank a request goes to: cost (default; by measured times) or trtllm',
    },
    'enable-balance': { help: 'with mode trtllm: prompts wait until running them keeps the ranks evenly busy' },
    'no-balance': { help: 'prompts run as soon as they fit; without it, mode cost lets them wait where that gains' },
    'timeout-iters': { value: 'N', help: 'iterations that they wait for every rank to have one; default 50' },
    'batching-wait-iters': { value: 'N', help: 'iterations that they then wait for more; default 10' },
    'prefill-worker': {
      value: 'KIND',
      multiple: true,
      help: 'compute prompts on a device of their own: splitkv (our kernels; the same bits); given several times: several workers',
    },
    'prefill-adapter': {
      value: 'NAME',
      multiple: true,
      help: "the prefill worker's adapter, one for all or one each; default: the first rank's",
    },
  } as const satisfies OptionSpecs),
  ...clusterOptions,
  ...commonOptions,
};

export interface ModelRequest extends HostRequest {
  readonly host: 'node' | 'chrome';
}

/**
 * What the options say about the model, checked; nothing is loaded yet, but a model of the Hub is downloaded.
 * @param pull false: it isn't, and stays `hf:...`
 * @param remote false: a cluster that options name isn't where its ranks are
 */
export async function modelRequest(
  options: Options,
  terminal: Terminal,
  pull = true,
  remote = true,
): Promise<ModelRequest> {
  const verbose = options.has('verbose');
  const host = options.oneOf('host', ['node', 'chrome']) ?? 'node';
  if (host === 'chrome' && options.has('adapter')) {
    throw usageError("--adapter needs --host node: browsers can't choose an adapter by name; use --ranks low-power");
  }
  const given = options.required('model', 'name a model folder, or a model of the Hub, e.g. --model models/tiny-gqa');
  const network = networkOptions(options);
  const telling = {
    signal: terminal.signal,
    onProgress: (line: string, part?: ProgressPart) =>
      verbose ? terminal.note(`splitkv: ${line}`) : terminal.progress(line, part),
    onWarning: (message: string) => terminal.note(`splitkv: warning: ${message}`),
  };
  const { cluster, ...own } = await loadOptions(options);
  const load: PlainLoadOptions = remote && cluster ? { ...own, cluster } : own;
  const { modelPath } = await import('./model_path.js');
  // Other machines find a model of the Hub by its name.
  const model = await modelPath(given, { network, pull: pull && !load.cluster, ...telling });
  return { host, model, options: { ...load, ...(await networkFor(model, host, network)) }, ...telling };
}

export function networkOptions(options: Options): NetworkOptions {
  const token = options.text('token');
  const access = token !== undefined && DEGREE.test(token) ? undefined : token;
  const named = options.text('hub-token');
  if (access !== undefined && named !== undefined) {
    throw usageError('--token and --hub-token are two access tokens: give one of them');
  }
  return defined({ hub: options.text('hub'), token: named ?? access });
}

/** An access token of the Hub is no number. */
const DEGREE = /^\d+$/;

/** The degrees among options. */
export function degreeOptionsOf(options: Options): Pick<PlainLoadOptions, keyof typeof degreeOptions> {
  const token = options.text('token');
  return {
    tensor: options.integer('tensor', 1),
    token: token !== undefined && DEGREE.test(token) ? options.integer('token', 1) : undefined,
    sequence: options.integer('sequence', 1),
    pipeline: options.integer('pipeline', 1),
    data: options.integer('data', 1),
  };
}

/** Files on this disk need no Hub, and a page can't read the environment. */
async function networkFor(
  model: string,
  host: ModelRequest['host'],
  network: NetworkOptions,
): Promise<Pick<PlainLoadOptions, 'hub' | 'hubToken'>> {
  if (!model.startsWith('hf:')) return {};
  if (host === 'node') return defined({ hub: network.hub, hubToken: network.token });
  const { endpoint, token } = await (await import('../loader/hub/node_hub_settings.js')).nodeAccess(network);
  return defined({ hub: endpoint, hubToken: token });
}

/** Loads the model in this process or in Chrome. */
export async function openHost(request: ModelRequest): Promise<ModelHost> {
  if (request.host === 'chrome') return (await import('./hosts/chrome_host.js')).openChromeHost(request);
  return (await import('./hosts/node_host.js')).openNodeHost(request);
}

async function loadOptions(options: Options): Promise<PlainLoadOptions> {
  const cluster = await readCluster(options);
  return defined({
    cluster: cluster && {
      ...cluster,
      ...(options.has('mixed') && { mixed: true }),
      ...defined({ patience: options.integer('rank-patience', 0) }),
    },
    weights: options.oneOf('weights', ['f32', 'f16', 'q8', 'q4']),
    kv: options.oneOf('kv', ['auto', 'f32', 'f16', 'q8']),
    ...(await kvOptions(options)),
    prefixCaching: options.has('prefix-caching') || undefined,
    contextLength: options.integer('context', 1),
    prefillChunk: options.integer('prefill-chunk', 1),
    stepsInFlight: options.integer('steps-in-flight', 1, 8),
    adapter: options.text('adapter'),
    variants: options.oneOf('variants', ['auto', 'hardware', 'software']),
    tune: options.has('no-tune') ? false : undefined,
    precision: options.oneOf('precision', ['exact', 'fast']),
    ranks: readText(options, 'ranks', parseRanks),
    plan: await planOption(options.text('plan')),
    ...degreeOptionsOf(options),
    copies: options.integer('copies', 0),
    virtualRanks: options.has('virtual-ranks') || undefined,
    workers: options.has('workers') || undefined,
    memory: readText(options, 'memory', parseMemory),
    attentionDpConfig: attentionDpOption(options),
    prefill: prefillOption(options),
  });
}

/** What the options say of `attention_dp_config`; undefined where they say nothing. */
function attentionDpOption(options: Options): AttentionDpOptions | undefined {
  const mode = options.oneOf('attention-dp-mode', ['cost', 'trtllm']);
  const balance = options.has('enable-balance') ? true : options.has('no-balance') ? false : undefined;
  if (balance && options.has('no-balance')) throw usageError('--enable-balance and --no-balance: give one of them');
  for (const name of ['timeout-iters', 'batching-wait-iters']) {
    if (options.has(name) && !(balance ?? mode !== 'trtllm')) {
      const instead = balance === false ? 'leave out --no-balance' : 'give --enable-balance too';
      throw usageError(`--${name} is about waiting: ${instead}`);
    }
  }
  const config = defined({
    mode,
    enable_balance: balance,
    timeout_iters: options.integer('timeout-iters', 0),
    batching_wait_iters: options.integer('batching-wait-iters', 0),
  });
  return Object.keys(config).length > 0 ? config : undefined;
}

function prefillOption(options: Options): PrefillOptions[] | undefined {
  const kinds = options.texts('prefill-worker').map((kind) => {
    if (kind !== 'splitkv') throw usageError(`--prefill-worker ${kind}: use splitkv`);
    return 'splitkv' as const;
  });
  const adapters = options.texts('prefill-adapter');
  if (kinds.length === 0) {
    if (adapters.length > 0) throw usageError('--prefill-adapter needs --prefill-worker splitkv');
    return undefined;
  }
  if (adapters.length > 1 && adapters.length !== kinds.length) {
    throw usageError(
      `${kinds.length} times --prefill-worker, but ${adapters.length} times --prefill-adapter: one for all, or one each`,
    );
  }
  return kinds.map((kind, worker) => {
    const adapter = adapters.length > 1 ? adapters[worker] : adapters[0];
    return { kind, ...(adapter !== undefined && { adapter }) };
  });
}

/** How prompts are compressed. */
export const kvOptions = async (options: Options): Promise<PlainLoadOptions> =>
  defined({
    kvBudget: options.number('kv-budget', 'a number above 0 and at most 1', (b) => b > 0 && b <= 1),
    kvPolicy: options.oneOf('kv-policy', ['none', 'snap', 'ada', 'static']),
    kvWindow: options.integer('kv-window', 1, 256),
    kvKernel: options.integer('kv-kernel', 1, 255),
    kvAlpha: options.number('kv-alpha', 'a number from 0 to 1', (a) => a >= 0 && a <= 1),
    kvProfile: await profileOption(options.text('kv-profile')),
  });

/** What a reader makes of an option's text; undefined where it wasn't given. */
function readText<T>(options: Options, name: string, parse: (text: string, given: string) => T): T | undefined {
  const text = options.text(name);
  return text === undefined ? undefined : parse(text, `--${name} ${text}`);
}

/** A policy's name, or a plan file's content. */
async function planOption(text: string | undefined): Promise<string | PlanFile | undefined> {
  if (text === undefined || !text.endsWith('.json')) return text;
  return parsePlanFile(parseJson(await readGiven('plan', text), text), text);
}

/** What a profile's file holds, or its URL. */
export async function profileOption(path: string | undefined): Promise<Profile | undefined> {
  if (path === undefined) return undefined;
  if (/^https?:/.test(path)) return (await import('../engine/planning/heads/read_profile.js')).readProfile(path);
  return parseProfile(await readGiven('kv-profile', path), path);
}
