/**
 * Copies of recurrent layers' states, each of one position of some content that the prefix cache knows. The one unused for longest is
 * given out again when none is free.
 */
export class StatePool {
  readonly #free: number[];
  /** In the order of their last use, with what makes the cache forget them. */
  readonly #known = new Map<number, () => void>();

  constructor(readonly count: number) {
    this.#free = Array.from({ length: count }, (_, place) => count - 1 - place);
  }

  /** A place to copy a state to; undefined where all are waiting for theirs. */
  take(): number | undefined {
    const place = this.#free.pop();
    if (place !== undefined) return place;
    const oldest = this.#known.entries().next();
    if (oldest.done) return undefined;
    const [known, forget] = oldest.value;
    this.#known.delete(known);
    forget();
    return known;
  }

  /** A taken place's state is there, and can be found. */
  settle(place: number, forget: () => void): void {
    this.#known.set(place, forget);
  }

  /** A sequence begins with it. */
  use(place: number): void {
    const forget = this.#known.get(place);
    if (!forget) return;
    this.#known.delete(place);
    this.#known.set(place, forget);
  }

  /** Nobody will look for it. */
  release(place: number): void {
    this.#known.delete(place);
    this.#free.push(place);
  }
}
