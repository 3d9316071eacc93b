/**
 * The order of a rank's calls. A call alone runs after all calls before it and before all after it; calls of one lane run one
 * after another, and those of two lanes side by side. A call that has nothing to wait for runs at once.
 */
export class CallQueue {
  /** The last call alone. */
  #alone: Promise<unknown> | undefined;
  /** By lane: its last call since then. */
  readonly #lanes = new Map<number, Promise<unknown>>();

  alone<T>(call: () => Promise<T>): Promise<T> {
    const result = this.#after([this.#alone, ...this.#lanes.values()], call);
    const ended = result
      .catch(() => {})
      .then(() => {
        if (this.#alone === ended) this.#alone = undefined;
      });
    this.#alone = ended;
    this.#lanes.clear();
    return result;
  }

  inLane<T>(lane: number, call: () => Promise<T>): Promise<T> {
    const result = this.#after([this.#alone, this.#lanes.get(lane)], call);
    const ended = result
      .catch(() => {})
      .then(() => {
        if (this.#lanes.get(lane) === ended) this.#lanes.delete(lane);
      });
    this.#lanes.set(lane, ended);
    return result;
  }

  /** Resolves when every call given so far has ended. */
  async idle(): Promise<void> {
    await Promise.all([this.#alone, ...this.#lanes.values()]);
  }

  #after<T>(before: readonly (Promise<unknown> | undefined)[], call: () => Promise<T>): Promise<T> {
    const pending = before.filter((promise) => promise !== undefined);
    return pending.length === 0 ? call() : Promise.all(pending).then(call);
  }
}
