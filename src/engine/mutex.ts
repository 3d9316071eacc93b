/** Runs tasks one after the other, in the order they came; one task's failure doesn't stop the next. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  run<T>(task: () => Promise<T>): Promise<T> {
    const result = this.#last.then(task);
    this.#last = result.catch(() => {});
    return result;
  }

  /** Resolves when every task given so far has ended. */
  async idle(): Promise<void> {
    await this.#last;
  }
}
