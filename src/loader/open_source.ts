import { ioError, SplitkvError, usageError } from '../base/errors.js';
import { show } from '../base/json.js';
import { baseAddress, isNode } from '../base/platform.js';
import type { CachedModel } from './cache/cache_list.js';
import type { CacheOptions } from './cache/cached_source.js';
import { blobSource, fileListSource, packagedSource } from './sources/file_list_source.js';
import { findGguf, ggufSource, isGgufName } from './gguf/file.js';
import type { HttpOptions } from './sources/http_request.js';
import { checkNetwork, HUB, HUB_SHORT, httpOptionsOf, hubForm, type NetworkOptions } from './hub/hub_options.js';
import { missingFile, type OnProgress, type Source } from './source.js';

export interface OpenOptions extends NetworkOptions, Pick<HttpOptions, 'onBytes' | 'onWait'> {
  /** The commit of the Hub's that was found before. */
  readonly commit?: string | undefined;
  /** Node: a model of the Hub is downloaded whole, into the cache that all of its tools share. */
  readonly whole?: boolean | undefined;
  /** Of a GGUF model its encoder of images is wanted, too: the file, or the one beside it. */
  readonly images?: boolean | string | undefined;
  /** Of a folder that holds something else than a model: its files, the first of which shows what it is. */
  readonly files?: readonly [string, ...string[]] | undefined;
  /** Reads of a model by ranges what shows that it runs here, before it is downloaded whole. */
  readonly look?: ((source: Source) => Promise<unknown>) | undefined;
  /** Files that are downloaded with them, where there are such. */
  readonly also?: readonly string[] | undefined;
  /** Told of that download. */
  readonly onProgress?: OnProgress | undefined;
  readonly onWarning?: ((message: string) => void) | undefined;
}

/**
 * A model folder or a GGUF file: in Node a path or an http(s) or file URL; in browsers a URL (a relative one is resolved against
 * the page; of an extension's package or a blob, too) or files somebody chose; anywhere a Source, or a model of the Hugging Face Hub
 * or of the catalog by its name (hub/hub_options.ts); a folder or file of that name wins. Throws `io` unless it is a GGUF
 * file, or a folder that holds a config.json or one GGUF model (a URL has to name the file: servers don't list folders). A server that can't be reached is no error yet:
 * cachedSource may have a copy, and the first read without one says what failed.
 * @param through wraps the source before it is asked for anything, as cachedSource does
 */
export async function openSource(
  where: string | URL | readonly File[] | Source,
  signal?: AbortSignal,
  options: OpenOptions = {},
  through: (source: Source) => Promise<Source> = async (source) => source,
): Promise<Source> {
  checkNetwork(options);
  const found = await sourceOf(where, options, signal);
  const wrapped = await through(found);
  const source = found.at === undefined || wrapped === found ? wrapped : Object.assign(wrapped, { at: found.at });
  const [mustHave] = options.files ?? ['config.json'];
  const isFolder = await isThere(source, source.gguf ?? mustHave, signal);
  if (isFolder && (source.gguf ?? options.files)) return source;
  if (source.gguf !== undefined) throw missingFile(source, source.gguf);
  // Repositories of GGUF files often have a config.json, too.
  const gguf = findGguf((await source.list?.()) ?? [], source.name);
  if (gguf !== undefined) return ggufSource(source, gguf);
  if (isFolder) return source;
  const absence = source.absence?.(mustHave);
  const folder = options.files
    ? `a folder with ${options.files.join(' and ')}`
    : 'a model folder as Hugging Face lays it out: config.json, tokenizer.json, and model.safetensors or ' +
      'model.safetensors.index.json with its shards';
  throw ioError(
    `${source.name} has no ${mustHave}; expected ${folder}; or a .gguf file${absence === undefined ? '' : `. ${absence}`}`,
  );
}

async function isThere(source: Source, file: string, signal: AbortSignal | undefined): Promise<boolean> {
  try {
    return (await source.size(file, signal)) !== undefined;
  } catch (error) {
    if (source.url !== undefined && error instanceof SplitkvError && error.code === 'io') return true;
    throw error;
  }
}

