const MEMORY = 256;
/** A gap this many times the mean says that the mean is out of date. */
const LONG_GAP = 4;

/** Requests that become able to run, an iteration. */
export class ArrivalRate {
  #count = 0;
  #weight = 0;
  #sinceLast = 0;

  /** @param arrived in the iteration that has passed */
  add(arrived: number): void {
    const keep = 1 - 1 / MEMORY;
    this.#count = this.#count * keep + arrived;
    this.#weight = this.#weight * keep + 1;
    this.#sinceLast = arrived > 0 ? 0 : this.#sinceLast + 1;
  }

  /** 0 when none is expected. */
  get perIteration(): number {
    const mean = this.#weight === 0 ? 0 : this.#count / this.#weight;
    return this.#sinceLast === 0 ? mean : Math.min(mean, LONG_GAP / this.#sinceLast);
  }
}
