import type { Pacer } from './pacing.js';

/** Turns without a sleep, so that a short wait ends as soon as its work does. */
const FREE_TURNS = 20;
const SLEEP_MS = 0.2;

/**
 * Dawn polls once each event-loop turn while GPU work is pending, and so burns a core that a software adapter needs. While a
 * wait is pending this sleeps a little in each turn.
 */
export class NodePacer implements Pacer {
  readonly #cell = new Int32Array(new SharedArrayBuffer(4));
  #waits = 0;
  #turns = 0;
  #scheduled = false;

  begin(): void {
    this.#waits++;
    this.#turns = 0;
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(this.#turn);
  }

  end(): void {
    this.#waits--;
  }

  readonly #turn = (): void => {
    if (this.#waits === 0) {
      this.#scheduled = false;
      return;
    }
    if (++this.#turns > FREE_TURNS) Atomics.wait(this.#cell, 0, 0, SLEEP_MS);
    setImmediate(this.#turn);
  };
}
