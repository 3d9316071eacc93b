import { type ClusterOptions, connectCluster } from '../../cluster/connect.js';
import type { ServingModel } from '../../index.js';
import { ApiServer, type ServerOptions } from '../api_server.js';
import { Beats } from './beats.js';
import { newInstance, Replica } from './replica.js';

export interface JoinOptions {
  readonly cluster: ClusterOptions;
  /** Of its own in the cluster: 1 to 63 letters, digits, - and _. */
  readonly name: string;
  readonly model: ServingModel;
  /** What clients call the model, its limits and its version; who may ask is the gateways' business. */
  readonly server: Omit<ServerOptions, 'apiKeys' | 'priorityKeys' | 'port'>;
  readonly onStrange?: (error: unknown) => void;
  readonly onNote?: (line: string) => void;
}

export interface Joined {
  readonly replica: Replica;
  /** Ends what is under way, or leaves it to others after so long; then leaves the cluster. */
  close(graceMs: number): Promise<void>;
  /** Its connections break, as when its process is killed: nobody is told anything. */
  vanish(): Promise<void>;
}

const DEFAULT_QUEUE = 128;
const DEFAULT_BODY = 2 ** 20;
/** A gateway may add a field to a body. */
const ADDED = 1024;
/** Gateways count clients' answers, and check who may have a priority; here one is as good as another. */
const MANY = 2 ** 30;

/** Makes a model a replica of a cluster. @throws SplitkvError as `connectCluster`; `usage` for a name that is taken */
export async function joinCluster({
  cluster: where,
  name,
  model,
  server,
  onStrange,
  onNote,
}: JoinOptions): Promise<Joined> {
  const instance = newInstance();
  const maxQueue = server.maxQueue ?? DEFAULT_QUEUE;
  const cluster = await connectCluster(where);
  const { signal: _, ...own } = where;
  const api = ApiServer.unlistened({
    ...server,
    maxQueue,
    maxPerClient: MANY,
    priorityKeys: 'all',
    maxBodyBytes: (server.maxBodyBytes ?? DEFAULT_BODY) + ADDED,
    allowedHosts: ['*'],
    place: instance,
  });
  api.open(model);
  let beats: Beats | undefined;
  try {
    const started = await Beats.start(own);
    beats = started;
    const version = server.version ?? 'unknown';
    const replica = await Replica.join({
      cluster,
      beats: started,
      name,
      instance,
      server: api,
      model,
      version,
      maxQueue,
      ...(onStrange && { onStrange }),
      ...(onNote && { onNote }),
    });
    return {
      replica,
      close: async (graceMs) => {
        await replica.close(graceMs);
        await api.close();
        await cluster.close();
      },
      vanish: async () => {
        await Promise.all([cluster.connection.close(), started.stop()]);
        await api.close();
      },
    };
  } catch (error) {
    await beats?.stop();
    await api.close();
    await cluster.close();
    throw error;
  }
}
