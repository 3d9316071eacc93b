/**
 * Room: a rank in a worker of its own. WorkerRank (here) sends calls, serve_rank.ts answers them inside;
 * worker_protocol.ts is what they say. In Node and in pages workers start differently: node_workers.ts,
 * page_workers.ts.
 */

import { deviceLostError, ioError, messageOf, peerLostError, SplitkvError, usageError } from '../../base/errors.js';
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
  /** The worker ended by itself; told once. */
  died(reason: SplitkvError): void;
}

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

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * A rank in a worker of its own. `open` it, then `load` its slice, then `connect` it with its peers; then `calls` is the rank. Each
 * request ends: with the answer, with an error of the worker, or with the worker itself.
 */
export class WorkerRank {
  readonly calls: Rank;
  readonly #worker: WorkerHandle;
  readonly #waiting = new Map<number, Waiting>();
  #adapter: NamedAdapter | undefined;
  #facts: RankFacts | undefined;
  #onProgress: ((progress: RankProgress) => void) | undefined;
  #requests = 0;
  #started = false;
  #watch: ReturnType<typeof setInterval> | undefined;
  #unanswered = 0;
  /** Why its device is gone, and why nothing can be asked any more. */
  #lost: SplitkvError | undefined;
  #ended: SplitkvError | undefined;
  #disposal: Promise<void> | undefined;

  constructor(
    readonly rank: number,
    start: StartWorker,
    readonly events: WorkerRankEvents,
    readonly patience: Patience = PATIENCE,
  ) {
    this.#worker = start({ message: (report) => this.#receive(report), ended: (why) => this.#die(why) });
    this.#started = this.#worker.isThere ?? false;
    this.#worker.hold(false);
    this.calls = this.#forward();
  }

  get adapter(): NamedAdapter {
    return this.#adapter!;
  }

  /** Why this rank can't go on: its device was lost, or its worker ended. */
  get failure(): SplitkvError | undefined {
    return this.#lost ?? this.#ended;
  }

  async open(adapter: AdapterRequest): Promise<void> {
    this.#adapter = await this.ask({ type: 'open', adapter });
  }

  async load(slice: SliceRequest, onProgress: ((progress: RankProgress) => void) | undefined): Promise<void> {
    this.#onProgress = onProgress;
    this.#facts = await this.ask({ type: 'load', slice });
  }

  async connect(ports: ReadonlyMap<number, RankConnection>): Promise<void> {
    const here = [...ports.values()].filter((port) => port instanceof MessagePort);
    await this.ask({ type: 'connect', ports, sharedMemory: here.length === ports.size }, here);
  }

  measure(subject: ProbeSubject): Promise<AdapterMeasure> {
    return this.ask({ type: 'measure', subject });
  }

  /** With one peer, which is asked at the same time, as the other of the two. */
  measureExchanges(rank: 0 | 1, ports: ReadonlyMap<number, RankConnection>): Promise<LinkMeasure> {
    return this.ask({ type: 'exchanges', ports, rank });
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

  /** Frees what the worker holds and ends it; what is still asked rejects. */
  close(): Promise<void> {
    return (this.#disposal ??= this.#dispose());
  }

  async #dispose(): Promise<void> {
    if (!this.#ended) await inTime(this.ask({ type: 'dispose' }), DISPOSE_MS).catch(() => {});
    this.#end(usageError(`rank ${this.rank}'s worker was disposed; load the model again`));
    await inTime(this.#worker.end(), DISPOSE_MS).catch(() => {});
  }

  /** Each call is sent under its name: one that is added to `Rank` needs nothing here. */
  #forward(): Rank {
    const facts = (): RankFacts => this.#facts!;
    const own: Omit<Rank, RankMethod> = {
      get facts() {
        return facts();
      },
      abort: (reason) => {
        if (!this.#ended) this.#worker.post({ type: 'abort', reason: encodeReason(reason) }, []);
      },
      dispose: () => void this.close(),
    };
    return new Proxy(own as Rank, {
      get: (target, name: string) => {
        // Only what a rank has: a promise would take an object with any other method, `then`, for one of its own.
        if (name in target || !(name in RankRunner.prototype)) return Reflect.get(target, name) as unknown;
        return (...args: readonly unknown[]) =>
          this.ask({ type: 'call', method: name as RankMethod, args: args.map(withoutSignals) });
      },
    });
  }

  #receive(report: WorkerReport): void {
    this.#started = true;
    this.#unanswered = 0;
    if (report.type === 'progress') return this.#onProgress?.(report.progress);
    if (report.type === 'warning') return this.events.warning(report.message);
    if (report.type === 'broken') return this.#die(messageOf(decodeReason(report.reason)));
    if (report.type === 'lost') {
      this.#lost ??= lossOf(decodeReason(report.reason));
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
    const worker = `rank ${this.rank}'s worker`;
    const reason = this.#started
      ? peerLostError(`${worker} is gone: ${why}. Call the model's recover(), or load it again`)
      : ioError(`${worker} can't be started: ${why}. Is the whole of splitkv served?`);
    this.#end(reason);
    this.events.died(reason);
  }

  #end(reason: SplitkvError): void {
    this.#ended ??= reason;
    this.#rest();
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }
}

/** Options may carry an AbortSignal for the caller's own use; it can't be sent. */
function withoutSignals(arg: unknown): unknown {
  if (typeof arg !== 'object' || arg === null || Object.getPrototypeOf(arg) !== Object.prototype) return arg;
  return Object.fromEntries(Object.entries(arg).filter(([, value]) => !(value instanceof AbortSignal)));
}

const lossOf = (reason: unknown): SplitkvError =>
  reason instanceof SplitkvError ? reason : deviceLostError(String(reason));
