/** A small seeded generator (mulberry32) for test data, benchmarks and simulation; not for sampling tokens or for secrets. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A number in [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** An integer in [0, bound). */
  integer(bound: number): number {
    return Math.floor(this.next() * bound);
  }

  /** A standard normal number (Box-Muller). */
  normal(): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.next()));
    return radius * Math.cos(2 * Math.PI * this.next());
  }

  /** `length` normal numbers of standard deviation `scale`, as f32. */
  normals(length: number, scale = 1): Float32Array<ArrayBuffer> {
    const out = new Float32Array(length);
    for (let i = 0; i < length; i++) out[i] = this.normal() * scale;
    return out;
  }
}
