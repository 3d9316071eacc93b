/** A mean of observations, the older ones counting less and less. */
export class DecayingMean {
  #sum = 0;
  #weight = 0;

  /** @param memory observations that count, about */
  constructor(private readonly memory: number) {}

  /** `weight`: of the observation, whose mean is then `total / weight`. */
  add(total: number, weight = 1): void {
    const keep = 1 - 1 / this.memory;
    this.#sum = this.#sum * keep + total;
    this.#weight = this.#weight * keep + weight;
  }

  get mean(): number | undefined {
    return this.#weight > 0 ? this.#sum / this.#weight : undefined;
  }
}

/** A straight line through observations, the older ones counting less and less. */
export class LinearFit {
  #weight = 0;
  #x = 0;
  #y = 0;
  #xx = 0;
  #xy = 0;

  /**
   * @param memory observations that count, about
   * @param flat what to assume where all x are alike: a constant, or a line through the origin
   */
  constructor(
    private readonly memory: number,
    private readonly flat: 'constant' | 'proportional',
  ) {}

  /** Observations that count. */
  get weight(): number {
    return this.#weight;
  }

  add(x: number, y: number): void {
    const keep = 1 - 1 / this.memory;
    this.#weight = this.#weight * keep + 1;
    this.#x = this.#x * keep + x;
    this.#y = this.#y * keep + y;
    this.#xx = this.#xx * keep + x * x;
    this.#xy = this.#xy * keep + x * y;
  }

  /** Neither is ever negative: more work takes no less time. */
  get line(): { readonly intercept: number; readonly slope: number } {
    if (this.#weight === 0) return { intercept: 0, slope: 0 };
    const meanX = this.#x / this.#weight;
    const meanY = this.#y / this.#weight;
    const variance = this.#xx / this.#weight - meanX * meanX;
    if (variance > 1e-6 * meanX * meanX) {
      const slope = Math.max(0, (this.#xy / this.#weight - meanX * meanY) / variance);
      const intercept = meanY - slope * meanX;
      if (intercept >= 0) return { intercept, slope };
    } else if (this.flat === 'constant') return { intercept: Math.max(0, meanY), slope: 0 };
    return { intercept: 0, slope: this.#xx === 0 ? 0 : Math.max(0, this.#xy / this.#xx) };
  }
}

/** Like `LinearFit`, of two quantities: what the second one costs beside the first. */
export class SecondSlope {
  #weight = 0;
  #sums = { x: 0, z: 0, y: 0, xx: 0, zz: 0, xz: 0, xy: 0, zy: 0 };

  constructor(private readonly memory: number) {}

  add(x: number, z: number, y: number): void {
    const keep = 1 - 1 / this.memory;
    this.#weight = this.#weight * keep + 1;
    const next = { x, z, y, xx: x * x, zz: z * z, xz: x * z, xy: x * y, zy: z * y };
    for (const key of Object.keys(next) as (keyof typeof next)[]) this.#sums[key] = this.#sums[key] * keep + next[key];
  }

  /** y for one more of z; 0 where it can't be told from what x costs, and never negative. */
  get slope(): number {
    const { x, z, y, xx, zz, xz, xy, zy } = this.#sums;
    const n = this.#weight;
    if (n === 0) return 0;
    const [vx, vz, c] = [xx - (x * x) / n, zz - (z * z) / n, xz - (x * z) / n];
    const isFlat = vx <= 1e-6 * xx;
    const own = isFlat ? vz : vz - (c * c) / vx;
    if (own <= 1e-4 * zz) return 0;
    const both = zy - (z * y) / n - (isFlat ? 0 : (c * (xy - (x * y) / n)) / vx);
    return Math.max(0, both / own);
  }
}

const MEMORY = 256;
/** A gap this many times the mean says that the mean is out of date. */
const LONG_GAP = 4;

/** Requests that become able to run, an iteration. */
export class ArrivalRate {
  readonly #arrived = new DecayingMean(MEMORY);
  #sinceLast = 0;

  /** @param arrived in the iteration that has passed */
  add(arrived: number): void {
    this.#arrived.add(arrived);
    this.#sinceLast = arrived > 0 ? 0 : this.#sinceLast + 1;
  }

  /** 0 when none is expected. */
  get perIteration(): number {
    const { mean = 0 } = this.#arrived;
    return this.#sinceLast === 0 ? mean : Math.min(mean, LONG_GAP / this.#sinceLast);
  }
}
