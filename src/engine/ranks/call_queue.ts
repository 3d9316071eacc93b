/**
 * The order of a rank's calls. A call alone runs after all calls before it and before all after it; calls of one lane run one
 * after another, and those of two lanes side by side. A call that has nothing to wait for runs at once.
 */
export class CallQueue {
  /** By lane: its last call since the last one alone, which is of lane undefined. */
  readonly #last = new Map<number | undefined, Promise<unknown>>();

  alone<T>(call: () => Promise<T>): Promise<T> {
    const before = [...this.#last.values()];
    const result = this.#after(before, undefined, call);
    for (const lane of this.#last.keys()) if (lane !== undefined) this.#last.delete(lane);
    return result;
  }

  inLane<T>(lane: number, call: () => Promise<T>): Promise<T> {
    const before = [this.#last.get(undefined), this.#last.get(lane)].filter((promise) => promise !== undefined);
    return this.#after(before, lane, call);
  }

  /** Resolves when every call given so far has ended. */
  async idle(): Promise<void> {
    await Promise.all(this.#last.values());
  }

  #after<T>(before: readonly Promise<unknown>[], lane: number | undefined, call: () => Promise<T>): Promise<T> {
    const result = before.length === 0 ? call() : Promise.all(before).then(call);
    const ended = result
      .catch(() => {})
      .then(() => {
        if (this.#last.get(lane) === ended) this.#last.delete(lane);
      });
    this.#last.set(lane, ended);
    return result;
  }
}
