import { joinBytes } from '../../base/math.js';
import { abortedError, ioError, type SplitkvError } from '../../base/errors.js';
import { isNode } from '../../base/platform.js';

/** How often and how patiently a request is made again. */
export interface HttpOptions {
  /** Tries in all; 4. */
  readonly attempts?: number;
  /** The wait before the second try, doubled each time; 400 ms. */
  readonly backoffMs?: number;
  /** The longest Retry-After that is waited for; 30 s. */
  readonly maxRetryAfterMs?: number;
  /** An answer that doesn't begin for so long has failed, default 30 s; or one that sends less than 4 KiB for so long, 10 s. */
  readonly stallMs?: number;
  /**
   * How long a server that has answered before is asked again while the network fails, from its last byte on; 60 s, or none where
   * `attempts` are given. Where there is any, also as long as the browser says that it is offline.
   */
  readonly patienceMs?: number;
  /** Headers of every request, e.g. authorization. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly fetch?: typeof fetch;
  /** What an answer of status 400 or more means, where the server says more than its status; undefined leaves it to the caller. */
  readonly refusal?: (url: string, status: number, headers: Headers) => SplitkvError | undefined;
  /** Told of bytes as they arrive, and of all of a request's as a negative number when it has ended: the sum is under way. */
  readonly onBytes?: ((bytes: number) => void) | undefined;
  /** Told why nothing comes, for people: again every three seconds, and before each further try; undefined once something does. */
  readonly onWait?: ((why: string | undefined) => void) | undefined;
}

/** Fewer bytes in `stallMs` are a stall: the slowest connections bring ten times as many. */
const LEAST_BYTES = 4096;
/** After so long without a byte it is told. */
const QUIET_MS = 3000;
const LONGEST_BACKOFF_MS = 8000;

/** Bytes that one request after another goes on filling. */
export interface Part {
  readonly bytes: Uint8Array<ArrayBuffer>;
  done: number;
}

/** What the server said: how long to wait, and what to throw once no more tries are left. */
interface Word {
  readonly waitMs: number | undefined;
  readonly refusal: SplitkvError | undefined;
}

/** A failure that another try may mend. */
class Transient extends Error {
  readonly word?: Word;
}

/** A response whose status is not one to retry, and a way to read its body that notices when it stalls. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** All that a part lacks; a body that ends earlier is transient, one that goes on is an `io` error. */
  fill(part: Part): Promise<Uint8Array<ArrayBuffer>>;
  /** The body up to `limit` bytes: undefined when there is more. */
  bodyUpTo(limit: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
}

/**
 * GETs `url` + `query` (which messages leave out: it may hold a secret) and hands the answer to `use`, again and again with growing waits while the network fails, the server is
 * busy (408, 429, 5xx) or the body breaks off. Throws `aborted`, or `io` naming the URL and the last failure.
 * @param patienceMs where there is any: as of `HttpOptions`
 * @param part where tries go on with it: one that brings bytes counts as the first
 */
export async function request<T>(
  url: string,
  query: string,
  headers: () => Record<string, string>,
  options: HttpOptions,
  signal: AbortSignal | undefined,
  use: (answer: Answer) => Promise<T>,
  patienceMs = 0,
  part?: Part,
): Promise<T> {
  const { attempts = 4, backoffMs = 400, maxRetryAfterMs = 30_000 } = options;
  let since = performance.now();
  for (let attempt = 1; ; attempt++) {
    if (signal?.aborted) throw abortedError(`GET ${url}`, signal);
    const before = part?.done;
    try {
      return await once(url, query, headers(), options, signal, use);
    } catch (error) {
      if (signal?.aborted) throw abortedError(`GET ${url}`, signal);
      if (!(error instanceof Transient)) throw error;
      const { word } = error;
      const askedMs = word?.waitMs ?? 0;
      if (part?.done !== before) {
        attempt = 1;
        since = performance.now();
      }
      const patient = !word && patienceMs > 0 && (isOffline() || performance.now() - since < patienceMs);
      if (!patient && (attempt >= attempts || askedMs > maxRetryAfterMs)) {
        if (word?.refusal) throw word.refusal;
        const times = attempt === 1 ? '' : ` ${attempt} times; the last time`;
        const asked =
          askedMs > maxRetryAfterMs ? `; it asks to wait ${Math.ceil(askedMs / 1000)} s, try again then` : '';
        throw ioError(`GET ${url} failed${times}: ${error.message}${asked}`, error.cause ?? error);
      }
      const backoff = Math.min(LONGEST_BACKOFF_MS, backoffMs * 2 ** (attempt - 1)) * (0.75 + Math.random() / 2);
      options.onWait?.(`${error.message}: trying again`);
      await pause(word?.waitMs ?? backoff, signal, url);
      options.onWait?.(undefined);
    }
  }
}

export const isOffline = (): boolean => globalThis.navigator?.onLine === false;

