import type { Trace } from './trace.js';

/** Clients that send a trace's requests in order of arrival, with a limit to how many are open at once. */
export class Clients {
  readonly #order: readonly number[];
  #sent = 0;
  #open = 0;

  constructor(
    private readonly trace: Trace,
    private readonly concurrency: number,
  ) {
    this.#order = [...trace.keys()].sort((a, b) => trace[a]!.arrivalSeconds - trace[b]!.arrivalSeconds || a - b);
  }

  /** The index of a request to send at this time; undefined when there is none, or no client is free. */
  next(clock: number): number | undefined {
    const index = this.#order[this.#sent];
    if (index === undefined || this.#open >= this.concurrency) return undefined;
    if (this.trace[index]!.arrivalSeconds > clock) return undefined;
    this.#sent++;
    this.#open++;
    return index;
  }

  /** When the next request comes; undefined after the last. */
  get nextArrival(): number | undefined {
    const index = this.#order[this.#sent];
    return index === undefined ? undefined : this.trace[index]!.arrivalSeconds;
  }

  /** An open request has finished. */
  done(): void {
    this.#open--;
  }
}
