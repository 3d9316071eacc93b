import { formatError, ioError, messageOf, type SplitkvError, usageError } from '../base/errors.js';
import { parsePythonJson } from '../base/json.js';
import { formatBytes, grouped } from '../base/math.js';
import { jsonSize } from './json_keys.js';

/**
 * A model folder seen as files, wherever it is. File names are relative and use '/', e.g. 'config.json'.
 * Every method rejects with `aborted` as soon as its signal fires, and with `io` when the bytes can't be had.
 */
export interface Source {
  /** The path, URL or folder name a person would recognise; used in messages. */
  readonly name: string;
  /** Bytes in the file, or undefined when there is no such file. */
  size(file: string, signal?: AbortSignal): Promise<number | undefined>;
  /** Exactly the bytes [start, end), in a buffer of their own that the caller may keep. A range beyond the file rejects with `io`. */
  read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
  /** Text that changes when the file does (an etag, a date), or undefined when the source has nothing of the kind. */
  version(file: string, signal?: AbortSignal): Promise<string | undefined>;
  /** SHA-256 of the whole file in hex, as far as its server tells. */
  sha256?(file: string, signal?: AbortSignal): Promise<string | undefined>;
  /** Why a file that was asked for counts as missing, where there is more to say: "GET URL answered with a web page (text/html)". */
  absence?(file: string): string | undefined;
  /** Whether a file that was asked for came whole, as its server has no ranges. */
  isWhole?(file: string): boolean;
  /** Where it is, when it comes over the network: what a cache files it under. Without a query, which may be a signature. */
  readonly url?: string;
  /** The GGUF file that is the model, where it is one: then no other file is needed. */
  readonly gguf?: string | undefined;
  /** What a worker opens to read the same, where that isn't what was given: a name of the Hub means a folder on disk, or a commit. And the name, for other machines. */
  readonly at?: { readonly where: string; readonly commit?: string; readonly name?: string };
  /** Names of the files (of a folder on disk, unless it is one of the Hub's cache, those at its top), for sources that can tell. */
  list?(): Promise<readonly string[]>;
  /** Resolves when what has been read so far is stored and checked, for sources that store. */
  flush?(): Promise<void>;
  /**
   * SHA-256 of the whole file in hex, for sources that needn't read it again where they know already that it is the one expected.
   * @param onBytes told how far it has come
   */
  hashes?(file: string, expected: string, onBytes?: (done: number) => void, signal?: AbortSignal): Promise<string>;
  /** For sources that store: looks at what was read once more, and says what is damaged, where something is. */
  damage?(signal?: AbortSignal): Promise<string | undefined>;
}

export interface FoundFile {
  /** Bytes. */
  readonly size: number;
  /** As `Source.version` and `Source.sha256`. */
  readonly version?: string | undefined;
  readonly sha256?: string | undefined;
  /** The bytes of a range that lies within the file. */
  read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** A source by what it finds of a file. Names and ranges are checked here, and that the file is there. */
export abstract class FileSource implements Source {
  abstract readonly name: string;
  absence?(file: string): string | undefined;
  /** The file of a name that can't leave the folder, as `signal` allows to read it; undefined when there is none. */
  protected abstract find(file: string, signal: AbortSignal | undefined): Promise<FoundFile | undefined>;

