import { isNode } from '../../base/platform.js';
import { usageError } from '../../base/errors.js';
import { createPorts } from '../../distributed/index.js';
import type { PortReason } from '../../distributed/ports/port.js';
import type { AdapterRequest } from '../../gpu/index.js';
import type { RankProgress } from '../ranks/open_rank.js';
import type { AdapterMeasure, LinkMeasure, Plan } from '../../placement/index.js';
import type { ProbeSubject } from '../measure/probe.js';
import type { WeightTypes } from '../../model/weights/weight_types.js';
import type { ModelPlace } from './model_place.js';
import type { NamedAdapter } from '../ranks/rank_group.js';
import type { Rank, RankFacts, RunnerOptions } from '../contracts/rank.js';

/** Calls of a rank that have an answer. */
export type RankMethod = {
  [K in keyof Rank]: Rank[K] extends (...args: never[]) => Promise<unknown> ? K : never;
}[keyof Rank];

/** A rank's slice of a model, as its worker loads it. */
export interface SliceRequest {
  readonly place: ModelPlace;
  /** As of `LoadOptions`. */
  readonly cache: boolean;
  readonly integrity?: Readonly<Record<string, string>> | undefined;
  /** What the files must say that they are (`modelDigest`), where they may be others. */
  readonly digest?: string | undefined;
  readonly type: WeightTypes;
  readonly plan: Plan;
  readonly rank: number;
  /** The ranks' adapters differ. */
  readonly mixed: boolean;
  readonly runner: RunnerOptions;
}

/** What a rank's worker is asked, in this order: `open`, `load`, then `connect` and calls; after a failure of another rank again `connect`. */
export type RankRequest =
  | { readonly type: 'open'; readonly adapter: AdapterRequest }
  | { readonly type: 'load'; readonly slice: SliceRequest }
  /** A port to each peer (of another machine: where its host finds the link); links that there were end. */
  | {
      readonly type: 'connect';
      readonly ports: ReadonlyMap<number, RankConnection>;
      /** Peers are in this process: small messages may go by shared memory. */
      readonly sharedMemory: boolean;
    }
  /** What the planner asks of the rank's adapter; a rank that is open needs nothing else for it. Ranks of clusters only. */
  | { readonly type: 'measure'; readonly subject: ProbeSubject }
  /** How quick an exchange with one peer is, which is asked the same. Ranks of clusters only. */
  | { readonly type: 'exchanges'; readonly ports: ReadonlyMap<number, RankConnection>; readonly rank: 0 | 1 }
  | { readonly type: 'call'; readonly method: RankMethod; readonly args: readonly unknown[] }
  /** Answered at once, whatever else is under way. */
  | { readonly type: 'ping' }
  /** Ends what is under way and frees everything. */
  | { readonly type: 'dispose' };

/** What the requests of a type are answered with; the others have no value. */
export interface RankAnswers {
  readonly open: NamedAdapter;
  readonly load: RankFacts;
  readonly measure: AdapterMeasure;
  readonly exchanges: LinkMeasure;
}

/** To a rank's worker. Requests are answered under their number, in any order. */
export type WorkerCommand =
  | { readonly type: 'request'; readonly id: number; readonly request: RankRequest }
  | { readonly type: 'abort'; readonly reason: PortReason };

export type WorkerReport =
  | { readonly type: 'answer'; readonly id: number; readonly result: unknown }
  | { readonly type: 'failure'; readonly id: number; readonly reason: PortReason }
  | { readonly type: 'progress'; readonly progress: RankProgress }
  | { readonly type: 'warning'; readonly message: string }
  /** The rank's device went away. */
  | { readonly type: 'lost'; readonly reason: PortReason }
  /** An error that no request caught: the worker frees what it holds and ends. */
  | { readonly type: 'broken'; readonly reason: PortReason };

export interface WorkerEvents {
  message(report: WorkerReport): void;
  /** It ended by itself, failed or couldn't be started; what is told after that doesn't count. */
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
  if (isNode()) return (await import('./node_workers.js')).startNodeWorker;
  if (typeof Worker === 'undefined') {
    throw usageError('workers: this page or worker can start no Web Worker; leave workers out');
  }
  return (await import('./page_workers.js')).startPageWorker;
}
