/**
 * Room: the OpenAI API in front of a cluster's replicas: who takes a request (replica_set.ts), and one request from
 * replica to replica (relay.ts, replay.ts). It keeps nothing that another gateway would miss. The messages are in
 * ../replicas.
 */

import type { Cluster } from '../../cluster/connect.js';
import { ApiError } from '../api_error.js';
import { type FrontOptions, HttpFront } from '../front.js';
import type { Exchange } from '../http/exchange.js';
import { headersOf } from '../replicas/messages.js';
import { newInstance } from '../replicas/replica.js';
import type { Route } from '../routes.js';
import type { AskedRequest } from './gateway_call.js';
import { GatewayClients } from './gateway_clients.js';
import { GatewayMetrics } from './gateway_metrics.js';
import { Relay } from './relay.js';
import { ReplicaSet } from './replica_set.js';
import { factsOf, factsOfPath, hashOfClient, type RequestFacts } from './request_facts.js';

export interface GatewayOptions extends FrontOptions {
  readonly cluster: Cluster;
  /** Answers that one client may have under way, over all gateways; default: half of the replicas' places. */
  readonly maxPerClient?: number;
  /** As RelayOptions; defaults no, 15 s and 15 s. */
  readonly restartStream?: boolean;
  readonly patienceMs?: number;
  readonly heartbeatMs?: number;
  /** As ReplicaSetOptions. */
  readonly hangMs?: number;
  readonly onNote?: (line: string) => void;
}

const DEFAULTS = { restartStream: false, patienceMs: 15_000, heartbeatMs: 15_000 };
/** Headers of a request that replicas are told. */
const TOLD = ['content-type', 'traceparent'];
export const SESSION_HEADER = 'x-splitkv-session';

/** The API over HTTP, for all models that a cluster's replicas have. */
export class Gateway {
  readonly #front: HttpFront;
  readonly #options: GatewayOptions & typeof DEFAULTS;
  readonly #replicas: ReplicaSet;
  readonly #clients: GatewayClients;
  readonly #metrics = new GatewayMetrics();

  private constructor(given: GatewayOptions) {
    const options = { ...DEFAULTS, ...given };
    this.#options = options;
    const { cluster, hangMs, onNote } = options;
    const instance = newInstance();
    this.#replicas = new ReplicaSet({
      cluster,
      instance,
      ...(hangMs !== undefined && { hangMs }),
      ...(onNote && { onNote }),
    });
    this.#clients = new GatewayClients(cluster, instance);
    this.#front = new HttpFront(options, {
      answer: (exchange, route) => this.#answer(exchange, route),
      status: () => this.#status(),
      models: () => this.#replicas.models,
      metrics: () => ({ unread: 0, texts: this.#metrics.texts(this.#replicas, this.#clients.others) }),
    });
  }

  /** @throws SplitkvError `io` for an address that can't be listened on */
  static async listen(options: GatewayOptions): Promise<Gateway> {
    const gateway = new Gateway(options);
    try {
      await gateway.#front.listen();
    } catch (error) {
      await gateway.close();
      throw error;
    }
    return gateway;
  }

  get url(): string {
    return this.#front.url;
  }

  /** Requests under way. */
  get live(): number {
    return this.#front.live;
  }

  get replicas(): ReplicaSet {
    return this.#replicas;
  }

  /** @see HttpFront.drain */
  drain(ms: number): Promise<void> {
    return this.#front.drain(ms);
  }

  /** As `HttpFront.close`. The cluster's connection stays open. */
  async close(graceMs = 0): Promise<void> {
    await this.#front.close(graceMs);
    this.#replicas.close();
    this.#clients.close();
  }

  #status(): string {
    if (!this.#replicas.connected) return 'no NATS server';
    return this.#replicas.ready.length > 0 ? 'ok' : 'no replica';
  }

  async #answer(exchange: Exchange, route: Route): Promise<void> {
    this.#front.checkOpen();
    const { request } = exchange;
    if (request.method !== 'POST') {
      return this.#relay(exchange, this.#front.access.clientOf(request), factsOfPath(request.url ?? ''));
    }
    // Held until it is answered: another replica may need it.
    await this.#front.withBody(exchange, async (body, client) => {
      const session = request.headers[SESSION_HEADER];
      const facts = factsOf(route.name, body, typeof session === 'string' ? session : undefined);
      this.#front.access.checkPriority(request, facts.priority);
      if (facts.answers === 0) return this.#relay(exchange, client, facts);
      const { places } = this.#clients;
      const most = this.#options.maxPerClient ?? Math.max(1, Math.floor(this.#places / 2));
      await places.run(hashOfClient(client), facts.answers, most, 'n', () => this.#relay(exchange, client, facts));
    });
  }

  async #relay(exchange: Exchange, client: string, facts: RequestFacts): Promise<void> {
    const { request } = exchange;
    const { restartStream, patienceMs, heartbeatMs } = this.#options;
    const asked: AskedRequest = {
      method: request.method as AskedRequest['method'],
      path: request.url ?? '/',
      headers: headersOf(request.headers, TOLD),
      client: hashOfClient(client),
      prefix: facts.prefix,
      body: facts.body,
    };
    await new Relay(this.#replicas, exchange, this.#modelOf(facts), facts, asked, {
      restartStream,
      patienceMs,
      heartbeatMs,
      maxBufferedBytes: this.#front.maxBufferedBytes,
      onEvent: (event) => this.#metrics.count(event),
      retryAfter: () => this.#retryAfter(),
    }).run();
  }

  /** @throws ApiError 400 where it must be named, 404 where nobody has it, 503 where nobody is there */
  #modelOf({ model, instance }: RequestFacts): string {
    const { models } = this.#replicas;
    if (models.length === 0) {
      throw new ApiError(503, 'no replica is there yet; try again', {
        code: 'no_replica',
        headers: { 'Retry-After': '2' },
      });
    }
    const keeper = instance === undefined ? undefined : this.#replicas.ofInstance(instance);
    const named = model ?? keeper?.beat.model ?? (models.length === 1 ? models[0] : undefined);
    if (named === undefined) {
      throw new ApiError(400, `model is missing; models are ${models.join(', ')}`, { param: 'model' });
    }
    this.#front.checkModel(named);
    return named;
  }

  /** Answers that all replicas may have, running and waiting. */
  get #places(): number {
    return this.#replicas.ready.reduce((sum, { beat }) => sum + beat.room, 0);
  }

  #retryAfter(): number {
    let waiting = 0;
    let slots = 0;
    for (const { beat } of this.#replicas.ready) {
      waiting += beat.waiting;
      slots += beat.slots;
    }
    return this.#front.metrics.retryAfter(waiting + 1, Math.max(1, slots));
  }
}
