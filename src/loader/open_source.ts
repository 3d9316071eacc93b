import { SplitkvError, usageError } from '../base/errors.js';
import { fileListSource } from './file_list_source.js';
import type { HttpOptions } from './http_request.js';
import { httpSource } from './http_source.js';
import type { Source } from './source.js';

/**
 * A model folder: in Node a path or an http(s) or file URL; in browsers a URL (a relative one is resolved against the page)
 * or the files of a folder somebody chose; anywhere a Source. Throws `io` unless it holds a config.json. A server that
 * can't be reached is no error yet: cachedSource may have a copy, and the first read without one says what failed.
 */
export async function openSource(
  where: string | URL | readonly File[] | Source,
  signal?: AbortSignal,
  http?: HttpOptions,
): Promise<Source> {
  const source = await sourceOf(where, http);
  if (!(await hasConfig(source, signal))) {
    throw new SplitkvError(
      'io',
      `${source.name} has no config.json; expected a model folder as Hugging Face lays it out: ` +
        `config.json, tokenizer.json, and model.safetensors or model.safetensors.index.json with its shards`,
    );
  }
  return source;
}

async function hasConfig(source: Source, signal: AbortSignal | undefined): Promise<boolean> {
  try {
    return (await source.size('config.json', signal)) !== undefined;
  } catch (error) {
    if (source.url !== undefined && error instanceof SplitkvError && error.code === 'io') return true;
    throw error;
  }
}

async function sourceOf(
  where: string | URL | readonly File[] | Source,
  http: HttpOptions | undefined,
): Promise<Source> {
  if (Array.isArray(where)) {
    if (where.length === 0) throw usageError('no files were given; expected the files of a model folder');
    return fileListSource(where as readonly File[]);
  }
  if (typeof where !== 'string' && !(where instanceof URL)) return where as Source;
  if (where === '') throw usageError('the model folder is an empty string; expected a path or URL');
  const url = where instanceof URL ? where : absoluteUrl(where);
  if (url && /^https?:$/.test(url.protocol)) return httpSource(url, http);
  if (!isNode()) throw usageError(`${String(where)}: expected an http or https URL, or files`);
  if (url && url.protocol !== 'file:')
    throw usageError(`${url.href}: expected a path, or a URL with http, https or file`);
  const { directorySource } = await import('./node_files.js');
  return directorySource(url ?? (where as string));
}

/** The URL that the text is, or that it means on this page; undefined for a path. A drive letter is no scheme. */
function absoluteUrl(where: string): URL | undefined {
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(where)) return URL.canParse(where) ? new URL(where) : undefined;
  const page = pageUrl();
  return page === undefined ? undefined : new URL(where, page);
}

/** Of the document, else of the worker. */
const pageUrl = (): string | undefined => globalThis.document?.baseURI ?? globalThis.location?.href;

const isNode = (): boolean => globalThis.process?.versions?.node !== undefined;
