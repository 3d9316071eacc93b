import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { ioError, type SplitkvError } from '../base/errors.js';
import { VERSION } from '../base/version.js';
import { pause, until } from '../base/waits.js';
import { ApiError, toApiError } from './api_error.js';
import { Access, hostCheck } from './http/access.js';
import { addressOf, Connections } from './http/connections.js';
import { answerBrokenRequest, BodyRooms, Exchange, type Outcome, readBody } from './http/exchange.js';
import { type ListedModel, modelEntry, modelList, ollamaEntry, untagged } from './model_list.js';
import { checkMethod, errorBody, familyOf, findRoute, isProbe, needsKey, type Route } from './routes.js';
import { type OwnMetrics, ServerMetrics } from './server_metrics.js';

/** Who may connect and ask, and what requests may take. */
export interface FrontOptions {
  /** Address to listen on; default 127.0.0.1: nobody but this machine. */
  readonly host?: string;
  /** 0 (default) takes a free one. */
  readonly port?: number;
  /** Any of them lets a client in; none: everybody. */
  readonly apiKeys?: readonly string[];
  /** Whose requests may have a priority: those with one of these keys, or 'all'; default nobody's. */
  readonly priorityKeys?: readonly string[] | 'all';
  /** /metrics needs a key, too. */
  readonly protectMetrics?: boolean;
  /** Host names that requests may ask for, or '*'; default: this machine's where it alone is listened to, otherwise any. */
  readonly allowedHosts?: readonly string[];
  /** Origins whose pages may ask, or '*'; default none. */
  readonly origins?: readonly string[];
  /** Programs of this machine and of its network may ask: hosts such as host.docker.internal, origins such as app://. */
  readonly localApps?: boolean;
  /** Bytes of a request's body; default 1 MiB. */
  readonly maxBodyBytes?: number;
  /** Bytes of all requests' bodies that are held at once, one client's up to half of them; default 64 MiB, or eight bodies. */
  readonly maxBodiesBytes?: number;
  /**
   * Connections at once; default 1024. For more idle ones are closed; where none is, new ones may ask for /livez, /readyz and /health alone.
   */
  readonly maxConnections?: number;
  /** Of these, those of one address (of IPv6 a network of 64 bits); default half. A proxy in front is one address. */
  readonly maxConnectionsPerAddress?: number;
  /** Bytes that may wait for a client that reads slowly; default 1 MiB. */
  readonly maxBufferedBytes?: number;
  /** Silence in a stream after which a comment is sent; default 15 s. */
  readonly heartbeatMs?: number;
  /** Time for a request's headers (default 10 s), for all of it (60 s), and for a client to take any of a finished answer (30 s). */
  readonly headersMs?: number;
  readonly requestMs?: number;
  readonly stallMs?: number;
  /** Time that a connection is kept for the next request; longer than a proxy keeps it (mostly 60 s). Default 75 s. */
  readonly keepAliveMs?: number;
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

export const DEFAULT_BODY = 2 ** 20;
const DEFAULTS = {
  host: '127.0.0.1',
  port: 0,
  maxBodyBytes: DEFAULT_BODY,
  maxBufferedBytes: 2 ** 20,
  heartbeatMs: 15_000,
  maxConnections: 1024,
  headersMs: 10_000,
  requestMs: 60_000,
  stallMs: 30_000,
  keepAliveMs: 75_000,
  protectMetrics: false,
};
/** Time for what a shutdown cut off to be told, before connections are closed. */
const FAREWELL_MS = 1000;
/** Refusals of one client in a second that are told at once. */
const PROMPT_REFUSALS = 32;
/** What its others wait for: who asks again at once would otherwise take all of the time. */
const REFUSAL_REST_MS = 1000;
/** Time for requests on new connections to be read. */
const UNREAD_MS = 250;

/** Connections, keys, limits, /health and its like, and an end that tells clients: what every server here has before it answers. */
export abstract class HttpFront {
  protected readonly access: Access;
  protected readonly metrics: ServerMetrics;
  readonly #server: Server;
  readonly #options: FrontOptions & typeof DEFAULTS;
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #live = new Set<Exchange>();
  readonly #bodies: BodyRooms;
  readonly #connections: Connections;
  readonly #checkHost: (request: IncomingMessage) => void;
  /** Refusals in this second, by client. */
  readonly #refusals = new Map<string, number>();
  #second = 0;
  /** Of connections that aren't the network's. */
  readonly #connected = new Set<Duplex>();
  #url = '';
  #leaving = false;
  #closing: Promise<void> | undefined;

