/**
 * Room: HTTP without a framework: one request and its answer or a stream of events (here), reading bodies
 * with limits, clients in turn, static files. Knows nothing of models.
 */

import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError, badRequest } from '../api_error.js';
import { formatBytes, joinBytes } from '../../base/math.js';

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
export const LINES_TYPE = 'application/x-ndjson';
/** How long, and how much, an early answer lets a client go on sending. */
const LINGER_MS = 1000;
const LINGER_BYTES = 4 * 2 ** 20;
/** Of a refused request's body that are read and dropped, so that the connection can go on. */
const DROPPED_BYTES = 65_536;

export interface ExchangeOptions {
  /** Time for a client to take any of a finished answer. */
  readonly stallMs: number;
  /** Bytes of a stream that may wait for a slow reader. */
  readonly maxBufferedBytes: number;
  /** Silence in a stream after which a comment is sent, so that neither end takes the other for dead. */
  readonly heartbeatMs: number;
}

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
    readonly options: ExchangeOptions,
    /** Who asks, as `Access.clientOf` says. */
    readonly client: string,
  ) {
    this.signal = this.#abort.signal;
    // OpenAI's name, and Anthropic's.
    for (const name of ['x-request-id', 'request-id']) response.setHeader(name, this.id);
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
    response.setTimeout(this.options.stallMs, () => {
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
    const { status, details } = error;
    for (const [name, value] of Object.entries(details.headers ?? {})) this.response.setHeader(name, value);
    if (details.retryAfter !== undefined) this.response.setHeader('Retry-After', String(details.retryAfter));
    const ends = details.ends || this.#hasMuchToCome;
    this.send(status, JSON_TYPE, JSON.stringify(body), outcomeOf(error), ends);
  }
}

/** An answer as server-sent events, or lines of JSON. What the client doesn't read waits in a bounded buffer; beyond it the request is ended. */
export class EventStream {
  readonly #heartbeat: NodeJS.Timeout | undefined;

  constructor(
    private readonly exchange: Exchange,
    private readonly isLines = false,
  ) {
    const { response, options } = exchange;
    response.writeHead(200, {
      'Content-Type': isLines ? LINES_TYPE : 'text/event-stream; charset=utf-8',
      'Cache-Control': 'no-cache',
      'X-Accel-Buffering': 'no', // proxies pass events on as they come
    });
    response.flushHeaders();
    // Lines have no comments.
    if (isLines) return;
    this.#heartbeat = setInterval(() => this.#write(': waiting\n\n'), options.heartbeatMs);
    response.once('close', () => clearInterval(this.#heartbeat));
  }

  /** An event's type, where it has one, is its name, too. */
  send(event: object): void {
    if (this.isLines) return this.sendText(`${JSON.stringify(event)}\n`);
    const name = 'type' in event ? `event: ${String(event.type)}\n` : '';
    this.sendText(`${name}data: ${JSON.stringify(event)}\n\n`);
  }

  /** Events as they are to be sent, or comments. */
  sendText(text: string): void {
    this.#heartbeat?.refresh();
    this.#write(text);
  }

  /** Ends the stream as clients expect it; an answer that was cut off ends without the mark of a whole one, where the API has one. */
  end(outcome: Outcome, mark?: string): void {
    clearInterval(this.#heartbeat);
    this.exchange.end(outcome, outcome === 'completed' && mark !== undefined ? `data: ${mark}\n\n` : undefined);
  }

  #write(text: string): void {
    const { response, options } = this.exchange;
    if (response.destroyed || response.writableEnded) return;
    response.write(text);
    if (response.writableLength <= options.maxBufferedBytes) return;
    this.exchange.stop('too_slow');
    response.destroy();
  }
}

export function outcomeOf({ status, code }: { readonly status: number; readonly code?: string | undefined }): Outcome {
  if (status < 400) return 'completed';
  if (status === 429) return 'queue_full';
  if (code === 'shutting_down') return 'shut_down';
  return status >= 500 ? 'failed' : 'refused';
}

const ZEROS = /^0+$/;

/**
 * The trace's id, 32 hexadecimal digits, of a `traceparent` header (W3C Trace Context: version, trace, span, flags). Undefined for one that
 * is none, which is passed over as the specification says.
 */
function traceOf(header: string | string[] | undefined): string | undefined {
  const [, version, trace, span = '', more] =
    /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}(-.*)?$/.exec(String(header)) ?? [];
  if (trace === undefined || version === 'ff' || ZEROS.test(trace) || ZEROS.test(span)) return undefined;
  return version === '00' && more !== undefined ? undefined : trace;
}

/**
 * What isn't HTTP, or came too slowly, is told so where nothing was sent yet; then the connection is closed. The status of a request that
 * nobody else has heard of; undefined where the answer to one is under way, or nobody is there.
 */
export function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Socket): number | undefined {
  // Node keeps the answer in progress there.
  const { _httpMessage: answer } = socket as { _httpMessage?: ServerResponse | null };
  const { status, body } = errorOf(error.code);
  const isTold = socket.writable && !answer?.headersSent;
  if (isTold) {
    const text = JSON.stringify(body);
    socket.write(
      `HTTP/1.1 ${status} Error\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(text)}\r\n` +
        `Connection: close\r\n\r\n${text}`,
    );
  }
  socket.destroySoon();
  return isTold && !answer ? status : undefined;
}

function errorOf(code: string | undefined): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW') return new ApiError(431, 'the headers are too large');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new ApiError(408, 'the request took too long to arrive');
  return new ApiError(400, 'this is not a valid HTTP request');
}