async function once<T>(
  url: string,
  query: string,
  headers: Record<string, string>,
  options: HttpOptions,
  signal: AbortSignal | undefined,
  use: (answer: Answer) => Promise<T>,
): Promise<T> {
  const { fetch: doFetch = globalThis.fetch } = options;
  let stallMs = options.stallMs ?? 30_000;
  const stop = new AbortController();
  const forward = (): void => stop.abort(signal?.reason);
  signal?.addEventListener('abort', forward, { once: true });
  let stalled: ReturnType<typeof setTimeout> | undefined;
  let received = 0;
  let counted = 0;
  let quietSince = performance.now();
  let told = false;
  const tell = (why?: string): void => {
    if (told || why !== undefined) options.onWait?.(why);
    told = why !== undefined;
  };
  const quiet = setInterval(() => {
    const ms = performance.now() - quietSince;
    if (ms >= QUIET_MS - 100) tell(`nothing has come for ${Math.round(ms / 1000)} s`);
  }, QUIET_MS);
  const alive = (): void => {
    clearTimeout(stalled);
    counted = received;
    stalled = setTimeout(() => {
      const came = received === counted ? 'nothing' : `only ${received - counted} bytes`;
      stop.abort(new Transient(`${came} came for ${stallMs / 1000} s`));
    }, stallMs);
  };
  alive();
  const arrived = (bytes: number): void => {
    received += bytes;
    quietSince = performance.now();
    tell();
    if (received - counted >= LEAST_BYTES) alive();
    options.onBytes?.(bytes);
  };
  try {
    const response = await doFetch(url + query, {
      headers: { ...options.headers, ...headers },
      signal: stop.signal,
      // Chrome's cache lets one request a URL through at a time, and weights have a cache of their own (cached_source.ts).
      cache: 'no-store',
    }).catch((error: unknown) => {
      const why = isNode() ? 'is the server up?' : 'is the server up, and does it allow this origin by CORS?';
      throw new Transient(`${describe(error)} (${why})`, { cause: error });
    });
    stallMs = options.stallMs ?? 10_000;
    quietSince = performance.now();
    alive();
    const { status } = response;
    const refusal = status >= 400 ? options.refusal?.(url, status, response.headers) : undefined;
    if (status === 408 || status === 429 || (status >= 500 && status !== 501)) {
      const word: Word = { waitMs: retryAfter(response.headers), refusal };
      throw Object.assign(new Transient(`HTTP ${status} ${response.statusText}`.trimEnd()), { word });
    }
    if (refusal) throw refusal;
    return await use({
      status,
      headers: response.headers,
      fill: (part) => readInto(url, chunks(response, stop.signal, arrived), part),
      bodyUpTo: (limit) => readUpTo(chunks(response, stop.signal, arrived), limit),
    });
  } catch (error) {
    throw stop.signal.reason instanceof Transient ? stop.signal.reason : error;
  } finally {
    clearTimeout(stalled);
    clearInterval(quiet);
    tell();
    signal?.removeEventListener('abort', forward);
    if (received > 0) options.onBytes?.(-received);
    stop.abort(); // whatever of the body nobody read
  }
}

async function readInto(url: string, body: AsyncIterable<Uint8Array>, part: Part): Promise<Uint8Array<ArrayBuffer>> {
  const { length } = part.bytes;
  for await (const chunk of body) {
    if (part.done + chunk.byteLength > length) {
      throw ioError(`GET ${url} sent more than the ${length} bytes asked for; is there a proxy that ignores ranges?`);
    }
    part.bytes.set(chunk, part.done);
    part.done += chunk.byteLength;
  }
  if (part.done < length) throw new Transient(`the body broke off after ${part.done} of ${length} bytes`);
  return part.bytes;
}

async function readUpTo(body: AsyncIterable<Uint8Array>, limit: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const parts: Uint8Array[] = [];
  let total = 0;
  for await (const chunk of body) {
    total += chunk.byteLength;
    if (total > limit) return undefined;
    parts.push(chunk);
  }
  return joinBytes(parts);
}

async function* chunks(
  response: Response,
  stop: AbortSignal,
  arrived: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  if (!response.body) return;
  // A body that can't be decompressed never ends in Node, not even when its request is aborted.
  const stopped = new Promise<never>((_, reject) => {
    stop.addEventListener('abort', () => reject(stop.reason as Error), { once: true });
  });
  stopped.catch(() => {});
  const reader = response.body.getReader();
  try {
    for (;;) {
      let result;
      try {
        result = await Promise.race([reader.read(), stopped]);
      } catch (error) {
        throw new Transient(`the body broke off: ${describe(error)}`, { cause: error });
      }
      if (result.done) return;
      arrived(result.value.byteLength);
      yield result.value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Node hides the reason ('ECONNREFUSED ...') in the cause. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  return cause instanceof Error && cause.message !== '' ? `${error.message}: ${cause.message}` : error.message;
}

/** Seconds or a date. */
export function retryAfter(headers: Headers): number | undefined {
  const value = headers.get('retry-after');
  if (value === null) return undefined;
  const ms = /^\d+$/.test(value.trim()) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

/** Ends early when the browser is online again. */
async function pause(ms: number, signal: AbortSignal | undefined, url: string): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      globalThis.removeEventListener?.('online', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done);
    globalThis.addEventListener?.('online', done);
  });
  if (signal?.aborted) throw abortedError(`GET ${url}`, signal);
}
