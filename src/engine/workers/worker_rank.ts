/**
 * Room: a rank in a worker of its own. WorkerRank (here) sends calls, serve_rank.ts answers them inside;
 * worker_protocol.ts is what they say. In Node and in pages workers start differently: node_workers.ts,
 * page_workers.ts.
 */

import { SplitkvError, usageError } from '../../base/errors.js';
import { decodeReason } from '../../distributed/ports/port.js';
import type { AdapterRequest } from '../../gpu/index.js';
import type { AdapterMeasure, LinkMeasure } from '../../placement/index.js';
import type { ProbeSubject } from '../measure/probe.js';
import type { RankProgress } from '../ranks/open_rank.js';
import type { Rank, RankFacts } from '../contracts/rank.js';
import type { NamedAdapter } from '../ranks/rank_group.js';
import { RankRunner } from '../ranks/rank_runner.js';
import type { RankConnection, StartWorker } from './worker_handle.js';
import { type Patience, WorkerLink } from './worker_link.js';
import type { RankMethod, SliceRequest } from './worker_protocol.js';

export interface WorkerRankEvents {
  warning(message: string): void;
  /** The worker ended by itself. */
  died(reason: SplitkvError): void;
}

/** A rank in a worker of its own. `open` it, then `load` its slice, then `connect` it with its peers; then `calls` is the rank. */
export class WorkerRank {
  readonly calls: Rank;
  readonly #link: WorkerLink;
  #adapter: NamedAdapter | undefined;
  #facts: RankFacts | undefined;
  #lost: SplitkvError | undefined;
  #onProgress: ((progress: RankProgress) => void) | undefined;

  constructor(
    readonly rank: number,
    start: StartWorker,
    events: WorkerRankEvents,
    patience?: Patience,
  ) {
    this.#link = new WorkerLink(
      rank,
      start,
      (report) => {
        if (report.type === 'progress') this.#onProgress?.(report.progress);
        else if (report.type === 'warning') events.warning(report.message);
        else this.#lost ??= lossOf(decodeReason(report.reason));
      },
      events.died,
      patience,
    );
    this.calls = this.#forward();
  }

  get adapter(): NamedAdapter {
    return this.#adapter!;
  }

  /** Why this rank can't go on: its device was lost, or its worker ended. */
  get failure(): SplitkvError | undefined {
    return this.#lost ?? this.#link.ended;
  }

  async open(adapter: AdapterRequest): Promise<void> {
    this.#adapter = await this.#link.ask({ type: 'open', adapter });
  }

  async load(slice: SliceRequest, onProgress: ((progress: RankProgress) => void) | undefined): Promise<void> {
    this.#onProgress = onProgress;
    this.#facts = await this.#link.ask({ type: 'load', slice });
  }

  async connect(ports: ReadonlyMap<number, RankConnection>): Promise<void> {
    const here = [...ports.values()].filter((port) => port instanceof MessagePort);
    await this.#link.ask({ type: 'connect', ports, sharedMemory: here.length === ports.size }, here);
  }

  measure(subject: ProbeSubject): Promise<AdapterMeasure> {
    return this.#link.ask({ type: 'measure', subject });
  }

  /** With one peer, which is asked at the same time, as the other of the two. */
  measureExchanges(rank: 0 | 1, ports: ReadonlyMap<number, RankConnection>): Promise<LinkMeasure> {
    return this.#link.ask({ type: 'exchanges', ports, rank });
  }

  /** Frees everything and ends the worker. */
  close(): Promise<void> {
    return this.#link.dispose(usageError(`rank ${this.rank}'s worker was disposed; load the model again`));
  }

  /** Each call is sent under its name: one that is added to `Rank` needs nothing here. */
  #forward(): Rank {
    const facts = (): RankFacts => this.#facts!;
    const own: Omit<Rank, RankMethod> = {
      get facts() {
        return facts();
      },
      abort: (reason) => this.#link.abort(reason),
      dispose: () => void this.close(),
    };
    return new Proxy(own as Rank, {
      get: (target, name: string) => {
        // Only what a rank has: a promise would take an object with any other method, `then`, for one of its own.
        if (name in target || !(name in RankRunner.prototype)) return Reflect.get(target, name) as unknown;
        return (...args: readonly unknown[]) =>
          this.#link.ask({ type: 'call', method: name as RankMethod, args: args.map(withoutSignals) });
      },
    });
  }
}

/** Options may carry an AbortSignal for the caller's own use; it can't be sent. */
function withoutSignals(arg: unknown): unknown {
  if (typeof arg !== 'object' || arg === null || Object.getPrototypeOf(arg) !== Object.prototype) return arg;
  return Object.fromEntries(Object.entries(arg).filter(([, value]) => !(value instanceof AbortSignal)));
}

const lossOf = (reason: unknown): SplitkvError =>
  reason instanceof SplitkvError ? reason : new SplitkvError('device_lost', String(reason));
