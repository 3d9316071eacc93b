/**
 * Room: the places that a model's bytes come from: a server (here), a folder, files that somebody chose. Each is a
 * Source (../source.ts); verified_source.ts checks what another one gives. Read file_list_source.ts next.
 */

import { ioError, type SplitkvError, usageError, withAbort } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { type Answer, type HttpOptions, isOffline, type Part, request } from './http_request.js';
import { parseSha256 } from './integrity.js';
import { FileSource, type FoundFile, type Source } from '../source.js';

/** What one look at a file tells: most headers and every small file come whole with it. */
const PROBE_BYTES = 64 * 1024;
/** A file of a server without range requests is used when it is at most this big. */
const WHOLE_FILE_BYTES = 32 * 1024 * 1024;

const PATIENCE_MS = 60_000;

interface Probe extends Omit<FoundFile, 'read'> {
  readonly head: Uint8Array<ArrayBuffer>;
  /** False: the server sends whole files only. */
  readonly ranges: boolean;
}

type Extent = Omit<Probe, 'version' | 'sha256'>;

const WEB_PAGE = 'answered with a web page (text/html)';

/**
 * A model folder at an http(s) URL, read by range requests. A query in the URL (a signed link) goes with every file's.
 * 404 and 410 mean that there is no such file; other failures are retried (http_request.ts), then `io`.
 */
export function httpSource(base: string | URL, options: HttpOptions = {}): Source {
  const url = new URL(base);
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw usageError(`${url.href}: expected an http or https URL`);
  return new HttpSource(url, options);
}

class HttpSource extends FileSource {
  readonly name: string;
  readonly url: string;
  readonly #base: URL;
  readonly #options: HttpOptions;
  readonly #probes = new Map<string, Probe>();
  readonly #absences = new Map<string, string>();
  #unreachable = false;
  #reached = false;

  constructor(base: URL, options: HttpOptions) {
    super();
    this.#base = base;
    this.#options = options;
    this.name = this.url = `${base.origin}${base.pathname}`; // without a query: it may hold a secret
  }

  override absence(file: string): string | undefined {
    return this.#absences.get(file);
  }

  readonly isWhole = (file: string): boolean => this.#probes.get(file)?.ranges === false;

  protected async find(file: string, signal: AbortSignal | undefined): Promise<FoundFile | undefined> {
    const probe = await this.#probe(file, signal);
    return probe && { ...probe, read: (start, end) => this.#read(file, probe, start, end, signal) };
  }

  async #read(
    file: string,
    probe: Probe,
    start: number,
    end: number,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array<ArrayBuffer>> {
    if (end <= probe.head.byteLength) return probe.head.slice(start, end);
    const url = this.#url(file);
    if (!probe.ranges) throw this.#noRanges(file, probe.size);
    if (start === end) return new Uint8Array(0);
    const part: Part = { bytes: new Uint8Array(end - start), done: 0 };
    const range = () => ({ range: `bytes=${start + part.done}-${end - 1}` });
    return this.#request(
      url,
      range,
      signal,
      async (answer) => {
        if (isPage(file, answer)) throw ioError(`GET ${url} ${WEB_PAGE} instead of the file`);
        if (answer.status === 200) throw this.#noRanges(file, probe.size);
        if (answer.status !== 206)
          throw unexpected(url, answer.status, `the bytes ${start} to ${end} of ${probe.size}`);
        const from = start + part.done;
        const got = contentRange(url, answer);
        if (got) expectBytes(url, got, from, end);
        const validator = validatorOf(answer);
        if ((got?.total ?? probe.size) !== probe.size || (validator && probe.version && validator !== probe.version)) {
          throw ioError(`${url} has changed while it was being read; load the model again`);
        }
        return answer.fill(part);
      },
      part,
    );
  }

  /** Asked once a file: a file that is missing now may be asked for again. */
  async #probe(file: string, signal: AbortSignal | undefined): Promise<Probe | undefined> {
    const url = this.#url(file);
    const known = this.#probes.get(file);
    if (known) return withAbort(Promise.resolve(known), signal, `GET ${url}`);
    const range = () => ({ range: `bytes=0-${PROBE_BYTES - 1}` });
    const probe = await this.#request(url, range, signal, async (answer) => {
      // Development servers answer any unknown path with their page.
      const page = isPage(file, answer);
      if (answer.status === 404 || answer.status === 410 || page) {
        this.#absences.set(file, `GET ${url} ${page ? WEB_PAGE : `answered HTTP ${answer.status}`}`);
        return undefined;
      }
      const known = { version: validatorOf(answer), sha256: sha256Of(answer) };
      if (answer.status === 416) return { size: 0, ...known, head: new Uint8Array(0), ranges: true }; // an empty file has no range
      if (answer.status === 200) return { ...known, ...(await this.#wholeFile(file, answer)) };
      if (answer.status !== 206) throw unexpected(url, answer.status, 'the file');
      return { ...known, ...(await this.#firstBytes(url, answer, signal)) };
    });
    if (probe) {
      this.#probes.set(file, probe);
      this.#absences.delete(file);
    }
    return probe;
  }

  async #wholeFile(file: string, answer: Answer): Promise<Extent> {
    const length = contentLength(answer);
    if (length === undefined || length <= WHOLE_FILE_BYTES) {
      const head = await answer.bodyUpTo(WHOLE_FILE_BYTES);
      if (head) return { size: head.byteLength, head, ranges: false };
    }
    if (length === undefined) throw this.#noRanges(file, undefined);
    return { size: length, head: new Uint8Array(0), ranges: false };
  }

