import { formatError, ioError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import type { StoredType } from './dtype.js';
import { duplicateKey } from './json_keys.js';
import { readSafetensorsHeader } from './safetensors_header.js';
import type { RowSlice } from './slices.js';
import { INDEX_LIMITS, parseJson, readJson, readText, type Source } from './source.js';

export const SINGLE_FILE = 'model.safetensors';
/** The largest models have some two hundred. */
const MAX_FILES = 4096;
export const SHARD_INDEX = 'model.safetensors.index.json';

/** What a load may read of any folder, beside its weights. */
const MODEL_TEXTS = [
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'chat_template.json',
  'additional_chat_templates/tool_use.jinja',
  'tokenizer.model',
  'self_test.json',
  SHARD_INDEX,
  'preprocessor_config.json',
  'processor_config.json',
  // What makes vectors of texts.
  'modules.json',
  'config_sentence_transformers.json',
];

/** What PEFT writes of an adapter. */
export const ADAPTER_FILES = ['adapter_config.json', 'adapter_model.safetensors'] as const;

/** The files that a load may read beside the weights, of those that a folder has: also in folders that its modules.json names. */
export async function modelTexts(source: Source, signal?: AbortSignal): Promise<string[]> {
  const modules = await readJson(source, 'modules.json', signal);
  const folders = (Array.isArray(modules) ? modules : []).flatMap((module: unknown) => {
    const path = isObject(module) ? module['path'] : undefined;
    return typeof path === 'string' && /^\w[\w.-]*$/.test(path) ? [path] : [];
  });
  const names = [...MODEL_TEXTS, ...folders.flatMap((path) => [`${path}/config.json`, `${path}/${SINGLE_FILE}`])];
  const sizes = await Promise.all(names.map((name) => source.size(name, signal)));
  return names.filter((_, at) => sizes[at] !== undefined);
}

/** One tensor and its bytes [start, end), counted from the beginning of `file`: little-endian, row-major, nothing between elements. */
export interface TensorEntry {
  readonly name: string;
  readonly file: string;
  readonly dtype: StoredType;
  readonly shape: readonly number[];
  readonly start: number;
  readonly end: number;
  /**
   * Columns of a tensor whose rows don't lie in the file as they are read: in another order, say, or put together from several
   * tensors (then `end - start` is the bytes of all of them, and nothing else is meant by either).
   */
  readonly slice?: (source: Source, columnStart: number, columnEnd: number) => RowSlice;
  /** With a `slice`: its rows are no rows of the file, in whatever order. */
  readonly isMade?: boolean;
}

export interface TensorIndex {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly totalBytes: number;
  /** The weight files, in the order the index names them. */
  readonly files: readonly { readonly name: string; readonly bytes: number }[];
}

/**
 * Reads the headers of model.safetensors or, where there is none, of the shards that model.safetensors.index.json lists
 * (the order transformers looks in). Throws `io` when neither is there, `format` when a header or the index is wrong.
 */
export async function readTensorIndex(
  source: Source,
  signal?: AbortSignal,
  single = SINGLE_FILE,
): Promise<TensorIndex> {
  if ((await source.size(single, signal)) !== undefined) return indexOf(source, [single], new Map(), signal);
  const text = await readText(source, SHARD_INDEX, signal, INDEX_LIMITS);
  if (text === undefined) {
    const absence = source.absence?.(SINGLE_FILE);
    throw ioError(
      `${source.name} holds no weights: expected ${SINGLE_FILE}, or ${SHARD_INDEX} and the files it lists ` +
        `(PyTorch .bin checkpoints can be converted with save_pretrained(..., safe_serialization=True))${absence === undefined ? '' : `. ${absence}`}`,
    );
  }
  const weightMap = parseWeightMap(text, source.name);
  return indexOf(source, [...new Set(weightMap.values())], weightMap, signal);
}

async function indexOf(
  source: Source,
  files: readonly string[],
  weightMap: ReadonlyMap<string, string>,
  signal: AbortSignal | undefined,
): Promise<TensorIndex> {
  if (files.length > MAX_FILES)
    throw formatError(`${source.name}: ${SHARD_INDEX} lists ${files.length} files; expected at most ${MAX_FILES}`);
  const headers = await Promise.all(files.map((file) => readSafetensorsHeader(source, file, signal)));
  const tensors = tensorsOf(headers, source.name);
  const totalBytes = [...tensors.values()].reduce((sum, { start, end }) => sum + end - start, 0);
  for (const [name, file] of weightMap) {
    const found = tensors.get(name)?.file;
    if (found === file) continue;
    const where = found === undefined ? 'no shard has it' : `it is in ${found}`;
    throw formatError(
      `${source.name}: ${SHARD_INDEX} puts tensor ${show(name)} into ${file}, but ${where}; are the shards those of this index?`,
    );
  }
  return { tensors, totalBytes, files: headers.map((header) => ({ name: header.file, bytes: header.fileBytes })) };
}

/** The tensors of all files of a checkpoint. Throws `format` for one that is there twice. */
export function tensorsOf<T extends { readonly file: string }>(
  headers: readonly { readonly tensors: ReadonlyMap<string, T> }[],
  sourceName: string,
): Map<string, T> {
  const tensors = new Map<string, T>();
  for (const [name, entry] of headers.flatMap((header) => [...header.tensors])) {
    const other = tensors.get(name);
    if (other) {
      const where = `both in ${other.file} and in ${entry.file}`;
      throw formatError(`${sourceName}: tensor ${show(name)} is ${where}; expected one file to hold it`);
    }
    tensors.set(name, entry);
  }
  return tensors;
}

function parseWeightMap(text: string, sourceName: string): Map<string, string> {
  const what = `${SHARD_INDEX} of ${sourceName}`;
  const index = parseJson(text, what);
  const map = isObject(index) ? index['weight_map'] : undefined;
  if (!isObject(map))
    throw formatError(`${what}: "weight_map" is ${show(map)}; expected an object of tensor name to file name`);
  const twice = duplicateKey(text);
  if (twice !== undefined) throw formatError(`${what}: ${show(twice)} is listed twice`);
  const entries = Object.entries(map);
  if (entries.length === 0) throw formatError(`${what}: "weight_map" is empty`);
  for (const [name, file] of entries) {
    if (typeof file !== 'string')
      throw formatError(`${what}: "weight_map" gives ${show(file)} for ${show(name)}; expected a file name`);
  }
  return new Map(entries as [string, string][]);
}
