import { sum, valueIn } from '../../base/lists.js';
import { ceilDiv } from '../../base/math.js';
import {
  type CacheDirectory,
  cacheNames,
  hashName,
  readCacheFile,
  readCacheObject,
  removeCacheEntry,
  writeCacheFile,
} from './opfs.js';

/** Bytes of a piece; the last one of a file is shorter. */
export const PIECE_BYTES = 4 * 1024 * 1024;

/** One version of one file, as file.json says it, and what tells it from another. */
export interface FileManifest {
  readonly file: string;
  readonly size: number;
  /** The server's validator, or the SHA-256 where it sends that alone. */
  readonly version: string;
  /** Of the whole file, in hex, where the server tells it. */
  readonly sha256?: string | undefined;
}

const MANIFEST = 'file.json';
/** There once the file was whole and had passed its checks: a `Whole`. */
const WHOLE = 'whole.json';
const LAYOUT = 2;
const DIGEST_BYTES = 32;

export interface Whole {
  /** Of all of it in hex, where it was computed. */
  readonly sha256?: string;
}

/**
 * One version of one file in the cache: a folder of file.json and the pieces present, each a file named by its number that holds
 * the piece's bytes and then their SHA-256. A version has a folder of its own and a piece appears whole or not at all, so tabs
 * that load the same model, or two versions of it, can't spoil each other's, and a load that is cut short goes on where it stopped.
 */
export class CachedFile {
  readonly #present = new Set<number>();
  readonly #verified = new Set<number>();
  readonly #checks = new Map<number, Promise<Uint8Array<ArrayBuffer> | undefined>>();
  readonly #damaged = new Set<number>();
  #whole: Whole | undefined;

  /** @param name of the folder, below the model's */
  private constructor(
    readonly manifest: FileManifest,
    readonly name: string,
    private readonly model: CacheDirectory,
    private readonly directory: CacheDirectory,
  ) {}

  /**
   * The folder of this version below the model's folder, made when there is none. Other versions stay, but for what was begun of
   * them and is less than another holds.
   */
  static async open(model: CacheDirectory, manifest: FileManifest): Promise<CachedFile> {
    const { file, size, version, sha256 } = manifest;
    const versions = await CachedFile.versions(model, file);
    const same = versions.find((cached) => isSame(cached.manifest, manifest));
    // Chromium refuses to remove an entry that another tab or worker is just removing: then it is gone as well.
    if (await isNotedMissing(model, file)) await removeCacheEntry(model, await missingName(file)).catch(() => {});
    const others = versions.filter((cached) => cached !== same && !cached.complete).sort((a, b) => b.bytes - a.bytes);
    for (const other of versions.some(({ complete }) => complete) ? others : others.slice(1)) await other.remove();
    if (same) return same;
    const name = `${await filePrefix(file)}${await hashName(JSON.stringify([LAYOUT, size, version, sha256]), 16)}`;
    const wanted = JSON.stringify({ layout: LAYOUT, pieceBytes: PIECE_BYTES, ...manifest });
    let directory = await model.getDirectoryHandle(name, { create: true });
    const text = await (await readCacheFile(directory, MANIFEST))?.text();
    if (text !== wanted) {
      // None yet: perhaps another tab is just making it. Anything else can't be trusted, nor can the pieces.
      if (text !== undefined) {
        await removeCacheEntry(model, name);
        directory = await model.getDirectoryHandle(name, { create: true });
      }
      await writeCacheFile(directory, MANIFEST, new TextEncoder().encode(wanted));
    }
    return new CachedFile(manifest, name, model, directory).#look();
  }

  static async find(model: CacheDirectory, manifest: FileManifest): Promise<CachedFile | undefined> {
    return (await CachedFile.versions(model, manifest.file)).find((cached) => isSame(cached.manifest, manifest));
  }

  static async versions(model: CacheDirectory, file?: string): Promise<CachedFile[]> {
    const prefix = file === undefined ? undefined : await filePrefix(file);
    const versions: CachedFile[] = [];
    for (const name of await cacheNames(model)) {
      if (!name.includes('.') || name.endsWith(MISSING) || name.endsWith('.json')) continue;
      if (prefix !== undefined && !name.startsWith(prefix)) continue;
      const cached = await CachedFile.#read(model, name);
      if (cached) versions.push(cached);
    }
    return versions;
  }

