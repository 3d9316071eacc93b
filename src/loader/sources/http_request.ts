import { joinBytes } from '../../base/math.js';
import { abortedError, SplitkvError } from '../../base/errors.js';

/** How often and how patiently a request is made again. */
export interface HttpOptions {
  /** Tries in all; 4. */
  readonly attempts?: number;
  /** The wait before the second try, doubled each time; 400 ms. */
  readonly backoffMs?: number;
  /** The longest Retry-After that is waited for; 30 s. */
  readonly maxRetryAfterMs?: number;
  /** A response that sends next to nothing (less than 4 KiB) for so long has failed; 30 s. */
  readonly stallMs?: number;
  /** Headers of every request, e.g. authorization. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly fetch?: typeof fetch;
  /** What an answer of status 400 or more means, where the server says more than its status; undefined leaves it to the caller. */
  readonly refusal?: (url: string, status: number, headers: Headers) => SplitkvError | undefined;
  /** Told of bytes as they arrive, and of all of a request's as a negative number when it has ended: the sum is under way. */
  readonly onBytes?: ((bytes: number) => void) | undefined;
}

/** Fewer bytes in `stallMs` are a stall: the slowest connections bring ten times as many. */
const LEAST_BYTES = 4096;

/** A failure that another try may mend. `waitMs` is what the server asked for. */
class Transient extends Error {
  readonly waitMs: number | undefined;
  /** What to throw once no more tries are left. */
  readonly refusal: SplitkvError | undefined;

  constructor(
    message: string,
    options?: ErrorOptions & { waitMs?: number | undefined; refusal?: SplitkvError | undefined },
  ) {
    super(message, options);
    this.waitMs = options?.waitMs;
    this.refusal = options?.refusal;
  }
}

/** A response whose status is not one to retry, and a way to read its body that notices when it stalls. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  /** Exactly `length` bytes; a body that ends earlier is transient, one that goes on is an `io` error. */
  body(length: number): Promise<Uint8Array<ArrayBuffer>>;
  /** The body up to `limit` bytes: undefined when there is more. */
  bodyUpTo(limit: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
}

/**
 * GETs `url` + `query` (which messages leave out: it may hold a secret) and hands the answer to `use`, again and again with growing waits while the network fails, the server is
 * busy (408, 429, 5xx) or the body breaks off. Throws `aborted`, or `io` naming the URL and the last failure.
 */
export async function request<T>(
  url: string,
  query: string,
  headers: Record<string, string>,
  options: HttpOptions,
  signal: AbortSignal | undefined,
  use: (answer: Answer) => Promise<T>,
): Promise<T> {
  const { attempts = 4, backoffMs = 400, maxRetryAfterMs = 30_000 } = options;
  for (let attempt = 1; ; attempt++) {
    if (signal?.aborted) throw abortedError(`GET ${url}`, signal);
    try {
      return await once(url, query, headers, options, signal, use);
    } catch (error) {
      if (signal?.aborted) throw abortedError(`GET ${url}`, signal);
      if (!(error instanceof Transient)) throw error;
      const askedMs = error.waitMs ?? 0;
      if (attempt >= attempts || askedMs > maxRetryAfterMs) {
        if (error.refusal) throw error.refusal;
        const times = attempt === 1 ? '' : ` ${attempt} times; the last time`;
        const asked =
          askedMs > maxRetryAfterMs ? `; it asks to wait ${Math.ceil(askedMs / 1000)} s, try again then` : '';
        throw new SplitkvError('io', `GET ${url} failed${times}: ${error.message}${asked}`, {
          cause: error.cause ?? error,
        });
      }
      await pause(error.waitMs ?? backoffMs * 2 ** (attempt - 1) * (0.75 + Math.random() / 2), signal, url);
    }
  }
}

async function once<T>(
  url: string,
  query: string,
  headers: Record<string, string>,
  options: HttpOptions,
  signal: AbortSignal | undefined,
  use: (answer: Answer) => Promise<T>,
): Promise<T> {
  const { stallMs = 30_000, fetch: doFetch = globalThis.fetch } = options;
  const stop = new AbortController();
  const forward = (): void => stop.abort(signal!.reason);
  signal?.addEventListener('abort', forward, { once: true });
  let stalled: ReturnType<typeof setTimeout> | undefined;
  let received = 0;
  let counted = 0;
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
      throw new Transient(`${describe(error)} (is the server up, and does it allow this origin by CORS?)`, {
        cause: error,
      });
    });
    alive();
    const { status } = response;
    const refusal = status >= 400 ? options.refusal?.(url, status, response.headers) : undefined;
    if (status === 408 || status === 429 || (status >= 500 && status !== 501)) {
      const waitMs = retryAfter(response.headers);
      throw new Transient(`HTTP ${status} ${response.statusText}`.trimEnd(), { waitMs, refusal });
    }
    if (refusal) throw refusal;
    return await use({
      status,
      headers: response.headers,
      body: (length) => readExactly(url, chunks(response, stop.signal, arrived), length),
      bodyUpTo: (limit) => readUpTo(chunks(response, stop.signal, arrived), limit),
    });
  } catch (error) {
    throw stop.signal.reason instanceof Transient ? stop.signal.reason : error;
  } finally {
    clearTimeout(stalled);
    signal?.removeEventListener('abort', forward);
    if (received > 0) options.onBytes?.(-received);
    stop.abort(); // whatever of the body nobody read
  }
}

async function readExactly(
  url: string,
  body: AsyncIterable<Uint8Array>,
  length: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const out = new Uint8Array(length);
  let done = 0;
  for await (const chunk of body) {
    if (done + chunk.byteLength > length) {
      throw new SplitkvError(
        'io',
        `GET ${url} sent more than the ${length} bytes asked for; is there a proxy that ignores ranges?`,
      );
    }
    out.set(chunk, done);
    done += chunk.byteLength;
  }
  if (done < length) throw new Transient(`the body broke off after ${done} of ${length} bytes`);
  return out;
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

async function pause(ms: number, signal: AbortSignal | undefined, url: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(abortedError(`GET ${url}`, signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}
