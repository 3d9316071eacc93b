/**
 * Room: clusters on the command line: options of every command that joins one (here), where a nats-server is
 * (find_nats_server.js), and the models that a cluster keeps (push.ts).
 */

import { hostname } from 'node:os';
import type { ClusterOptions } from '../../cluster/connect.js';
import { usageError } from '../../base/errors.js';
import { defined, inGroup, type Options, type OptionSpecs, readGiven } from '../options.js';

/** Where a cluster's NATS server is, and as whom one comes: options of every command that joins one. */
export const clusterOptions = inGroup('Cluster', {
  cluster: { value: 'URL', help: 'a NATS server, nats://HOST:4222; several of one NATS cluster with commas' },
  'cluster-name': { value: 'NAME', help: 'tells clusters of one server apart; default main' },
  'token-file': { value: 'FILE', help: "the server's token" },
  'nkey-file': { value: 'FILE', help: "an nkey's seed (SU...)" },
  'creds-file': { value: 'FILE', help: 'credentials as nsc makes them' },
  'tls-ca': { value: 'FILE', help: "who signed the server's certificate (PEM); default: as Node knows them" },
  'tls-cert': { value: 'FILE', help: 'a certificate of its own (PEM), with --tls-key' },
  'tls-key': { value: 'FILE', help: "that certificate's key (PEM)" },
} as const satisfies OptionSpecs);

/**
 * The cluster that options name, undefined where none does.
 * @throws SplitkvError `usage` for options of a cluster without one, `io` for a file that can't be read
 */
export async function readCluster(options: Options): Promise<ClusterOptions | undefined> {
  const servers = options.text('cluster');
  if (servers === undefined) {
    const stray = Object.keys(clusterOptions).find((name) => options.has(name));
    if (stray !== undefined)
      throw usageError(`--${stray} is of a cluster: name its server, --cluster nats://HOST:4222`);
    return undefined;
  }
  const file = async (name: string): Promise<string | undefined> => {
    const path = options.text(name);
    return path === undefined ? undefined : (await readGiven(name, path)).trim();
  };
  const tls = defined({ ca: await file('tls-ca'), cert: await file('tls-cert'), key: await file('tls-key') });
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    throw usageError('--tls-cert and --tls-key go together: give both');
  }
  return {
    servers: servers.split(',').map((server) => server.trim()),
    ...defined({
      name: options.text('cluster-name'),
      token: await file('token-file'),
      nkey: await file('nkey-file'),
      creds: await file('creds-file'),
    }),
    ...(Object.keys(tls).length > 0 && { tls }),
  };
}

/** The same where there must be one. @throws SplitkvError `usage`, `io` */
export async function neededCluster(options: Options, command: string): Promise<ClusterOptions> {
  const cluster = await readCluster(options);
  if (cluster) return cluster;
  throw usageError(`${command}: which cluster? --cluster nats://HOST:4222 (\`splitkv cluster\` starts its server)`);
}

/** This machine's name, as far as it can be one in a cluster: at most so many letters. */
export const machineName = (most: number, otherwise: string): string =>
  hostname()
    .replace(/[^\w-]+/g, '-')
    .replace(/^[-_]+/, '')
    .slice(0, most) || otherwise;
