/**
 * Room: more machines than one, over NATS. The connection to a NATS server, names and subjects (here);
 * `links` carry messages between ranks, `ranks` are devices of other machines, `store` keeps models, `routing` chooses
 * replicas; `peers` are tabs without a server. Nothing of it is loaded before a cluster is asked for.
 */

import type { ConnectionOptions, NatsConnection } from '@nats-io/nats-core';
import { ioError, limitError, messageOf, SplitkvError, throwIfAborted, usageError, withAbort } from '../base/errors.js';
import { checkOptions, type OptionsSchema } from '../base/options.js';
import { pause } from '../base/waits.js';
import type { ClusterOptions } from '../engine/contracts/cluster_options.js';

export type { ClusterOptions } from '../engine/contracts/cluster_options.js';

/** A connection to a cluster's server; it comes back by itself when the server does. */
export interface Cluster {
  readonly name: string;
  readonly connection: NatsConnection;
  /** Whether it is a NATS server, which can keep models; otherwise pages talk to each other. */
  readonly hasServer: boolean;
  /** Bytes that a message may have. */
  readonly maxPayload: number;
  /** A subject below this cluster's. */
  subject(...parts: readonly string[]): string;
  /** Sends what is still to be sent, and leaves. */
  close(): Promise<void>;
}

const clusterSchema: OptionsSchema<ClusterOptions> = {
  servers: true,
  peers: true,
  name: true,
  token: true,
  user: true,
  password: true,
  nkey: true,
  creds: true,
  tls: true,
  signal: true,
};

const CONNECT_MS = 5000;
/** Below it a message would be mostly what surrounds it. */
const LEAST_PAYLOAD = 64 * 1024;

/**
 * Connects to a cluster's NATS server, or to pages without one.
 * @throws SplitkvError `usage` for wrong options and where the server refuses who comes, `io` when no server answers, `limit` when its
 *   messages are too small, `aborted`
 */
export async function connectCluster(options: ClusterOptions): Promise<Cluster> {
  checkOptions('cluster', options, clusterSchema);
  throwIfAborted(options.signal, 'connecting to the cluster');
  const name = checkName(options.name ?? 'main', 'cluster');
  if (options.peers) {
    const stray = Object.keys(options).find((key) => !['peers', 'signal'].includes(key));
    if (stray !== undefined) throw usageError(`cluster: ${stray} is of a server, and peers have none: leave it out`);
    return clusterOver(name, options.peers.connection as NatsConnection);
  }
  const servers = [options.servers ?? []].flat().map(checkServer);
  if (servers.length === 0) throw usageError('cluster: no server is named; nats://HOST:4222, for example');
  const where = servers.join(', ');
  const connection = await answered(
    connectTo(servers, {
      servers: [...servers],
      name: 'splitkv',
      // An account that may use `splitkv.CLUSTER.>` alone can be answered, too.
      inboxPrefix: subjectOf(name, 'inbox'),
      timeout: CONNECT_MS,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      reconnectJitter: 250,
      // A cable that was pulled says nothing.
      pingInterval: 5000,
      maxPingOut: 3,
      noAsyncTraces: true,
      ignoreClusterUpdates: servers.length === 1,
      ...(await identity(options)),
      ...(options.tls && { tls: { ...options.tls } }),
    }).catch((error: unknown) => {
      throw connectError(error, where);
    }),
    options.signal,
  );
  const maxPayload = connection.info?.max_payload ?? 0;
  if (maxPayload < LEAST_PAYLOAD) {
    await connection.close();
    throw limitError(
      `cluster ${where}: the server's max_payload is ${maxPayload} bytes; splitkv needs ${LEAST_PAYLOAD} at least (1 MB is NATS's default)`,
    );
  }
  return clusterOver(name, connection, true);
}

function clusterOver(name: string, connection: NatsConnection, hasServer = false): Cluster {
  return {
    name,
    connection,
    hasServer,
    maxPayload: connection.info!.max_payload,
    subject: (...parts) => subjectOf(name, ...parts),
    close: async () => {
      if (connection.isClosed()) return;
      // A server that went away takes nothing more.
      await Promise.race([connection.drain().catch(() => {}), pause(1000)]);
      await connection.close();
    },
  };
}

/** A connection that came after the caller had left is closed. */
async function answered(made: Promise<NatsConnection>, signal: AbortSignal | undefined): Promise<NatsConnection> {
  try {
    return await withAbort(made, signal, 'connecting to the cluster');
  } catch (error) {
    void made.then(
      (connection) => connection.close(),
      () => {},
    );
    throw error;
  }
}

const SCHEMES = ['nats:', 'tls:', 'ws:', 'wss:'];

/** @throws SplitkvError `usage` */
function checkServer(given: string): string {
  const text = /^[a-z]+:\/\//i.test(given) ? given : `nats://${given}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !SCHEMES.includes(url.protocol) || url.hostname === '') {
    throw usageError(`cluster ${given}: expected the address of a NATS server, nats://HOST:4222 or wss://HOST`);
  }
  if (url.username !== '' || url.password !== '') {
    throw usageError(
      `cluster ${url.host}: others see an address; give user, password or token by an option or a file of their own`,
    );
  }
  // NATS's client takes what stands behind the last :// for the host, wherever that is.
  const path = url.pathname === '/' ? '' : url.pathname;
  if (`${path}${url.search}${url.hash}`.includes('//')) {
    throw usageError(`cluster ${url.host}: the address names two machines; give one, nats://HOST:4222 or wss://HOST`);
  }
  return `${url.protocol}//${url.host}${path}${url.search}`;
}