  /** Undefined where there is no manifest, perhaps not yet, or one that makes no sense. */
  static async #read(model: CacheDirectory, name: string): Promise<CachedFile | undefined> {
    let directory: CacheDirectory;
    let found: Record<string, unknown> | undefined;
    try {
      directory = await model.getDirectoryHandle(name);
      found = await readCacheObject(directory, MANIFEST);
    } catch {
      return undefined; // another tab is just removing or writing it
    }
    const { file, size, version, sha256, pieceBytes, layout } = found ?? {};
    if (typeof file !== 'string' || typeof version !== 'string' || !Number.isSafeInteger(size)) return undefined;
    if (layout !== LAYOUT || pieceBytes !== PIECE_BYTES) return undefined;
    const manifest = { file, size: size as number, version, ...(typeof sha256 === 'string' && { sha256 }) };
    return new CachedFile(manifest, name, model, directory).#look();
  }

  get pieces(): number {
    return ceilDiv(this.manifest.size, PIECE_BYTES);
  }

  get complete(): boolean {
    return this.#present.size === this.pieces;
  }

  get bytes(): number {
    return sum(Array.from(this.#present, (piece) => this.pieceLength(piece)));
  }

  /** It was complete once and passed its checks. */
  get whole(): Whole | undefined {
    return this.#whole;
  }

  /** Pieces whose bytes were not those that were stored, until they are written again. */
  get damaged(): ReadonlySet<number> {
    return this.#damaged;
  }

  has(piece: number): boolean {
    return this.#present.has(piece);
  }

  pieceLength(piece: number): number {
    return Math.max(0, Math.min(PIECE_BYTES, this.manifest.size - piece * PIECE_BYTES));
  }

  /** Whether a piece is there in its full length, perhaps stored by another tab a moment ago. Its content isn't looked at. */
  async find(piece: number): Promise<boolean> {
    if (this.#damaged.has(piece)) return false;
    const found = (await this.#stored(piece)) !== undefined;
    if (found) this.#present.add(piece);
    else this.#present.delete(piece);
    return found;
  }

  /**
   * Bytes [start, end) of a piece. Undefined when it is gone, isn't whole or is damaged, and then it is no longer counted as
   * present. The first read of a piece checks all of it against its digest.
   */
  async read(piece: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    try {
      if (!this.#verified.has(piece)) return (await this.#verify(piece))?.subarray(start, end);
      const stored = await this.#stored(piece);
      if (stored) return new Uint8Array(await stored.slice(start, end).arrayBuffer());
    } catch {
      // Evicted, deleted or being replaced by another tab: whatever it is, the bytes are to be had from the server.
    }
    this.#present.delete(piece);
    return undefined;
  }

  /** Whether a piece still is what was stored; read anew. */
  async check(piece: number): Promise<boolean> {
    this.#verified.delete(piece);
    return (await this.read(piece, 0, 0)) !== undefined;
  }

  async write(piece: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    if (this.#whole) {
      await removeCacheEntry(this.directory, WHOLE);
      this.#whole = undefined;
    }
    await writeCacheFile(this.directory, String(piece), bytes, digestOf(bytes));
    this.#present.add(piece);
    this.#verified.delete(piece);
    this.#damaged.delete(piece);
  }

  async allThere(): Promise<boolean> {
    for (let piece = 0; piece < this.pieces; piece++) if (!(await this.find(piece))) return false;
    return true;
  }

  async settle(whole: Whole): Promise<void> {
    await writeCacheFile(this.directory, WHOLE, new TextEncoder().encode(JSON.stringify(whole)));
    this.#whole = whole;
  }

  async remove(): Promise<void> {
    // Where another tab holds it open the browser may refuse: a later load tries again.
    await removeCacheEntry(this.model, this.name).catch(() => {});
  }

  async removeOthers(): Promise<void> {
    const prefix = await filePrefix(this.manifest.file);
    for (const name of await cacheNames(this.model)) {
      if (name.startsWith(prefix) && name !== this.name) await removeCacheEntry(this.model, name).catch(() => {});
    }
  }

  /** The piece as it is on the disk, with its digest; undefined when it isn't whole. */
  async #stored(piece: number): Promise<Blob | undefined> {
    const stored = await readCacheFile(this.directory, String(piece));
    return stored?.size === this.pieceLength(piece) + DIGEST_BYTES ? stored : undefined;
  }

  /** The whole piece; readers at the same time share the work. */
  #verify(piece: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return valueIn(this.#checks, piece, () => this.#verifyAnew(piece).finally(() => this.#checks.delete(piece)));
  }

  async #verifyAnew(piece: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const stored = await this.#stored(piece);
    const all = stored && new Uint8Array(await stored.arrayBuffer());
    const length = this.pieceLength(piece);
    const digest = all && (await digestOf(all.subarray(0, length)));
    if (all && digest?.every((byte, at) => byte === all[length + at])) {
      this.#present.add(piece);
      this.#verified.add(piece);
      return all.subarray(0, length);
    }
    if (all) this.#damaged.add(piece);
    this.#present.delete(piece);
    return undefined;
  }

  async #look(): Promise<this> {
    for (const name of await cacheNames(this.directory)) if (/^\d+$/.test(name)) this.#present.add(Number(name));
    const whole = await readCacheObject(this.directory, WHOLE);
    if (whole) this.#whole = typeof whole['sha256'] === 'string' ? { sha256: whole['sha256'] } : {};
    return this;
  }
}

/** Remembers, for a later load without the server, that the model has no such file. */
export async function noteMissing(model: CacheDirectory, file: string): Promise<void> {
  await model.getDirectoryHandle(await missingName(file), { create: true });
}

export async function isNotedMissing(model: CacheDirectory, file: string): Promise<boolean> {
  return (await cacheNames(model)).includes(await missingName(file));
}

/** Digests are the stronger sign: a validator may change where the content doesn't. */
const isSame = (a: FileManifest, b: FileManifest): boolean =>
  a.size === b.size &&
  (a.sha256 !== undefined && b.sha256 !== undefined ? a.sha256 === b.sha256 : a.version === b.version);

const MISSING = '.missing';

const filePrefix = async (file: string): Promise<string> => `${await hashName(file, 16)}.`;
const missingName = async (file: string): Promise<string> => `${await hashName(file, 16)}${MISSING}`;

async function digestOf(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
}
