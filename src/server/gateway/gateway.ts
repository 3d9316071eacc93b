/**
 * Room: the OpenAI API in front of a cluster's replicas: who takes a request (replica_set.ts), and one request from
 * replica to replica (relay.ts, replay.ts). It keeps nothing that another gateway would miss. The messages are in
 * ../replicas.
 */

import type { Subscription } from '@nats-io/nats-core';
import { ApiError } from '../api_error.js';
import { type FrontOptions, HttpFront } from '../front.js';
import type { Exchange } from '../http/exchange.js';
import { CLIENTS_MS, encode, PROTOCOL, readGatewayBeat, SILENCE_MS } from '../replicas/messages.js';
import { newInstance } from '../replicas/replica.js';
import type { Route } from '../routes.js';
import type { Metric, OwnMetrics } from '../server_metrics.js';
import { type Member, ReplicaSet, type ReplicaSetOptions, takes } from './replica_set.js';
import { factsOf, factsOfPath, hashOfClient, Relay, type RelayEvent, type RequestFacts } from './relay.js';
import type { Cluster } from '../../cluster/connect.js';
import { ClientPlaces } from '../http/client_places.js';

export interface GatewayOptions extends FrontOptions, Omit<ReplicaSetOptions, 'instance'> {
  /** Answers that one client may have under way, over all gateways; default: half of the replicas' places. */
  readonly maxPerClient?: number;
  /** Time that a request which was begun waits for a replica to come; default 15 s. */
  readonly patienceMs?: number;
}

const PATIENCE_MS = 15_000;
export const SESSION_HEADER = 'x-splitkv-session';

/** What becomes of requests that a replica left. */
const EVENTS: Readonly<Record<RelayEvent, string>> = {
  moved: 'Requests that were asked of another replica again.',
  resumed: 'Streams that went on with another replica.',
  differed: 'Streams that another replica could not go on with: it said something else.',
};

/** The API over HTTP, for all models that a cluster's replicas have. The cluster's connection stays open. */
export class Gateway extends HttpFront {
  readonly replicas: ReplicaSet;
  readonly #clients: GatewayClients;
  readonly #events: Record<RelayEvent, number> = { moved: 0, resumed: 0, differed: 0 };

  constructor(private readonly given: GatewayOptions) {
    super(given);
    const instance = newInstance();
    this.replicas = new ReplicaSet({ ...given, instance });
    this.#clients = new GatewayClients(given.cluster, instance);
  }

  override async close(graceMs = 0): Promise<void> {
    await super.close(graceMs);
    this.replicas.close();
    this.#clients.close();
  }

  protected status(): string {
    if (!this.replicas.connected) return 'no NATS server';
    return this.replicas.ready.length > 0 ? 'ok' : 'no replica';
  }

  protected modelNames(): readonly string[] {
    return this.replicas.models;
  }

