import type { Device } from './device.js';

/** What a submit may take: systems reset a GPU that answers nothing else for 2 s, and the desktop stutters long before. */
const SECONDS = 0.06;
const IN_FLIGHT = 2;
/** Dispatches of the first submits, before any was timed: about a layer's. */
const UNTIMED = 8;

/**
 * Cuts programs whose rows take long into submits of some 60 ms, two in flight; by what the last ones took, as every adapter and
 * model takes another time. Where a program is cut changes no bit.
 */
export class Submits {
  /** Of a dispatch, for each row. */
  #seconds: number | undefined;
  /** Dispatches that are encoded and not submitted. */
  #encoded = 0;
  #rows = 1;
  #lastEnd = 0;
  readonly #running: Promise<void>[] = [];

  constructor(readonly device: Device) {}

  /** Dispatches that may still be encoded before `submit`, at least one; `rows`: that they work on. */
  room(rows: number): number {
    this.#rows = Math.max(1, rows);
    const most = this.#seconds === undefined ? UNTIMED : Math.floor(SECONDS / (this.#seconds * this.#rows));
    return Math.max(1, most - this.#encoded);
  }

  /** So many more are encoded; whether they are to be submitted now. */
  encoded(dispatches: number, rows: number): boolean {
    const isFull = this.room(rows) <= dispatches;
    this.#encoded += dispatches;
    return isFull;
  }

  /** What was encoded was submitted elsewhere, with an exchange. */
  forget(): void {
    this.#encoded = 0;
  }

  /** Submits what was encoded; resolves when another may follow. @throws SplitkvError `device_lost` */
  async submit(encoder: GPUCommandEncoder): Promise<void> {
    const { queue } = this.device.gpu;
    const work = this.#encoded * this.#rows;
    this.#encoded = 0;
    queue.submit([encoder.finish()]);
    const started = performance.now();
    const running = queue.onSubmittedWorkDone().then(() => {
      const now = performance.now();
      // It began when it was submitted, or when the one before it ended.
      if (work > 0) this.#seconds = (now - Math.max(started, this.#lastEnd)) / 1000 / work;
      this.#lastEnd = now;
    });
    this.#running.push(running);
    const over = (): void => void this.#running.splice(this.#running.indexOf(running), 1);
    running.then(over, over);
    while (this.#running.length >= IN_FLIGHT) await this.device.wait(this.#running[0]!);
  }
}
