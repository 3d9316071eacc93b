import type { GenerateResult, Generation, GenerationDelta } from '../contracts/api.js';
import { EventQueue } from '../serving/text/event_queue.js';

/**
 * A generation that runs whether or not anyone iterates it. Leaving the iteration early aborts the run; `result` then
 * resolves with what there is.
 */
export class GenerationStream implements Generation {
  readonly result: Promise<GenerateResult>;
  readonly #deltas = new EventQueue<GenerationDelta>(
    'this generation is being iterated already; await its result, or generate again',
  );
  readonly #leave = new AbortController();

  /** `run` gets a function that emits what is new, and a signal for an iteration that was left early. */
  constructor(run: (emit: (delta: GenerationDelta) => void, left: AbortSignal) => Promise<GenerateResult>) {
    this.result = run((delta) => this.#deltas.push(delta), this.#leave.signal);
    // Also marks the rejection as handled: who only iterates sees the error there.
    this.result.then(
      () => this.#deltas.end(),
      (reason: unknown) => this.#deltas.end({ reason }),
    );
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    for await (const { text } of this.deltas()) if (text !== '') yield text;
  }

  async *deltas(): AsyncGenerator<GenerationDelta, void, undefined> {
    const deltas = this.#deltas.read();
    let finished = false;
    try {
      yield* deltas;
      finished = true;
    } finally {
      if (!finished) this.#leave.abort(new Error('the iteration was left'));
    }
  }
}
