import type { Iteration } from '../iteration.js';
import { LinearFit } from './linear_fit.js';

/** Observations before the fits are believed. */
const ENOUGH = 4;
const MEMORY = 512;

/**
 * What iterations take, fitted as they run:
 *
 *     time(generation) = a + b * (decode rows of the slowest rank)
 *     time(context)    = c + d * (context rows of the slowest rank), on top
 */
export class IterationTimes {
  readonly #generation = new LinearFit(MEMORY, 'constant');
  readonly #context = new LinearFit(MEMORY, 'proportional');

  /** Both are known. */
  get known(): boolean {
    return this.#generation.weight >= ENOUGH && this.#context.weight >= ENOUGH;
  }

  add({ ranks }: Iteration, seconds: number): void {
    if (ranks.every(({ contextTokens }) => contextTokens === 0)) {
      this.#generation.add(Math.max(...ranks.map(({ decodes }) => decodes.length)), seconds);
      return;
    }
    if (this.#generation.weight === 0) return; // nothing to tell the context's part by
    const { decodes, contextTokens } = ranks.reduce((slowest, rank) =>
      this.#load(rank) > this.#load(slowest) ? rank : slowest,
    );
    this.#context.add(contextTokens, Math.max(0, seconds - this.generationSeconds(decodes.length)));
  }

  #load({ decodes, contextTokens }: Iteration['ranks'][number]): number {
    return this.rowSeconds.generation * decodes.length + this.rowSeconds.context * contextTokens;
  }

  /** An iteration of decode rows only. */
  generationSeconds(rows: number): number {
    const { intercept, slope } = this.#generation.line;
    return intercept + slope * rows;
  }

  /** What running contexts at all adds to an iteration. */
  get contextOverhead(): number {
    return this.#context.line.intercept;
  }

  /** Seconds a row; equal while nothing is known. */
  get rowSeconds(): { readonly generation: number; readonly context: number } {
    if (!this.known) return { generation: 1, context: 1 };
    return { generation: this.#generation.line.slope, context: this.#context.line.slope };
  }
}