/**
 * A request's body. A client that asks whether it may send its body is told so once its headers allow it.
 * @param room counts the bytes; whoever is done with them gives them back
 * @throws ApiError 400 for none, 413 for more bytes than allowed (as soon as that is known), 415 for a body that is compressed, 429
 *   where there is no room. Where the rest of it is still to come the connection ends with the answer.
 */
export async function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
  room: BodyRoom,
): Promise<Uint8Array<ArrayBuffer>> {
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') {
    const message = `content-encoding ${encoding.slice(0, 100)} is not supported; send the body as it is`;
    throw new ApiError(415, message, { ends: true });
  }
  const tooLarge = (): ApiError =>
    new ApiError(
      413,
      `the body is larger than ${formatBytes(maxBytes)}; send less, or start the server with --max-body`,
      { ends: true },
    );
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  if (request.headers.expect !== undefined) response.writeContinue();
  const chunks: Buffer[] = [];
  let bytes = 0;
  // A reader that stops early leaves the connection open: the answer is still to be sent on it.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge();
    room.take(chunk.length);
    chunks.push(chunk);
  }
  if (bytes === 0) throw badRequest('the body is empty; expected a JSON object');
  return joinBytes(chunks);
}

/** Adds to what is counted of a client; who has nothing is forgotten. */
export function addTo(counts: Map<string, number>, client: string, by: number): void {
  const now = (counts.get(client) ?? 0) + by;
  if (now > 0) counts.set(client, now);
  else counts.delete(client);
}

/** Bodies up to this size always have room: the limit on connections bounds them. */
const ALWAYS = 65_536;

/** The bytes of request bodies that are held at once, over all clients, and of one client up to half of them. */
export class BodyRooms {
  #bytes = 0;
  readonly #byClient = new Map<string, number>();

  constructor(private readonly maxBytes: number) {}

  get bytes(): number {
    return this.#bytes;
  }

  open(client: string): BodyRoom {
    let held = 0;
    const add = (count: number): void => {
      held += count;
      this.#bytes += count;
      addTo(this.#byClient, client, count);
    };
    return {
      take: (count) => {
        add(count);
        const own = this.#byClient.get(client)!;
        if (held <= ALWAYS || (this.#bytes <= this.maxBytes && own <= this.maxBytes / 2)) return;
        throw new ApiError(
          429,
          `too many large requests at once: their bodies have more than ${formatBytes(this.maxBytes)}; try again in a second`,
          { code: 'busy', retryAfter: 1, ends: true },
        );
      },
      close: () => add(-held),
    };
  }
}

export interface BodyRoom {
  /** @throws ApiError 429 where there is no room for so many bytes more */
  take(count: number): void;
  /** The bytes are no longer held. */
  close(): void;
}
