import { usageError } from '../base/errors.js';
import { grouped } from '../base/math.js';

export interface StopScan {
  /** Text that is certainly before any stop string. */
  text: string;
  /** The stop string that was met; nothing from it on is returned. */
  stopped?: string;
}

/** Letters of all stop strings together. */
const MAX_LETTERS = 1 << 16;

/**
 * Looks for stop strings in text that comes in pieces, and holds back only what could still be the beginning of one. It stops at
 * the string that is complete first (of two that end together, the longer), so where the pieces are cut changes nothing. A letter of a text
 * takes some steps for each stop string, however long that is (Knuth, Morris and Pratt's way).
 */
export class StopScanner {
  readonly #stops: readonly Stop[];
  #held = '';
  #stopped: string | undefined;

  /** Throws `usage` for an empty stop string, which would stop everything, and for more than 65,536 letters. */
  constructor(stops: readonly string[]) {
    if (stops.includes('')) throw usageError('a stop string is empty; leave it out, or give at least one character');
    const letters = stops.reduce((sum, stop) => sum + stop.length, 0);
    if (letters > MAX_LETTERS)
      throw usageError(
        `the stop strings have ${grouped(letters)} letters; expected at most ${grouped(MAX_LETTERS)} together`,
      );
    this.#stops = [...new Set(stops)].sort((a, b) => b.length - a.length).map((text) => new Stop(text));
  }

  push(piece: string): StopScan {
    if (this.#stopped !== undefined) return { text: '', stopped: this.#stopped };
    const text = this.#held + piece;
    for (let at = this.#held.length; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      let met: string | undefined;
      for (const stop of this.#stops) if (stop.isMet(unit)) met ??= stop.text;
      if (met === undefined) continue;
      this.#held = '';
      this.#stopped = met;
      return { text: text.slice(0, at + 1 - met.length), stopped: met };
    }
    const keep = this.#stops.reduce((most, { begun }) => Math.max(most, begun), 0);
    this.#held = text.slice(text.length - keep);
    return { text: text.slice(0, text.length - keep) };
  }

  /** The text held back, when no more comes. */
  flush(): string {
    const text = this.#held;
    this.#held = '';
    for (const stop of this.#stops) stop.begun = 0;
    return text;
  }
}

class Stop {
  /** Length of the longest end of what came that is a beginning of this stop string, and not all of it. */
  begun = 0;
  /** By length of a beginning: that of the longest shorter beginning which it ends in. */
  readonly #shorter: Int32Array;

  constructor(readonly text: string) {
    this.#shorter = new Int32Array(text.length);
    for (let length = 1; length < text.length; length++) {
      this.isMet(text.charCodeAt(length));
      if (length + 1 < text.length) this.#shorter[length + 1] = this.begun;
    }
    this.begun = 0;
  }

  isMet(unit: number): boolean {
    const { text } = this;
    let begun = this.begun;
    while (begun > 0 && text.charCodeAt(begun) !== unit) begun = this.#shorter[begun]!;
    if (text.charCodeAt(begun) === unit) begun++;
    this.begun = begun;
    return begun === text.length;
  }
}