  protected ownMetrics(): OwnMetrics {
    const { members, ready } = this.replicas;
    const by = (name: string, help: string, value: (member: Member) => number): Metric => [
      `splitkv_replica_${name}`,
      help,
      members.map((member) => [{ replica: member.beat.name, model: member.beat.model }, value(member)]),
    ];
    const metrics: Metric[] = [
      ['splitkv_gateways', 'Gateways of the cluster, this one included.', this.#clients.others + 1],
      ['splitkv_replicas', 'Replicas that are there.', members.length],
      ['splitkv_replicas_ready', 'Of those, such as take requests.', ready.length],
      by('running', 'Answers being generated.', ({ beat }) => beat.running),
      by('waiting', 'Answers that wait for a slot or for KV blocks.', ({ beat }) => beat.waiting),
      by('slots', 'Answers that may be generated side by side.', ({ beat }) => beat.slots),
      by('places', 'Answers that may run and wait.', ({ beat }) => beat.room),
      by('draining', '1 while it ends what it has and takes nothing new.', ({ beat }) => Number(beat.draining)),
      by('ready', '1 while it takes requests.', (member) => Number(takes(member))),
      by('lag_seconds', 'For how long it has computed without a word.', ({ beat }) => beat.lag / 1000),
      by('prompt_tokens_total', 'Prompt tokens of accepted requests.', ({ beat }) => beat.promptTokens),
      by('cached_prompt_tokens_total', 'Prompt tokens that the prefix cache held.', ({ beat }) => beat.cachedTokens),
      by('generated_tokens_total', 'Tokens generated.', ({ beat }) => beat.generatedTokens),
      by('requests_total', 'Requests that this gateway sent there.', ({ asked }) => asked),
    ];
    for (const [event, help] of Object.entries(EVENTS)) {
      metrics.push([`splitkv_gateway_${event}_total`, help, this.#events[event as RelayEvent]]);
    }
    return { unread: 0, metrics };
  }

  protected async answer(exchange: Exchange, route: Route): Promise<void> {
    this.checkOpen();
    const { request, client } = exchange;
    if (request.method !== 'POST') return this.#relay(exchange, factsOfPath(request.url ?? ''));
    // Held until it is answered: another replica may need it.
    await this.withBody(exchange, async (body) => {
      const session = request.headers[SESSION_HEADER];
      const facts = factsOf(route.name, body, typeof session === 'string' ? session : undefined);
      this.access.checkPriority(request, facts.priority);
      if (facts.answers === 0) return this.#relay(exchange, facts);
      const { places } = this.#clients;
      const most = this.given.maxPerClient ?? Math.max(1, Math.floor(this.#places / 2));
      await places.run(hashOfClient(client), facts.answers, most, 'n', () => this.#relay(exchange, facts));
    });
  }

  async #relay(exchange: Exchange, facts: RequestFacts): Promise<void> {
    await new Relay(this.replicas, exchange, this.#modelOf(facts), facts, {
      patienceMs: this.given.patienceMs ?? PATIENCE_MS,
      onEvent: (event) => this.#events[event]++,
      retryAfter: () => this.#retryAfter(),
    }).run();
  }

  /** @throws ApiError 400 where it must be named, 404 where nobody has it, 503 where nobody is there */
  #modelOf({ model, instance }: RequestFacts): string {
    const { models } = this.replicas;
    if (models.length === 0) {
      throw new ApiError(503, 'no replica is there yet; try again', {
        code: 'no_replica',
        retryAfter: 2,
      });
    }
    const keeper = instance === undefined ? undefined : this.replicas.ofInstance(instance);
    const named = model ?? keeper?.beat.model ?? (models.length === 1 ? models[0] : undefined);
    if (named === undefined) {
      throw new ApiError(400, `model is missing; models are ${models.join(', ')}`, { param: 'model' });
    }
    this.checkModel(named);
    return named;
  }

  /** Answers that all replicas may have, running and waiting. */
  get #places(): number {
    return this.replicas.ready.reduce((sum, { beat }) => sum + beat.room, 0);
  }

  #retryAfter(): number {
    let waiting = 0;
    let slots = 0;
    for (const { beat } of this.replicas.ready) {
      waiting += beat.waiting;
      slots += beat.slots;
    }
    return this.metrics.retryAfter(waiting + 1, Math.max(1, slots));
  }
}

/** Clients that one message has room for; those with most answers first. */
const MAX_TOLD = 4096;
/** Looks between two messages where nothing changed. */
const REPEAT = 4;

interface Other {
  readonly clients: ReadonlyMap<string, number>;
  readonly heardAt: number;
}

/**
 * Answers under way by client, over all gateways of a cluster: each tells the others its own, at most four times a second. What began
 * in that quarter of a second at another gateway isn't seen: with G gateways a client may have up to G times its share for as long.
 */
class GatewayClients {
  readonly places = new ClientPlaces((client) => this.#elsewhere(client));
  readonly #others = new Map<string, Other>();
  readonly #subscription: Subscription;
  readonly #timer: NodeJS.Timeout;
  #told = '';
  #untilRepeat = 0;

  constructor(
    private readonly cluster: Cluster,
    private readonly instance: string,
  ) {
    this.#subscription = cluster.connection.subscribe(cluster.subject('gateways', '*'), {
      callback: (error, { data, subject }) => {
        if (!error) this.#hear(data, subject.split('.').at(-1));
      },
    });
    this.#timer = setInterval(() => this.#tell(), CLIENTS_MS);
    this.#tell();
  }

  /** Other gateways that are there. */
  get others(): number {
    return this.#others.size;
  }

  close(): void {
    clearInterval(this.#timer);
    this.#subscription.unsubscribe();
  }

  #elsewhere(client: string): number {
    let all = 0;
    for (const { clients } of this.#others.values()) all += clients.get(client) ?? 0;
    return all;
  }

  #tell(): void {
    const now = performance.now();
    for (const [instance, { heardAt }] of this.#others) if (now - heardAt > SILENCE_MS) this.#others.delete(instance);
    const most = [...this.places.taken].toSorted(([, a], [, b]) => b - a).slice(0, MAX_TOLD);
    const clients = Object.fromEntries(most);
    const text = JSON.stringify(clients);
    if (text === this.#told && this.#untilRepeat-- > 0) return;
    this.#told = text;
    this.#untilRepeat = REPEAT - 1;
    const { cluster, instance } = this;
    if (cluster.connection.isClosed()) return;
    cluster.connection.publish(
      cluster.subject('gateways', instance),
      encode({ protocol: PROTOCOL, instance, clients }),
    );
  }

  #hear(data: Uint8Array, from: string | undefined): void {
    try {
      const { instance, clients } = readGatewayBeat(data);
      if (instance === this.instance || instance !== from) return;
      this.#others.set(instance, { clients: new Map(Object.entries(clients)), heardAt: performance.now() });
    } catch {
      // Whoever sends what is no beat is no gateway.
    }
  }
}
