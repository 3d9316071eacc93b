/**
 * Room: a rank in a worker of its own. WorkerRank (here) sends calls, serve_rank.ts answers them inside;
 * worker_protocol.ts is what they say. In Node and in pages workers start differently: node_workers.ts,
 * page_workers.ts.
 */

import { messageOf, SplitkvError, usageError } from '../../base/errors.js';
import { inTime } from '../../base/waits.js';
import { decodeReason, encodeReason } from '../../distributed/ports/port.js';
import type { AdapterRequest } from '../../gpu/index.js';
import type { AdapterMeasure, LinkMeasure } from '../../placement/index.js';
import type { ProbeSubject } from '../measure/probe.js';
import type { RankProgress } from '../ranks/open_rank.js';
import type { Rank, RankFacts } from '../contracts/rank.js';
import type { NamedAdapter } from '../ranks/rank_group.js';
import { RankRunner } from '../ranks/rank_runner.js';
import type {
  RankAnswers,
  RankConnection,
  RankMethod,
  RankRequest,
  SliceRequest,
  StartWorker,
  WorkerHandle,
  WorkerReport,
} from './worker_protocol.js';

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

/** How long a worker may be silent while it is awaited. */
export interface Patience {
  readonly pingMs: number;
  /** Pings in a row that may go unanswered. Counted rather than timed: a computer that slept isn't a worker that hangs. */
  readonly pings: number;
}

/** Two minutes: recording programs on a software adapter may keep a worker from answering for a good part of one. */
const PATIENCE: Patience = { pingMs: 5000, pings: 24 };
/** A worker that was asked to free everything and doesn't is left to itself: nobody waits for it. */
const DISPOSE_MS = 10_000;

type Told = Extract<WorkerReport, { type: 'progress' | 'warning' | 'lost' }>;

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

/** Requests to a rank's worker, each of which ends: with the answer, with an error of the worker, or with the worker itself. */
export class WorkerLink {
  readonly #worker: WorkerHandle;
  readonly #waiting = new Map<number, Waiting>();
  #requests = 0;
  #started = false;
  #ended: SplitkvError | undefined;
  #watch: ReturnType<typeof setInterval> | undefined;
  #unanswered = 0;
  #disposal: Promise<void> | undefined;

  constructor(
    readonly rank: number,
    start: StartWorker,
    /** What the worker tells unasked. */
    readonly told: (report: Told) => void,
    /** Called once when the worker ends by itself. */
    readonly died: (reason: SplitkvError) => void,
    readonly patience: Patience = PATIENCE,
  ) {
    this.#worker = start({ message: (report) => this.#receive(report), ended: (why) => this.#die(why) });
    this.#started = this.#worker.isThere ?? false;
    this.#worker.hold(false);
  }

  /** Why nothing can be asked any more. */
  get ended(): SplitkvError | undefined {
    return this.#ended;
  }

  /** @throws the worker's own error with its code; SplitkvError `peer_lost` when it ended or answers nothing for two minutes. */
  ask<T extends RankRequest>(
    request: T,
    transfer?: Transferable[],
  ): Promise<T['type'] extends keyof RankAnswers ? RankAnswers[T['type']] : unknown>;
  async ask(request: RankRequest, transfer: Transferable[] = []): Promise<unknown> {
    if (this.#ended) throw this.#ended;
    const id = this.#requests++;
    this.#worker.post({ type: 'request', id, request }, transfer);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      if (this.#waiting.size === 1) this.#begin();
    });
  }

  abort(reason: unknown): void {
    if (!this.#ended) this.#worker.post({ type: 'abort', reason: encodeReason(reason) }, []);
  }

  /** Frees what the worker holds and ends it; what is still asked rejects with the reason. */
  dispose(reason: SplitkvError): Promise<void> {
    return (this.#disposal ??= this.#dispose(reason));
  }

  async #dispose(reason: SplitkvError): Promise<void> {
    if (!this.#ended) await inTime(this.ask({ type: 'dispose' }), DISPOSE_MS).catch(() => {});
    this.#end(reason);
    await inTime(this.#worker.end(), DISPOSE_MS).catch(() => {});
  }

  #receive(report: WorkerReport): void {
    this.#started = true;
    this.#unanswered = 0;
    if (report.type !== 'answer' && report.type !== 'failure') {
      if (report.type === 'broken') this.#die(messageOf(decodeReason(report.reason)));
      else this.told(report);
      return;
    }
    const waiting = this.#waiting.get(report.id);
    this.#waiting.delete(report.id);
    if (this.#waiting.size === 0) this.#rest();
    if (report.type === 'answer') waiting?.resolve(report.result);
    else waiting?.reject(decodeReason(report.reason));
  }

  #begin(): void {
    this.#worker.hold(true);
    this.#unanswered = 0;
    this.#watch = setInterval(() => this.#ping(), this.patience.pingMs);
  }

  #rest(): void {
    clearInterval(this.#watch);
    this.#worker.hold(false);
  }

  #ping(): void {
    const { pingMs, pings } = this.patience;
    if (this.#unanswered === pings) {
      this.#die(`it hasn't answered for ${(pings * pingMs) / 1000} s`);
      void this.#worker.end();
      return;
    }
    this.#unanswered++;
    // Nobody awaits it: that it comes back is enough.
    this.#worker.post({ type: 'request', id: this.#requests++, request: { type: 'ping' } }, []);
  }

  #die(why: string): void {
    if (this.#ended) return;
    const { rank } = this;
    this.#end(
      this.#started
        ? new SplitkvError(
            'peer_lost',
            `rank ${rank}'s worker is gone: ${why}. Call the model's recover(), or load it again`,
          )
        : new SplitkvError('io', `rank ${rank}'s worker can't be started: ${why}. Is the whole of splitkv served?`),
    );
    this.died(this.#ended!);
  }

  #end(reason: SplitkvError): void {
    this.#ended ??= reason;
    this.#rest();
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }
}
