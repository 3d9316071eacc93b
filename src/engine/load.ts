import type { WeightType } from '../../shaders/linear/pack.js';
import { didYouMean, throwIfAborted, usageError } from '../base/errors.js';
import { cachedSource, openSource, readJson, readText, type Source, TensorReader } from '../loader/index.js';
import { type ModelConfig, parseModelConfig } from '../model/config.js';
import { loadTokenizer, type Tokenizer } from '../tokenizer/index.js';
import type { LoadOptions, LoadProgress, Model } from './api.js';
import { choosePlan } from './choose_plan.js';
import { LoadedModel } from './model.js';
import { RankGroup } from './rank_group.js';
import { MAX_STEPS_IN_FLIGHT } from './runner.js';

const DEFAULT_CONTEXT = 4096;
const DEFAULT_PREFILL_CHUNK = 512;
const OPTION_NAMES = [
  'weights',
  'kv',
  'contextLength',
  'prefillChunk',
  'stepsInFlight',
  'ranks',
  'plan',
  'virtualRanks',
  'memory',
  'requests',
  'powerPreference',
  'adapter',
  'cache',
  'onProgress',
  'onWarning',
  'signal',
] as const satisfies readonly (keyof LoadOptions)[];

/**
 * Loads a Hugging Face model folder and prepares it on one GPU device, or on several (`ranks`, `plan`).
 *
 * @param where a folder on disk (Node), a URL whose files answer range requests, or the folder's files (browser)
 * @throws SplitkvError: `usage`, `io`, `format`, `config`, `unsupported`, `limit`, `no_webgpu`, `aborted`. Whatever was
 *   allocated until then is freed.
 */
export async function load(where: string | URL | readonly File[] | Source, options: LoadOptions = {}): Promise<Model> {
  const started = performance.now();
  checkOptions(options);
  const { signal } = options;
  throwIfAborted(signal, 'loading');
  const report = (progress: Partial<LoadProgress> & Pick<LoadProgress, 'phase'>): void =>
    options.onProgress?.({ loadedBytes: 0, totalBytes: 0, tensorsLoaded: 0, tensorsTotal: 0, ...progress });

  report({ phase: 'config' });
  const opened = await openSource(where, signal);
  const source =
    (options.cache ?? true) ? await cachedSource(opened, { signal, onWarning: options.onWarning }) : opened;
  const config = parseModelConfig(
    await readJson(source, 'config.json', signal),
    await readJson(source, 'generation_config.json', signal),
  );
  const contextLength = checkContext(options.contextLength, config);
  report({ phase: 'tokenizer' });
  const tokenizer = await readTokenizer(source, signal);
  const reader = await TensorReader.open(source, signal);
  const type = options.weights && options.weights !== 'auto' ? options.weights : storedType(reader);

  const { plan, adapters } = await choosePlan(options, config);
  let last: LoadProgress | undefined;
  const group = await RankGroup.open({
    config,
    reader,
    type,
    plan,
    adapters,
    virtual: options.virtualRanks ?? false,
    runner: {
      slots: 1,
      batches: options.requests ?? plan.stages.length,
      contextLength,
      prefillChunk: options.prefillChunk ?? DEFAULT_PREFILL_CHUNK,
      kvType: options.kv ?? 'f32',
    },
    signal,
    onProgress: (progress) => {
      last = { phase: 'weights', ...progress };
      report(last);
    },
  });
  report({ ...last, phase: 'ready' });
  return new LoadedModel(config, group, tokenizer, {
    name: modelName(source.name),
    stepsInFlight: options.stepsInFlight ?? MAX_STEPS_IN_FLIGHT,
    loadSeconds: (performance.now() - started) / 1000,
  });
}

function checkOptions(options: LoadOptions): void {
  for (const name of Object.keys(options)) {
    if (!(OPTION_NAMES as readonly string[]).includes(name)) {
      throw usageError(`load: unknown option '${name}'.${didYouMean(name, OPTION_NAMES)}`);
    }
  }
  oneOf('weights', options.weights, ['auto', 'f32', 'f16', 'q8', 'q4']);
  oneOf('kv', options.kv, ['f32', 'f16']);
  oneOf('powerPreference', options.powerPreference, ['high-performance', 'low-power']);
  inRange('requests', options.requests, 1, 64);
  inRange('contextLength', options.contextLength, 1, 2 ** 20);
  inRange('prefillChunk', options.prefillChunk, 1, 4096);
  inRange('stepsInFlight', options.stepsInFlight, 1, MAX_STEPS_IN_FLIGHT);
}

function oneOf(name: string, value: string | undefined, allowed: readonly string[]): void {
  if (value !== undefined && !allowed.includes(value)) {
    throw usageError(`${name} '${value}': use ${allowed.join(', ')}.${didYouMean(value, allowed)}`);
  }
}

function inRange(name: string, value: number | undefined, low: number, high: number): void {
  if (value !== undefined && (!Number.isInteger(value) || value < low || value > high)) {
    throw usageError(`${name} ${value}: expected an integer from ${low} to ${high}`);
  }
}

function checkContext(asked: number | undefined, config: ModelConfig): number {
  if (asked === undefined) return Math.min(config.maxPositions, DEFAULT_CONTEXT);
  if (asked > config.maxPositions) {
    throw usageError(`contextLength ${asked}: this model has at most ${config.maxPositions} positions`);
  }
  return asked;
}

/** The type that keeps what the checkpoint's matrices say without taking more room than need be. */
function storedType(reader: TensorReader): WeightType {
  // By bytes: a checkpoint in 16 bits may well keep a router or a table in 32.
  let wide = 0;
  for (const { dtype, start, end } of reader.index.tensors.values()) {
    if (dtype === 'F32' || dtype === 'F64') wide += end - start;
  }
  return wide * 2 > reader.index.totalBytes ? 'f32' : 'f16';
}

async function readTokenizer(source: Source, signal: AbortSignal | undefined): Promise<Tokenizer | undefined> {
  const tokenizerJson = await readText(source, 'tokenizer.json', signal);
  if (tokenizerJson === undefined) return undefined;
  const [tokenizerConfig, generationConfig, chatTemplate] = await Promise.all([
    readText(source, 'tokenizer_config.json', signal),
    readText(source, 'generation_config.json', signal),
    readText(source, 'chat_template.jinja', signal),
  ]);
  return loadTokenizer({ tokenizerJson, tokenizerConfig, generationConfig, chatTemplate });
}

/** The last part of a path or URL. */
const modelName = (source: string): string =>
  source
    .replace(/[?#].*$/, '')
    .split(/[\\/]/)
    .filter(Boolean)
    .at(-1) ?? source;
