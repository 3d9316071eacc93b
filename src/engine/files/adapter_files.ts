import { didYouMean, formatError, ioError, throwIfAborted, unsupportedError, usageError } from '../../base/errors.js';
import { isObject, show } from '../../base/json.js';
import { nth, sum } from '../../base/lists.js';
import {
  matrixShape,
  type OpenOptions,
  openSource,
  readJson,
  readTensorIndex,
  type Source,
  TensorReader,
} from '../../loader/index.js';
import { type LowRankPair, targetsOf } from '../../model/adapters/targets.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { modelMap } from '../../model/weights/model_map.js';
import { expectedTensors } from '../../model/weights/weight_map.js';
import type { AdapterGiven, AdapterPart } from '../contracts/api.js';

const CONFIG = 'adapter_config.json';
const WEIGHTS = 'adapter_model.safetensors';

/** A pair of matrices as a file has them. */
export interface StoredPair {
  /** The model's tensor, without `.weight`. */
  readonly module: string;
  /** Of the pair, in the reader's index. */
  readonly a: string;
  readonly b: string;
  /** The model's tensor itself, which PEFT saves with adapters of the head: frozen, so of it only the shape counts. */
  readonly base?: string;
  /** Of b a, for its rank. */
  scaleOf(rank: number): number;
}

/** An adapter's files, read as far as their names. */
export interface StoredAdapter {
  readonly reader: TensorReader;
  readonly pairs: readonly StoredPair[];
}

/** @throws SplitkvError `usage` */
export function partsOf(name: string, given: AdapterGiven): readonly AdapterPart[] {
  const isPart = (part: object): part is AdapterPart => 'from' in part;
  const parts =
    typeof given === 'object' && isPart(given)
      ? [given]
      : Array.isArray(given) && given.length > 0 && isPart(nth(given as object[], 0))
        ? (given as readonly AdapterPart[])
        : [{ from: given as AdapterPart['from'] }];
  for (const { scale = 1 } of parts)
    if (!Number.isFinite(scale)) throw usageError(`adapter '${name}': scale ${scale}: expected a number`);
  return parts;
}

/**
 * What an adapter of one or several parts adds to a model: the parts' pairs of a tensor side by side.
 * @throws SplitkvError `io`, `format` for what isn't one of this model, `unsupported` for what isn't done
 */
export async function readAdapter(
  parts: readonly AdapterPart[],
  config: ModelConfig,
  network: OpenOptions,
  signal?: AbortSignal,
): Promise<LowRankPair[]> {
  const tensors = expectedTensors(targetsOf(modelMap(config), config));
  const pairs = new Map<string, LowRankPair[]>();
  for (const { from, scale = 1 } of parts) {
    const source = await openSource(from, signal, { ...network, mustHave: CONFIG });
    const { reader, pairs: stored } =
      source.gguf === undefined
        ? await openPeft(source, signal)
        : await (await import('./gguf_adapter.js')).openGgufAdapter(source, source.gguf, config, signal);
    for (const pair of stored) {
      throwIfAborted(signal, 'reading an adapter');
      const tensor = `${pair.module}.weight`;
      const shape = tensors.get(tensor)?.shape;
      if (!shape) throw unknownModule(source, pair.module, [...tensors.keys()]);
      const read = await readPair(reader, pair, tensor, shape, scale, signal);
      pairs.set(tensor, [...(pairs.get(tensor) ?? []), read]);
    }
  }
  return [...pairs.values()].map(joined);
}

function unknownModule(source: Source, module: string, tensors: readonly string[]): Error {
  const ends = [...new Set(tensors.map((name) => name.split('.').at(-2)!))];
  return unsupportedError(
    `${source.name}: the adapter changes '${module}', which isn't a matrix of this model that adapters may change here ` +
      `(${ends.join(', ')}): merge it into the weights, or train one without.${didYouMean(`${module}.weight`, tensors)}`,
  );
}

async function readPair(
  reader: TensorReader,
  { a, b, base, scaleOf }: StoredPair,
  tensor: string,
  [rows = 0, columns = 0]: readonly number[],
  scale: number,
  signal: AbortSignal | undefined,
): Promise<LowRankPair> {
  const rank = matrixShape(reader.entry(a)).rows;
  reader.expectTensor(a, [rank, columns]);
  reader.expectTensor(b, [rows, rank]);
  if (base !== undefined) reader.expectTensor(base, [rows, columns]);
  const read = async (name: string, count: number): Promise<Float32Array<ArrayBuffer>> => {
    const values = await reader.readRows(name, 0, count, { signal });
    const at = values.findIndex((value) => !Number.isFinite(value));
    if (at >= 0)
      throw formatError(`tensor '${name}' of ${reader.source.name} holds ${values[at]}: the file is damaged`);
    return values;
  };
  const factor = scale * scaleOf(rank);
  return { tensor, rank, a: await read(a, rank), b: (await read(b, rows)).map((value) => value * factor) };
}