  /** It listens nowhere: requests come by `connect`, or once `listen` is called. */
  constructor(given: FrontOptions) {
    const options = { ...DEFAULTS, ...given };
    this.#options = options;
    this.metrics = new ServerMetrics();
    this.access = new Access(options.apiKeys ?? [], options.origins ?? [], options.priorityKeys, options.localApps);
    this.#checkHost = hostCheck(options.allowedHosts, options.host, options.localApps);
    this.#bodies = new BodyRooms(options.maxBodiesBytes ?? Math.max(2 ** 26, 8 * options.maxBodyBytes));
    const { headersMs, requestMs, keepAliveMs } = options;
    const server = createServer({
      headersTimeout: headersMs,
      requestTimeout: requestMs,
      keepAliveTimeout: keepAliveMs,
      connectionsCheckingInterval: Math.min(1000, headersMs),
    });
    this.#server = server;
    const { maxConnections, maxConnectionsPerAddress = Math.ceil(maxConnections / 2) } = options;
    this.#connections = new Connections({ maxConnections, maxPerAddress: maxConnectionsPerAddress });
    server.on('connection', (socket) => {
      if (!this.#connected.has(socket)) this.#connections.add(socket);
    });
    server.on('request', (request, response) => this.#take(request, response));
    server.on('checkContinue', (request, response) => this.#take(request, response));
    server.on('clientError', (error, socket) => {
      const status = answerBrokenRequest(error, socket as Socket);
      if (status !== undefined) this.metrics.count('other', 'refused', status);
    });
  }

  /** Answers a request that may be asked, of a route that isn't the front's own. @throws what it is refused with */
  protected abstract answer(exchange: Exchange, route: Route): Promise<void>;
  /** 'ok', or why requests had better go elsewhere. */
  protected abstract status(): string;
  /** What clients may call its models. @throws ApiError 503 while there is none */
  protected abstract modelNames(): readonly string[];
  protected abstract ownMetrics(): OwnMetrics;

  /** @throws SplitkvError `io` for an address that can't be listened on; it is closed, then */
  async listen(): Promise<this> {
    const { host, port: wanted } = this.#options;
    const server = this.#server;
    await new Promise<void>((done, failed) => {
      server.once('error', (error: NodeJS.ErrnoException) => failed(listenError(error, host, wanted)));
      server.listen(wanted, host, done);
    }).catch(async (error: unknown) => {
      await this.close();
      throw error;
    });
    const { address, family, port } = server.address() as AddressInfo;
    this.#url = `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
    return this;
  }

  /**
   * A connection to here without a network: what is written to it is read as HTTP. It counts as one of the client, which whoever connects
   * has made sure of.
   */
  connect(client: string): Duplex {
    const [near, far] = duplexPair();
    // As sockets have them; nothing here waits for a network.
    const socket = Object.assign(far, { remoteAddress: client, setTimeout: () => far });
    this.#connected.add(far);
    near.once('close', () => far.destroy());
    far.once('close', () => {
      this.#connected.delete(far);
      near.destroy();
    });
    this.#server.emit('connection', socket);
    return near;
  }

  /** Ends without a slash; empty where nothing is listened to. */
  get url(): string {
    return this.#url;
  }

  /** Requests under way. */
  get live(): number {
    return this.#live.size;
  }

  /** The model's own name, as Ollama's clients may tag it. @throws ApiError 404 where there is no model of this name */
  protected checkModel<Name extends string | undefined>(asked: Name): Name {
    const models = this.modelNames();
    if (asked === undefined || models.includes(asked)) return asked;
    if (models.includes(untagged(asked))) return untagged(asked) as Name;
    const known = models.length === 1 ? `the model is '${models[0]}'` : `models are ${models.join(', ')}`;
    throw new ApiError(404, `model '${asked.slice(0, 200)}' not found; ${known}`, {
      code: 'model_not_found',
      param: 'model',
    });
  }

  /** @throws ApiError 503 once it closes */
  protected checkOpen(): void {
    if (this.#closing) throw new ApiError(503, 'the server is shutting down', { code: 'shutting_down' });
  }

  /**
   * What is made of a request's body, which counts as held until then.
   * @throws ApiError as `readBody`, and what `use` throws
   */
  protected async withBody<T>(
    { request, response, client }: Exchange,
    use: (body: Uint8Array<ArrayBuffer>) => Promise<T>,
  ): Promise<T> {
    const room = this.#bodies.open(client);
    try {
      return await use(await readBody(request, response, this.#options.maxBodyBytes, room));
    } finally {
      room.close();
    }
  }

  /**
   * Is no longer ready, and goes on as before for `ms`: balancers that ask /readyz send nobody here any more. Clients with an open
   * connection are told to end it. `close` follows.
   */
  async drain(ms: number): Promise<void> {
    this.#leaving = true;
    await pause(ms);
  }

  /** Takes no more requests, waits up to `graceMs` for those under way, and ends the rest. Resolves when no connection is left. */
  close(graceMs = 0): Promise<void> {
    return (this.#closing ??= this.#close(graceMs));
  }

  async #close(graceMs: number): Promise<void> {
    this.#leaving = true;
    const isIdle = (): boolean => this.#live.size === 0;
    await this.#acceptWaiting();
    // Where it didn't listen there is nothing to wait for.
    const closed = new Promise<void>((done) => this.#server.close(() => done()));
    await until(isIdle, graceMs);
    for (const exchange of this.#live) exchange.stop('shut_down');
    await until(isIdle, FAREWELL_MS);
    // Requests that came before the end may not have been read yet: they are told, too.
    if (graceMs > 0) await Promise.race([closed, pause(UNREAD_MS)]);
    this.#server.closeAllConnections();
    for (const socket of this.#connected) socket.destroy();
    await closed;
    this.metrics.close();
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

  #take(request: IncomingMessage, response: ServerResponse): void {
    const exchange = new Exchange(request, response, this.#options, this.access.clientOf(request));
    this.#live.add(exchange);
    this.#connections.count(request.socket, 1);
    const closed = new Promise<void>((resolve) => response.once('close', resolve));
    const answered = this.#route(exchange).catch(async (error: unknown) => {
      if (this.#isRestless(exchange, toApiError(error))) await pause(REFUSAL_REST_MS);
      this.#tellError(exchange, error);
    });
    void Promise.all([answered, closed]).then(() => this.#record(exchange));
  }

  #record(exchange: Exchange): void {
    this.#connections.count(exchange.request.socket, -1);
    const { id, trace, request, response, started, route = 'other', outcome = 'failed' } = exchange;
    this.#live.delete(exchange);
    const seconds = (performance.now() - started) / 1000;
    const status = response.headersSent ? response.statusCode : 0;
    this.metrics.count(route, outcome, status, seconds);
    if (outcome === 'completed' && request.method === 'POST') this.metrics.answered(seconds);
    this.#options.onRequest?.({
      id,
      trace,
      method: request.method ?? '',
      path: request.url ?? '',
      status,
      outcome,
      seconds,
    });
  }

  /** Whether a refusal is one of very many of its client. */
  #isRestless({ request, client: name }: Exchange, { status, details }: ApiError): boolean {
    if (status >= 500 || details.ends === true || this.#leaving) return false;
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#second) this.#refusals.clear();
    this.#second = second;
    // Wrong keys may be others each time.
    const client = status === 401 ? addressOf(request.socket.remoteAddress ?? '') : name;
    const count = (this.#refusals.get(client) ?? 0) + 1;
    this.#refusals.set(client, count);
    return count > PROMPT_REFUSALS;
  }

  #tellError(exchange: Exchange, error: unknown): void {
    const told = toApiError(error);
    // A client that went away while it sent its request breaks the reading of it.
    const gone = exchange.request.destroyed && !exchange.request.complete;
    if (told.details.cause !== undefined && !gone) this.#options.onError?.(error, exchange);
    exchange.sendError(told, errorBody(exchange.request, told));
  }

  async #route(exchange: Exchange): Promise<void> {
    const { request, response } = exchange;
    if (this.#leaving) response.setHeader('Connection', 'close');
    this.#checkHost(request);
    this.access.checkOrigin(request, response);
    if (this.access.isPreflight(request, response)) return exchange.send(204, 'text/plain', '');
    const route = findRoute(request.url ?? '/');
    exchange.route = route.name;
    if (this.#connections.isSpare(request.socket)) {
      if (!isProbe(route)) throw tooManyConnections();
      response.setHeader('Connection', 'close');
    }
    if (needsKey(route) || (route.name === '/metrics' && this.#options.protectMetrics)) this.access.checkKey(request);
    checkMethod(route, request.method ?? '');
    if (route.name === '/health' || route.name === '/readyz') return this.#health(exchange);
    // It answers, so it lives: only a process that hangs should be started again.
    if (route.name === '/livez') return exchange.sendJson(200, { status: 'ok' });
    if (route.name === '/version') return exchange.sendJson(200, { version: VERSION });
    if (route.name === '/metrics') {
      const text = this.metrics.text(this.#live.size, this.#bodies.bytes, this.ownMetrics());
      return exchange.send(200, 'text/plain; version=0.0.4; charset=utf-8', text);
    }
    if (route.name === '/') return exchange.send(200, 'text/plain; charset=utf-8', ROOT);
    if (route.name === '/api/version') return exchange.sendJson(200, { version: OLLAMA_VERSION });
    const models = this.#models(exchange.request, route);
    if (models) return exchange.sendJson(200, models);
    await this.answer(exchange, route);
  }

  /** What routes that list models answer; undefined for others. */
  #models(request: IncomingMessage, { name, model: asked }: Route): object | undefined {
    if (!LISTS.includes(name)) return undefined;
    this.checkOpen();
    const family = familyOf(request);
    if (asked !== undefined) return modelEntry(family, this.listed(this.checkModel(asked)));
    const all = this.modelNames().map((id) => this.listed(id));
    if (family !== 'ollama') return modelList(family, all);
    return { models: all.map((listed) => ollamaEntry(listed, name === '/api/ps')) };
  }

  protected listed(id: string): ListedModel {
    return { id, created: this.#created };
  }

  #health(exchange: Exchange): void {
    const status = this.#leaving ? 'shutting down' : this.status();
    exchange.sendJson(status === 'ok' ? 200 : 503, { status });
  }
}

const LISTS: readonly Route['name'][] = ['/v1/models', '/v1/models/{model}', '/api/tags', '/api/ps'];
const ROOT = "splitkv is running: OpenAI's API is at /v1, Anthropic's at /v1/messages, Ollama's at /api\n";
/** Clients ask it for what the API has: a version of Ollama's that has what is here. */
const OLLAMA_VERSION = '0.12.6';

const tooManyConnections = (): ApiError =>
  new ApiError(503, 'too many connections are open and busy; close some, or try again in a second', {
    code: 'too_many_connections',
    retryAfter: 1,
    ends: true,
  });

function listenError(error: NodeJS.ErrnoException, host: string, port: number): SplitkvError {
  const where = `${host}:${port}`;
  const why =
    error.code === 'EADDRINUSE'
      ? `port ${port} is in use on ${host}; choose another with --port, or 0 for a free one`
      : error.code === 'EACCES'
        ? `port ${port} needs more rights; choose one above 1023 with --port`
        : `can't listen on ${where} (${error.code ?? error.message}); check --listen`;
  return ioError(why, error);
}
