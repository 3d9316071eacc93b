/**
 * Room: the OpenAI API over HTTP on a serving model: routes, keys, limits, and an end that tells its clients. `http`
 * has connections and bodies, `requests` what they mean. docs/serving.md lists what it promises. Read routes.ts next.
 */

import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { SplitkvError } from '../base/errors.js';
import type { ServingModel } from '../index.js';
import { Access, IGNORED_HEADER } from './http/access.js';
import { answerRequest, stopped } from './requests/answer_request.js';
import { ApiError, badRequest, toApiError } from './api_error.js';
import type { AnswerWriter } from './requests/answer_shape.js';
import { chatShape } from './requests/chat_shape.js';
import { ChoiceWriter } from './requests/choice_writer.js';
import type { CompletionCall } from './requests/completion_call.js';
import { withOneSystem } from './requests/text_parts.js';
import { messageError, MessageWriter } from './messages/message_writer.js';
import type { ResponseCall } from './responses/response_request.js';
import { itemList, ResponseStore } from './responses/response_store.js';
import { ResponseWriter } from './responses/response_writer.js';
import { BodyRooms } from './http/body_room.js';
import { ClientPlaces } from './http/client_places.js';
import { hostCheck } from './http/hosts.js';
import { answerBrokenRequest } from './http/broken_request.js';
import type { IgnoredField } from './requests/fields.js';
import { fingerprintOf } from './fingerprint.js';
import { embeddingAnswer } from './requests/embedding_request.js';
import type { CallKind, Calls } from './requests/read_call.js';
import { Exchange, type Outcome } from './http/exchange.js';
import { readBody } from './http/read_body.js';
import { RequestReader, SHORT_BODY } from './request_reader.js';
import { checkMethod, findRoute, needsKey, type Route } from './routes.js';
import { ServerMetrics } from './server_metrics.js';
import { textShape } from './requests/text_shape.js';

export interface ServerOptions {
  /** Address to listen on; default 127.0.0.1: nobody but this machine. */
  readonly host?: string;
  /** 0 (default) takes a free one. */
  readonly port?: number;
  /** What clients call the model; default: its folder's or file's name. */
  readonly modelName?: string;
  /** Told at /version, and part of each answer's `system_fingerprint`. */
  readonly version?: string;
  /** Refuse fields that nobody here knows; default: ignore them, and name them in a header. */
  readonly strict?: boolean;
  /** Any of them lets a client in; none: everybody. */
  readonly apiKeys?: readonly string[];
  /** /metrics needs a key, too. */
  readonly protectMetrics?: boolean;
  /** Host names that requests may ask for, or '*'; default: this machine's where it alone is listened to, else any. */
  readonly allowedHosts?: readonly string[];
  /** Origins whose pages may ask, or '*'; default none. */
  readonly origins?: readonly string[];
  /** Answers that may wait for a slot; beyond them clients get 429. Default 128. */
  readonly maxQueue?: number;
  /** Answers that one client may have under way: a key, or an address where no keys are needed; default: half of the places. */
  readonly maxPerClient?: number;
  /** Bytes of a request's body; default 1 MiB. */
  readonly maxBodyBytes?: number;
  /** Bytes of all requests' bodies that are held at once, one client's up to half of them; default 64 MiB, or eight bodies. */
  readonly maxBodiesBytes?: number;
  /** Time to read, check and tokenize a request once it is there; default 10 s. */
  readonly readMs?: number;
  /** Connections at once; more are closed as they come. Default 1024. */
  readonly maxConnections?: number;
  /** Bytes that may wait for a client that reads slowly; default 1 MiB. */
  readonly maxBufferedBytes?: number;
  /** Time for a request's headers (default 10 s), for all of it (60 s), and for a client to take any of a finished answer (30 s). */
  readonly headersMs?: number;
  readonly requestMs?: number;
  readonly stallMs?: number;
  /** Time that a connection is kept for the next request; longer than a proxy keeps it (mostly 60 s). Default 75 s. */
  readonly keepAliveMs?: number;
  /** Silence in a stream after which a comment is sent; default 15 s. */
  readonly heartbeatMs?: number;
  /** Hears of each request as it ends. */
  readonly onRequest?: (record: RequestRecord) => void;
  /** Hears of errors that are the server's; clients are told no more than that there was one. */
  readonly onError?: (error: unknown, request: Pick<RequestRecord, 'id' | 'trace'>) => void;
}

