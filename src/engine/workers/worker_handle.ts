import { usageError } from '../../base/errors.js';
import { createPorts } from '../../distributed/index.js';
import type { WorkerCommand, WorkerReport } from './worker_protocol.js';

/** What a worker tells outside of any call. */
export interface WorkerEvents {
  message(report: WorkerReport): void;
  /** It ended by itself, failed or couldn't be started; told once. */
  ended(why: string): void;
}

/** A worker, of a page or of Node, or of another machine. */
export interface WorkerHandle {
  /** It was there before it was asked for: its end is never for want of a script. */
  readonly isThere?: boolean;
  post(command: WorkerCommand, transfer: Transferable[]): void;
  /** Whether the process waits for the worker; only Node's processes end by themselves. */
  hold(held: boolean): void;
  /**
   * Resolves when the worker is gone. A page ends it at once. In Node it ends by itself once it is disposed of: ending a thread
   * with GPU work pending would make Dawn abort the whole process.
   */
  end(): Promise<void>;
}

export type StartWorker = (events: WorkerEvents) => WorkerHandle;

/** One end of a link between ranks of different machines (src/cluster/links). Whoever makes the link draws its id, which nobody can guess, and tells it to the two ends. */
export interface LinkAddress {
  readonly id: string;
  readonly side: 'a' | 'b';
}

/** What joins a rank's worker to a peer's: a port, or where its own host finds that of another machine. */
export type RankConnection = MessagePort | LinkAddress;

/** Where ranks run, and what joins them. */
export interface RankPlaces {
  /** Finds a place for each of these ranks, before they are started; a new one for a rank that was lost. @throws SplitkvError `peer_lost` */
  prepare?(ranks: readonly number[], signal: AbortSignal | undefined): Promise<void>;
  start(rank: number): StartWorker;
  /** What a rank's machine calls it, where ranks have names. */
  name?(rank: number): string;
  /** New connections of each rank to each of its peers. */
  connections(worldSize: number): readonly ReadonlyMap<number, RankConnection>[];
  /** Leaves, when no rank is left. */
  close?(): Promise<void>;
}

/** Workers of this process. */
export const placesHere = (start: StartWorker): RankPlaces => ({ start: () => start, connections: createPorts });

/** How a rank's worker is started here: a Web Worker in a page, a worker_thread in Node. @throws SplitkvError `usage` where neither is. */
export async function rankWorkerStarter(): Promise<StartWorker> {
  if (globalThis.process?.versions?.node !== undefined) return (await import('./node_workers.js')).startNodeWorker;
  if (typeof Worker === 'undefined') {
    throw usageError('workers: this page or worker can start no Web Worker; leave workers out');
  }
  return (await import('./page_workers.js')).startPageWorker;
}
