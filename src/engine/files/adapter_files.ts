import { didYouMean, formatError, ioError, throwIfAborted, unsupportedError, usageError } from '../../base/errors.js';
import { isObject, show } from '../../base/json.js';
import { nth, sum } from '../../base/lists.js';
import {
  ADAPTER_FILES,
  matrixShape,
  type OpenOptions,
  readJson,
  readTensorIndex,
  type Source,
  TensorReader,
} from '../../loader/index.js';
import { type LowRankPair, targetsOf } from '../../model/adapters/targets.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { WRAPPED } from '../../model/weights/stored_names.js';
import { modelMap } from '../../model/weights/model_map.js';
import { expectedTensors } from '../../model/weights/weight_map.js';
import type { AdapterGiven, AdapterPart } from '../contracts/api.js';
import { openFiles, type OpenFilesOptions } from './open_files.js';
import { readStackedPairs } from './stacked_pairs.js';

const [CONFIG, WEIGHTS] = ADAPTER_FILES;

/** How an adapter's files are asked for and kept: as its model's. */
export type AdapterOpening = Pick<OpenFilesOptions, 'network' | 'cache' | 'onWarning'>;

/** A pair of matrices as a file has them. */
export interface StoredPair {
  /** The model's tensor, without `.weight`. */
  readonly module: string;
  /** Of the pair, in the reader's index. */
  readonly a: string;
  readonly b: string;
  /** The model's tensor itself, which PEFT saves with adapters of the head or the embedding: frozen, so of it only the shape counts. */
  readonly base?: string;
  /** Of b a, for its rank. @param parameter of the module, where the pair is beside one */
  scaleOf(rank: number, parameter?: string): number;
}

/** How pairs of a file are read: `read` gives all rows of a tensor. */
export interface PairReading {
  readonly reader: TensorReader;
  readonly config: ModelConfig;
  /** Of the adapter. */
  readonly scale: number;
  read(name: string, rows: number): Promise<Float32Array>;
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
  opening: AdapterOpening = {},
  signal?: AbortSignal,
): Promise<LowRankPair[]> {
  const network: OpenOptions = { ...opening.network, files: ADAPTER_FILES };
  const tensors = expectedTensors(targetsOf(modelMap(config), config));
  const pairs = new Map<string, LowRankPair[]>();
  for (const { from, scale = 1 } of parts) {
    const source = await openFiles(from, { ...opening, network, kind: 'adapter', signal });
    const { reader, pairs: stored } =
      source.gguf === undefined
        ? await openPeft(source, config, signal)
        : await (await import('./gguf_adapter.js')).openGgufAdapter(source, source.gguf, config, signal);
    const read = async (name: string, rows: number): Promise<Float32Array> => {
      const values = await reader.readRows(name, 0, rows, { signal });
      const at = values.findIndex((value) => !Number.isFinite(value));
      if (at < 0) return values;
      throw formatError(`tensor '${name}' of ${source.name} holds ${values[at]}: the file is damaged`);
    };
    const reading: PairReading = { reader, config, scale, read };
    for (const pair of stored) {
      throwIfAborted(signal, 'reading an adapter');
      const names = ownNames(pair.module).map((name) => `${name}.weight`);
      const tensor = names.find((name) => tensors.has(name)) ?? '';
      const shape = tensors.get(tensor)?.shape;
      const made = shape ? [await readPair(reading, pair, tensor, shape)] : await readStackedPairs(reading, pair);
      if (!made) throw unknownModule(source, pair.module, [...tensors.keys()]);
      for (const each of made) pairs.set(each.tensor, [...(pairs.get(each.tensor) ?? []), each]);
    }
    await source.flush?.();
  }
  return [...pairs.values()].map(joined);
}

/** What a module may be here that an adapter calls so: of a model beside images or without its head, or as transformers 5 has it. */
const ownNames = (module: string): string[] =>
  [['', ''], ...WRAPPED, ['', 'model.']]
    .filter(([before]) => module.startsWith(before))
    .map(([before, own]) => own + module.slice(before.length))
    .flatMap((name) => [
      name,
      name.replace('.mlp.gate', '.block_sparse_moe.gate'),
      name.replace(/\.router$/, '.router.layer'),
    ]);

function unknownModule(source: Source, module: string, tensors: readonly string[]): Error {
  const ends = [...new Set(tensors.map((name) => name.split('.').at(-2)!))];
  return unsupportedError(
    `${source.name}: the adapter changes '${module}', which isn't a matrix of this model that adapters may change here ` +
      `(${ends.join(', ')}): merge it into the weights, or train one without.${didYouMean(`${module}.weight`, tensors)}`,
  );
}

