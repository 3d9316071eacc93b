import { SplitkvError, throwIfAborted } from '../base/errors.js';
import { formatBytes } from '../base/math.js';
import { CachedFile, isNotedMissing, noteMissing, PIECE_BYTES } from './cached_file.js';
import { openModelFolder } from './cache_list.js';
import { type CacheDirectory, hashName, openCacheFolder } from './opfs.js';
import {
  beyondFile,
  checkFileName,
  checkRange,
  missingFile,
  type OnProgress,
  type Source,
  withAbort,
} from './source.js';

export interface CacheOptions {
  readonly onProgress?: OnProgress | undefined;
  /** Told once why nothing is stored, or that a cached copy stands in for the server. */
  readonly onWarning?: ((message: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Another folder than the one in the origin private file system. */
  readonly folder?: CacheDirectory | undefined;
}

/** At most this much is fetched with one request. */
const FETCH_PIECES = 4;
/** Bytes read but not stored yet; beyond, reading waits for the disk. */
const UNSTORED_BYTES = 32 * 1024 * 1024;
const HEAD_BYTES = 64 * 1024;

/**
 * Wraps a source that comes over the network: what is read of it is stored in the browser (origin private file system) and
 * found there by the next load. A file is fetched again when its size or validator (etag, date, else a hash of its first
 * 64 KiB) has changed. When the server can't be reached the cached files stand in. Sources without a `url` are returned as
 * they are, and so is any where nothing can be stored (onWarning tells why; Node has no such storage and says nothing).
 */
export async function cachedSource(source: Source, options: CacheOptions = {}): Promise<Source> {
  if (source.url === undefined) return source;
  if (!options.folder && globalThis.process?.versions?.node !== undefined && !globalThis.navigator?.storage)
    return source;
  try {
    const folder = options.folder ?? (await withAbort(openCacheFolder(), options.signal, 'opening the cache'));
    return new CachedSource(
      source,
      await withAbort(openModelFolder(folder, source.url), options.signal, 'opening the cache'),
      options,
    );
  } catch (error) {
    throwIfAborted(options.signal, 'opening the cache');
    options.onWarning?.(`${source.name} is not cached, and will be downloaded again next time: ${reason(error)}`);
    return source;
  }
}

interface OpenFile {
  readonly size: number;
  readonly version: string;
  /** Undefined when nothing can be stored. */
  readonly cached: CachedFile | undefined;
  /** Pieces that are being fetched or stored. */
  readonly pending: Map<number, Promise<Uint8Array<ArrayBuffer>>>;
  /** Why the server could not be asked: then only what is cached can be read. */
  readonly offline: unknown;
}

type StoredFile = OpenFile & { readonly cached: CachedFile };

class CachedSource implements Source {
  readonly name: string;
  readonly url: string;
  readonly gguf: string | undefined;
  readonly #source: Source;
  readonly #folder: CacheDirectory;
  readonly #options: CacheOptions;
  readonly #files = new Map<string, OpenFile>();
  #offline: unknown;
  #storing = true;
  #unstored = 0;
  #stored: Promise<void> = Promise.resolve();

  constructor(source: Source, folder: CacheDirectory, options: CacheOptions) {
    this.#source = source;
    this.#folder = folder;
    this.#options = options;
    this.name = source.name;
    this.url = source.url!;
    this.gguf = source.gguf;
  }

  async size(file: string, signal?: AbortSignal): Promise<number | undefined> {
    return (await this.#open(file, signal))?.size;
  }

  async version(file: string, signal?: AbortSignal): Promise<string | undefined> {
    const open = await this.#open(file, signal);
    if (!open) throw missingFile(this.name, file);
    return open.version;
  }

  async read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    checkRange(file, start, end);
    const open = await this.#open(file, signal);
    if (!open) throw missingFile(this.name, file);
    if (end > open.size) throw beyondFile(this.name, file, start, end, open.size);
    if (!open.cached) return this.#source.read(file, start, end, signal);
    const out = new Uint8Array(end - start);
    const lastPiece = Math.floor((end - 1) / PIECE_BYTES);
    for (let at = start; at < end;) {
      throwIfAborted(signal, `reading ${file}`);
      const bytes = await this.#readFrom({ ...open, cached: open.cached }, at, end, lastPiece, signal);
      out.set(bytes, at - start);
      at += bytes.byteLength;
    }
    return out;
  }

  async flush(): Promise<void> {
    await this.#stored;
  }

  /** Some of the bytes from `at` on, at least one, at most up to `end`. */
  async #readFrom(
    open: StoredFile,
    at: number,
    end: number,
    lastPiece: number,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array> {
    const { cached, pending } = open;
    const piece = Math.floor(at / PIECE_BYTES);
    const offset = at - piece * PIECE_BYTES;
    const until = Math.min(end - piece * PIECE_BYTES, PIECE_BYTES);
    const what = `reading ${cached.manifest.file}`;
    const underway = pending.get(piece);
    if (underway) {
      const bytes = await withAbort(underway, signal, what).catch((error: unknown) => {
        // Another reader's abort or failure is not this one's: look again.
        throwIfAborted(signal, what);
        if (error instanceof SplitkvError && error.code === 'aborted') return undefined;
        throw error;
      });
      if (bytes) return bytes.subarray(offset, until);
    }
    if (cached.has(piece)) {
      const bytes = await withAbort(cached.read(piece, offset, until), signal, what);
      if (bytes) return bytes;
    }
    if (pending.has(piece)) return this.#readFrom(open, at, end, lastPiece, signal);
    if (open.offline !== undefined) throw this.#notCached(open);
    if (!this.#storing)
      return this.#source.read(cached.manifest.file, at, Math.min(end, at + FETCH_PIECES * PIECE_BYTES), signal);
    let count = 1;
    while (
      count < FETCH_PIECES &&
      piece + count <= lastPiece &&
      !cached.has(piece + count) &&
      !pending.has(piece + count)
    )
      count++;
    const bytes = await this.#fetch(open, piece, count, signal);
    return bytes.subarray(offset, end - piece * PIECE_BYTES);
  }

  /** Fetches `count` pieces in one request; they are stored behind the caller's back. */
  async #fetch(
    open: StoredFile,
    first: number,
    count: number,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const { cached, pending } = open;
    const { file, size } = cached.manifest;
    const start = first * PIECE_BYTES;
    const run = this.#source.read(file, start, Math.min(size, start + count * PIECE_BYTES), signal);
    for (let i = 0; i < count; i++) {
      const piece = run.then((bytes) => bytes.slice(i * PIECE_BYTES, (i + 1) * PIECE_BYTES));
      piece.catch(() => {}); // the caller hears it from `run`
      pending.set(first + i, piece);
    }
    let bytes: Uint8Array<ArrayBuffer>;
    try {
      bytes = await run;
    } catch (error) {
      for (let i = 0; i < count; i++) pending.delete(first + i);
      throw error;
    }
    for (let i = 0; i < count; i++) this.#store(open, first + i, await pending.get(first + i)!);
    this.#options.onProgress?.({
      phase: 'download',
      file,
      loadedBytes: Math.min(size, cached.bytes + pending.size * PIECE_BYTES),
      totalBytes: size,
      tensorsLoaded: 0,
      tensorsTotal: 0,
    });
    if (this.#unstored > UNSTORED_BYTES) await withAbort(this.#stored, signal, `reading ${file}`);
    return bytes;
  }

  #store({ cached, pending }: StoredFile, piece: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.#unstored += bytes.byteLength;
    this.#stored = this.#stored.then(async () => {
      try {
        if (this.#storing) await cached.write(piece, bytes);
      } catch (error) {
        this.#stopStoring(error);
      } finally {
        this.#unstored -= bytes.byteLength;
        pending.delete(piece);
      }
    });
  }

  /** Asks the server for size and validator once a file; undefined when it is missing. */
  async #open(file: string, signal: AbortSignal | undefined): Promise<OpenFile | undefined> {
    checkFileName(file);
    throwIfAborted(signal, `reading ${file}`);
    const known = this.#files.get(file);
    if (known) return known;
    const opened = await withAbort(
      this.#offline === undefined ? this.#openOnline(file, signal) : this.#openOffline(file),
      signal,
      `reading ${file}`,
    );
    const other = this.#files.get(file); // two calls at once: one `pending` for both
    if (other || !opened) return other;
    this.#files.set(file, opened);
    return opened;
  }

  async #openOnline(file: string, signal: AbortSignal | undefined): Promise<OpenFile | undefined> {
    let size: number | undefined;
    let version: string;
    try {
      size = await this.#source.size(file, signal);
      version =
        size === undefined
          ? ''
          : ((await this.#source.version(file, signal)) ?? (await this.#headHash(file, size, signal)));
    } catch (error) {
      if (!(error instanceof SplitkvError) || error.code !== 'io') throw error;
      this.#offline = error;
      try {
        const opened = await this.#openOffline(file);
        this.#options.onWarning?.(
          `using the cached copy of ${this.name}, because the server can't be reached: ${error.message}`,
        );
        return opened;
      } catch {
        this.#offline = undefined;
        throw error;
      }
    }
    if (size === undefined) {
      await noteMissing(this.#folder, file).catch(() => {});
      return undefined;
    }
    let cached: CachedFile | undefined;
    try {
      if (this.#storing) cached = await CachedFile.open(this.#folder, { file, size, version, pieceBytes: PIECE_BYTES });
    } catch (error) {
      this.#stopStoring(error);
    }
    return { size, version, cached, pending: new Map(), offline: undefined };
  }

  /** The fullest cached version; throws when there is none and nothing is known of the file. */
  async #openOffline(file: string): Promise<OpenFile | undefined> {
    const versions = (await CachedFile.list(this.#folder)).filter(({ manifest }) => manifest.file === file);
    const cached = versions.sort((a, b) => b.bytes - a.bytes)[0];
    if (cached) return { ...cached.manifest, cached, pending: new Map(), offline: this.#offline };
    if (await isNotedMissing(this.#folder, file)) return undefined;
    throw new SplitkvError('io', `${file} of ${this.name} is not in the cache, and the server can't be reached`, {
      cause: this.#offline,
    });
  }

  async #headHash(file: string, size: number, signal: AbortSignal | undefined): Promise<string> {
    return `head ${await hashName(await this.#source.read(file, 0, Math.min(size, HEAD_BYTES), signal))}`;
  }

  #notCached({ cached, offline }: StoredFile): SplitkvError {
    const { file, size } = cached.manifest;
    return new SplitkvError(
      'io',
      `the server of ${this.name} can't be reached and the cache holds only ${formatBytes(cached.bytes)} of the ${formatBytes(size)} of ${file}; ` +
        `load once more with a connection to complete it`,
      { cause: offline },
    );
  }

  #stopStoring(error: unknown): void {
    this.#storing = false;
    this.#options.onWarning?.(
      `${this.name} is not cached any further, and the rest will be downloaded again next time: ${reason(error)}`,
    );
  }
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === 'QuotaExceededError') return "the browser's storage for this site is full";
  return error.message || error.name;
}
