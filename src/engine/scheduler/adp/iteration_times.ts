import type { Iteration } from '../iteration.js';
import { LinearFit } from './fits.js';

/** Observations before a fit is believed. */
const ENOUGH = 4;
const MEMORY = 512;

/**
 * What iterations take, fitted as they run; the slowest rank is taken to be the one with most rows:
 *
 *     without contexts   a + b * (decode rows of the slowest rank)
 *     with contexts      c + d * (context rows of the slowest rank)
 *
 * c takes in the decode rows, whose number changes little between one context and the next.
 */
export class IterationTimes {
  readonly #generation = new LinearFit(MEMORY, 'constant');
  readonly #context = new LinearFit(MEMORY, 'proportional');

  /** Whether waiting can be weighed against running. */
  get known(): boolean {
    return this.#context.weight >= ENOUGH;
  }

  add({ ranks }: Iteration, seconds: number): void {
    if (ranks.every(({ contextTokens }) => contextTokens === 0)) {
      this.#generation.add(Math.max(...ranks.map(({ decodes }) => decodes.length)), seconds);
      return;
    }
    const slowest = ranks.reduce((most, rank) => (rank.tokens > most.tokens ? rank : most));
    this.#context.add(slowest.contextTokens, seconds);
  }

  /** An iteration of decode rows only. */
  generationSeconds(rows: number): number {
    const known = this.#generation.weight >= ENOUGH;
    const { intercept, slope } = known ? this.#generation.line : this.#context.line;
    return known ? intercept + slope * rows : intercept;
  }

  /** What running contexts at all adds to an iteration of so many decode rows. */
  contextOverhead(rows: number): number {
    return Math.max(0, this.#context.line.intercept - this.generationSeconds(rows));
  }

  /** Seconds a row; in proportion only while nothing is known. A decode row counts as a context row until its own is known. */
  get rowSeconds(): { readonly generation: number; readonly context: number } {
    if (!this.known) return { generation: 1, context: 1 };
    const context = this.#context.line.slope;
    return { generation: this.#generation.line.slope || context, context };
  }
}
