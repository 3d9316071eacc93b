import { throwIfAborted } from '../../base/errors.js';
import { isObject, parsed } from '../../base/json.js';
import { sha256 } from '../../base/math.js';

/**
 * The part of the origin private file system that the cache uses: FileSystemDirectoryHandle fits it, and so does the
 * in-memory one of the tests. Only the asynchronous interface, which works on the main thread and in workers.
 */
export interface CacheDirectory {
  getDirectoryHandle(name: string, options?: { create?: boolean }): Promise<CacheDirectory>;
  getFileHandle(name: string, options?: { create?: boolean }): Promise<CacheFileHandle>;
  removeEntry(name: string, options?: { recursive?: boolean }): Promise<void>;
  keys(): AsyncIterable<string>;
}

export interface CacheFileHandle {
  getFile(): Promise<Blob>;
  /** What is written replaces the file when the writable is closed, at once; until then the file stays as it was. */
  createWritable(): Promise<CacheWritable>;
}

export interface CacheWritable {
  write(data: Uint8Array<ArrayBuffer>): Promise<void>;
  close(): Promise<void>;
  abort(): Promise<void>;
}

const FOLDER = 'splitkv-models';
/** What the names of folders of keys and values begin with, beside that one. */
export const KV_FOLDER = 'splitkv-kv-';

/** The folder of all cached models in this origin's private file system. Throws where there is none (no secure context, private mode). */
export async function openCacheFolder(): Promise<CacheDirectory> {
  const storage = globalThis.navigator?.storage;
  if (typeof storage?.getDirectory !== 'function') {
    throw new Error(
      globalThis.isSecureContext === false
        ? 'the page is not served over https or from localhost'
        : 'no origin private file system',
    );
  }
  return (await storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
}

let asked = false;
/** Asks once that the browser doesn't clear what is kept here when room gets short; where it doesn't grant it, nothing changes. */
export function keepStorage(): void {
  // Pages can ask, workers can't.
  const storage = globalThis.navigator?.storage as Partial<StorageManager> | undefined;
  if (asked || !storage?.persist) return;
  asked = true;
  storage.persist().catch(() => {});
}

/** Replaces a file in one step: other tabs and later visits see the old one or all of the new one. */
export async function writeCacheFile(
  directory: CacheDirectory,
  name: string,
  ...data: readonly (Uint8Array<ArrayBuffer> | Promise<Uint8Array<ArrayBuffer>>)[]
): Promise<void> {
  keepStorage();
  const writable = await (await directory.getFileHandle(name, { create: true })).createWritable();
  try {
    for (const part of data) await writable.write(await part);
  } catch (error) {
    await writable.abort().catch(() => {});
    throw error;
  }
  await writable.close();
}

/** The file, or undefined when there is none or it is empty: one whose writing was cut short. */
export async function readCacheFile(directory: CacheDirectory, name: string): Promise<Blob | undefined> {
  const file = await ifThere(directory.getFileHandle(name).then((handle) => handle.getFile()));
  return file?.size === 0 ? undefined : file;
}

export async function readCacheObject(
  directory: CacheDirectory,
  name: string,
): Promise<Record<string, unknown> | undefined> {
  const text = (await (await readCacheFile(directory, name))?.text()) ?? '';
  const value = parsed(text);
  return isObject(value) ? value : undefined;
}

export async function removeCacheEntry(directory: CacheDirectory, name: string): Promise<void> {
  await ifThere(directory.removeEntry(name, { recursive: true }));
}

export async function cacheNames(directory: CacheDirectory): Promise<string[]> {
  const names: string[] = [];
  for await (const name of directory.keys()) names.push(name);
  return names;
}

/** What the work gives; undefined where what it is about isn't there. */
export const ifThere = <T>(work: Promise<T>): Promise<T | undefined> =>
  work.catch((error: unknown) => {
    if (error instanceof Error && error.name === 'NotFoundError') return undefined;
    throw error;
  });

/** `digits` hexadecimal digits of the SHA-256 of a text or of bytes: any of them makes a file name of it. */
export async function hashName(data: string | Uint8Array<ArrayBuffer>, digits = 32): Promise<string> {
  return (await sha256(typeof data === 'string' ? new TextEncoder().encode(data) : data)).slice(0, digits);
}

export type Locks = Pick<LockManager, 'request'>;

/** Lets the lock go; more than once does no harm. */
export type Release = () => void;

/**
 * Waits for a lock that one tab or worker of the origin holds at a time. The browser takes it from a tab that dies.
 * Where there are no locks nobody waits. Throws `aborted`.
 */
export async function holdLock(
  locks: Locks | undefined,
  name: string,
  signal: AbortSignal | undefined,
  what: string,
): Promise<Release> {
  throwIfAborted(signal, what);
  try {
    return (await request(locks, name, signal === undefined ? {} : { signal })) ?? (() => {});
  } catch {
    throwIfAborted(signal, what);
    return () => {}; // no locks for this page, so that others may fetch the same: wasteful, and no error
  }
}

/** The lock where nobody holds it now, otherwise undefined. */
export async function tryLock(locks: Locks | undefined, name: string): Promise<Release | undefined> {
  try {
    return await request(locks, name, { ifAvailable: true });
  } catch {
    return () => {};
  }
}

async function request(locks: Locks | undefined, name: string, options: LockOptions): Promise<Release | undefined> {
  if (!locks) return () => {};
  return new Promise((resolve, reject) => {
    const held = locks.request(name, options, (lock) => {
      if (lock === null) return resolve(undefined);
      return new Promise<void>((release) => resolve(release));
    });
    Promise.resolve(held).catch(reject);
  });
}
