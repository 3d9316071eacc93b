import { usageError } from '../../base/errors.js';
import type { GenerateResult, Generation, GenerationDelta } from '../contracts/api.js';

/**
 * A generation that runs whether or not anyone iterates it. Leaving the iteration early aborts the run; `result` then
 * resolves with what there is.
 */
export class GenerationStream implements Generation {
  readonly result: Promise<GenerateResult>;
  readonly #pieces: GenerationDelta[] = [];
  readonly #leave = new AbortController();
  #wake: (() => void) | undefined;
  #ended = false;
  #iterated = false;

  /** `run` gets a function that emits what is new, and a signal for an iteration that was left early. */
  constructor(run: (emit: (delta: GenerationDelta) => void, left: AbortSignal) => Promise<GenerateResult>) {
    this.result = run((delta) => {
      this.#pieces.push(delta);
      this.#wake?.();
    }, this.#leave.signal);
    const end = (): void => {
      this.#ended = true;
      this.#wake?.();
    };
    // Also marks the rejection as handled: who only iterates sees the error there.
    this.result.then(end, end);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    for await (const { text } of this.deltas()) if (text !== '') yield text;
  }

  async *deltas(): AsyncGenerator<GenerationDelta, void, undefined> {
    if (this.#iterated)
      throw usageError('this generation is being iterated already; await its result, or generate again');
    this.#iterated = true;
    let finished = false;
    try {
      for (;;) {
        while (this.#pieces.length > 0) yield this.#pieces.shift()!;
        if (this.#ended) break;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        this.#wake = undefined;
      }
      await this.result;
      finished = true;
    } finally {
      if (!finished) this.#leave.abort(new Error('the iteration was left'));
    }
  }
}
