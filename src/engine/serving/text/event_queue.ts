import { usageError } from '../../../base/errors.js';

/** Values that are pushed whenever they come, for one reader. */
export class EventQueue<T> {
  readonly #values: T[] = [];
  #wake: (() => void) | undefined;
  #ended = false;
  #failure: { readonly reason: unknown } | undefined;
  #read = false;

  /** @param isTaken what a second reader is told */
  constructor(private readonly isTaken = 'these answers are being iterated already; ask for them again') {}

  push(value: T): void {
    this.#values.push(value);
    this.#wake?.();
  }

  /** No more come; with a reason, the reader throws it after what was pushed before. */
  end(failure?: { readonly reason: unknown }): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = failure;
    this.#wake?.();
  }

  /** @throws SplitkvError `usage` when it is read already */
  read(): AsyncGenerator<T, void, undefined> {
    if (this.#read) throw usageError(this.isTaken);
    this.#read = true;
    return this.#drain();
  }

  async *#drain(): AsyncGenerator<T, void, undefined> {
    for (;;) {
      while (this.#values.length > 0) yield this.#values.shift()!;
      if (this.#ended) break;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    if (this.#failure) throw this.#failure.reason;
  }
}
