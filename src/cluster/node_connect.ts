import type { NatsConnection } from '@nats-io/nats-core';
import { connect, type NodeConnectionOptions } from '@nats-io/transport-node';

/** A connection by TCP, with TLS where the server asks for it. */
export const connectNode = (options: unknown): Promise<NatsConnection> =>
  connect(options as NodeConnectionOptions) as Promise<NatsConnection>;
