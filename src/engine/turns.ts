/** Tasks take one of `slots` slots each, in the order they came; one task's failure doesn't stop the next. */
export class Turns {
  readonly #free: number[];
  readonly #waiting: { readonly all: boolean; readonly start: (slot: number) => void }[] = [];
  readonly #running = new Set<Promise<unknown>>();

  constructor(readonly slots: number) {
    this.#free = Array.from({ length: slots }, (_, slot) => slot);
  }

  /** Runs a task in the lowest free slot. */
  run<T>(task: (slot: number) => Promise<T>): Promise<T> {
    return this.#enter(false, task);
  }

  /** Runs a task while no other runs. */
  alone<T>(task: () => Promise<T>): Promise<T> {
    return this.#enter(true, task);
  }

  /** Resolves when every task given so far has ended. */
  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.allSettled(this.#running);
  }

  #enter<T>(all: boolean, task: (slot: number) => Promise<T>): Promise<T> {
    const result = new Promise<number>((start) => {
      this.#waiting.push({ all, start });
      this.#admit();
    }).then(async (slot) => {
      try {
        return await task(slot);
      } finally {
        if (all) this.#free.push(...Array.from({ length: this.slots }, (_, index) => index));
        else this.#free.push(slot);
        this.#free.sort((a, b) => a - b);
        this.#admit();
      }
    });
    const ended = result.catch(() => {}).then(() => void this.#running.delete(ended));
    this.#running.add(ended);
    return result;
  }

  #admit(): void {
    for (;;) {
      const [next] = this.#waiting;
      if (!next || this.#free.length < (next.all ? this.slots : 1)) return;
      this.#waiting.shift();
      const slot = this.#free.shift()!;
      if (next.all) this.#free.length = 0;
      next.start(slot);
    }
  }
}
