/**
 * Room: the OpenAI API in front of a cluster's replicas: who takes a request (replica_set.ts), and one request from
 * replica to replica (relay.ts, replay.ts). It keeps nothing that another gateway would miss. The messages are in
 * ../replicas.
 */

import { sum } from '../../base/lists.js';
import { badRequest, later } from '../api_error.js';
import { type FrontOptions, HttpFront } from '../front.js';
import type { Exchange } from '../http/exchange.js';
import { newInstance } from '../replicas/replica.js';
import type { Route } from '../routes.js';
import type { Metric, OwnMetrics } from '../server_metrics.js';
import { type Member, ReplicaSet, type ReplicaSetOptions, takes } from './replica_set.js';
import { factsOf, factsOfPath, Relay, type RelayEvent, type RequestFacts } from './relay.js';

export interface GatewayOptions extends FrontOptions, Omit<ReplicaSetOptions, 'instance'> {
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
  readonly #events: Record<RelayEvent, number> = { moved: 0, resumed: 0, differed: 0 };

  constructor(private readonly given: GatewayOptions) {
    super(given);
    this.replicas = new ReplicaSet({ ...given, instance: newInstance() });
  }

  override async close(graceMs = 0): Promise<void> {
    await super.close(graceMs);
    this.replicas.close();
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
    const { request } = exchange;
    if (request.method !== 'POST') return this.#relay(exchange, factsOfPath(request.url ?? ''));
    // Held until it is answered: another replica may need it.
    await this.withBody(exchange, async (body) => {
      const session = request.headers[SESSION_HEADER];
      const facts = factsOf(route.name, body, typeof session === 'string' ? session : undefined);
      this.access.checkPriority(request, facts.priority);
      await this.#relay(exchange, facts);
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
    if (models.length === 0) throw later(503, 'no_replica', 2, 'no replica is there yet; try again');
    const keeper = instance === undefined ? undefined : this.replicas.ofInstance(instance);
    const named = model ?? keeper?.beat.model ?? (models.length === 1 ? models[0] : undefined);
    if (named === undefined) throw badRequest(`model is missing; models are ${models.join(', ')}`, 'model');
    return this.checkModel(named);
  }

  #retryAfter(): number {
    const beats = this.replicas.ready.map(({ beat }) => beat);
    const slots = sum(beats.map((beat) => beat.slots));
    return this.metrics.retryAfter(sum(beats.map(({ waiting }) => waiting)) + 1, Math.max(1, slots));
  }
}
