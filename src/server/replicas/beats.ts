import type { Worker } from 'node:worker_threads';
import { pause } from '../../base/waits.js';
import type { Cluster, ClusterOptions } from '../../cluster/connect.js';
import type { PrefixFilter } from '../../cluster/routing/prefixes.js';
import { startThread } from '../threads.js';
import { BEAT_MS, type Beat, readBeat } from './messages.js';

/** What the thread is started with, and told. */
export type BeatsCluster = Omit<ClusterOptions, 'signal'>;
export interface Told {
  readonly beat: Omit<Beat, 'lag'>;
  /** Undefined: as before. */
  readonly prefixes: Uint8Array | undefined;
}
export type ThreadSaid = 'ready' | 'left' | { readonly error: string };

/**
 * A replica's heartbeats, from a thread with a connection of its own: they go on while a GPU's work keeps this thread busy, and say
 * for how long it has been.
 */
export class Beats {
  readonly #ended: Promise<unknown>;

  private constructor(private readonly worker: Worker) {
    this.#ended = new Promise((resolve) => worker.once('exit', resolve));
    // Without it the replica is taken for gone, and comes back when it is started again.
    worker.on('error', () => {});
  }

  /** @throws SplitkvError as `connectCluster`'s, with its message */
  static async start(cluster: BeatsCluster): Promise<Beats> {
    const worker = startThread('replicas/node_beat_worker', 'splitkv beats', cluster);
    const said = await new Promise<ThreadSaid>((resolve, reject) => {
      worker.once('message', resolve).once('error', reject);
    });
    if (typeof said === 'object') {
      await worker.terminate();
      throw new Error(said.error);
    }
    // It ends with the process.
    worker.unref();
    return new Beats(worker);
  }

  /** From now on. */
  tell(beat: Told['beat'], prefixes?: PrefixFilter): void {
    this.worker.postMessage({ beat, prefixes: prefixes?.toBytes() } satisfies Told);
  }

  /** Tells that it has left, and ends. */
  async leave(beat: Told['beat']): Promise<void> {
    const left = new Promise<void>((resolve) => void this.worker.once('message', () => resolve()));
    this.tell({ ...beat, left: true });
    await Promise.race([left, this.#ended]);
    await this.stop();
  }

  /** Ends without a word. */
  async stop(): Promise<void> {
    await this.worker.terminate();
  }
}

/** What replicas of a name, or all of them, say within the time that each takes to say it: the last beat of each instance. */
export async function heardBeats(cluster: Cluster, name = '*'): Promise<readonly Beat[]> {
  const found = new Map<string, Beat>();
  const subscription = cluster.connection.subscribe(cluster.subject('beat', name), {
    callback: (error, message) => {
      if (error) return;
      try {
        const { beat } = readBeat(message.data);
        found.set(beat.instance, beat);
      } catch {
        // No beat.
      }
    },
  });
  await pause(BEAT_MS * 1.5);
  subscription.unsubscribe();
  return [...found.values()];
}
