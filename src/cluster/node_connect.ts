import { createRequire } from 'node:module';
import type { NatsConnection } from '@nats-io/nats-core';
import type { NodeConnectionOptions } from '@nats-io/transport-node';

/** A connection by TCP, with TLS where the server asks for it. */
export async function connectNode(options: unknown): Promise<NatsConnection> {
  // The client is CommonJS. In a build it asks for Node's modules by a `require` that scripts of that kind have.
  const scope = globalThis as { require?: NodeJS.Require };
  scope.require ??= createRequire(import.meta.url);
  const { connect } = await import('@nats-io/transport-node');
  return connect(options as NodeConnectionOptions) as Promise<NatsConnection>;
}
