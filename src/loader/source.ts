import { abortedError, formatError, SplitkvError, usageError } from '../base/errors.js';
import { formatBytes } from '../base/math.js';

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
  /** Where it is, when it comes over the network: what a cache files it under. Without a query, which may be a signature. */
  readonly url?: string;
  /** The GGUF file that is the model, where it is one: then no other file is needed. */
  readonly gguf?: string | undefined;
  /** What a worker opens to read the same, where that isn't what was given: a name of the Hub means a folder on disk, or a commit. */
  readonly at?: { readonly where: string; readonly commit?: string };
  /** Names of the files (of a folder on disk, those at its top), for sources that can tell. */
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

/** How far a load has come. Bytes are bytes of the checkpoint, not of what they turn into. */
export interface LoadProgress {
  /** 'download': into the browser's cache; 'weights': tensors being read. */
  phase: 'download' | 'weights';
  file: string;
  loadedBytes: number;
  totalBytes: number;
  tensor?: string;
  tensorsLoaded: number;
  tensorsTotal: number;
}

export type OnProgress = (progress: LoadProgress) => void;

/** The largest file that is read as one text: a tokenizer.json of a large vocabulary is some 35 MB. */
const MAX_TEXT_BYTES = 256 * 1024 * 1024;
/** The largest configuration: they have some kilobytes. */
const MAX_JSON_BYTES = 2 * 1024 * 1024;

/** The file as text, or undefined when it is missing. Throws `format` when it isn't UTF-8. */
export async function readText(
  source: Source,
  file: string,
  signal?: AbortSignal,
  maxBytes = MAX_TEXT_BYTES,
): Promise<string | undefined> {
  const size = await source.size(file, signal);
  if (size === undefined) return undefined;
  if (size > maxBytes) {
    throw formatError(
      `${file} of ${source.name} has ${formatBytes(size)}; expected a text of at most ${formatBytes(maxBytes)}`,
    );
  }
  const bytes = await source.read(file, 0, size, signal);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw formatError(`${file} of ${source.name} is not UTF-8 text`, error);
  }
}

/** A configuration as parsed JSON, or undefined when it is missing. Throws `format` when it isn't JSON, or too large for one. */
export async function readJson(source: Source, file: string, signal?: AbortSignal): Promise<unknown> {
  const text = await readText(source, file, signal, MAX_JSON_BYTES);
  return text === undefined ? undefined : parseJson(text, `${file} of ${source.name}`);
}

export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    const start = text.trimStart().startsWith('<') ? ' It looks like HTML: is the URL that of the raw file?' : '';
    throw formatError(
      `${what} is not JSON (${error instanceof Error ? error.message : String(error)}).${start}`,
      error,
    );
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

export const missingFile = (source: string, file: string, absence?: string): SplitkvError =>
  new SplitkvError('io', `${file} is not in ${source}; expected that file there${absence ? `: ${absence}` : ''}`);

export const beyondFile = (source: string, file: string, start: number, end: number, size: number): SplitkvError =>
  new SplitkvError(
    'io',
    `${file} of ${source}: bytes ${start} to ${end} were asked for but it has ${size}; is the file truncated?`,
  );

/** `work`, or a rejection with `aborted` as soon as the signal fires (the work itself may go on unseen). */
export async function withAbort<T>(work: Promise<T>, signal: AbortSignal | undefined, what: string): Promise<T> {
  if (!signal) return work;
  let onAbort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(abortedError(what, signal));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([aborted, work]);
  } finally {
    signal.removeEventListener('abort', onAbort!);
    work.catch(() => {}); // its late failure has nobody left to hear it
  }
}
