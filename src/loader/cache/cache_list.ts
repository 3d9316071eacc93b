import { CachedFile } from './cached_file.js';
import {
  type CacheDirectory,
  cacheNames,
  hashName,
  ifThere,
  openCacheFolder,
  readCacheObject,
  removeCacheEntry,
  writeCacheFile,
} from './opfs.js';

export interface CachedModel {
  readonly url: string;
  /** Bytes in the cache. */
  readonly bytes: number;
  /** Whether every file that was opened is there to its last byte, weights among them: then it loads without the server. */
  readonly complete: boolean;
}

const ENTRY = 'entry.json';

/** The folder of one model, below the cache's; made when there is none. */
export async function openModelFolder(folder: CacheDirectory, url: string): Promise<CacheDirectory> {
  const model = await folder.getDirectoryHandle(await hashName(url), { create: true });
  if ((await readUrl(model)) !== url)
    await writeCacheFile(model, ENTRY, new TextEncoder().encode(JSON.stringify({ url })));
  return model;
}

/** The same, or undefined when there is none. */
export const findModelFolder = async (folder: CacheDirectory, url: string): Promise<CacheDirectory | undefined> =>
  ifThere(folder.getDirectoryHandle(await hashName(url)));

/** The models in this origin's cache. Throws `Error` where the browser has no storage for it. */
export async function listCached(folder?: CacheDirectory): Promise<CachedModel[]> {
  const models: CachedModel[] = [];
  const cache = folder ?? (await openCacheFolder());
  for (const name of await cacheNames(cache)) {
    const model = await cache.getDirectoryHandle(name);
    const url = await readUrl(model);
    const files = await CachedFile.versions(model);
    models.push({
      url: url ?? `(unknown ${name})`,
      bytes: files.reduce((sum, file) => sum + file.bytes, 0),
      complete:
        url !== undefined &&
        files.every((file) => file.complete) &&
        files.some((file) => /\.(safetensors|gguf)$/i.test(file.manifest.file)),
    });
  }
  return models;
}

/** Removes a model from the cache, by the URL that listCached gives; without one, all of them. True when there was something. */
export async function deleteCached(url?: string, folder?: CacheDirectory): Promise<boolean> {
  const cache = folder ?? (await openCacheFolder());
  const names = await cacheNames(cache);
  const wanted = url === undefined ? undefined : (/^\(unknown (\w+)\)$/.exec(url)?.[1] ?? (await hashName(url)));
  const found = names.filter((name) => wanted === undefined || name === wanted);
  for (const name of found) await removeCacheEntry(cache, name);
  return found.length > 0;
}

async function readUrl(model: CacheDirectory): Promise<string | undefined> {
  const { url } = (await readCacheObject(model, ENTRY).catch(() => undefined)) ?? {};
  return typeof url === 'string' ? url : undefined;
}
