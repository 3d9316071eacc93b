/**
 * Room: clusters in tests: a NATS server of their own (here), rank processes (rank_process.ts), and links over NATS
 * for the suite of links (cluster_links.ts).
 */

import { findNatsServer } from '../../../scripts/system_packages.mjs';
import { type NatsServer, type NatsServerOptions, startNatsServer } from '../node_nats_server.js';

/** The nats-server that there is. Tests without one say what they skip: `describe.skipIf(!natsServer)`. */
export const natsServer: string | undefined = findNatsServer();
// Commands that tests start look for it in the system alone.
if (natsServer !== undefined) process.env['NATS_SERVER_PATH'] ??= natsServer;
if (natsServer === undefined) console.log('no nats-server (npm run setup unpacks one): clusters are not tested');

/** A nats-server of its own for a test, on free ports of this machine, with JetStream in a folder that goes with it. */
export const startNats = (options: Omit<NatsServerOptions, 'binary'> = {}): Promise<NatsServer> =>
  startNatsServer({ binary: natsServer!, ...options });
