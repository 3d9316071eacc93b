import { afterAll, afterEach, beforeAll } from 'vitest';
import { type Cluster, connectCluster } from '../../cluster/connect.js';
import type { NatsServer } from '../../cluster/node_nats_server.js';
import { natsServer, startNats } from '../../cluster/testing/nats_server.js';
import { Gateway, type GatewayOptions } from '../gateway/gateway.js';
import { Replica } from '../replicas/replica.js';
import { standInModel, type StandInOptions } from './stand_in_model.js';
import { until } from './until.js';

export { natsServer };

/** A NATS server for a file's tests; what a test opens in it is closed after the test, the last one first. */
export class TestCluster {
  #nats: NatsServer | undefined;
  #cluster: Cluster | undefined;
  readonly #open: (() => Promise<unknown>)[] = [];

  constructor() {
    beforeAll(async () => {
      if (!natsServer) return;
      this.#nats = await startNats();
      this.#cluster = await connectCluster({ servers: this.#nats.url });
    });
    afterEach(async () => {
      for (const close of this.#open.splice(0).toReversed()) await close();
    });
    afterAll(async () => {
      await this.#cluster?.close();
      await this.#nats?.stop();
    });
  }

  get url(): string {
    return this.#nats!.url;
  }

  get cluster(): Cluster {
    return this.#cluster!;
  }

  /** Closed after the test. */
  closes(close: () => Promise<unknown>): void {
    this.#open.push(close);
  }

  async gateway(options: Partial<GatewayOptions> = {}): Promise<Gateway> {
    const gateway = await new Gateway({
      cluster: this.cluster,
      ...options,
    }).listen();
    this.closes(() => gateway.close());
    return gateway;
  }

  /** A replica of a stand-in model, in this process. */
  async join(
    name: string,
    options: StandInOptions = {},
    more: Partial<Omit<Parameters<typeof Replica.join>[0], 'cluster' | 'name' | 'model'>> = {},
  ): Promise<Replica> {
    const joined = await Replica.join({
      cluster: { servers: this.url },
      name,
      model: standInModel(options),
      server: { maxPerClient: 1e6, onError: (error) => console.log(error) },
      ...more,
    });
    this.closes(() => joined.close(0));
    return joined;
  }
}

/** The names of the replicas that are ready are these, in order. */
export const there = (gateway: Gateway, ...names: string[]): Promise<void> =>
  until(() => {
    const ready = gateway.replicas.ready.map(({ beat }) => beat.name);
    return ready.toSorted().join() === names.join();
  });

export const post = (url: string, body: object, headers: Record<string, string> = {}, path = '/v1/completions') =>
  fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