export interface RequestRecord {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  /** Of the trace (W3C) that it is part of, as its `traceparent` says. */
  readonly trace?: string | undefined;
  /** 0 where nothing was sent. */
  readonly status: number;
  readonly outcome: Outcome;
  readonly seconds: number;
}

const DEFAULTS = {
  host: '127.0.0.1',
  version: 'unknown',
  strict: false,
  port: 0,
  maxQueue: 128,
  maxBodyBytes: 2 ** 20,
  maxBufferedBytes: 2 ** 20,
  maxConnections: 1024,
  readMs: 10_000,
  headersMs: 10_000,
  requestMs: 60_000,
  stallMs: 30_000,
  keepAliveMs: 75_000,
  protectMetrics: false,
  heartbeatMs: 15_000,
};
/** What asks for answers, by its route. */
const KINDS = {
  '/v1/chat/completions': 'chat',
  '/v1/completions': 'text',
  '/v1/responses': 'responses',
  '/v1/messages': 'messages',
} as const;
type AnsweringKind = (typeof KINDS)[keyof typeof KINDS];
const CHATS: readonly CallKind[] = ['chat', 'responses', 'messages', 'countTokens'];
/** Bytes of texts of responses that are kept. */
const STORED_BYTES = 2 ** 26;
/** Ignored fields that are named. */
const MAX_NAMES = 16;
/** Time for what a shutdown cut off to be told, before connections are closed. */
const FAREWELL_MS = 1000;
/** Time for requests on new connections to be read. */
const UNREAD_MS = 250;

/** The OpenAI API over HTTP, for one model. */
export class ApiServer {
  /** Ends without a slash; the API is at /v1. */
  readonly url: string;
  readonly #server: Server;
  readonly #options: ServerOptions & typeof DEFAULTS;
  readonly #access: Access;
  readonly #metrics: ServerMetrics;
  readonly #live = new Set<Exchange>();
  readonly #bodies: BodyRooms;
  readonly #places = new ClientPlaces();
  readonly #responses = new ResponseStore(STORED_BYTES);
  readonly #checkHost: (request: IncomingMessage) => void;
  #model: ServingModel | undefined;
  #reader: RequestReader | undefined;
  #leaving = false;
  #closing: Promise<void> | undefined;
  #idle: (() => void) | undefined;
  readonly #created = Math.floor(Date.now() / 1000);

