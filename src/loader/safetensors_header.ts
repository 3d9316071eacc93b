import { formatError, messageOf, type SplitkvError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { grouped } from '../base/math.js';
import { DTYPE_BYTES, isDtype } from './dtype.js';
import { duplicateKey, jsonSize } from './json_keys.js';
import { checkFileName, missingFile, type Source } from './source.js';
import type { TensorEntry } from './tensor_index.js';

export interface SafetensorsHeader {
  readonly file: string;
  readonly fileBytes: number;
  /** In the order of the header. */
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  /** `__metadata__`: whatever the writer noted. */
  readonly metadata: ReadonlyMap<string, string>;
}

/** Tensors have some 100 bytes each. The reference reader allows 100 MB, which take more memory than a page may have. */
const MAX_HEADER_BYTES = 48_000_000;
const LENGTH_BYTES = 8;
/** In one file: a model of 384 experts in each of 60 layers has 70,000. */
const MAX_TENSORS = 131_072;
/** What a tensor's entry has is three deep. */
const MAX_DEPTH = 16;
/** Values that tensors' entries have, some with four axes; and those of `__metadata__`. */
const [VALUES_A_TENSOR, MAX_NOTES] = [7, 16_384];

/**
 * Reads a safetensors header: u64 length n, n bytes of JSON, then the tensors' bytes
 * (https://huggingface.co/docs/safetensors). Throws `format` unless the tensors cover the rest of the file exactly,
 * without holes or overlaps, as the format asks. Allocates only what the file itself has room for.
 */
export async function readSafetensorsHeader(
  source: Source,
  file: string,
  signal?: AbortSignal,
): Promise<SafetensorsHeader> {
  checkFileName(file);
  const what = `${file} of ${source.name}`;
  const fileBytes = await source.size(file, signal);
  if (fileBytes === undefined) throw missingFile(source, file);
  if (fileBytes < LENGTH_BYTES)
    throw formatError(`${what} has ${fileBytes} bytes; expected a safetensors file of at least ${LENGTH_BYTES}`);
  const length = await source.read(file, 0, LENGTH_BYTES, signal);
  const headerBytes = new DataView(length.buffer, length.byteOffset).getBigUint64(0, true);
  if (headerBytes > BigInt(MAX_HEADER_BYTES)) {
    throw formatError(
      `${what} claims a header of ${headerBytes} bytes; expected at most ${grouped(MAX_HEADER_BYTES)}. Is it a safetensors file?`,
    );
  }
  const dataStart = LENGTH_BYTES + Number(headerBytes);
  if (dataStart > fileBytes) {
    throw formatError(
      `${what} claims a header of ${headerBytes} bytes but has ${grouped(fileBytes)} in all; is it truncated?`,
    );
  }
  const header = await source.read(file, LENGTH_BYTES, dataStart, signal);
  const metadata = new Map<string, string>();
  const tensors = new Map<string, TensorEntry>();
  for (const [name, value] of Object.entries(parseObject(header, what))) {
    if (name === '__metadata__') readMetadata(value, metadata, what);
    else tensors.set(name, readEntry(name, value, { file, what, fileBytes, dataStart }));
  }
  checkCover([...tensors.values()], what, dataStart, fileBytes);
  return { file, fileBytes, tensors, metadata };
}

function parseObject(header: Uint8Array, what: string): Record<string, unknown> {
  if (header[0] !== 0x7b) throw formatError(`${what}: the header starts with ${show(header[0])}; expected '{' (123)`);
  // Reading takes time and memory by the values, which are counted first: no header needs as many as 100 MB can hold.
  const { objects, values, depth } = jsonSize(header);
  if (depth > MAX_DEPTH)
    throw formatError(`${what}: the header nests lists ${depth} deep; expected at most ${MAX_DEPTH}`);
  checkTensorCount(objects - 1, what);
  const mostValues = objects * VALUES_A_TENSOR + MAX_NOTES;
  if (values > mostValues)
    throw formatError(
      `${what}: the header has ${grouped(values)} values; expected at most ${grouped(mostValues)} for ${grouped(objects)} entries`,
    );
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(header);
    value = JSON.parse(text);
  } catch (error) {
    throw formatError(`${what}: the header is not JSON (${messageOf(error)})`, error);
  }
  const twice = duplicateKey(text);
  if (twice !== undefined) throw formatError(`${what}: the header names ${show(twice)} twice`);
  return value as Record<string, unknown>; // it starts with '{'
}

