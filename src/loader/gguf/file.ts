/**
 * Room: GGUF files: header and metadata, tensors as views of the file. Their blocks are dequantised as they are read,
 * by ../convert.ts. Read header.ts next.
 */

import { formatError, throwIfAborted, unsupportedError, usageError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { nth, range } from '../../base/lists.js';
import { BLOCK_TYPES } from '../dtype.js';
import { around, type Source } from '../source.js';
import { type TensorEntry, tensorsOf } from '../tensor_index.js';
import { type GgufHeader, type GgufTensor, type GgufValue, readGgufHeader } from './header.js';

export interface GgufFile {
  /** The file, the first one of a split model. */
  readonly file: string;
  /** The file as messages name it. */
  readonly what: string;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  readonly files: readonly { readonly name: string; readonly bytes: number }[];
}

/** What llama.cpp's gguf-split names the parts: model-00001-of-00003.gguf. */
const PART_NAME = /^(.*-)(\d{5})-of-(\d{5})(\.gguf)$/i;

/** The file names of all parts of a split model, given one of them; the name alone where it isn't such a part. */
export function partNames(file: string): readonly [string, ...string[]] {
  const [, stem, , total, suffix] = PART_NAME.exec(file) ?? [];
  if (total === undefined || Number(total) === 0) return [file];
  const nameOf = (part: number): string => `${stem}${String(part).padStart(5, '0')}-of-${total}${suffix}`;
  return [nameOf(1), ...range(2, Number(total) + 1).map(nameOf)];
}

/**
 * Reads the headers of a GGUF model: of `file`, or of all parts when it is one of a split model's.
 * @throws SplitkvError `io` for a part that is missing, `format` for what isn't GGUF or is cut short.
 */
export async function openGguf(source: Source, file: string, signal?: AbortSignal): Promise<GgufFile> {
  const asked = await readGgufHeader(source, file, signal);
  const parts = asked.metadata.get('split.count') ?? 0;
  const names = parts === 0 || parts === 1 ? ([file] as const) : partNames(file);
  const what = `${names[0]} of ${source.name}`;
  if (names.length > 1 ? parts !== names.length : parts !== 0 && parts !== 1) {
    throw formatError(
      `${file} of ${source.name} says it is one of ${show(parts)} parts (split.count); expected that in its name, as in ` +
        'model-00001-of-00003.gguf. Give the files the names they had',
    );
  }
  const headers = await Promise.all(
    names.map(async (name) => (name === file ? asked : readGgufHeader(source, name, signal))),
  );
  if (names.length > 1) for (const [part, header] of headers.entries()) checkPart(header, part, names.length, source);
  const tensors = tensorsOf(headers, source.name);
  const { metadata } = nth(headers, 0);
  const total = metadata.get('split.tensors.count');
  if (names.length > 1 && total !== undefined && total !== tensors.size)
    throw formatError(`${what}: split.tensors.count is ${show(total)}, but the parts hold ${tensors.size} tensors`);
  const files = headers.map((header) => ({ name: header.file, bytes: header.fileBytes }));
  return { file: names[0], what, metadata, tensors, files };
}

function checkPart({ file, metadata }: GgufHeader, part: number, count: number, source: Source): void {
  const [number, total] = [metadata.get('split.no'), metadata.get('split.count')];
  if (number === part && total === count) return;
  throw formatError(
    `${file} of ${source.name} says it is part ${show(number ?? null)} (from 0) of ${show(total ?? null)}; expected ${part} of ${count}`,
  );
}

/** The tensor as it lies in the file. Throws `unsupported` for a type that isn't read. */
export function entryOf(tensor: GgufTensor): TensorEntry {
  const { name, file, type: dtype, shape, start, end } = tensor;
  if (dtype !== undefined) return { name, file, dtype, shape, start, end };
  throw unsupportedError(
    `tensor '${name}' in ${file} is ${tensor.typeName}; expected F32, F16, BF16, ${Object.keys(BLOCK_TYPES).join(', ')}. ` +
      'Take a file of another type, such as Q4_K_M or Q8_0',
  );
}

export const isGgufName = (file: string): boolean => /\.gguf$/i.test(file);

/** The source with `file` of it as its model. What is cached of it is filed under the file's own URL. */
export function ggufSource(folder: Source, gguf: string): Source {
  if (folder.url === undefined) return around(folder, { gguf });
  const url = `${folder.url.replace(/\/?$/, '/')}${gguf.split('/').map(encodeURIComponent).join('/')}`;
  return around(folder, { gguf, url });
}

/** 'Q4_K_M' of 'model-q4_k_m.gguf' or 'Q4_K_M/model-00001-of-00002.gguf'; 'UD-Q4_K_XL' of 'model-UD-Q4_K_XL.gguf'. */
export function quantOf(file: string): string | undefined {
  const stem = file.replace(/(-\d{5}-of-\d{5})?\.gguf$/i, '');
  return QUANT.exec(stem)?.[1]?.toUpperCase().replace('FP', 'F');
}

const QUANT = /(?:^|[-._/])((?:UD-)?(?:IQ|TQ|Q)\d\w*|(?:MX|NV)FP4\w*|BF16|FP?(?:16|32))$/i;

/** llama.cpp's encoder of images, which lies beside a model. */
export const isMmproj = (file: string): boolean => /mmproj[^/]*\.gguf$/i.test(file);

/**
 * The encoder among files that lies beside a model: of several that which is called like it, in the best type.
 * @throws SplitkvError `usage` where it isn't clear which is meant
 */
export function chooseMmproj(files: Iterable<string>, gguf: string): string | undefined {
  const there = [...files].filter((file) => isMmproj(file) && !partNames(gguf).includes(file));
  const alike = there.filter((file) => plainName(file) === plainName(gguf));
  const fitting = alike.length > 0 ? alike : there;
  for (const type of ['F16', 'BF16', 'Q8_0', undefined]) {
    const found = fitting.filter((file) => type === undefined || quantOf(file) === type);
    if (found.length === 1) return found[0];
    if (found.length > 1)
      throw usageError(`${gguf}: ${found.join(', ')} lie beside it; name the one that is meant (mmproj)`);
  }
  return undefined;
}

/** A model's name, without its folder, its type and what says that it is an encoder. */
const plainName = (file: string): string =>
  file
    .replace(/^.*\/|(-\d{5}-of-\d{5})?\.gguf$/gi, '')
    .replace(QUANT, '')
    .replace(/mmproj|[^a-z0-9]/gi, '')
    .toLowerCase();

/** The encoder beside a model in a source; where its server doesn't list files, by the names that are usual. @throws as `chooseMmproj` */
export async function findMmproj(source: Source, gguf: string, signal?: AbortSignal): Promise<string | undefined> {
  const listed = (await source.list?.()) ?? [];
  if (listed.length > 0) return chooseMmproj(listed, gguf);
  const stem = gguf.replace(/^.*\/|\.gguf$/gi, '').replace(QUANT, '');
  const usual = ['F16', 'BF16', 'model-f16', `${stem}-f16`, `${stem}-F16`, `${stem}-BF16`, `${stem}-Q8_0`];
  for (const name of usual.map((each) => `mmproj-${each}.gguf`)) {
    if ((await source.size(name, signal).catch(() => undefined)) !== undefined) return name;
    throwIfAborted(signal, `looking for ${name}`);
  }
  return undefined;
}

/** What a model was quantised by, which its makers put beside it. */
const isImatrix = (file: string): boolean => /imatrix/i.test(file) && quantOf(file) === undefined;

/** The GGUF models among files, by their first parts: parts of a split one count as one, encoders of images are no models. */
export function ggufModels(files: Iterable<string>): string[] {
  const models = [...files].filter((file) => isGgufName(file) && !isMmproj(file) && !isImatrix(file));
  return [...new Set(models.map((file) => partNames(file)[0]))].sort();
}

/**
 * The GGUF model among the files of a folder; undefined where there is none, or a config.json with other weights. Throws `usage`
 * where there are several.
 */
export function findGguf(files: readonly string[], folder: string): string | undefined {
  if (files.includes('config.json') && files.some((file) => file.endsWith('.safetensors'))) return undefined;
  const models = ggufModels(files);
  if (models.length <= 1) return models[0];
  throw usageError(`${folder} holds ${models.length} GGUF models (${models.join(', ')}); give the file that is meant`);
}
