import { tried } from '../../base/errors.js';
import { createReadStream, type Stats } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { extname, join, normalize, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';

const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};

export type Handler = (request: IncomingMessage, response: ServerResponse, next: () => void) => void;

/** What of a folder is served; default: all that lies in it. */
export interface ServedFiles {
  /** Paths in the folder, with slashes. */
  readonly files: ReadonlySet<string>;
  /** Real paths of other folders and files that links may lead to. */
  readonly links: readonly string[];
}

/**
 * Serves the files of a folder under a path prefix: GET and HEAD, one byte range a request (206, 416), ETag with If-None-Match
 * and If-Range. A path outside the folder is 404, like one that isn't there or a link that leads out; other prefixes go on to `next`.
 */
export function serveFiles(prefix: string, folder: string, served?: ServedFiles): Handler {
  const base = prefix.endsWith('/') ? prefix : `${prefix}/`;
  return (request, response, next) => {
    const path = tried(() => decodeURIComponent((request.url ?? '/').replace(/[?#].*$/, '')));
    if (path === undefined || !path.startsWith(base)) return next();
    serve(request, response, folder, path.slice(base.length), served).catch(() => response.destroy());
  };
}

/** The real path of what is asked for, undefined where that isn't served. */
async function fileOf(folder: string, path: string, served: ServedFiles | undefined): Promise<string | undefined> {
  const asked = join(folder, normalize(path));
  if (!isBelow(asked, folder) || path.includes('\0')) return undefined;
  if (served && !served.files.has(path)) return undefined;
  try {
    const [file, real] = await Promise.all([realpath(asked), realpath(folder)]);
    return [real, ...(served?.links ?? [])].some((place) => file === place || isBelow(file, place)) ? file : undefined;
  } catch {
    return undefined;
  }
}

const isBelow = (path: string, folder: string): boolean =>
  path.startsWith(folder.endsWith(sep) ? folder : folder + sep);

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  folder: string,
  path: string,
  served: ServedFiles | undefined,
): Promise<void> {
  if (request.method !== 'GET' && request.method !== 'HEAD') return fail(response, 405);
  const file = await fileOf(folder, path, served);
  const info = file === undefined ? undefined : await stat(file).catch(() => undefined);
  if (file === undefined || !info?.isFile()) return fail(response, 404);

  const etag = `"${info.size.toString(36)}-${Math.round(info.mtimeMs).toString(36)}"`;
  response.setHeader('ETag', etag);
  response.setHeader('Last-Modified', info.mtime.toUTCString());
  response.setHeader('Accept-Ranges', 'bytes');
  response.setHeader('Cache-Control', 'no-cache');
  response.setHeader('Content-Type', TYPES[extname(path)] ?? 'application/octet-stream');
  if (request.headers['if-none-match'] === etag) {
    response.statusCode = 304;
    response.end();
    return;
  }
  const range = rangeOf(request, info, etag);
  if (range === 'unsatisfiable') {
    response.setHeader('Content-Range', `bytes */${info.size}`);
    return fail(response, 416);
  }
  const [start, end] = range ?? [0, info.size - 1];
  if (range) {
    response.statusCode = 206;
    response.setHeader('Content-Range', `bytes ${start}-${end}/${info.size}`);
  }
  response.setHeader('Content-Length', end - start + 1);
  if (request.method === 'HEAD' || info.size === 0) {
    response.end();
    return;
  }
  await pipeline(createReadStream(file, { start, end }), response);
}

/** First and last byte asked for; undefined = the whole file. */
function rangeOf(
  request: IncomingMessage,
  { size }: Stats,
  etag: string,
): [number, number] | 'unsatisfiable' | undefined {
  const { range } = request.headers;
  const ifRange = request.headers['if-range'];
  if (range === undefined || (ifRange !== undefined && ifRange !== etag)) return undefined;
  const match = /^bytes=(\d*)-(\d*)$/.exec(range);
  if (!match || (match[1] === '' && match[2] === '')) return undefined; // several ranges, or another unit: the whole file
  const [, first, last] = match;
  if (first === '') {
    const length = Math.min(Number(last), size);
    return length === 0 ? 'unsatisfiable' : [size - length, size - 1];
  }
  const start = Number(first);
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return start >= size || start > end ? 'unsatisfiable' : [start, end];
}

function fail(response: ServerResponse, status: 404 | 405 | 416): void {
  response.statusCode = status;
  response.setHeader('Content-Type', 'text/plain; charset=utf-8');
  response.end({ 404: 'not found', 405: 'only GET and HEAD', 416: 'range not satisfiable' }[status]);
}
