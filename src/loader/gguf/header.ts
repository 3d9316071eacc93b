import { formatError, type SplitkvError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { alignUp, grouped } from '../../base/math.js';
import { blockOf, type StoredType } from '../dtype.js';
import { checkTensorCount } from '../safetensors_header.js';
import { checkFileName, missingFile, type Source } from '../source.js';
import { HeaderCursor } from './header_cursor.js';
import { type GgufValue, readValue } from './header_value.js';
import { storedType, typeName } from './types.js';

/** A tensor of a GGUF file. */
export interface GgufTensor {
  readonly name: string;
  readonly file: string;
  /** As messages name it. */
  readonly typeName: string;
  /** Undefined for a type that isn't read. */
  readonly type: StoredType | undefined;
  /** Outermost axis first, as in a checkpoint (the file has them the other way round). */
  readonly shape: readonly number[];
  /** Its bytes [start, end) in the file. `end` is `start` for a type whose bytes can't be counted. */
  readonly start: number;
  readonly end: number;
}

export interface GgufHeader {
  readonly file: string;
  readonly fileBytes: number;
  readonly version: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

const MAGIC = 0x46554747; // 'GGUF'
const DEFAULT_ALIGNMENT = 32;
const MAX_AXES = 4;
/** A file has some fifty. */
const MAX_KEYS = 10_000;

/**
 * Reads the header of a GGUF file, version 2 or 3, little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):
 * metadata, then names, shapes, types and offsets of the tensors, whose bytes follow. Reads the header alone, by ranges. Throws
 * `format` unless it is whole and every tensor lies within the file, without overlaps.
 */
export async function readGgufHeader(source: Source, file: string, signal?: AbortSignal): Promise<GgufHeader> {
  checkFileName(file);
  const fileBytes = await source.size(file, signal);
  if (fileBytes === undefined) throw missingFile(source.name, file, source.absence?.(file));
  const cursor = new HeaderCursor(source, file, fileBytes, signal);
  const { what } = cursor;
  const version = await readVersion(cursor);
  await cursor.need(16);
  const tensorCount = cursor.u64();
  const keyCount = cursor.u64();
  // A tensor's entry has at least 24 bytes, a key and its value 13.
  if (tensorCount * 24 + keyCount * 13 > cursor.left || keyCount > MAX_KEYS) {
    throw formatError(
      `${what} claims ${tensorCount} tensors and ${keyCount} metadata keys in ${grouped(fileBytes)} bytes; is it truncated?`,
    );
  }
  checkTensorCount(tensorCount, what);
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < keyCount; i++) {
    const key = await cursor.string();
    if (metadata.has(key)) throw formatError(`${what}: the metadata key ${show(key)} is there twice`);
    metadata.set(key, await readValue(cursor, key));
  }
  const entries: TensorInfo[] = [];
  for (let i = 0; i < tensorCount; i++) entries.push(await readTensorInfo(cursor));
  const dataStart = alignUp(cursor.position, alignmentOf(metadata, what));
  return { file, fileBytes, version, metadata, tensors: placeTensors(entries, file, what, dataStart, fileBytes) };
}

async function readVersion(cursor: HeaderCursor): Promise<number> {
  const { what } = cursor;
  if (cursor.fileBytes < 24)
    throw formatError(`${what} has ${cursor.fileBytes} bytes; expected a GGUF file of at least 24`);
  await cursor.need(8);
  const magic = cursor.take(4);
  if (magic.getUint32(0, true) !== MAGIC) {
    const text = new TextDecoder('latin1').decode(magic);
    throw formatError(`${what} starts with ${show(text)}; expected "GGUF". Is it a GGUF file, downloaded as it is?`);
  }
  const version = cursor.u32();
  if (version === 2 || version === 3) return version;
  const swapped = version % 0x1000000 === 0 && version !== 0;
  throw formatError(
    swapped
      ? `${what} is a big-endian GGUF file; expected a little-endian one`
      : `${what} is GGUF version ${version}; expected 2 or 3 (convert it again with a current llama.cpp)`,
  );
}

function alignmentOf(metadata: ReadonlyMap<string, GgufValue>, what: string): number {
  const alignment = metadata.get('general.alignment') ?? DEFAULT_ALIGNMENT;
  if (typeof alignment !== 'number' || !Number.isInteger(alignment) || alignment < 8 || alignment % 8 !== 0)
    throw formatError(`${what}: general.alignment is ${show(alignment)}; expected a multiple of 8`);
  return alignment;
}

interface TensorInfo {
  readonly name: string;
  readonly shape: readonly number[];
  readonly typeId: number;
  /** From the beginning of the tensors' bytes. */
  readonly offset: number;
}

async function readTensorInfo(cursor: HeaderCursor): Promise<TensorInfo> {
  const name = await cursor.string();
  await cursor.need(4);
  const axes = cursor.u32();
  if (axes > MAX_AXES)
    throw formatError(`${cursor.what}: tensor ${show(name)} has ${axes} axes; expected at most ${MAX_AXES}`);
  await cursor.need(axes * 8 + 12);
  const shape = Array.from({ length: axes }, () => cursor.u64()).reverse();
  return { name, shape, typeId: cursor.u32(), offset: cursor.u64() };
}

function placeTensors(
  entries: readonly TensorInfo[],
  file: string,
  what: string,
  dataStart: number,
  fileBytes: number,
): Map<string, GgufTensor> {
  const tensors = new Map<string, GgufTensor>();
  for (const { name, shape, typeId, offset } of entries) {
    const bad = (message: string): SplitkvError => formatError(`${what}: tensor ${show(name)} ${message}`);
    if (tensors.has(name)) throw bad('is there twice');
    const type = storedType(typeId);
    const bytes = type === undefined ? 0 : bytesOf(type, shape, bad);
    const start = dataStart + offset;
    const end = start + bytes;
    // A sum beyond 2^53 may have been rounded, but is beyond any file too.
    if (end > fileBytes)
      throw bad(`ends at byte ${end}, but the file has ${grouped(fileBytes)} bytes; is it truncated?`);
    tensors.set(name, { name, file, typeName: typeName(typeId), type, shape, start, end });
  }
  const sorted = [...tensors.values()].sort((a, b) => a.start - b.start || a.end - b.end);
  for (const [i, { name, start }] of sorted.entries()) {
    const before = sorted[i - 1];
    if (before && start < before.end)
      throw formatError(`${what}: tensors ${show(before.name)} and ${show(name)} overlap`);
  }
  return tensors;
}

function bytesOf(type: StoredType, shape: readonly number[], bad: (message: string) => SplitkvError): number {
  const { elements, bytes } = blockOf(type);
  const columns = shape.at(-1) ?? 1;
  if (columns % elements !== 0) throw bad(`is ${type} with rows of ${columns}; expected a multiple of ${elements}`);
  if (shape.includes(0)) return 0;
  return shape.slice(0, -1).reduce((product, size) => product * size, (columns / elements) * bytes);
}