function readMetadata(value: unknown, metadata: Map<string, string>, what: string): void {
  if (!isObject(value)) throw formatError(`${what}: __metadata__ is ${show(value)}; expected an object of strings`);
  for (const [key, text] of Object.entries(value)) {
    if (typeof text !== 'string')
      throw formatError(`${what}: __metadata__ gives ${show(text)} for ${show(key)}; expected a string`);
    metadata.set(key, text);
  }
}

interface FileWithHeader {
  file: string;
  /** The file as messages name it. */
  what: string;
  fileBytes: number;
  dataStart: number;
}

function readEntry(name: string, value: unknown, { file, what, fileBytes, dataStart }: FileWithHeader): TensorEntry {
  const bad = (key: string, got: unknown, expected: string): SplitkvError =>
    formatError(`${what}: tensor ${show(name)}: ${key} is ${show(got)}; expected ${expected}`);
  if (!isObject(value)) throw bad('its entry', value, 'an object with dtype, shape and data_offsets');
  const { dtype, shape, data_offsets: offsets } = value;
  if (!isDtype(dtype)) throw bad('dtype', dtype, `one of ${Object.keys(DTYPE_BYTES).join(', ')}`);
  if (!isCounts(shape)) throw bad('shape', shape, 'a list of non-negative integers');
  if (!isCounts(offsets) || offsets.length !== 2) throw bad('data_offsets', offsets, 'two non-negative integers');
  const [begin, end] = offsets as [number, number];
  const dataBytes = fileBytes - dataStart;
  if (begin > end) throw bad('data_offsets', offsets, 'the begin before the end');
  if (end > dataBytes)
    throw bad(
      'data_offsets',
      offsets,
      `an end within the ${grouped(dataBytes)} bytes of data the file has (is it truncated?)`,
    );
  const bytes = shape.includes(0) ? 0 : shape.reduce((product, size) => product * size, DTYPE_BYTES[dtype]);
  // A product beyond 2^53 may have been rounded, but it can't equal a length within a file either.
  if (bytes !== end - begin) {
    throw bad(
      'data_offsets',
      offsets,
      `${bytes} bytes for shape [${shape.join(', ').slice(0, 80)}] of ${dtype}, not ${end - begin}`,
    );
  }
  return { name, file, dtype, shape, start: dataStart + begin, end: dataStart + end };
}

/** Throws `format` for more tensors than any model has in one file. */
export function checkTensorCount(count: number, what: string): void {
  if (count > MAX_TENSORS)
    throw formatError(`${what} has ${grouped(count)} tensors; expected at most ${grouped(MAX_TENSORS)} in one file`);
}

/** The tensors must follow each other without a gap from the end of the header to the end of the file. */
function checkCover(entries: TensorEntry[], what: string, dataStart: number, fileBytes: number): void {
  entries.sort((a, b) => a.start - b.start || a.end - b.end);
  let at = dataStart;
  let before = 'the header';
  for (const { name, start, end } of entries) {
    if (start !== at) {
      const fault =
        start < at
          ? `overlaps ${before} by ${at - start} bytes`
          : `leaves a hole of ${start - at} bytes after ${before}`;
      throw formatError(
        `${what}: tensor ${show(name)} ${fault}; expected it to begin at data offset ${at - dataStart}`,
      );
    }
    at = end;
    before = show(name);
  }
  if (at !== fileBytes) {
    throw formatError(`${what} goes on for ${grouped(fileBytes - at)} bytes after ${before}; expected it to end there`);
  }
}

const isCounts = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((count) => Number.isSafeInteger(count) && (count as number) >= 0);
