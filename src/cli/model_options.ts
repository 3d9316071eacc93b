import type { PlainLoadOptions } from '../app/host_protocol.js';
import { SplitkvError, usageError } from '../base/errors.js';
import { commonOptions, type Terminal } from './command.js';
import type { HostRequest, ModelHost } from './model_host.js';
import type { Options, OptionSpecs } from './options.js';

/** Options of every command that loads a model. */
export const modelOptions = {
  model: { value: 'DIR', help: 'a model folder (config.json, tokenizer.json, *.safetensors), or its URL' },
  weights: { value: 'TYPE', help: 'f32, f16, q8, q4; default: as stored' },
  kv: { value: 'TYPE', help: 'KV cache in f32 (default) or f16' },
  context: { value: 'N', help: "tokens the KV cache holds; default: the model's maximum, at most 4096" },
  'prefill-chunk': { value: 'N', help: 'prompt tokens computed in one go; default 512; never changes the result' },
  'steps-in-flight': { value: 'N', help: 'decode steps submitted ahead, 1 to 4; default 4; never changes the result' },
  host: { value: 'HOST', help: 'node (default: WebGPU by Dawn) or chrome' },
  adapter: { value: 'NAME', help: "part of an adapter's name (--host node; see `splitkv adapters`)" },
  ranks: { value: 'N', help: '1, or a power preference: high-performance, low-power' },
  plan: { value: 'PLAN', help: 'auto (more plans need more ranks)' },
  ...commonOptions,
} as const satisfies OptionSpecs;

export interface ModelRequest extends HostRequest {
  readonly host: 'node' | 'chrome';
}

/** What the options say about the model, checked; nothing is loaded yet. */
export async function modelRequest(options: Options, terminal: Terminal): Promise<ModelRequest> {
  const verbose = options.has('verbose');
  const host = options.oneOf('host', ['node', 'chrome']) ?? 'node';
  if (host === 'chrome' && options.has('adapter')) {
    throw usageError("--adapter needs --host node: browsers can't choose an adapter by name; use --ranks low-power");
  }
  return {
    host,
    options: loadOptions(options),
    model: await checkedModel(options),
    signal: terminal.signal,
    onProgress: (line) => (verbose ? terminal.note(`splitkv: ${line}`) : terminal.progress(line)),
    onWarning: (message) => terminal.note(`splitkv: warning: ${message}`),
  };
}

/** Loads the model in this process or in Chrome. */
export async function openHost(request: ModelRequest): Promise<ModelHost> {
  if (request.host === 'chrome') return (await import('./chrome_host.js')).openChromeHost(request);
  return (await import('./node_host.js')).openNodeHost(request);
}

function loadOptions(options: Options): PlainLoadOptions {
  const plan = options.text('plan') ?? 'auto';
  if (plan !== 'auto') throw usageError(`--plan ${plan}: only auto is there yet, on one rank`);
  const ranks = options.text('ranks') ?? '1';
  const powerPreference = ranks === 'high-performance' || ranks === 'low-power' ? ranks : undefined;
  if (ranks !== '1' && !powerPreference) {
    throw usageError(`--ranks ${ranks}: only one rank is there yet; use 1, high-performance or low-power`);
  }
  return defined({
    weights: options.oneOf('weights', ['f32', 'f16', 'q8', 'q4']),
    kv: options.oneOf('kv', ['f32', 'f16']),
    contextLength: options.integer('context', 1),
    prefillChunk: options.integer('prefill-chunk', 1),
    stepsInFlight: options.integer('steps-in-flight', 1, 4),
    adapter: options.text('adapter'),
    powerPreference,
  });
}

async function checkedModel(options: Options): Promise<string> {
  const model = options.required('model', 'name a model folder, e.g. --model models/tiny-gqa');
  if (/^https?:\/\//.test(model)) return model;
  const { stat } = await import('node:fs/promises');
  const found = await stat(model).catch(() => undefined);
  if (!found) throw new SplitkvError('io', `--model ${model}: no such folder`);
  if (!found.isDirectory()) {
    throw new SplitkvError('io', `--model ${model}: expected a folder with config.json and weights, not a file`);
  }
  return model;
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Without the keys whose value is undefined. */
export const defined = <T extends object>(values: T): Defined<T> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Defined<T>;
