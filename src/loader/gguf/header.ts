import { formatError, type SplitkvError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { alignUp, grouped, joinBytes } from '../../base/math.js';
import { blockOf, isBlockType, isDtype, type StoredType } from '../dtype.js';
import { checkTensorCount } from '../safetensors_header.js';
import { checkFileName, missingFile, type Source } from '../source.js';

/** A metadata value. 64-bit integers are numbers, exact up to 2^53. */
export type GgufValue = string | number | boolean | readonly GgufValue[];

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
  if (fileBytes === undefined) throw missingFile(source, file);
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
    await cursor.need(4);
    metadata.set(key, await readTyped(cursor, key, cursor.u32(), 0));
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
    tensors.set(name, {
      name,
      file,
      typeName: typeNames[typeId] ?? `of an unknown type (${typeId})`,
      type,
      shape,
      start,
      end,
    });
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

/** Element types of tensors, by their number in the file (ggml.h). */
const typeNames: Readonly<Record<number, string>> = {
  0: 'F32',
  1: 'F16',
  2: 'Q4_0',
  3: 'Q4_1',
  6: 'Q5_0',
  7: 'Q5_1',
  8: 'Q8_0',
  9: 'Q8_1',
  10: 'Q2_K',
  11: 'Q3_K',
  12: 'Q4_K',
  13: 'Q5_K',
  14: 'Q6_K',
  15: 'Q8_K',
  16: 'IQ2_XXS',
  17: 'IQ2_XS',
  18: 'IQ3_XXS',
  19: 'IQ1_S',
  20: 'IQ4_NL',
  21: 'IQ3_S',
  22: 'IQ2_S',
  23: 'IQ4_XS',
  24: 'I8',
  25: 'I16',
  26: 'I32',
  27: 'I64',
  28: 'F64',
  29: 'IQ1_M',
  30: 'BF16',
  34: 'TQ1_0',
  35: 'TQ2_0',
  39: 'MXFP4',
  40: 'NVFP4',
  41: 'Q1_0',
  42: 'Q2_0',
};

/** The type as the loader stores it, or undefined for one whose bytes it can't count. */
function storedType(id: number): StoredType | undefined {
  const name = typeNames[id];
  return name !== undefined && (isDtype(name) || isBlockType(name)) ? name : undefined;
}

const STRING = 8;
const ARRAY = 9;
/** Lists of lists this deep are nobody's metadata. */
const MAX_DEPTH = 4;

/** Values of fixed size, by their number in the file. */
const scalars: Readonly<Record<number, { bytes: number; read: (view: DataView) => number | boolean }>> = {
  0: { bytes: 1, read: (view) => view.getUint8(0) },
  1: { bytes: 1, read: (view) => view.getInt8(0) },
  2: { bytes: 2, read: (view) => view.getUint16(0, true) },
  3: { bytes: 2, read: (view) => view.getInt16(0, true) },
  4: { bytes: 4, read: (view) => view.getUint32(0, true) },
  5: { bytes: 4, read: (view) => view.getInt32(0, true) },
  6: { bytes: 4, read: (view) => view.getFloat32(0, true) },
  7: { bytes: 1, read: (view) => view.getUint8(0) !== 0 },
  10: { bytes: 8, read: (view) => Number(view.getBigUint64(0, true)) },
  11: { bytes: 8, read: (view) => Number(view.getBigInt64(0, true)) },
  12: { bytes: 8, read: (view) => view.getFloat64(0, true) },
};

/** Reads a value of a type; `key` is for messages. Throws `format`. */
async function readTyped(cursor: HeaderCursor, key: string, type: number, depth: number): Promise<GgufValue> {
  if (type === STRING) return cursor.string();
  if (type === ARRAY && depth < MAX_DEPTH) return readArray(cursor, key, depth);
  const { bytes, read } = scalarOf(cursor, key, type);
  await cursor.need(bytes);
  return read(cursor.take(bytes));
}

async function readArray(cursor: HeaderCursor, key: string, depth: number): Promise<GgufValue> {
  await cursor.need(12);
  const type = cursor.u32();
  const length = cursor.u64();
  const smallest = type === STRING ? 8 : type === ARRAY ? 12 : scalarOf(cursor, key, type).bytes;
  if (length * smallest > cursor.left) {
    throw formatError(
      `${cursor.what}: ${show(key)} claims ${length} values, more than the file has room for; is it truncated?`,
    );
  }
  cursor.count(length);
  const values: GgufValue[] = [];
  if (type === STRING) {
    for (let i = 0; i < length; i++) values.push(cursor.stringNow() ?? (await cursor.string()));
    return values;
  }
  if (type === ARRAY) {
    for (let i = 0; i < length; i++) values.push(await readTyped(cursor, key, type, depth + 1));
    return values;
  }
  const { bytes, read } = scalarOf(cursor, key, type);
  for (let i = 0; i < length; i++) {
    if (!cursor.has(bytes)) await cursor.need(bytes);
    values.push(read(cursor.take(bytes)));
  }
  return values;
}

function scalarOf(cursor: HeaderCursor, key: string, type: number) {
  const scalar = scalars[type];
  if (scalar) return scalar;
  throw formatError(
    `${cursor.what}: the metadata key ${show(key)} has a value of type ${type}; expected 0 to 12, lists at most ${MAX_DEPTH} deep`,
  );
}

const FIRST_READ_BYTES = 64 * 1024;
const LARGEST_READ_BYTES = 2 * 1024 * 1024;

/** Entries of all lists, keys and names together: a vocabulary of 262,144 tokens comes with 1.3 million. */
const MAX_VALUES = 2 * 1024 * 1024;
/** UTF-8 of all texts together: that vocabulary and its merges are 10 MB. */
const MAX_TEXT_BYTES = 64 * 1024 * 1024;

/**
 * Reads a header whose length nobody tells, front to back: ranges that double in size, of which only what isn't used yet is kept.
 * Await `need(n)` where `has(n)` is false, then take n bytes by the readers below: a list of numbers costs no await each.
 */
class HeaderCursor {
  /** The file as messages name it. */
  readonly what: string;
  // Tokens may begin with U+FEFF.
  readonly #text = new TextDecoder('utf-8', { ignoreBOM: true });
  #bytes = new Uint8Array(0);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;
  #values = 0;
  #textBytes = 0;
  /** Where #bytes ends in the file. */
  #loaded = 0;

  constructor(
    private readonly source: Source,
    private readonly file: string,
    readonly fileBytes: number,
    private readonly signal: AbortSignal | undefined,
  ) {
    this.what = `${file} of ${source.name}`;
  }

  /** Bytes of the file before the next value. */
  get position(): number {
    return this.#loaded - this.#bytes.length + this.#at;
  }

  /** Bytes of the file from the next value on. */
  get left(): number {
    return this.fileBytes - this.position;
  }

  has(bytes: number): boolean {
    return this.#bytes.length - this.#at >= bytes;
  }

  /** Throws `format` when the file ends before. */
  async need(bytes: number): Promise<void> {
    if (this.has(bytes)) return;
    if (bytes > this.left) throw this.cutShort();
    const rest = this.#bytes.subarray(this.#at);
    const size = Math.min(Math.max(this.#loaded, FIRST_READ_BYTES), LARGEST_READ_BYTES);
    const end = Math.min(this.#loaded + Math.max(size, bytes - rest.length), this.fileBytes);
    const more = await this.source.read(this.file, this.#loaded, end, this.signal);
    this.#bytes = joinBytes([rest, more]);
    this.#view = new DataView(this.#bytes.buffer);
    this.#at = 0;
    this.#loaded = end;
  }

  take(bytes: number): DataView {
    const view = new DataView(this.#view.buffer, this.#at, bytes);
    this.#at += bytes;
    return view;
  }

  u32(): number {
    const value = this.#view.getUint32(this.#at, true);
    this.#at += 4;
    return value;
  }

  /** As a number, which is exact up to 2^53. */
  u64(): number {
    const value = this.#view.getBigUint64(this.#at, true);
    this.#at += 8;
    return Number(value);
  }

  /** A length and as many bytes of UTF-8. Files hold tokens that are no UTF-8; their bytes become U+FFFD. */
  async string(): Promise<string> {
    if (!this.has(8)) await this.need(8);
    const length = this.u64();
    this.#textBytes += length;
    if (this.#textBytes > MAX_TEXT_BYTES) {
      if (length > this.left) throw this.cutShort();
      throw this.#tooMuch(`${grouped(this.#textBytes)} bytes of text`, MAX_TEXT_BYTES);
    }
    if (!this.has(length)) await this.need(length);
    return this.#take(length);
  }

  /** As `string`, where it has been read whole: a list of a million texts needn't wait a million times. */
  stringNow(): string | undefined {
    if (!this.has(8)) return undefined;
    const length = Number(this.#view.getBigUint64(this.#at, true));
    if (!this.has(8 + length)) return undefined;
    this.#at += 8;
    this.#textBytes += length;
    return this.#take(length);
  }

  #take(length: number): string {
    const text = length === 0 ? '' : this.#text.decode(this.#bytes.subarray(this.#at, this.#at + length));
    this.#at += length;
    return text;
  }

  /** Counts values that a header says it has. Throws `format` for more than any model's header holds. */
  count(values: number): void {
    this.#values += values;
    if (this.#values > MAX_VALUES) throw this.#tooMuch(`${grouped(this.#values)} values`, MAX_VALUES);
  }

  #tooMuch(claimed: string, most: number): SplitkvError {
    return formatError(`${this.what}: its header has ${claimed}; expected at most ${grouped(most)} in all`);
  }

  cutShort(): SplitkvError {
    return formatError(
      `${this.what} ends within its header (${grouped(this.fileBytes)} bytes); is the file truncated, or no GGUF file?`,
    );
  }
}