  private constructor(server: Server, options: ServerOptions & typeof DEFAULTS) {
    this.#server = server;
    this.#options = options;
    this.#metrics = new ServerMetrics(options.version);
    this.#access = new Access(options.apiKeys ?? [], options.origins ?? []);
    this.#checkHost = hostCheck(options.allowedHosts, options.host);
    this.#bodies = new BodyRooms(options.maxBodiesBytes ?? Math.max(2 ** 26, 8 * options.maxBodyBytes));
    const { address, family, port } = server.address() as AddressInfo;
    this.url = `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
    server.on('request', (request, response) => this.#take(request, response));
    server.on('checkContinue', (request, response) => this.#take(request, response));
    server.on('clientError', (error, socket) => {
      const status = answerBrokenRequest(error, socket as Socket);
      if (status !== undefined) this.#metrics.count('other', 'refused', status);
    });
  }

  /**
   * Listens. Until a model is opened, requests get 503.
   * @throws SplitkvError `io` for an address that can't be listened on
   */
  static async listen(given: ServerOptions = {}): Promise<ApiServer> {
    const options = { ...DEFAULTS, ...given };
    const { host, port, headersMs, requestMs, keepAliveMs } = options;
    const server = createServer({
      headersTimeout: headersMs,
      requestTimeout: requestMs,
      keepAliveTimeout: keepAliveMs,
      connectionsCheckingInterval: Math.min(1000, headersMs),
    });
    server.maxConnections = options.maxConnections;
    await new Promise<void>((done, failed) => {
      server.once('error', (error: NodeJS.ErrnoException) => failed(listenError(error, host, port)));
      server.listen(port, host, done);
    });
    return new ApiServer(server, options);
  }

  /** Answers with this model from now on. */
  open(model: ServingModel): void {
    this.#model = model;
    this.#reader = new RequestReader(model, { maxMs: this.#options.readMs });
  }

  /** Requests under way. */
  get live(): number {
    return this.#live.size;
  }

  get modelName(): string {
    return this.#options.modelName ?? this.#model?.info.name ?? '';
  }

  /**
   * Is no longer ready, and goes on as before for `ms`: balancers that ask /readyz send nobody here any more. Clients with an open
   * connection are told to end it. `close` follows.
   */
  async drain(ms: number): Promise<void> {
    this.#leaving = true;
    await new Promise((resolve) => setTimeout(resolve, ms));
  }

  /**
   * Takes no more requests, waits up to `graceMs` for those under way, and ends the rest. The model stays open. Resolves when no
   * connection is left.
   */
  close(graceMs = 0): Promise<void> {
    return (this.#closing ??= this.#close(graceMs));
  }

  async #close(graceMs: number): Promise<void> {
    this.#leaving = true;
    await this.#acceptWaiting();
    const closed = new Promise<void>((done) => this.#server.close(() => done()));
    await this.#untilIdle(graceMs);
    for (const exchange of this.#live) exchange.stop('shut_down');
    await this.#untilIdle(FAREWELL_MS);
    // Requests that came before the end may not have been read yet: they are told, too.
    if (graceMs > 0) await Promise.race([closed, new Promise((done) => setTimeout(done, UNREAD_MS))]);
    this.#server.closeAllConnections();
    await closed;
    this.#metrics.close();
    await this.#reader?.close();
  }

  /** Connections that wait to be accepted would be reset when the server listens no more. */
  async #acceptWaiting(): Promise<void> {
    let accepted = 0;
    const count = (): number => accepted++;
    this.#server.on('connection', count);
    // Two looks at the sockets without another one.
    for (let quiet = 0, before = 0; quiet < 2 && accepted < this.#options.maxConnections; before = accepted) {
      await new Promise((done) => setImmediate(done));
      quiet = accepted === before ? quiet + 1 : 0;
    }
    this.#server.off('connection', count);
  }

  /** Until no request is under way, or the time is over. */
  #untilIdle(ms: number): Promise<void> {
    if (this.#live.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#idle = undefined;
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#idle = done;
    });
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const exchange = new Exchange(request, response, this.#options.stallMs);
    this.#live.add(exchange);
    const closed = new Promise<void>((resolve) => response.once('close', resolve));
    const answered = this.#answer(exchange).catch((error: unknown) => this.#tellError(exchange, error));
    void Promise.all([answered, closed]).then(() => this.#record(exchange));
  }

  #record(exchange: Exchange): void {
    const { id, trace, request, response, started, route = 'other', outcome = 'failed' } = exchange;
    this.#live.delete(exchange);
    const seconds = (performance.now() - started) / 1000;
    const status = response.headersSent ? response.statusCode : 0;
    this.#metrics.count(route, outcome, status, seconds);
    if (outcome === 'completed' && request.method === 'POST') this.#metrics.answered(seconds);
    this.#options.onRequest?.({
      id,
      trace,
      method: request.method ?? '',
      path: request.url ?? '',
      status,
      outcome,
      seconds,
    });
    if (this.#live.size === 0) this.#idle?.();
  }

  #tellError(exchange: Exchange, error: unknown): void {
    const told = toApiError(error);
    // A client that went away while it sent its request breaks the reading of it.
    const gone = exchange.request.destroyed && !exchange.request.complete;
    if (told.details.cause !== undefined && !gone) this.#options.onError?.(error, exchange);
    exchange.sendError(told, exchange.route?.startsWith('/v1/messages') ? messageError(told) : undefined);
  }

  async #answer(exchange: Exchange): Promise<void> {
    const { request, response } = exchange;
    if (this.#leaving) response.setHeader('Connection', 'close');
    this.#checkHost(request);
    this.#access.checkOrigin(request, response);
    if (this.#access.isPreflight(request, response)) return exchange.send(204, 'text/plain', '');
    const route = findRoute(request.url ?? '/');
    exchange.route = route.name;
    if (needsKey(route) || (route.name === '/metrics' && this.#options.protectMetrics)) this.#access.checkKey(request);
    checkMethod(route, request.method ?? '');
    if (route.name === '/health' || route.name === '/readyz') return this.#health(exchange);
    // It answers, so it lives: only a process that hangs should be started again.
    if (route.name === '/livez') return exchange.sendJson(200, { status: 'ok' });
    if (route.name === '/version') return exchange.sendJson(200, { version: this.#options.version });
    if (route.name === '/metrics') {
      const text = this.#metrics.text(this.#model, {
        live: this.#live.size,
        bodyBytes: this.#bodies.bytes,
        unread: this.#reader?.waiting ?? 0,
      });
      return exchange.send(200, 'text/plain; version=0.0.4; charset=utf-8', text);
    }
    const model = this.#openModel();
    if (route.name === '/v1/models' || route.name === '/v1/models/{model}') return this.#models(exchange, route);
    if (route.name === '/tokenize') return this.#tokenize(exchange, model);
    if (route.name === '/detokenize') return this.#detokenize(exchange, model);
    if (route.name === '/v1/embeddings') return this.#embed(exchange, model);
    if (route.name === '/v1/messages/count_tokens') return this.#countTokens(exchange, model);
    if (route.id !== undefined) return this.#storedResponse(exchange, route);
    await this.#complete(exchange, model, KINDS[route.name as keyof typeof KINDS]);
  }

  #health(exchange: Exchange): void {
    const status = this.#leaving
      ? 'shutting down'
      : !this.#model
        ? 'loading'
        : this.#model.failure !== undefined
          ? 'failed'
          : this.#model.metrics.recovering
            ? 'recovering'
            : 'ok';
    exchange.sendJson(status === 'ok' ? 200 : 503, { status });
  }

  /** @throws ApiError 503 while there is none */
  #openModel(): ServingModel {
    if (this.#closing) throw new ApiError(503, 'the server is shutting down', { code: 'shutting_down' });
    if (!this.#model) {
      throw new ApiError(503, 'the model is still loading', { code: 'loading', headers: { 'Retry-After': '2' } });
    }
    return this.#model;
  }

  #models(exchange: Exchange, { model: asked }: Route): void {
    const id = this.modelName;
    const entry = { id, object: 'model', created: this.#created, owned_by: 'splitkv' };
    if (asked === undefined) return exchange.sendJson(200, { object: 'list', data: [entry] });
    this.#checkModel(asked);
    exchange.sendJson(200, entry);
  }

  #checkModel(asked: string | undefined): void {
    if (asked === undefined || asked === this.modelName) return;
    throw new ApiError(404, `there is no model '${asked.slice(0, 200)}' here; the model is '${this.modelName}'`, {
      code: 'model_not_found',
      param: 'model',
    });
  }

  async #tokenize(exchange: Exchange, model: ServingModel): Promise<void> {
    const { prompt, options } = await this.#read(exchange, model, 'tokenize');
    const tokens = model.tokenize(prompt, options);
    exchange.sendJson(200, { count: tokens.length, max_model_len: model.info.contextLength, tokens });
  }

  async #detokenize(exchange: Exchange, model: ServingModel): Promise<void> {
    const { tokens, text = model.detokenize(tokens) } = await this.#read(exchange, model, 'detokenize');
    // vLLM's name and llama.cpp's.
    exchange.sendJson(200, { prompt: text, content: text });
  }

  async #embed(exchange: Exchange, model: ServingModel): Promise<void> {
    const { prompts, promptField, options, base64 } = await this.#read(exchange, model, 'embeddings');
    this.#openModel();
    // So many are computed side by side; the others of the request wait for them.
    const wanted = Math.min(prompts.length, model.info.slots, this.#perClient(model));
    await this.#inPlaces(exchange, model, wanted, promptField, async () => {
      try {
        const result = await model.embed(prompts, { ...options, signal: exchange.signal });
        exchange.sendJson(200, embeddingAnswer(this.modelName, base64, result));
      } catch (error) {
        throw exchange.signal.aborted ? stopped() : toApiError(error, promptField);
      }
    });
  }

  /** Does what takes so many places of the queue. @throws ApiError 429, 400 */
  #inPlaces(
    { request }: Exchange,
    model: ServingModel,
    wanted: number,
    param: string,
    work: () => Promise<void>,
  ): Promise<void> {
    this.#checkQueue(model, wanted, param);
    return this.#places.run(this.#access.clientOf(request), wanted, this.#perClient(model), param, work);
  }

  async #countTokens(exchange: Exchange, model: ServingModel): Promise<void> {
    const { prompt, options } = await this.#read(exchange, model, 'countTokens');
    exchange.sendJson(200, { input_tokens: model.tokenize(prompt, options).length });
  }

  /** A response that this client was told before, or what was asked for it. */
  #storedResponse(exchange: Exchange, { name, id = '' }: Route): void {
    const { request } = exchange;
    const client = this.#access.clientOf(request);
    const { body, items } = this.#responses.get(client, id);
    if (request.method === 'DELETE') {
      this.#responses.delete(client, id);
      return exchange.sendJson(200, { id, object: 'response', deleted: true });
    }
    exchange.sendJson(200, name === '/v1/responses/{id}' ? body : itemList(items));
  }

  async #complete(exchange: Exchange, model: ServingModel, kind: AnsweringKind): Promise<void> {
    const { maxBufferedBytes, heartbeatMs, onError } = this.#options;
    const asked = await this.#read(exchange, model, kind);
    // It may have begun to end while the body came.
    this.#openModel();
    const call = 'response' in asked ? this.#goingOn(exchange, asked) : asked;
    const { prompts, promptField, options } = call;
    const wanted = prompts.length * (options.n ?? 1);
    const param = prompts.length > this.#placesOf(model) ? promptField : 'n';
    await this.#inPlaces(exchange, model, wanted, param, () =>
      answerRequest(exchange, model, call, this.#writerOf(exchange, model, kind, call), {
        maxBufferedBytes,
        heartbeatMs,
        onError: (error) => onError?.(error, exchange),
      }),
    );
  }

  /** With what was said before it. @throws ApiError 400 for a previous response that isn't there */
  #goingOn({ request }: Exchange, call: ResponseCall): ResponseCall {
    const { previous, instructions, messages } = call.response;
    if (previous === undefined) return call;
    const before = this.#responses.get(this.#access.clientOf(request), previous, 'previous_response_id').messages;
    const all = [...before, ...messages];
    const told = instructions === null ? all : [{ role: 'system' as const, content: instructions }, ...all];
    return { ...call, prompts: [{ messages: withOneSystem(told) }], response: { ...call.response, messages: all } };
  }

  #writerOf(
    { request }: Exchange,
    model: ServingModel,
    kind: AnsweringKind,
    call: CompletionCall | ResponseCall,
  ): AnswerWriter {
    const { modelName } = this;
    if (kind === 'messages') return new MessageWriter(modelName);
    if ('response' in call) {
      const { store, items, messages } = call.response;
      return new ResponseWriter(call, modelName, (body, answer) => {
        if (!store) return;
        this.#responses.add(this.#access.clientOf(request), { body, items, messages: [...messages, answer] });
      });
    }
    const shape = kind === 'chat' ? chatShape : textShape;
    return new ChoiceWriter(call, shape, {
      id: `${shape.idPrefix}${randomUUID()}`,
      created: Math.floor(Date.now() / 1000),
      model: modelName,
      system_fingerprint: fingerprintOf(this.#options.version, model.info),
    });
  }

  async #read<Kind extends CallKind>(
    { request, response, signal }: Exchange,
    model: ServingModel,
    kind: Kind,
  ): Promise<Calls[Kind]> {
    const client = this.#access.clientOf(request);
    const room = this.#bodies.open(client);
    try {
      const body = await readBody(request, response, this.#options.maxBodyBytes, room);
      if (CHATS.includes(kind) && !model.info.hasChatTemplate) {
        const field = kind === 'responses' ? 'input' : 'messages';
        throw badRequest('this model has no chat template; send a prompt to /v1/completions', field);
      }
      // No work for what there is no place for.
      const generates = kind !== 'tokenize' && kind !== 'detokenize' && kind !== 'countTokens';
      if (generates && body.length > SHORT_BODY) this.#checkQueue(model, 1);
      const call = await this.#reader!.read(kind, body, client, signal);
      this.#tellIgnored(response, call.ignored);
      this.#checkModel(call.model);
      return call;
    } catch (error) {
      throw signal.aborted ? stopped() : error;
    } finally {
      room.close();
    }
  }

  /** @throws ApiError 400 where the server is strict */
  #tellIgnored(response: ServerResponse, [first, ...others]: readonly IgnoredField[]): void {
    if (!first) return;
    if (this.#options.strict) throw badRequest(first.why, first.name);
    const names = [first, ...others].slice(0, MAX_NAMES).map(({ name }) => headerText(name));
    response.setHeader(IGNORED_HEADER, names.join(', '));
  }

  #perClient(model: ServingModel): number {
    return this.#options.maxPerClient ?? Math.max(1, Math.floor(this.#placesOf(model) / 2));
  }

  #placesOf({ info: { slots } }: ServingModel): number {
    return slots + this.#options.maxQueue;
  }

  /** @throws ApiError 429 when the queue is full, 400 for more answers than it could ever take */
  #checkQueue(model: ServingModel, wanted: number, param?: string): void {
    const {
      metrics,
      info: { slots },
    } = model;
    const places = this.#placesOf(model);
    if (wanted > places) {
      throw badRequest(`${wanted} answers in one request: this server takes at most ${places} at once`, param);
    }
    const { unfinished } = metrics;
    if (unfinished + wanted <= places) return;
    const seconds = this.#metrics.retryAfter(unfinished - slots + wanted, slots);
    throw new ApiError(429, `the queue is full (${unfinished} answers under way); try again in ${seconds} s`, {
      code: 'queue_full',
      headers: { 'Retry-After': String(seconds) },
    });
  }
}

/** A name as a header may have it. */
const headerText = (name: string): string =>
  name.replace(/[^\w.[\]-]/gu, (letter) => encodeURIComponent(Buffer.from(letter).toString()));

function listenError(error: NodeJS.ErrnoException, host: string, port: number): SplitkvError {
  const where = `${host}:${port}`;
  const why =
    error.code === 'EADDRINUSE'
      ? `port ${port} is in use on ${host}; choose another with --port, or 0 for a free one`
      : error.code === 'EACCES'
        ? `port ${port} needs more rights; choose one above 1023 with --port`
        : `can't listen on ${where} (${error.code ?? error.message}); check --listen`;
  return new SplitkvError('io', why, { cause: error });
}
