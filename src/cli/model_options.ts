import type { PlainLoadOptions } from '../app/host_protocol.js';
import { usageError } from '../base/errors.js';
import { LOAD_ROWS } from '../engine/contracts/options/load_rows.js';
import type { OptionRow, OptionTable } from '../engine/contracts/options/row.js';
import type { NetworkOptions } from '../index.js';
import type { OpenOptions } from '../loader/index.js';
import { parseProfile, type Profile } from '../arrangement/index.js';
import { parsePlanFile, type PlanFile } from '../placement/index.js';
import { commonOptions, type Terminal } from './command.js';
import type { HostRequest, ModelHost, Telling } from './hosts/node_host.js';
import { loraOptions } from './lora_options.js';
import { clusterOptions, readCluster } from './cluster/cluster_options.js';
import {
  defined,
  inGroup,
  only,
  type Options,
  type OptionSpecs,
  readGiven,
  readGivenJson,
  readRows,
  specsOf,
} from './options.js';

const rows = specsOf(LOAD_ROWS);

/** Which Hub is asked, as whom, and for what beside the model. */
export const hubOptions = only(rows, 'hub', 'hub-token', 'images', 'sound', 'mmproj');

/** Options that predictions of plans have. */
export const plannedOptions: OptionSpecs = specsOf(
  Object.fromEntries(Object.entries<OptionRow>(LOAD_ROWS).filter(([, { isOfRunsOnly }]) => !isOfRunsOnly)),
);

/** Options of every command that loads a model. */
export const modelOptions: OptionSpecs = {
  ...inGroup('Model', {
    model: {
      value: 'MODEL',
      help: 'a model folder (config.json, tokenizer.json, *.safetensors) or a .gguf file, its URL, or a model of the Hugging Face Hub: ORG/NAME[@REVISION][/FILE.gguf], ORG/NAME:Q4_K_M, or a name that `splitkv models` lists; it is downloaded first',
    },
  } as const satisfies OptionSpecs),
  ...rows,
  ...inGroup('Where and how it runs', {
    host: { value: 'HOST', help: 'node (default: WebGPU by Dawn) or chrome' },
  } as const satisfies OptionSpecs),
  ...inGroup('Several GPUs', {
    mixed: {
      help: '--cluster: ranks with other adapters or drivers are taken, too; answers are then near, not the same bits',
    },
    'rank-patience': {
      value: 'SECONDS',
      help: '--cluster: how long a rank that is gone may take to come back, before others take its share; default 10',
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
  const host = options.oneOf('host', ['node', 'chrome']) ?? 'node';
  if (host === 'chrome' && options.has('adapter')) {
    throw usageError(
      "--adapter needs --host node: browsers can't choose an adapter by name; use --ranks low-power, or software",
    );
  }
  const filed = ['lora', 'draft'].find((name) => options.has(name));
  if (host === 'chrome' && filed !== undefined)
    throw usageError(`--${filed} needs --host node: a page of Chrome reads no files of this machine`);
  const given = options.required('model', 'name a model folder, or a model of the Hub, e.g. --model models/tiny-gqa');
  if (host === 'chrome' && given === 'auto')
    throw usageError('--model auto needs --host node: a page\'s element takes model="auto"');
  const network = networkOptions(options);
  const telling = tellingOf(options, terminal);
  const { cluster, ...own } = await loadOptions(options);
  const load: PlainLoadOptions = {
    ...own,
    ...(options.has('image') && { images: true }),
    ...(options.has('audio') && { sound: true }),
    ...(remote && cluster && { cluster }),
  };
  const { modelPath } = await import('./model_path.js');
  // Other machines find a model of the Hub by its name.
  const model = await modelPath(given, { network, pull: pull && !load.cluster, ...telling });
  return { host, model, options: { ...load, ...(await networkFor(model, host, network)) }, ...telling };
}

/** How a download or a load says how far it is, and when it stops. */
export const tellingOf = (options: Options, terminal: Terminal): Telling => ({
  signal: terminal.signal,
  onProgress: (line, part) =>
    options.has('verbose') ? terminal.note(`splitkv: ${line}`) : terminal.progress(line, part),
  onWarning: (message) => terminal.note(`splitkv: warning: ${message}`),
});

export const networkOptions = (options: Options): NetworkOptions & Pick<OpenOptions, 'images'> =>
  defined({
    hub: options.text('hub'),
    token: options.text('hub-token'),
    // Of a prompt's own, too.
    images: options.text('mmproj') ?? ['images', 'image', 'sound', 'audio'].some((name) => options.has(name)),
  });

/** In Node of all that is loaded: the model, its draft, adapters. A page of a model on this disk needs no Hub, and can't read the environment. */
async function networkFor(
  model: string,
  host: ModelRequest['host'],
  network: NetworkOptions,
): Promise<Pick<PlainLoadOptions, 'hub' | 'hubToken'>> {
  if (host === 'node') return defined({ hub: network.hub, hubToken: network.token });
  if (!model.startsWith('hf:')) return {};
  const { endpoint, token } = await (await import('../loader/hub/node_hub_cache.js')).nodeAccess(network);
  return defined({ hub: endpoint, hubToken: token });
}

/** Loads the model in this process or in Chrome. */
export async function openHost(request: ModelRequest): Promise<ModelHost> {
  if (request.host === 'chrome') return (await import('./hosts/chrome_host.js')).openChromeHost(request);
  return (await import('./hosts/node_host.js')).openNodeHost(request);
}

/** What the options of these rows were given. */
export const loadValues = (options: Options, table: OptionTable = LOAD_ROWS): Promise<PlainLoadOptions> =>
  readRows<PlainLoadOptions>(table, options, {
    plan: planOption,
    kvProfile: profileOption,
    // Of the network, which a page has otherwise than Node.
    hub: () => undefined,
    hubToken: () => undefined,
  });

async function loadOptions(options: Options): Promise<PlainLoadOptions> {
  const cluster = await readCluster(options);
  return defined({
    cluster: cluster && {
      ...cluster,
      ...(options.has('mixed') && { mixed: true }),
      ...defined({ patience: options.integer('rank-patience', 0) }),
    },
    ...(await loadValues(options)),
    ...loraOptions(options),
  });
}

/** A policy's name, or a plan file's content. */
async function planOption(text: string): Promise<string | PlanFile> {
  if (!text.endsWith('.json')) return text;
  return parsePlanFile(await readGivenJson('plan', text), text);
}

/** What a profile's file holds, or its URL. */
export async function profileOption(path: string): Promise<Profile> {
  if (/^https?:/.test(path)) return (await import('../engine/planning/heads/read_profile.js')).readProfile(path);
  return parseProfile(await readGiven('kv-profile', path), path);
}
