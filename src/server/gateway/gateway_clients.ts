import type { Subscription } from '@nats-io/nats-core';
import type { Cluster } from '../../cluster/connect.js';
import { ClientPlaces } from '../http/client_places.js';
import { CLIENTS_MS, encode, PROTOCOL, readGatewayBeat, SILENCE_MS } from '../replicas/messages.js';

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
export class GatewayClients {
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
        if (!error) this.#hear(data, subject.split('.').at(-1)!);
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

  #hear(data: Uint8Array, from: string): void {
    try {
      const { instance, clients } = readGatewayBeat(data);
      if (instance === this.instance || instance !== from) return;
      this.#others.set(instance, { clients: new Map(Object.entries(clients)), heardAt: performance.now() });
    } catch {
      // Whoever sends what is no beat is no gateway.
    }
  }
}
