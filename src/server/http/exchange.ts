/**
 * Room: HTTP without a framework: one request and its answer (here), reading bodies with limits, event streams,
 * clients in turn, static files. Knows nothing of models.
 */

import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ApiError } from '../api_error.js';

/** How a request ended: for the metrics, and for whoever has to stop work on it. */
export type Outcome =
  | 'completed'
  | 'refused' // the request's fault
  | 'queue_full'
  | 'failed' // ours
  | 'vanished' // the client went away
  | 'too_slow' // the client read too slowly
  | 'shut_down';

const JSON_TYPE = 'application/json; charset=utf-8';
/** How long, and how much, an early answer lets a client go on sending. */
const LINGER_MS = 1000;
const LINGER_BYTES = 4 * 2 ** 20;
/** Of a refused request's body that are read and dropped, so that the connection can go on. */
const DROPPED_BYTES = 65_536;

/** One request and the answer to it, up to its end. */
export class Exchange {
  readonly id = `req_${randomUUID()}`;
  readonly started = performance.now();
  /** Fires when there is nobody to answer any more, or no time. */
  readonly signal: AbortSignal;
  /** Id of the trace (W3C) that the request is part of. */
  readonly trace: string | undefined;
  /** Route, for the metrics; undefined for a path that there isn't. */
  route: string | undefined;
  readonly #abort = new AbortController();
  #outcome: Outcome | undefined;

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
    private readonly stallMs: number,
  ) {
    this.signal = this.#abort.signal;
    response.setHeader('x-request-id', this.id);
    const { traceparent } = request.headers;
    this.trace = traceOf(traceparent);
    // It is one with the caller's span: nothing is recorded here that would need one of its own.
    if (this.trace !== undefined) response.setHeader('traceparent', traceparent!);
    // Written to after its end, or to nobody: the 'close' that follows says all there is to say.
    response.on('error', () => {});
    response.on('close', () => {
      if (!response.writableFinished) this.stop('vanished');
    });
  }

  get outcome(): Outcome | undefined {
    return this.#outcome;
  }

  /** Work on the answer must stop; the first reason counts. */
  stop(reason: 'vanished' | 'too_slow' | 'shut_down'): void {
    this.#outcome ??= reason;
    this.#abort.abort(new Error(reason));
  }

  /** The answer is complete. A client that doesn't take it is cut off. */
  end(outcome: Outcome, text?: string): void {
    const { response } = this;
    if (response.destroyed) return;
    response.setTimeout(this.stallMs, () => {
      this.stop('too_slow');
      response.destroy();
    });
    response.once('finish', () => (this.#outcome ??= outcome));
    response.end(text);
  }

  /**
   * Ends the connection with the answer, which is complete. What the client still sends is read and dropped for a moment: if the
   * connection were closed on it, the client might never see the answer.
   */
  #endUnread(outcome: Outcome, text: string): void {
    const { request, response } = this;
    response.write(text);
    let bytes = 0;
    const end = (): void => {
      clearTimeout(timer);
      request.off('data', drop).off('end', end).off('close', end);
      this.end(outcome);
    };
    const drop = (chunk: Buffer): void => {
      bytes += chunk.length;
      if (bytes > LINGER_BYTES) end();
    };
    const timer = setTimeout(end, LINGER_MS);
    request.once('end', end).once('close', end);
    request.on('data', drop).resume();
  }

  sendJson(status: number, body: object, outcome: Outcome = 'completed'): void {
    this.send(status, JSON_TYPE, JSON.stringify(body), outcome);
  }

  send(status: number, type: string, text: string, outcome: Outcome = 'completed', ends = false): void {
    const { response } = this;
    if (response.headersSent) {
      response.destroy();
      return;
    }
    response.statusCode = status;
    response.setHeader('Content-Type', type);
    response.setHeader('Content-Length', Buffer.byteLength(text));
    if (ends) response.setHeader('Connection', 'close');
    if (ends && !this.request.complete) this.#endUnread(outcome, text);
    else this.end(outcome, text);
  }

  /** Of the body, that is, which nobody reads: too much to keep the connection for. */
  get #hasMuchToCome(): boolean {
    const { complete, headers } = this.request;
    const isLarge =
      headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > DROPPED_BYTES;
    return !complete && isLarge;
  }

  /** @param body what the API says of it; default: as OpenAI says it */
  sendError(error: ApiError, body = error.body): void {
    for (const [name, value] of Object.entries(error.details.headers ?? {})) this.response.setHeader(name, value);
    const { status, details } = error;
    const ends = details.ends || this.#hasMuchToCome;
    this.send(status, JSON_TYPE, JSON.stringify(body), outcomeOf(error), ends);
  }
}

export function outcomeOf({ status, details }: ApiError): Outcome {
  if (status === 429) return 'queue_full';
  if (details.code === 'shutting_down') return 'shut_down';
  return status >= 500 ? 'failed' : 'refused';
}

const ZEROS = /^0+$/;

/**
 * The trace's id, 32 hexadecimal digits, of a `traceparent` header (W3C Trace Context: version, trace, span, flags). Undefined for one that
 * is none, which is passed over as the specification says.
 */
function traceOf(header: string | string[] | undefined): string | undefined {
  const [, version, trace, span, more] =
    /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}(-.*)?$/.exec(String(header)) ?? [];
  if (trace === undefined || version === 'ff' || ZEROS.test(trace) || ZEROS.test(span!)) return undefined;
  return version === '00' && more !== undefined ? undefined : trace;
}
