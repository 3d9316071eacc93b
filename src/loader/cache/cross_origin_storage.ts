import { nth } from '../../base/lists.js';
import { inTime } from '../../base/waits.js';
import type { CacheFileHandle } from './opfs.js';

interface FileHash {
  readonly algorithm: 'SHA-256';
  /** In hex, lower case. */
  readonly value: string;
}

/**
 * The part of `navigator.crossOriginStorage` that is used: files by their SHA-256, which sites share and the browser checks when they
 * are written (https://wicg.github.io/cross-origin-storage/). The plural is the proposal's form until spring 2026.
 */
export interface CrossOriginStorage {
  requestFileHandle?(hash: FileHash, options?: { create: true; origins: '*' }): Promise<CacheFileHandle>;
  requestFileHandles?(hashes: readonly FileHash[], options?: { create: true }): Promise<CacheFileHandle[]>;
}

/** A browser may ask the person; who doesn't answer isn't waited for any longer. */
const ANSWER_MS = 10_000;

/** The file of this hash that this site or another one left; undefined where there is none, or it may not be read. */
export async function readShared(storage: CrossOriginStorage, sha256: string, size: number): Promise<Blob | undefined> {
  try {
    const blob = await inTime(
      handleOf(storage, sha256, false).then((handle) => handle.getFile()),
      ANSWER_MS,
    );
    return blob.size === size ? blob : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Leaves a file for other sites.
 * @param pieces its bytes in order
 * @throws where the browser refuses or has no room for it, or the bytes aren't those of the hash
 */
export async function writeShared(
  storage: CrossOriginStorage,
  sha256: string,
  pieces: AsyncIterable<Uint8Array<ArrayBuffer>>,
): Promise<void> {
  const handle = await inTime(handleOf(storage, sha256, true), ANSWER_MS);
  const writable = await handle.createWritable();
  try {
    for await (const piece of pieces) await writable.write(piece);
  } catch (error) {
    await writable.abort().catch(() => {});
    throw error;
  }
  await writable.close();
}

async function handleOf(storage: CrossOriginStorage, value: string, create: boolean): Promise<CacheFileHandle> {
  const hash = { algorithm: 'SHA-256', value } as const;
  if (storage.requestFileHandle) {
    return create ? storage.requestFileHandle(hash, { create, origins: '*' }) : storage.requestFileHandle(hash);
  }
  // Here a file without `origins` is for all.
  const handles = create
    ? await storage.requestFileHandles?.([hash], { create })
    : await storage.requestFileHandles?.([hash]);
  return nth(handles ?? [], 0);
}
