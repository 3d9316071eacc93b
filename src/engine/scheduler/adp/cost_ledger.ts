/** Runs of contexts that the mean is taken over, about. */
const MEMORY = 20;

/** What contexts have cost so far: the seconds they added to iterations, and what was lost while they waited. */
export class CostLedger {
  #seconds = 0;
  #rows = 0;

  add(seconds: number, rows: number): void {
    const keep = 1 - 1 / MEMORY;
    this.#seconds = this.#seconds * keep + seconds;
    this.#rows = this.#rows * keep + rows;
  }

  /** Seconds a row; undefined before the first. */
  get perRow(): number | undefined {
    return this.#rows > 0 ? this.#seconds / this.#rows : undefined;
  }
}
