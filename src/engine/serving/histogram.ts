/** Counts by upper bound, as Prometheus wants them. */
export interface HistogramCounts {
  /** Upper bounds, ascending. */
  readonly bounds: readonly number[];
  /** Samples up to each bound, smaller ones included. */
  readonly counts: readonly number[];
  readonly count: number;
  readonly sum: number;
}

export class Histogram {
  readonly #each: number[];
  #count = 0;
  #sum = 0;

  /** @param bounds ascending */
  constructor(readonly bounds: readonly number[]) {
    this.#each = bounds.map(() => 0);
  }

  observe(value: number): void {
    this.#count++;
    this.#sum += value;
    const bucket = this.bounds.findIndex((bound) => value <= bound);
    if (bucket >= 0) this.#each[bucket]!++;
  }

  get counts(): HistogramCounts {
    let total = 0;
    return {
      bounds: this.bounds,
      counts: this.#each.map((count) => (total += count)),
      count: this.#count,
      sum: this.#sum,
    };
  }
}