const isWebSocket = (server: string): boolean => /^wss?:/i.test(server);

async function connectTo(servers: readonly string[], options: ConnectionOptions): Promise<NatsConnection> {
  const web = servers.filter(isWebSocket).length;
  if (web > 0 && web < servers.length) {
    throw usageError(`cluster ${servers.join(', ')}: addresses of one kind, nats:// or wss://, go together`);
  }
  if (web > 0) {
    if (typeof WebSocket === 'undefined') {
      throw usageError(`cluster ${servers.join(', ')}: this Node has no WebSocket (Node 22 has); use nats://HOST:4222`);
    }
    return (await import('@nats-io/nats-core')).wsconnect({ ...options, wsFactory: openSocket });
  }
  if (isPage()) {
    throw usageError(
      `cluster ${servers.join(', ')}: a page reaches a NATS server by its WebSocket, wss://HOST (or ws:// on this machine)`,
    );
  }
  return (await import('./node_connect.js')).connectNode(options);
}

/** A socket that closes with a code: without one NATS's server answers with what browsers call a failure. */
function openSocket(address: string): Promise<{ readonly socket: WebSocket; readonly encrypted: boolean }> {
  const socket = new WebSocket(address);
  const close = socket.close.bind(socket);
  socket.close = (code = 1000, reason) => close(code, reason);
  return Promise.resolve({ socket, encrypted: address.startsWith('wss:') });
}

/** Who comes. @throws SplitkvError `usage` for two identities or a wrong key */
async function identity({
  token,
  user,
  password,
  nkey,
  creds,
}: ClusterOptions): Promise<Pick<ConnectionOptions, 'token' | 'user' | 'pass' | 'authenticator'>> {
  const given = Object.entries({ token, user, nkey, creds }).filter(([, value]) => value !== undefined);
  if (given.length > 1) {
    throw usageError(`cluster: ${given.map(([key]) => key).join(' and ')} are two identities: give one of them`);
  }
  if (token !== undefined) return { token };
  if (user !== undefined) return { user, ...(password !== undefined && { pass: password }) };
  if (nkey === undefined && creds === undefined) return {};
  const { credsAuthenticator, nkeyAuthenticator, nkeys } = await import('@nats-io/nats-core');
  const bytes = new TextEncoder().encode(creds ?? nkey?.trim());
  try {
    if (creds !== undefined) return { authenticator: credsAuthenticator(bytes) };
    nkeys.fromSeed(bytes);
    return { authenticator: nkeyAuthenticator(bytes) };
  } catch (error) {
    const [what, form] =
      creds === undefined
        ? ['this nkey', 'the seed of a user, SU...']
        : ['these credentials', 'a .creds file as nsc makes it'];
    throw usageError(`cluster: ${what} can't be read: ${messageOf(error)}. Give ${form}`);
  }
}

const ADVICE = 'Is it running, and reachable from here? `splitkv cluster` starts one on this machine';
const PAGE_ADVICE =
  "Is its WebSocket open, and reachable from here? A page of https needs wss://, and the page's Content-Security-Policy must allow the address (connect-src)";

const isPage = (): boolean => globalThis.process?.versions?.node === undefined;

function connectError(error: unknown, where: string): SplitkvError {
  if (error instanceof SplitkvError) return error;
  const name = error instanceof Error ? error.name : '';
  if (name === 'AuthorizationError' || name === 'UserAuthenticationExpiredError') {
    return usageError(
      `cluster ${where}: the server refuses this account (${messageOf(error)}); give its token, nkey or credentials${isPage() ? '' : ' (--token-file, --nkey-file, --creds-file)'}`,
      error,
    );
  }
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : '';
  return ioError(
    `cluster ${where}: no NATS server answers (${messageOf(error)}${cause}). ${isPage() ? PAGE_ADVICE : ADVICE}`,
    error,
  );
}

const PREFIX = 'splitkv';
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;

/** Whether a text may name something of a cluster: part of a subject, of a bucket's name, of a line of a log. */
export const isName = (name: unknown): boolean => typeof name === 'string' && NAME.test(name);

/** @param what the name is of, for the error @throws SplitkvError `usage` */
export function checkName(name: string, what: string): string {
  if (isName(name)) return name;
  const shown = JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}...` : name);
  throw usageError(`${what} ${shown}: expected 1 to 63 letters, digits, - and _, of which the first is no sign`);
}

/**
 * A subject of a cluster: everything that splitkv sends lies below `splitkv.CLUSTER`, so that an account can be limited to it.
 * @param parts names, and at the end of a subscription's `*` or `>` @throws SplitkvError `usage` for another part
 */
export function subjectOf(cluster: string, ...parts: readonly string[]): string {
  const checked = parts.map((part, at) =>
    part === '*' || (part === '>' && at === parts.length - 1) ? part : checkName(part, 'part of a subject'),
  );
  return [PREFIX, checkName(cluster, 'cluster'), ...checked].join('.');
}