  async #firstBytes(url: string, answer: Answer, signal: AbortSignal | undefined): Promise<Extent> {
    const range = contentRange(url, answer);
    if (range?.total !== undefined) {
      const expected = Math.min(PROBE_BYTES, range.total);
      expectBytes(url, range, 0, expected);
      return { size: range.total, head: await answer.fill({ bytes: new Uint8Array(expected), done: 0 }), ranges: true };
    }
    // Other origins hide Content-Range unless they expose it; what a GET for all of it is about to send tells the size too.
    const head = await answer.bodyUpTo(PROBE_BYTES);
    if (!head)
      throw ioError(
        `GET ${url} sent more than the ${PROBE_BYTES} bytes asked for; is there a proxy that ignores ranges?`,
      );
    if (head.byteLength < PROBE_BYTES) return { size: head.byteLength, head, ranges: true };
    const size = await this.#request(
      url,
      () => ({ range: 'bytes=0-' }),
      signal,
      async (whole) => (whole.status < 300 ? contentLength(whole) : undefined),
    );
    if (size === undefined) {
      throw ioError(
        `${url}: its size is hidden; the server must send "Access-Control-Expose-Headers: Content-Range, ETag"`,
      );
    }
    return { size, head, ranges: true };
  }

  #noRanges(file: string, size: number | undefined): SplitkvError {
    const bytes = size === undefined ? `more than ${formatBytes(WHOLE_FILE_BYTES)}` : formatBytes(size);
    return ioError(
      `${this.#url(file)} has ${bytes} and its server sends whole files only (HTTP 200 to a request for a range; expected 206). ` +
        `Serve the model with range requests enabled (Accept-Ranges: bytes), e.g. by nginx or npx serve`,
    );
  }

  /** Messages name the URL as requested, without its query. */
  #url(file: string): string {
    const url = new URL(this.#base);
    url.pathname = `${url.pathname.replace(/\/$/, '')}/${file.split('/').map(encodeURIComponent).join('/')}`;
    url.search = '';
    return url.href;
  }

  /** A server that couldn't be reached for all attempts gets one at a time until it answers; one that has answered is waited for. */
  async #request<T>(
    url: string,
    headers: () => Record<string, string>,
    signal: AbortSignal | undefined,
    use: (answer: Answer) => Promise<T>,
    part?: Part,
  ): Promise<T> {
    let reached = false;
    const options = this.#unreachable || isOffline() ? { ...this.#options, attempts: 1 } : this.#options;
    const patienceMs =
      part && this.#reached && !this.#unreachable
        ? (options.patienceMs ?? (this.#options.attempts === undefined ? PATIENCE_MS : 0))
        : 0;
    const reach = (answer: Answer): Promise<T> => {
      reached = this.#reached = true;
      return use(answer);
    };
    try {
      return await request(url, this.#base.search, headers, options, signal, reach, patienceMs, part);
    } finally {
      if (!signal?.aborted) this.#unreachable = !reached;
    }
  }
}

function unexpected(url: string, status: number, what: string): SplitkvError {
  const hint = status === 401 || status === 403 ? '; does the model need a login or an access token?' : '';
  return ioError(`GET ${url} answered HTTP ${status}; expected ${what} (206)${hint}`);
}

function expectBytes(url: string, { start, end }: { start: number; end: number }, from: number, to: number): void {
  if (start === from && end === to) return;
  throw ioError(`GET ${url} sent bytes ${start} to ${end}; expected ${from} to ${to}. Is there a faulty proxy or CDN?`);
}

/** `bytes 0-99/1234`, end exclusive here; undefined when the header is hidden or its total unknown ('*' gives no total). */
function contentRange(
  url: string,
  answer: Answer,
): { start: number; end: number; total: number | undefined } | undefined {
  const value = answer.headers.get('content-range');
  if (value === null) return undefined;
  const match = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15}|\*)$/.exec(value.trim());
  if (!match) throw ioError(`GET ${url} has Content-Range '${value}'; expected 'bytes START-END/SIZE'`);
  return { start: Number(match[1]), end: Number(match[2]) + 1, total: match[3] === '*' ? undefined : Number(match[3]) };
}

/** The bytes of the body as read, which for a compressed one no header tells. */
function contentLength(answer: Answer): number | undefined {
  const value = answer.headers.get('content-length');
  return value === null || answer.headers.has('content-encoding') ? undefined : Number(value);
}

/** No file of a model folder is HTML: development servers, sign-in pages of networks and error pages answer so. */
const isPage = (file: string, answer: Answer): boolean =>
  answer.status < 300 && /^text\/html\b/i.test(answer.headers.get('content-type') ?? '') && !/\.html?$/i.test(file);

/** What the server says the whole file hashes to: Repr-Digest (RFC 9530), Digest (RFC 3230), or Hugging Face's ETag of a large file. */
function sha256Of({ headers }: Answer): string | undefined {
  const [, linked] = /^"?([0-9a-f]{64})"?$/i.exec(headers.get('x-linked-etag')?.trim() ?? '') ?? [];
  if (linked) return linked.toLowerCase();
  if (headers.has('content-encoding')) return undefined; // it would be that of the compressed bytes
  const given = /(?:^|,)\s*sha-256\s*=\s*(?::([^:,]+):|([^:,\s]+))/i;
  const digest = given.exec(headers.get('repr-digest') ?? '') ?? given.exec(headers.get('digest') ?? '');
  return digest ? parseSha256(`sha256-${digest[1] ?? digest[2]}`) : undefined;
}

const validatorOf = (answer: Answer): string | undefined =>
  answer.headers.get('etag') ?? answer.headers.get('last-modified') ?? undefined;