async function readPair(
  { reader, config: { tensors, embeddingScale }, scale, read }: PairReading,
  { a, b, base, scaleOf }: StoredPair,
  tensor: string,
  [rows = 0, columns = 0]: readonly number[],
): Promise<LowRankPair> {
  const rank = matrixShape(reader.entry(a)).rows;
  reader.expectTensor(a, [rank, columns]);
  reader.expectTensor(b, [rows, rank]);
  const embeds = tensor === `${tensors.embedding}.weight`;
  // The embedding's table has tokens as rows.
  if (base !== undefined) reader.expectTensor(base, embeds ? [columns, rows] : [rows, columns]);
  const factor = scale * scaleOf(rank) * (embeds ? embeddingScale : 1);
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
const PAIR = /^base_model\.model\.((.+?)(?:\.base_layer)*)\.(?:(?:lora_[AB]|base_layer)\.weight|lora_embedding_[AB])$/;
/** Changes of the base model's own weights that go with an adapter and aren't in it. */
const CHANGES_BASE = /^(pissa|olora|corda|loftq|lora_ga)/;

/** @throws SplitkvError */
async function openPeft(
  source: Source,
  { tieWordEmbeddings: tied }: ModelConfig,
  signal: AbortSignal | undefined,
): Promise<StoredAdapter> {
  const config = await readJson(source, CONFIG, signal);
  const scaleOf = peftScale(config, source.name);
  if ((await source.size(WEIGHTS, signal)) === undefined)
    throw ioError(`${source.name} has no ${WEIGHTS} (PEFT writes it: save_pretrained(FOLDER))`);
  const index = await readTensorIndex(source, signal, WEIGHTS);
  const modules = new Map<string, string>();
  const { ensure_weight_tying: ties } = config as Readonly<Record<string, unknown>>;
  for (const name of index.tensors.keys()) {
    const [, place, module] = PAIR.exec(name) ?? [];
    if (place === undefined || module === undefined)
      throw unsupportedError(
        `${source.name}: tensor '${name}' is no low-rank pair: whole weights, biases and DoRA's magnitudes in adapters are not ` +
          'supported',
      );
    modules.set(place, module);
  }
  if (modules.size === 0) throw formatError(`${source.name}: the adapter is empty`);
  const has = (end: string): boolean => [...index.tensors.keys()].some((name) => name.endsWith(end));
  if (ties === true && tied && has('.lora_embedding_A') && !has('lm_head.lora_A.weight'))
    throw formatError(
      `${source.name}: it has no pair of the head, which ensure_weight_tying says: save it with a later PEFT`,
    );
  const pairs = [...modules].map(([place, module]): StoredPair => {
    const tensorOf = (part: string): string => `base_model.model.${place}.${part}`;
    const base = tensorOf('base_layer.weight');
    const halfOf = (half: string): string => {
      const ofTokens = tensorOf(`lora_embedding_${half}`);
      return index.tensors.has(ofTokens) ? ofTokens : tensorOf(`lora_${half}.weight`);
    };
    return {
      module,
      a: halfOf('A'),
      b: halfOf('B'),
      ...(index.tensors.has(base) && { base }),
      scaleOf: (rank, parameter) => scaleOf([module, parameter].filter(Boolean).join('.'), rank),
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
  trainable_token_indices: [],
  layer_replication: [],
  alora_invocation_tokens: [],
  use_bdlora: [],
  arrow_config: [],
  kasa_config: [],
  monteclora_config: [],
};
/** What patterns are read: names, a dot of which may be any character, and any others between. */
const NAMES = /^\^?(?:[\w-]|\\?\.)*(?:\.\*(?:[\w-]|\\?\.)*){0,2}$/;
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
  const given = Object.entries(isObject(patterns) ? patterns : {});
  const special = given.find(([key]) => !NAMES.test(key));
  if (special)
    throw unsupportedError(
      `${CONFIG} of ${name}: alpha_pattern ${show(special[0])}: expected names of modules, '.*' in them at most twice`,
    );
  const alphas = given.map(([key, value]) => [new RegExp(`^(?:.*\\.)?(?:${key})$`), value] as const);
  return (module, rank) => {
    const own = alphas.find(([key]) => key.test(module))?.[1] ?? alpha;
    if (typeof own === 'number' && Number.isFinite(own)) return own / (rslora === true ? Math.sqrt(rank) : rank);
    throw formatError(`${CONFIG} of ${name}: lora_alpha is ${show(own)}; expected a number`);
  };
}
