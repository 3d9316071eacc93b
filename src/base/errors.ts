/**
 * Room: what every other room may use and that knows none of them: errors with codes, options and their schemas,
 * lists, sums, random numbers, statistics. Errors come first, as everything throws them; then options.ts.
 */

/**
 * Errors a caller can tell apart. Every message names the value at fault, what was expected, and what to do about it.
 * `code` is stable: programs may switch on it.
 */

export type ErrorCode =
  | 'usage' // a wrong argument or option
  | 'no_webgpu' // no WebGPU implementation or no adapter
  | 'limit' // an adapter limit or a memory budget is too small
  | 'format' // a file that is truncated, corrupt or not what it claims
  | 'config' // a config.json that lacks a key or has an impossible value
  | 'unsupported' // a well-formed model that this runtime can't run
  | 'device_lost' // the GPU device went away
  | 'peer_lost' // another rank's worker or link went away, or it didn't answer in time
  | 'context_full' // the prompt doesn't fit the context
  | 'io' // a file or URL that can't be read
  | 'aborted' // an AbortSignal fired
  | 'internal'; // a bug in splitkv

/** Of `context_full`: tokens of what is too long, as many at least, and the most that there may be. */
export interface ErrorDetails {
  readonly tokens: number;
  readonly most: number;
}

export class SplitkvError extends Error {
  override readonly name: string = 'SplitkvError';
  readonly details: ErrorDetails | undefined;

  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions & { readonly details?: ErrorDetails | undefined },
  ) {
    super(message, options);
    this.details = options?.details;
  }
}

/** What rebuilding a rank helps against. */
const LOST: readonly ErrorCode[] = ['device_lost', 'peer_lost'];

/** Whether a device or a rank's peer went away: `recover` helps, and nothing is wrong with what was asked. */
export const isLoss = (error: unknown): error is SplitkvError =>
  error instanceof SplitkvError && LOST.includes(error.code);

const errorOf =
  (code: ErrorCode) =>
  (message: string, cause?: unknown): SplitkvError =>
    new SplitkvError(code, message, cause === undefined ? undefined : { cause });

export const usageError = errorOf('usage');
export const formatError = errorOf('format');
export const ioError = errorOf('io');
export const configError = errorOf('config');
export const unsupportedError = errorOf('unsupported');
export const limitError = errorOf('limit');
export const noWebGpuError = errorOf('no_webgpu');
export const deviceLostError = errorOf('device_lost');
export const peerLostError = errorOf('peer_lost');
export const internalError = errorOf('internal');

/**
 * A prompt of too many tokens, in words that clients of OpenAI's and Anthropic's APIs know, and make a conversation shorter at.
 * @param option of the command line that gives more room
 */
export const contextFullError = (tokens: number, most: number, option = 'context', atLeast = false): SplitkvError =>
  new SplitkvError(
    'context_full',
    `prompt is too long: ${atLeast ? 'at least ' : ''}${tokens} tokens > ${most} maximum, which exceeds the available context size. This model's maximum context length is ${most} tokens here: ` +
      `shorten the prompt, or load with more room (--${option})`,
    { details: { tokens, most } },
  );

/** A value that is there. @throws SplitkvError `internal` where it isn't, which is a mistake here. */
export function known<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw internalError(`there is no ${what}`);
  return value;
}

/** Its code; of one that isn't ours 'internal'. */
export const codeOf = (error: unknown): ErrorCode => (error instanceof SplitkvError ? error.code : 'internal');

/** What an error says, or whatever was thrown instead of one. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** What some work gives; undefined where it throws. */
export function tried<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** An error for an AbortSignal that fired; keeps the signal's own reason as its cause. */
export function abortedError(what: string, signal?: AbortSignal): SplitkvError {
  return new SplitkvError('aborted', `${what} was aborted`, { cause: signal?.reason });
}

/** Throws `aborted` when the signal has already fired. */
export function throwIfAborted(signal: AbortSignal | undefined, what: string): void {
  if (signal?.aborted) throw abortedError(what, signal);
}

/** Fires as soon as one of those that are given does. */
export const anySignal = (...signals: readonly (AbortSignal | undefined)[]): AbortSignal =>
  AbortSignal.any(signals.filter((signal) => signal !== undefined));

/**
 * `work`, or a rejection as soon as the signal fires (the work itself may go on unseen).
 * @param error what was aborted, as a text, or what is thrown in place of `aborted`
 */
export async function withAbort<T>(
  work: Promise<T>,
  signal: AbortSignal | undefined,
  error: string | ((signal: AbortSignal) => unknown),
): Promise<T> {
  if (!signal) return work;
  let onAbort = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(typeof error === 'string' ? abortedError(error, signal) : error(signal));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([aborted, work]);
  } finally {
    signal.removeEventListener('abort', onAbort);
    work.catch(() => {}); // its late failure has nobody left to hear it
  }
}

/** No name that anything here has is as long: what is longer is near none of them. */
const MAX_NAME = 100;

/** The candidate nearest to `name` by edit distance, or undefined when nothing is near. For "Did you mean ...?". */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  if (name.length > MAX_NAME) return undefined;
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - name.length) >= bestDistance) continue;
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** ` Did you mean 'x'?`, or an empty string when no candidate is near. */
export function didYouMean(name: string, candidates: Iterable<string>): string {
  const nearest = nearestName(name, candidates);
  return nearest === undefined ? '' : ` Did you mean '${nearest}'?`;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 0; i < a.length; i++) {
    let [corner, left] = [0, 0];
    row = row.map((above, j) => {
      left = j === 0 ? i + 1 : Math.min(corner + (a[i] === b[j - 1] ? 0 : 1), above + 1, left + 1);
      corner = above;
      return left;
    });
  }
  return row.at(-1) ?? 0;
}
