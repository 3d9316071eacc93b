/** A rank's free slots, by the micro-batch that each is of. */
export class SlotGroups {
  /** By micro-batch; the last is given out next. */
  readonly #free: readonly number[][];
  /** By slot. */
  readonly #groupOf: readonly number[];

  /** `sizes`: slots of each micro-batch; its slots follow those of the one before. */
  constructor(sizes: readonly number[]) {
    this.#groupOf = sizes.flatMap((size, group) => new Array<number>(size).fill(group));
    this.#free = sizes.map(() => []);
    for (let slot = this.#groupOf.length - 1; slot >= 0; slot--) this.give(slot);
  }

  get count(): number {
    return this.#free.length;
  }

  get numFree(): number {
    return this.#free.reduce((sum, { length }) => sum + length, 0);
  }

  freeIn(group: number): number {
    return this.#free[group]!.length;
  }

  groupOf(slot: number): number {
    return this.#groupOf[slot]!;
  }

  /** A slot of a micro-batch that has a free one. */
  take(group: number): number {
    return this.#free[group]!.pop()!;
  }

  give(slot: number): void {
    this.#free[this.#groupOf[slot]!]!.push(slot);
  }
}
