import type { CachedModel } from './cache_list.js';
import type { CacheOptions } from './cached_source.js';
import type { CacheDirectory } from './opfs.js';
import type { Source } from '../source.js';

/** What comes with the first model that is loaded over the network, or the first question about those that are kept. */

/** See cached_source.ts. */
export async function cachedSource(source: Source, options: CacheOptions = {}): Promise<Source> {
  if (source.url === undefined) return source;
  return (await import('./cached_source.js')).cachedSource(source, options);
}

/**
 * The models in this origin's cache. Throws `Error` where the browser has no storage for it.
 *
 * @example
 * ```ts
 * import { deleteCached, listCached } from 'splitkv';
 *
 * for (const { url, complete } of await listCached()) if (!complete) await deleteCached(url);
 * ```
 */
export async function listCached(folder?: CacheDirectory): Promise<CachedModel[]> {
  return (await import('./cache_list.js')).listCached(folder);
}

/** Removes a model from the cache, by the URL that listCached gives; without one, all of them. True when there was something. */
export async function deleteCached(url?: string, folder?: CacheDirectory): Promise<boolean> {
  return (await import('./cache_list.js')).deleteCached(url, folder);
}
