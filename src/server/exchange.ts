import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ApiError } from './api_error.js';

/** How a request ended: for the metrics, and for whoever has to stop work on it. */
export type Outcome =
  | 'completed'
  | 'refused' // the request's fault
  | 'queue_full'
  | 'failed' // ours
  | 'vanished' // the client went away
  | 'too_slow' // the client read too slowly
  | 'shut_down';

/** One request and the answer to it, up to its end. */
export class Exchange {
  readonly id = `req_${randomUUID()}`;
  readonly started = performance.now();
  /** Fires when there is nobody to answer any more, or no time. */
  readonly signal: AbortSignal;
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

  sendJson(status: number, body: object, outcome: Outcome = 'completed'): void {
    this.send(status, 'application/json; charset=utf-8', JSON.stringify(body), outcome);
  }

  send(status: number, type: string, text: string, outcome: Outcome = 'completed'): void {
    const { response } = this;
    if (response.headersSent) {
      response.destroy();
      return;
    }
    response.statusCode = status;
    response.setHeader('Content-Type', type);
    response.setHeader('Content-Length', Buffer.byteLength(text));
    this.end(outcome, text);
  }

  sendError(error: ApiError): void {
    for (const [name, value] of Object.entries(error.details.headers ?? {})) this.response.setHeader(name, value);
    this.sendJson(error.status, error.body, outcomeOf(error));
  }
}

export function outcomeOf({ status, details }: ApiError): Outcome {
  if (status === 429) return 'queue_full';
  if (details.code === 'shutting_down') return 'shut_down';
  return status >= 500 ? 'failed' : 'refused';
}
