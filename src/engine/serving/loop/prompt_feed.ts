import { internalError, isLoss } from '../../../base/errors.js';
import type { HandedKv, PrefillWorker } from '../../contracts/prefill_worker.js';
import type { Scheduler } from '../../scheduler/index.js';

/** Prompts that may be computed and wait on the host for room on the ranks. */
const AHEAD = 4;
/** Times that the worker is made anew for one prompt. */
const ATTEMPTS = 3;

/**
 * Keeps a prefill worker busy with the prompts that wait, as many as it computes at once, the first in the scheduler's order first, and
 * holds what it computed until the ranks take it over.
 */
export class PromptFeed {
  readonly #ready = new Map<string, HandedKv>();
  readonly #working = new Map<string, { readonly control: AbortController; readonly ended: Promise<void> }>();
  #failure: unknown;
  #closed = false;

  constructor(
    readonly worker: PrefillWorker,
    readonly promptOf: (id: string) => readonly number[],
    /** Called when a prompt is ready, or none will be any more. */
    readonly wake: () => void,
  ) {}

  /** Tells the scheduler of ready prompts and starts on the next ones. @throws what the worker failed with for good */
  pump(scheduler: Scheduler): void {
    if (this.#failure !== undefined) throw this.#failure;
    for (const id of this.#ready.keys()) scheduler.hand(id);
    const { atOnce } = this.worker;
    while (!this.#closed && this.#working.size < atOnce && this.#ready.size + this.#working.size < AHEAD + atOnce - 1) {
      const next = scheduler.nextToHand(this.#working);
      if (!next) return;
      this.#start(next.id);
    }
  }

  /** What the ranks are to take over now. */
  take(id: string): HandedKv {
    const kv = this.#ready.get(id);
    if (!kv) throw internalError(`request ${id}: its prompt isn't there to be handed over`);
    this.#ready.delete(id);
    return kv;
  }

  /** A request that ended: its prompt isn't needed. */
  drop(id: string): void {
    this.#ready.delete(id);
    this.#working.get(id)?.control.abort();
  }

  /** Ends what the worker is computing; it may be used on. */
  async close(): Promise<void> {
    this.#closed = true;
    const under = [...this.#working.values()];
    for (const { control } of under) control.abort();
    await Promise.all(under.map(({ ended }) => ended));
  }

  #start(id: string): void {
    const control = new AbortController();
    const ended = this.#compute(id, control.signal)
      .catch((error: unknown) => {
        if (!control.signal.aborted) this.#failure = error;
      })
      .finally(() => {
        this.#working.delete(id);
        this.wake();
      });
    this.#working.set(id, { control, ended });
  }

  async #compute(id: string, signal: AbortSignal): Promise<void> {
    const prompt = this.promptOf(id);
    for (let attempt = 1; ; attempt++) {
      try {
        const kv = await this.worker.prefill(prompt, signal);
        if (!signal.aborted) this.#ready.set(id, kv);
        return;
      } catch (error) {
        const lost = isLoss(error);
        if (!lost || attempt === ATTEMPTS) throw error;
        await this.worker.recover(signal);
      }
    }
  }
}
