import { median } from '../../../base/stats.js';
import { VERIFIED_ROWS } from '../../contracts/rank.js';

/** Rows that verifying programs are made for: others cost what the next of them does. */
export const SIZES = [2, 4, 8, 16];
/** What the next size of rows costs, and twice as many, until they were timed: few enough that they are tried where much is right. */
const USUAL_NEXT = 1.2;
const USUAL_DOUBLE = 1.5;
/** Timed steps of a size that count, the last ones; from two on. The very first may have compiled. */
const TIMED = 5;
/** After so many usual steps others are timed anew: something else may have had the device. */
const ANEW = 1000;
/** Times of usual steps are bursts where several are in flight: their mean is over about so many. */
const STEPS = 20;

/** What steps with drafts cost, of so many sequences. */
export class StepCosts {
  /** Steps without drafts, and the seconds that they took. */
  #steps = 0;
  #seconds = 0;
  #since = 0;
  /** By number of SIZES: steps of so many rows, as multiples of usual ones, after the first. */
  readonly #costs = new Map<number, readonly number[]>();

  constructor(readonly sequences: number) {}

  /** Of a usual step; NaN before there were any. */
  get seconds(): number {
    return this.#seconds / this.#steps;
  }

  observe(rows: number, seconds: number): void {
    if (rows === this.sequences) {
      const fades = 1 - 1 / STEPS;
      [this.#steps, this.#seconds] = [this.#steps * fades + 1, this.#seconds * fades + seconds];
      if (++this.#since % ANEW === 0) for (const size of this.#costs.keys()) this.#costs.set(size, []);
      return;
    }
    if (this.#steps === 0) return;
    const before = this.#costs.get(sizeOf(rows));
    this.#costs.set(sizeOf(rows), before ? [...before, seconds / this.seconds].slice(-TIMED) : []);
  }

  isTimed(rows: number): boolean {
    return (this.#costs.get(sizeOf(rows))?.length ?? 0) >= 2;
  }

  /** Of a step of so many rows, in usual steps. */
  of(rows: number): number {
    const size = sizeOf(rows);
    if (this.isTimed(rows)) return median(this.#costs.get(size)!);
    return size / 2 > this.sequences ? USUAL_DOUBLE * this.of(size / 2) : USUAL_NEXT;
  }
}

const sizeOf = (rows: number): number => SIZES.find((size) => size >= rows) ?? VERIFIED_ROWS;