  async size(file: string, signal?: AbortSignal): Promise<number | undefined> {
    return (await this.#find(file, signal))?.size;
  }

  async sha256(file: string, signal?: AbortSignal): Promise<string | undefined> {
    return (await this.#find(file, signal))?.sha256;
  }

  async version(file: string, signal?: AbortSignal): Promise<string | undefined> {
    return (await this.#need(file, signal)).version;
  }

  async read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    checkRange(file, start, end);
    const found = await this.#need(file, signal);
    if (end > found.size) throw beyondFile(this.name, file, start, end, found.size);
    return found.read(start, end);
  }

  async #find(file: string, signal: AbortSignal | undefined): Promise<FoundFile | undefined> {
    checkFileName(file);
    return this.find(file, signal);
  }

  async #need(file: string, signal: AbortSignal | undefined): Promise<FoundFile> {
    const found = await this.#find(file, signal);
    if (!found) throw missingFile(this, file);
    return found;
  }
}

/** The source with some of it in place of its own. */
export const around = (source: Source, own: Partial<Source>): Source =>
  new Proxy(source, {
    get(target, name) {
      const value: unknown = Object.hasOwn(own, name) ? own[name as keyof Source] : Reflect.get(target, name, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });

/** How far files have come that are read whole: downloaded, or checked. */
export interface FileProgress {
  readonly file: string;
  readonly loadedBytes: number;
  readonly totalBytes: number;
}

export type OnProgress = (progress: FileProgress) => void;

/** What a text may have: bytes; where it is JSON values, and of those objects, and keys of objects. */
export interface TextLimits {
  readonly bytes: number;
  readonly json?: { readonly values: number; readonly objects: number; readonly keys: number };
}
const MI = 1024 * 1024;
/** Lists in one another: JSON's own reader takes more. */
const MAX_DEPTH = 1000;

/** That of the largest vocabularies has some 35 MB and 1.4 million values, 310,000 of them with keys. */
export const TOKENIZER_LIMITS: TextLimits = {
  bytes: 64 * MI,
  json: { values: 1.5 * MI, objects: MI / 4, keys: 600_000 },
};
/** Configurations have some kilobytes; with many added tokens a megabyte. */
const CONFIG_LIMITS: TextLimits = { bytes: 2 * MI };
export const TOKENIZER_CONFIG_LIMITS: TextLimits = {
  bytes: 16 * MI,
  json: { values: MI / 2, objects: MI / 8, keys: MI / 2 },
};
/** A model of 384 experts in each of 60 layers lists 140,000 tensors. */
export const INDEX_LIMITS: TextLimits = { bytes: 64 * MI, json: { values: MI / 2, objects: 100, keys: MI / 2 } };

/**
 * The file as text, or undefined when it is missing. Reading JSON takes time and memory by its values, which are counted first.
 * Throws `format` for what is larger than its limits, and for what isn't UTF-8.
 */
export async function readText(
  source: Source,
  file: string,
  signal?: AbortSignal,
  limits = CONFIG_LIMITS,
): Promise<string | undefined> {
  const size = await source.size(file, signal);
  if (size === undefined) return undefined;
  if (size > limits.bytes) {
    throw formatError(
      `${file} of ${source.name} has ${formatBytes(size)}; expected a text of at most ${formatBytes(limits.bytes)}`,
    );
  }
  const bytes = await source.read(file, 0, size, signal);
  if (limits.json) checkJsonSize(bytes, limits.json, `${file} of ${source.name}`);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw formatError(`${file} of ${source.name} is not UTF-8 text`, error);
  }
}

function checkJsonSize(json: Uint8Array, most: NonNullable<TextLimits['json']>, what: string): void {
  const { values, objects, keys, depth } = jsonSize(json);
  if (values > most.values || objects > most.objects || keys > most.keys || depth > MAX_DEPTH)
    throw formatError(
      `${what} has ${grouped(values)} values, ${grouped(objects)} objects of ${grouped(keys)} keys, and is nested ${grouped(depth)} deep; ` +
        `expected at most ${grouped(most.values)}, ${grouped(most.objects)} of ${grouped(most.keys)}, and ${grouped(MAX_DEPTH)}`,
    );
}

/** A configuration as parsed JSON, or undefined when it is missing. Throws `format` when it isn't JSON, or too large for one. */
export async function readJson(source: Source, file: string, signal?: AbortSignal): Promise<unknown> {
  const text = await readText(source, file, signal);
  return text === undefined ? undefined : parseJson(text, `${file} of ${source.name}`);
}

export function parseJson(text: string, what: string): unknown {
  try {
    return parsePythonJson(text);
  } catch (error) {
    const start = text.trimStart().startsWith('<') ? ' It looks like HTML: is the URL that of the raw file?' : '';
    throw formatError(`${what} is not JSON (${messageOf(error)}).${start}`, error);
  }
}

/** Refuses names that would leave the folder: shard names come out of files that anybody may have written. */
export function checkFileName(file: string): void {
  const parts = file.split('/');
  if (file === '' || /[\\\0:]/.test(file) || parts.some((part) => part === '' || part === '.' || part === '..')) {
    throw formatError(
      `${JSON.stringify(file)} is not a file of a model folder; expected a relative name such as 'model.safetensors'`,
    );
  }
}

/** Refuses ranges that are not 0 <= start <= end, both integers: a caller's bug rather than a bad file. */
export function checkRange(file: string, start: number, end: number): void {
  if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end) || start < 0 || end < start) {
    throw usageError(`read of ${file}: bytes ${start} to ${end}; expected integers with 0 <= start <= end`);
  }
}

/** @param why it is missing, or is needed; by default what the source says */
export function missingFile(source: Pick<Source, 'name' | 'absence'>, file: string, why?: string): SplitkvError {
  const absence = why ?? source.absence?.(file);
  return ioError(`${file} is not in ${source.name}; expected that file there${absence ? `: ${absence}` : ''}`);
}

export const beyondFile = (source: string, file: string, start: number, end: number, size: number): SplitkvError =>
  ioError(`${file} of ${source}: bytes ${start} to ${end} were asked for but it has ${size}; is the file truncated?`);