async function sourceOf(
  where: string | URL | readonly File[] | Source,
  options: OpenOptions,
  signal: AbortSignal | undefined,
): Promise<Source> {
  if (Array.isArray(where)) {
    if (where.length === 0) throw usageError('no files were given; expected the files of a model folder');
    return fileListSource(where as readonly File[]);
  }
  if (typeof where !== 'string' && !(where instanceof URL)) {
    // Of a program without types, or a lone file.
    if (typeof (where as Partial<Source> | undefined)?.size === 'function') return where as Source;
    throw usageError(`nothing can be loaded from ${show(where)}; expected a name, a path or URL, or an array of files`);
  }
  if (where === '') throw usageError('the model folder is an empty string; expected a path or URL');
  const url = where instanceof URL ? where : absoluteUrl(where);
  const text = String(where);
  const form = hubForm(text);
  const http = httpOptionsOf(options);
  const hubs = [HUB, HUB_SHORT, options.hub ?? (isNode() && process.env['HF_ENDPOINT'])];
  if (form !== undefined || hubs.some((hub) => hub && url?.href.startsWith(String(hub)))) {
    const here = url && ((patience: HttpOptions): Promise<Source> => overHttp(url, { ...http, ...patience }));
    const named = await (
      await import('./hub/open_hub.js')
    ).openNamed(form ? text : url!.href, form, options, signal, here);
    if (named) return named;
  }
  if (url && /^https?:$/.test(url.protocol)) return overHttp(url, http);
  if (url?.protocol === 'blob:') return blobSource(url, signal);
  if (url && EXTENSION.test(url.protocol)) return urlSource(url, packagedSource);
  if (!isNode()) throw usageError(`${String(where)}: expected an http, https, extension or blob URL, or files`);
  if (url && url.protocol !== 'file:')
    throw usageError(`${url.href}: expected a path, or a URL with http, https or file`);
  const { directorySource } = await import('./sources/node_files.js');
  return directorySource(url ?? (where as string));
}

/** URLs of files of an extension's package. */
const EXTENSION = /^[a-z]+(-[a-z]+)*-extension:$/;

/** A page whose models are files that somebody chose doesn't download what fetches others. */
async function overHttp(url: URL, http: HttpOptions): Promise<Source> {
  const { httpSource } = await import('./sources/http_source.js');
  return urlSource(url, (folder) => httpSource(folder, http));
}

function urlSource(url: URL, open: (folder: URL) => Source): Source {
  if (!isGgufName(url.pathname)) return open(url);
  const folder = new URL('.', url);
  folder.search = url.search; // a signature goes with every request
  return ggufSource(open(folder), decodeURIComponent(url.pathname.split('/').at(-1) ?? ''));
}

/** The URL that the text is, or that it means on this page; undefined for a path. A drive letter is no scheme. */
function absoluteUrl(where: string): URL | undefined {
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(where)) return URL.canParse(where) ? new URL(where) : undefined;
  const page = baseAddress();
  return page === undefined ? undefined : new URL(where, page);
}

// What comes with the first model that is loaded over the network, or the first question about those that are kept.

/** See cached_source.ts. */
export async function cachedSource(source: Source, options: CacheOptions = {}): Promise<Source> {
  if (source.url === undefined) return source;
  return (await import('./cache/cached_source.js')).cachedSource(source, options);
}

/** What is kept of a model that comes from this URL. Throws as listCached. */
export async function findCached(url: string): Promise<CachedModel | undefined> {
  return (await import('./cache/cache_list.js')).findCached(url);
}

/**
 * What this origin keeps: models, adapters, prompts' keys and values. Throws `Error` where the browser has no storage for it.
 *
 * @example
 * ```ts
 * import { deleteCached, listCached } from 'splitkv';
 *
 * for (const { url, complete } of await listCached()) if (!complete) await deleteCached(url);
 * ```
 */
export async function listCached(): Promise<CachedModel[]> {
  return (await import('./cache/cache_list.js')).listCached();
}

/** Removes what the URL that listCached gives names; without one, all of it. True when there was something. */
export async function deleteCached(url?: string): Promise<boolean> {
  return (await import('./cache/cache_list.js')).deleteCached(url);
}
