import { ceilDiv } from '../base/math.js';
import { type CacheDirectory, cacheNames, hashName, readCacheFile, removeCacheEntry, writeCacheFile } from './opfs.js';

/** Bytes of a piece; the last one of a file is shorter. */
export const PIECE_BYTES = 4 * 1024 * 1024;

/** One version of one file, as file.json says it. */
export interface FileManifest {
  readonly file: string;
  readonly size: number;
  readonly version: string;
  readonly pieceBytes: number;
}

const MANIFEST = 'file.json';

/**
 * One version of one file in the cache: a folder of file.json and the pieces present, each a file named by its number.
 * A version has a folder of its own and a piece appears whole or not at all, so tabs that load the same model, or two
 * versions of it, can't spoil each other's, and a load that is cut short goes on where it stopped.
 */
export class CachedFile {
  readonly manifest: FileManifest;
  readonly #directory: CacheDirectory;
  readonly #present: Set<number>;

  private constructor(manifest: FileManifest, directory: CacheDirectory, present: Set<number>) {
    this.manifest = manifest;
    this.#directory = directory;
    this.#present = present;
  }

  /** The folder of this version below the model's folder, made when there is none, made anew when its manifest is corrupt. */
  static async open(model: CacheDirectory, manifest: FileManifest): Promise<CachedFile> {
    const name = `${await filePrefix(manifest.file)}${await hashName(JSON.stringify([manifest.size, manifest.version]), 16)}`;
    let directory = await model.getDirectoryHandle(name, { create: true });
    const text = await (await readCacheFile(directory, MANIFEST))?.text();
    const wanted = JSON.stringify(manifest);
    if (text !== wanted) {
      // None yet: perhaps another tab is just making it. Anything else can't be trusted, nor can the pieces.
      if (text !== undefined) {
        await removeCacheEntry(model, name);
        directory = await model.getDirectoryHandle(name, { create: true });
      }
      await writeCacheFile(directory, MANIFEST, new TextEncoder().encode(wanted));
    }
    await removeOthers(model, manifest.file, name);
    return new CachedFile(manifest, directory, await presentPieces(directory));
  }

  /** Every version of every file in a model's folder whose manifest can be read. */
  static async list(model: CacheDirectory): Promise<CachedFile[]> {
    const files: CachedFile[] = [];
    for (const name of await cacheNames(model)) {
      if (!name.includes('.') || name.endsWith(MISSING) || name.endsWith('.json')) continue;
      const directory = await model.getDirectoryHandle(name);
      const manifest = parseManifest(await (await readCacheFile(directory, MANIFEST))?.text());
      if (manifest) files.push(new CachedFile(manifest, directory, await presentPieces(directory)));
    }
    return files;
  }

  get pieces(): number {
    return ceilDiv(this.manifest.size, PIECE_BYTES);
  }

  get complete(): boolean {
    return this.#present.size === this.pieces;
  }

  /** Bytes present. */
  get bytes(): number {
    let bytes = 0;
    for (const piece of this.#present) bytes += this.pieceLength(piece);
    return bytes;
  }

  has(piece: number): boolean {
    return this.#present.has(piece);
  }

  pieceLength(piece: number): number {
    return Math.max(0, Math.min(PIECE_BYTES, this.manifest.size - piece * PIECE_BYTES));
  }

  /** Bytes [start, end) of a piece; undefined when it is gone or isn't whole, and then it is no longer counted as present. */
  async read(piece: number, start: number, end: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    try {
      const file = await readCacheFile(this.#directory, String(piece));
      if (file?.size === this.pieceLength(piece)) return new Uint8Array(await file.slice(start, end).arrayBuffer());
    } catch {
      // Evicted, deleted or being replaced by another tab: whatever it is, the bytes are to be had from the server.
    }
    this.#present.delete(piece);
    return undefined;
  }

  async write(piece: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    await writeCacheFile(this.#directory, String(piece), bytes);
    this.#present.add(piece);
  }
}

/** Remembers, for a later load without the server, that the model has no such file. */
export async function noteMissing(model: CacheDirectory, file: string): Promise<void> {
  const name = (await filePrefix(file)) + MISSING.slice(1);
  await model.getDirectoryHandle(name, { create: true });
  await removeOthers(model, file, name);
}

export async function isNotedMissing(model: CacheDirectory, file: string): Promise<boolean> {
  return (await cacheNames(model)).includes((await filePrefix(file)) + MISSING.slice(1));
}

const MISSING = '.missing';

const filePrefix = async (file: string): Promise<string> => `${await hashName(file, 16)}.`;

async function removeOthers(model: CacheDirectory, file: string, keep: string): Promise<void> {
  const prefix = await filePrefix(file);
  for (const name of await cacheNames(model)) {
    // Where another tab holds the old version open the browser may refuse: the next load tries again.
    if (name.startsWith(prefix) && name !== keep) await removeCacheEntry(model, name).catch(() => {});
  }
}

async function presentPieces(directory: CacheDirectory): Promise<Set<number>> {
  const pieces = (await cacheNames(directory)).filter((name) => /^\d+$/.test(name)).map(Number);
  return new Set(pieces);
}

function parseManifest(text: string | undefined): FileManifest | undefined {
  try {
    const { file, size, version, pieceBytes } = JSON.parse(text ?? '') as Record<string, unknown>;
    if (
      typeof file !== 'string' ||
      typeof version !== 'string' ||
      !Number.isSafeInteger(size) ||
      pieceBytes !== PIECE_BYTES
    )
      return undefined;
    return { file, size: size as number, version, pieceBytes };
  } catch {
    return undefined;
  }
}