/** [b1 b2] [a1; a2] = b1 a1 + b2 a2 */
function joined(pairs: readonly LowRankPair[]): LowRankPair {
  const [first, ...others] = pairs as readonly [LowRankPair, ...LowRankPair[]];
  if (others.length === 0) return first;
  const rank = sum(pairs.map((pair) => pair.rank));
  const rows = first.b.length / first.rank;
  const a = new Float32Array((first.a.length / first.rank) * rank);
  const b = new Float32Array(rows * rank);
  let before = 0;
  for (const pair of pairs) {
    a.set(pair.a, (a.length / rank) * before);
    for (let row = 0; row < rows; row++)
      b.set(pair.b.subarray(row * pair.rank, (row + 1) * pair.rank), row * rank + before);
    before += pair.rank;
  }
  return { tensor: first.tensor, rank, a, b };
}

/** What is put before the names of modules, by transformers and by PEFT. */
const PAIR = /^base_model\.model\.(.+)\.(lora_[AB]|base_layer)\.weight$/;
/** Changes of the base model's own weights that go with an adapter and aren't in it. */
const CHANGES_BASE = /^(pissa|olora|corda|loftq|lora_ga)/;

/** @throws SplitkvError */
async function openPeft(source: Source, signal: AbortSignal | undefined): Promise<StoredAdapter> {
  const config = await readJson(source, CONFIG, signal);
  const scaleOf = peftScale(config, source.name);
  if ((await source.size(WEIGHTS, signal)) === undefined)
    throw ioError(`${source.name} has no ${WEIGHTS} (PEFT writes it: save_pretrained(FOLDER))`);
  const index = await readTensorIndex(source, signal, WEIGHTS);
  const modules = new Set<string>();
  const { ensure_weight_tying: ties } = config as Readonly<Record<string, unknown>>;
  for (const name of index.tensors.keys()) {
    const module = PAIR.exec(name)?.[1];
    if (module === undefined)
      throw unsupportedError(
        `${source.name}: tensor '${name}' is no low-rank pair of a linear layer: whole weights, biases, embeddings and DoRA's ` +
          'magnitudes in adapters are not supported',
      );
    modules.add(module);
    if (ties === true && /(^|\.)lm_head$/.test(module))
      throw unsupportedError(
        `${source.name}: '${module}' is tied to the embeddings (ensure_weight_tying), which adapters can't change here: train the ` +
          'head without',
      );
  }
  if (modules.size === 0) throw formatError(`${source.name}: the adapter is empty`);
  const pairs = [...modules].map((module): StoredPair => {
    const tensorOf = (part: string): string => `base_model.model.${module}.${part}.weight`;
    const base = tensorOf('base_layer');
    return {
      module,
      a: tensorOf('lora_A'),
      b: tensorOf('lora_B'),
      ...(index.tensors.has(base) && { base }),
      scaleOf: (rank) => scaleOf(module, rank),
    };
  });
  return { reader: new TensorReader(source, index), pairs };
}

/** What of a PEFT config may have one value only, where it says anything. */
const NEUTRAL: Readonly<Record<string, readonly unknown[]>> = {
  peft_type: ['LORA'],
  bias: ['none'],
  use_dora: [false],
  fan_in_fan_out: [false],
  lora_bias: [false],
  use_qalora: [false],
  modules_to_save: [],
  target_parameters: [],
  trainable_token_indices: [],
  layer_replication: [],
  alora_invocation_tokens: [],
};
const isEmpty = (value: unknown): boolean => value == null || (Array.isArray(value) && value.length === 0);

/** alpha / r, or alpha / sqrt(r). @throws SplitkvError */
function peftScale(config: unknown, name: string): (module: string, rank: number) => number {
  if (!isObject(config)) throw formatError(`${CONFIG} of ${name}: expected an object`);
  for (const [key, values] of Object.entries(NEUTRAL)) {
    if (isEmpty(config[key]) || values.includes(config[key])) continue;
    throw unsupportedError(`${CONFIG} of ${name}: ${key} is ${show(config[key])}, which isn't supported in adapters`);
  }
  const { lora_alpha: alpha, alpha_pattern: patterns, use_rslora: rslora, init_lora_weights: init } = config;
  if (typeof init === 'string' && CHANGES_BASE.test(init))
    throw unsupportedError(
      `${CONFIG} of ${name}: init_lora_weights is ${show(init)}: the adapter is of a changed base model. Convert it (PEFT: ` +
        'save_pretrained with path_initial_model_for_weight_conversion)',
    );
  const alphas = Object.entries(isObject(patterns) ? patterns : {});
  const special = alphas.find(([key]) => /[^\w.-]/.test(key));
  if (special) throw unsupportedError(`${CONFIG} of ${name}: alpha_pattern ${show(special[0])} is no name of modules`);
  return (module, rank) => {
    const own = alphas.find(([key]) => module === key || module.endsWith(`.${key}`))?.[1] ?? alpha;
    if (typeof own === 'number' && Number.isFinite(own)) return own / (rslora === true ? Math.sqrt(rank) : rank);
    throw formatError(`${CONFIG} of ${name}: lora_alpha is ${show(own)}; expected a number`);
  };
}
