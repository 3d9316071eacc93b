import { usageError } from '../base/errors.js';

export interface StopScan {
  /** Text that is certainly before any stop string. */
  text: string;
  /** The stop string that was met; nothing from it on is returned. */
  stopped?: string;
}

/**
 * Looks for stop strings in text that comes in pieces, and holds back only what could still be the beginning of one. It stops at
 * the string that is complete first (of two that end together, the longer), so where the pieces are cut changes nothing.
 */
export class StopScanner {
  readonly #stops: readonly string[];
  #held = '';
  #stopped: string | undefined;

  /** Throws `usage` for an empty stop string, which would stop everything. */
  constructor(stops: readonly string[]) {
    if (stops.includes('')) throw usageError('a stop string is empty; leave it out, or give at least one character');
    this.#stops = [...new Set(stops)].sort((a, b) => b.length - a.length);
  }

  push(piece: string): StopScan {
    if (this.#stopped !== undefined) return { text: '', stopped: this.#stopped };
    const text = this.#held + piece;
    let first: { stop: string; start: number; end: number } | undefined;
    for (const stop of this.#stops) {
      const start = text.indexOf(stop);
      const end = start + stop.length;
      if (start >= 0 && (first === undefined || end < first.end)) first = { stop, start, end };
    }
    if (first !== undefined) {
      this.#held = '';
      this.#stopped = first.stop;
      return { text: text.slice(0, first.start), stopped: first.stop };
    }
    const keep = Math.max(0, ...this.#stops.map((stop) => overlap(text, stop)));
    this.#held = text.slice(text.length - keep);
    return { text: text.slice(0, text.length - keep) };
  }

  /** The text held back, when no more comes. */
  flush(): string {
    const text = this.#held;
    this.#held = '';
    return text;
  }
}

/** Length of the longest end of `text` that is a beginning of `stop`, and not all of it. */
function overlap(text: string, stop: string): number {
  let length = Math.min(text.length, stop.length - 1);
  while (length > 0 && !text.endsWith(stop.slice(0, length))) length--;
  return length;
}
