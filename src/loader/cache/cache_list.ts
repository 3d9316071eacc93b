import { CachedFile } from './cached_file.js';
import {
  type CacheDirectory,
  cacheNames,
  hashName,
  ifThere,
  KV_FOLDER,
  openCacheFolder,
  readCacheFile,
  readCacheObject,
  removeCacheEntry,
  writeCacheFile,
} from './opfs.js';

export type CachedKind = 'model' | 'adapter' | 'kv';

/** What this browser keeps of a model, of an adapter, or of prompts' keys and values. */
export interface CachedModel {
  /** Where it comes from; `kv:NAME` for keys and values, of all models. */
  readonly url: string;
  readonly kind: CachedKind;
  /** Bytes in the cache. */
  readonly bytes: number;
  /** Whether every file that was opened is there to its last byte, weights among them: then it loads without the server. */
  readonly complete: boolean;
}

const ENTRY = 'entry.json';
const KV = 'kv:';

/** The folder of one model or adapter, below the cache's; made when there is none. */
export async function openModelFolder(
  folder: CacheDirectory,
  url: string,
  kind: CachedKind = 'model',
): Promise<CacheDirectory> {
  const model = await folder.getDirectoryHandle(await hashName(url), { create: true });
  if ((await readEntry(model)).url !== url)
    await writeCacheFile(model, ENTRY, new TextEncoder().encode(JSON.stringify({ url, kind })));
  return model;
}

/** The same, or undefined when there is none. */
export const findModelFolder = async (folder: CacheDirectory, url: string): Promise<CacheDirectory | undefined> =>
  ifThere(folder.getDirectoryHandle(await hashName(url)));

/** What is kept of one model or adapter. Throws as listCached. */
export async function findCached(url: string): Promise<CachedModel | undefined> {
  const model = await findModelFolder(await openCacheFolder(), url);
  return model && describe(model, url);
}

/** The names of the files that are kept of one model or adapter. Throws as listCached. */
export async function cachedNames(url: string): Promise<string[]> {
  const model = await findModelFolder(await openCacheFolder(), url);
  return model ? (await CachedFile.versions(model)).map(({ manifest }) => manifest.file) : [];
}

/** The models and adapters that this origin keeps. Throws as listCached. */
export async function cachedFiles(folder?: CacheDirectory): Promise<CachedModel[]> {
  const cache = folder ?? (await openCacheFolder());
  const models: CachedModel[] = [];
  for (const name of await cacheNames(cache))
    models.push(await describe(await cache.getDirectoryHandle(name), `(unknown ${name})`));
  return models;
}

/** What this origin keeps. Throws `Error` where the browser has no storage for it. */
export async function listCached(): Promise<CachedModel[]> {
  const models = await cachedFiles();
  const root = await navigator.storage.getDirectory();
  for (const name of await keptNames(root))
    models.push({ url: KV + name, kind: 'kv', bytes: await bytesIn(root, KV_FOLDER + name), complete: true });
  return models;
}

/** Removes what the URL that listCached gives names; without one, all of it. True when there was something. */
export async function deleteCached(url?: string, folder?: CacheDirectory): Promise<boolean> {
  const cache = folder ?? (await openCacheFolder());
  const names = await cacheNames(cache);
  const wanted = url === undefined ? undefined : (/^\(unknown (\w+)\)$/.exec(url)?.[1] ?? (await hashName(url)));
  const found = names.filter((name) => wanted === undefined || name === wanted);
  for (const name of found) await removeCacheEntry(cache, name);
  if (folder) return found.length > 0;
  const root = await navigator.storage.getDirectory();
  const kept = (await keptNames(root)).filter((name) => url === undefined || url === KV + name);
  for (const name of kept) await removeCacheEntry(root, KV_FOLDER + name);
  return found.length + kept.length > 0;
}

/** The names of the folders of keys and values. */
const keptNames = async (root: CacheDirectory): Promise<string[]> =>
  (await cacheNames(root)).filter((name) => name.startsWith(KV_FOLDER)).map((name) => name.slice(KV_FOLDER.length));

async function bytesIn(root: CacheDirectory, name: string): Promise<number> {
  const folder = await root.getDirectoryHandle(name);
  let bytes = 0;
  for (const file of await cacheNames(folder)) bytes += (await readCacheFile(folder, file))?.size ?? 0;
  return bytes;
}

/** @param unnamed what stands for the address where it can't be read */
async function describe(model: CacheDirectory, unnamed: string): Promise<CachedModel> {
  const { url, kind } = await readEntry(model);
  const files = await CachedFile.versions(model);
  return {
    url: url ?? unnamed,
    kind: kind === 'adapter' ? kind : 'model',
    bytes: files.reduce((sum, file) => sum + file.bytes, 0),
    complete:
      url !== undefined &&
      files.every((file) => file.complete) &&
      files.some((file) => /\.(safetensors|gguf)$/i.test(file.manifest.file)),
  };
}

async function readEntry(model: CacheDirectory): Promise<{ readonly url?: string; readonly kind?: unknown }> {
  const { url, kind } = (await readCacheObject(model, ENTRY).catch(() => undefined)) ?? {};
  return typeof url === 'string' ? { url, kind } : {};
}
