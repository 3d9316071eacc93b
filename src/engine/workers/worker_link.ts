import { messageOf, SplitkvError } from '../../base/errors.js';
import { decodeReason, encodeReason } from '../../distributed/ports/port.js';
import type { StartWorker, WorkerHandle } from './worker_handle.js';
import type { RankAnswers, RankRequest, WorkerReport } from './worker_protocol.js';

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
    if (!this.#ended) await within(DISPOSE_MS, this.ask({ type: 'dispose' }));
    this.#end(reason);
    await within(DISPOSE_MS, this.#worker.end());
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

/** Resolves when the work has ended, however, or the time is over. */
async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  await Promise.race([work.catch(() => {}), late]);
  clearTimeout(timer);
}
