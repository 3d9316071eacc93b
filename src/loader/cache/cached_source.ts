/**
 * Room: what a browser keeps of a download: pieces of 4 MiB in the private file system, each with its SHA-256,
 * versions by what the server tells. Read cached_file.ts next, then docs/decisions.md on pieces and digests.
 */

import { ioError, SplitkvError, throwIfAborted, withAbort } from '../../base/errors.js';
import { nth, range, spreadEvenly, sum } from '../../base/lists.js';
import { formatBytes } from '../../base/math.js';
import { CachedFile, type FileManifest, isNotedMissing, noteMissing, PIECE_BYTES } from './cached_file.js';
import { type CachedKind, findModelFolder, openModelFolder } from './cache_list.js';
import { type CacheDirectory, holdLock, type Locks, openCacheFolder, type Release, tryLock } from './opfs.js';
import { FileSource, type FoundFile, missingFile, type Source } from '../source.js';
import type { WholeHash } from '../sources/whole_hash.js';

export interface CacheOptions {
  /** Told once why nothing is stored, that a cached copy stands in for the server, or that a damaged part was fetched again. */
  readonly onWarning?: ((message: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** False: what is cached is used, and nothing is added to it. Default true. */
  readonly store?: boolean | undefined;
  /** What it is listed as. Default 'model'. */
  readonly kind?: CachedKind | undefined;
  /** Another folder than the one in the origin private file system. */
  readonly folder?: CacheDirectory | undefined;
  /** Other locks than `navigator.locks`, by which tabs and workers leave each piece to one of them. */
  readonly locks?: Locks | undefined;
}

const FETCH_PIECES = 4;
/** Bytes read but not stored yet; beyond, reading waits for the disk. */
const UNSTORED_BYTES = 32 * 1024 * 1024;
/** Blocks that are compared with the server's when a copy is in doubt, and bytes of each. */
const [COMPARED_BLOCKS, BLOCK_BYTES] = [64, 16 * 1024];

/**
 * Wraps a source that comes over the network: what is read of it is stored in the browser (origin private file system) and
 * found there by the next load, each piece checked against the SHA-256 it was stored with. A file is fetched again when it has
 * changed: by its size and, the strongest that the server sends, its SHA-256 or its validator (etag, date). A file without either isn't
 * stored. The old version goes when the new one is whole. When the server can't be reached, or no longer
 * has a file, the cached copy stands in. Sources without a `url` are returned as they are, and so is any where nothing can be stored
 * (onWarning tells why; Node has no such storage and says nothing).
 */
export async function cachedSource(source: Source, options: CacheOptions = {}): Promise<Source> {
  if (source.url === undefined) return source;
  if (!options.folder && globalThis.process?.versions?.node !== undefined && !globalThis.navigator?.storage)
    return source;
  const { store = true, signal } = options;
  const what = 'opening the cache';
  try {
    const folder = options.folder ?? (await withAbort(openCacheFolder(), signal, what));
    const { url } = source;
    const opened = store ? openModelFolder(folder, url, options.kind) : findModelFolder(folder, url);
    const model = await withAbort(opened, signal, what);
    return model === undefined ? source : new CachedSource(source, model, options);
  } catch (error) {
    throwIfAborted(signal, what);
    if (store)
      options.onWarning?.(`${source.name} is not cached, and will be downloaded again next time: ${reason(error)}`);
    return source;
  }
}

interface OpenFile extends Omit<FileManifest, 'version'> {
  /** Undefined where nothing would tell of a change: then it isn't stored. */
  readonly version: string | undefined;
  /** Undefined when nothing can be stored. */
  readonly cached: CachedFile | undefined;
  readonly pending: Map<number, Promise<Uint8Array<ArrayBuffer>>>;
  /** Why the server could not be asked or no longer has it: then only what is cached can be read. */
  readonly offline: unknown;
  /** Of what is stored; only where there is a `sha256` to compare it with. */
  hash: WholeHash | undefined;
}

type StoredFile = OpenFile & { readonly cached: CachedFile };

class CachedSource extends FileSource {
  readonly name: string;
  readonly url: string;
  readonly gguf: string | undefined;
  readonly #source: Source;
  readonly #folder: CacheDirectory;
  readonly #options: CacheOptions;
  readonly #locks: Locks | undefined;
  readonly #files = new Map<string, OpenFile>();
  readonly #told = new Set<string>();
  #offline: unknown;
  #storing: boolean;
  #unstored = 0;
  #stored: Promise<void> = Promise.resolve();

  constructor(source: Source, folder: CacheDirectory, options: CacheOptions) {
    super();
    this.#source = source;
    this.#folder = folder;
    this.#options = options;
    this.#locks = options.locks ?? (globalThis.navigator as Partial<Navigator> | undefined)?.locks;
    this.#storing = options.store ?? true;
    this.name = source.name;
    this.url = source.url ?? '';
    this.gguf = source.gguf;
  }

  override absence(file: string): string | undefined {
    return this.#source.absence?.(file);
  }

  async list(): Promise<readonly string[]> {
    return (await this.#source.list?.()) ?? [];
  }

  protected async find(file: string, signal: AbortSignal | undefined): Promise<FoundFile | undefined> {
    const open = await this.#open(file, signal);
    return open && { ...open, read: (start, end) => this.#read(open, start, end, signal) };
  }

  async #read(open: OpenFile, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const { file } = open;
    if (!isStored(open)) return this.#source.read(file, start, end, signal);
    const out = new Uint8Array(end - start);
    const lastPiece = Math.floor((end - 1) / PIECE_BYTES);
    for (let at = start; at < end;) {
      throwIfAborted(signal, `reading ${file}`);
      const bytes = await this.#readFrom(open, at, end, lastPiece, signal);
      out.set(bytes, at - start);
      at += bytes.byteLength;
    }
    return out;
  }

  /** Throws `io` where what was read turns out to be no version of the file: the server changed it meanwhile, or sent it damaged. */
  async flush(): Promise<void> {
    await this.#stored;
    for (const open of this.#files.values()) if (isStored(open)) await this.#settle(open);
  }

  async hashes(file: string, sha256: string, onBytes?: (done: number) => void, signal?: AbortSignal): Promise<string> {
    const open = await this.#open(file, signal);
    if (!open) throw missingFile(this, file);
    if (open.cached?.whole?.sha256 === sha256) return sha256;
    const { hashFile } = await import('../sources/whole_hash.js');
    const found = await hashFile(this, file, open.size, onBytes, signal);
    await withAbort(this.#stored, signal, `checking ${file}`);
    if (isStored(open) && found === sha256) await this.#settle(open, found);
    return found;
  }

  async damage(signal?: AbortSignal): Promise<string | undefined> {
    await withAbort(this.#stored, signal, 'checking the files');
    for (const open of this.#files.values()) {
      const problem = isStored(open) && (await this.#damageOf(open, signal));
      if (problem) {
        const { file } = open;
        return (
          `the downloaded copy of ${file} of ${this.name} is damaged: ${problem}. ` +
          `Delete it (deleteCached('${this.url}')) and load the model again`
        );
      }
    }
    return undefined;
  }

  async #damageOf(
    { cached, file, size, sha256, offline }: StoredFile,
    signal?: AbortSignal,
  ): Promise<string | undefined> {
    const what = `checking ${file}`;
    for (let piece = 0; piece < cached.pieces; piece++) {
      if (!(await withAbort(cached.find(piece), signal, what)) && !cached.damaged.has(piece)) continue;
      if (!(await withAbort(cached.check(piece), signal, what)) && cached.damaged.has(piece)) return notAsStored(piece);
    }
    if (sha256 !== undefined && cached.complete && cached.whole?.sha256 !== sha256) {
      const { hashFile } = await import('../sources/whole_hash.js');
      const found = await hashFile(this, file, size, undefined, signal);
      if (found !== sha256) return `its SHA-256 is ${found}; the server says ${sha256}`;
    }
    if (offline !== undefined) return undefined;
    try {
      const at = await this.#differs(cached, signal);
      return at === undefined ? undefined : `from byte ${at} on the server has others`;
    } catch (error) {
      if (error instanceof SplitkvError && error.code === 'io') return undefined; // it can't be asked, or has another version now
      throw error;
    }
  }

  /** Compares blocks of what is cached with the server's: where the first that isn't the same begins. */
  async #differs(cached: CachedFile, signal: AbortSignal | undefined): Promise<number | undefined> {
    const { file, size } = cached.manifest;
    const there = range(0, cached.pieces).filter((piece) => cached.has(piece));
    const bytes = sum(there.map((piece) => cached.pieceLength(piece)));
    for (const [start, end] of randomBlocks(bytes)) {
      // Counted over what is there; only the last piece of a file is shorter than the others.
      const piece = nth(there, Math.floor(start / PIECE_BYTES));
      const offset = start % PIECE_BYTES;
      const until = Math.min(offset + end - start, cached.pieceLength(piece));
      const at = piece * PIECE_BYTES + offset;
      const own = await cached.read(piece, offset, until);
      if (!own) continue;
      const theirs = await this.#source.read(file, at, Math.min(size, at + own.byteLength), signal);
      if (theirs.some((byte, index) => byte !== own[index])) return at;
    }
    return undefined;
  }

  /** Some of the bytes from `at` on, at least one, at most up to `end`. */
  async #readFrom(
    open: StoredFile,
    at: number,
    end: number,
    lastPiece: number,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array> {
    const { cached, pending, file } = open;
    const piece = Math.floor(at / PIECE_BYTES);
    const offset = at - piece * PIECE_BYTES;
    const until = Math.min(end - piece * PIECE_BYTES, PIECE_BYTES);
    const what = `reading ${file}`;
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
    if (cached.has(piece) || open.offline !== undefined) {
      const bytes = await withAbort(cached.read(piece, offset, until), signal, what);
      if (bytes) return bytes;
    }
    // From here on nothing is waited for: another reader would fetch it, too.
    if (pending.has(piece)) return this.#readFrom(open, at, end, lastPiece, signal);
    if (open.offline !== undefined) throw this.#notCached(open, piece);
    if (cached.damaged.has(piece)) {
      this.#tellOnce(
        `a part of ${file} of ${this.name} that was kept in this browser is damaged, and is fetched again`,
      );
    }
    if (!this.#storing) return this.#source.read(file, at, Math.min(end, at + FETCH_PIECES * PIECE_BYTES), signal);
    const bytes = await this.#obtain(open, piece, lastPiece, signal);
    return bytes.subarray(offset, end - piece * PIECE_BYTES);
  }

  /** Piece `first` and perhaps some that follow, from the server or from whoever stored it meanwhile. Others that want it wait. */
  async #obtain(
    open: StoredFile,
    first: number,
    lastPiece: number,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const run = this.#leave(open, first, lastPiece, signal);
    const own = run.then((bytes) => bytes.subarray(0, PIECE_BYTES));
    own.catch(() => {}); // the caller hears it from `run`
    open.pending.set(first, own);
    try {
      return await run;
    } catch (error) {
      open.pending.delete(first);
      throw error;
    }
  }

  /** Leaves a piece to the tab that is fetching it, if there is one, and fetches what is still missing then. */
  async #leave(
    open: StoredFile,
    first: number,
    lastPiece: number,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const { cached, pending, file } = open;
    const what = `reading ${file}`;
    const lockOf = (piece: number): string => `splitkv ${this.url} ${cached.name} ${piece}`;
    const held = [await holdLock(this.#locks, lockOf(first), signal, what)];
    let fetching = false;
    try {
      if (await withAbort(cached.find(first), signal, what)) {
        const bytes = await withAbort(cached.read(first, 0, PIECE_BYTES), signal, what);
        if (bytes) {
          pending.delete(first);
          return bytes;
        }
      }
      while (held.length < FETCH_PIECES && first + held.length <= lastPiece) {
        const next = first + held.length;
        if (pending.has(next) || (await cached.find(next))) break;
        const lock = await tryLock(this.#locks, lockOf(next));
        if (lock) held.push(lock);
        // Meanwhile another reader here may have asked for it: it waits for the lock.
        if (!lock || pending.has(next)) break;
      }
      while (held.length > 1 && pending.has(first + held.length - 1)) held.pop()?.();
      fetching = true;
      return await this.#fetch(open, first, held, signal);
    } finally {
      if (!fetching) for (const release of held) release();
    }
  }

  /** Fetches as many pieces as locks are held in one request; they are stored behind the caller's back, and then let go. */
  async #fetch(
    open: StoredFile,
    first: number,
    held: readonly Release[],
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const { pending, file, size } = open;
    const start = first * PIECE_BYTES;
    const run = this.#source.read(file, start, Math.min(size, start + held.length * PIECE_BYTES), signal);
    const part = (bytes: Uint8Array<ArrayBuffer>, i: number) => bytes.subarray(i * PIECE_BYTES, (i + 1) * PIECE_BYTES);
    for (let i = 1; i < held.length; i++) {
      const piece = run.then((bytes) => part(bytes, i));
      piece.catch(() => {}); // the caller hears it from `run`
      pending.set(first + i, piece);
    }
    let bytes: Uint8Array<ArrayBuffer>;
    try {
      bytes = await run;
    } catch (error) {
      for (let i = 1; i < held.length; i++) pending.delete(first + i);
      for (const release of held) release();
      throw error;
    }
    for (const [i, release] of held.entries()) this.#store(open, first + i, part(bytes, i), release);
    if (this.#unstored > UNSTORED_BYTES) await withAbort(this.#stored, signal, `reading ${file}`);
    return bytes;
  }

  #store(open: StoredFile, piece: number, bytes: Uint8Array<ArrayBuffer>, release: Release): void {
    this.#unstored += bytes.byteLength;
    this.#stored = this.#stored.then(async () => {
      try {
        if (!this.#storing) return;
        await open.cached.write(piece, bytes);
        open.hash?.add(piece, bytes);
      } catch (error) {
        this.#stopStoring(error);
      } finally {
        this.#unstored -= bytes.byteLength;
        open.pending.delete(piece);
        release();
      }
    });
  }

  /**
   * Once a file is whole, and is what the server says it is, its older versions go.
   * @param sha256 what all of it was found to hash to
   */
  async #settle(open: StoredFile, sha256?: string): Promise<void> {
    const { cached, file } = open;
    if (open.offline !== undefined || !this.#storing) return;
    try {
      if (cached.whole && (sha256 === undefined || cached.whole.sha256 === sha256)) return;
      if (!(await cached.allThere())) return;
      const found = sha256 ?? (await this.#wholeHash(open));
      if (found !== undefined && open.sha256 !== undefined && found !== open.sha256) {
        this.#files.delete(file);
        await cached.remove();
        throw ioError(
          `the downloaded copy of ${file} of ${this.name} is damaged: its SHA-256 is ${found}; the server says ${open.sha256}. ` +
            `It has been deleted; load the model again`,
        );
      }
      await cached.settle(found === undefined ? {} : { sha256: found });
      await cached.removeOthers();
    } catch (error) {
      if (error instanceof SplitkvError) throw error;
      this.#stopStoring(error);
    }
  }

  /** What a complete file hashes to, where there is something to compare it with. */
  async #wholeHash(open: StoredFile): Promise<string | undefined> {
    if (open.sha256 === undefined) return undefined;
    const hash = open.hash ?? new (await import('../sources/whole_hash.js')).WholeHash();
    open.hash = undefined;
    for (let piece = hash.next; piece < open.cached.pieces; piece++) {
      const bytes = await open.cached.read(piece, 0, PIECE_BYTES);
      if (!bytes) return undefined; // gone meanwhile
      hash.add(piece, bytes);
    }
    return hash.digest();
  }

  /** Asks the server for size and version once a file; undefined when it is missing. */
  async #open(file: string, signal: AbortSignal | undefined): Promise<OpenFile | undefined> {
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
    let found: Pick<OpenFile, 'size' | 'version' | 'sha256'> | undefined;
    try {
      found = await this.#ask(file, signal);
    } catch (error) {
      if (!(error instanceof SplitkvError) || error.code !== 'io') throw error;
      this.#offline = error;
      try {
        const opened = await this.#openOffline(file);
        const why = / answered HTTP \d/.test(error.message) ? 'the server refuses it' : "the server can't be reached";
        this.#tellOnce(`using the cached copy of ${this.name}, because ${why}: ${error.message}`);
        return opened;
      } catch {
        this.#offline = undefined;
        throw error;
      }
    }
    if (!found) return this.#openAbsent(file);
    let cached: CachedFile | undefined;
    const { version } = found;
    try {
      if (version !== undefined)
        cached = await (this.#storing ? CachedFile.open : CachedFile.find)(this.#folder, { file, ...found, version });
    } catch (error) {
      throwIfAborted(signal, `reading ${file}`);
      this.#stopStoring(error);
    }
    if (version === undefined && this.#storing) {
      const unknown = 'its server sends no ETag, Last-Modified or SHA-256, by which a change could be seen';
      this.#tellOnce(`${this.name} is not cached, and will be downloaded again next time: ${unknown}`);
    }
    const checks = found.sha256 !== undefined && cached && !cached.whole && this.#storing;
    const hash = checks ? new (await import('../sources/whole_hash.js')).WholeHash() : undefined;
    return { file, ...found, cached, pending: new Map(), offline: undefined, hash };
  }

  async #ask(
    file: string,
    signal: AbortSignal | undefined,
  ): Promise<Pick<OpenFile, 'size' | 'version' | 'sha256'> | undefined> {
    const size = await this.#source.size(file, signal);
    if (size === undefined) return undefined;
    const sha256 = await this.#source.sha256?.(file, signal);
    const version = await this.#source.version(file, signal);
    if (sha256 === undefined) return { size, version };
    return { size, version: version ?? `sha256 ${sha256}`, sha256 };
  }

  /** A file that the server says it doesn't have. One that was cached stays: what servers say is often wrong. */
  async #openAbsent(file: string): Promise<OpenFile | undefined> {
    const cached = await this.#fullest(file).catch(() => undefined);
    if (cached && (cached.bytes > 0 || cached.complete)) {
      const absence = this.absence(file) ?? `${this.name} has no ${file}`;
      this.#tellOnce(
        `using the cached copy of ${this.name}, because the server no longer has all of it: ${absence}`,
        'absent',
      );
      return offlineFile(cached, ioError(absence));
    }
    if (this.#storing) await noteMissing(this.#folder, file).catch(() => {});
    return undefined;
  }

  /** The fullest cached version; throws when there is none and nothing is known of the file. */
  async #openOffline(file: string): Promise<OpenFile | undefined> {
    const cached = await this.#fullest(file);
    if (cached) return offlineFile(cached, this.#offline);
    if (await isNotedMissing(this.#folder, file)) return undefined;
    throw ioError(`${file} of ${this.name} is not in the cache, and the server can't be reached`, this.#offline);
  }

  async #fullest(file: string): Promise<CachedFile | undefined> {
    const versions = await CachedFile.versions(this.#folder, file);
    return versions.sort((a, b) => Number(b.complete) - Number(a.complete) || b.bytes - a.bytes)[0];
  }

  #notCached({ cached, file, size, offline }: StoredFile, piece: number): SplitkvError {
    const why = offline instanceof SplitkvError ? ` (${offline.message})` : '';
    if (cached.damaged.has(piece)) {
      return ioError(
        `the downloaded copy of ${file} of ${this.name} is damaged: ${notAsStored(piece)}, and the server can't be asked for ` +
          `them again${why}. Load the model again with a connection; that mends it`,
        offline,
      );
    }
    return ioError(
      `the server of ${this.name} can't be reached and the cache holds only ${formatBytes(cached.bytes)} of the ${formatBytes(size)} of ${file}${why}; ` +
        `load once more with a connection to complete it`,
      offline,
    );
  }

  #stopStoring(error: unknown): void {
    this.#storing = false;
    this.#options.onWarning?.(
      `${this.name} is not cached any further, and the rest will be downloaded again next time: ${reason(error)}`,
    );
  }

  /** @param subject what is told once: by default this very message */
  #tellOnce(message: string, subject = message): void {
    if (this.#told.has(subject)) return;
    this.#told.add(subject);
    this.#options.onWarning?.(message);
  }
}

const isStored = (open: OpenFile): open is StoredFile => open.cached !== undefined;

const offlineFile = (cached: CachedFile, offline: unknown): OpenFile => ({
  ...cached.manifest,
  cached,
  pending: new Map(),
  offline,
  hash: undefined,
});

/** Short ranges of a file at random, spread evenly over [0, size); fewer that are all of it where it is small. */
function randomBlocks(size: number): (readonly [start: number, end: number])[] {
  const blocks = Math.min(COMPARED_BLOCKS, Math.ceil(size / BLOCK_BYTES));
  return spreadEvenly(size, blocks).map(([low, high]) => {
    const start = low + Math.floor(Math.random() * Math.max(0, high - low - BLOCK_BYTES + 1));
    return [start, Math.min(high, start + BLOCK_BYTES)];
  });
}

const notAsStored = (piece: number): string =>
  `the bytes from ${piece * PIECE_BYTES} on are not those that were stored`;

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Chrome closes the pipe of a write that goes over the quota; where the write sees that first, it says no more than this.
  const full = error.name === 'QuotaExceededError' || /\bdata pipe\b/.test(error.message);
  if (full) return "the browser's storage for this site is full";
  return error.message || error.name;
}
