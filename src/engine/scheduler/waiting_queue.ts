import { inOrder, type Sequence } from './sequence.js';

/** Sequences in order of virtual arrival. */
export class WaitingQueue {
  readonly #items: Sequence[] = [];

  get length(): number {
    return this.#items.length;
  }

  at(index: number): Sequence | undefined {
    return this.#items[index];
  }

  /** The first that meets a condition. */
  find(meets: (sequence: Sequence) => boolean): Sequence | undefined {
    return this.#items.find(meets);
  }

  insert(sequence: Sequence): void {
    insertInOrder(this.#items, sequence);
  }

  /** Takes the first `count` out. */
  take(count: number): Sequence[] {
    return this.#items.splice(0, count);
  }

  remove(sequence: Sequence): boolean {
    return removeFrom(this.#items, sequence);
  }

  [Symbol.iterator](): IterableIterator<Sequence> {
    return this.#items[Symbol.iterator]();
  }
}

/** Inserts into a list that is in order; new ones mostly belong near the end. */
export function insertInOrder(list: Sequence[], sequence: Sequence): void {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (inOrder(list[middle]!, sequence) < 0) low = middle + 1;
    else high = middle;
  }
  list.splice(low, 0, sequence);
}

export function removeFrom(list: Sequence[], sequence: Sequence): boolean {
  const index = list.indexOf(sequence);
  if (index >= 0) list.splice(index, 1);
  return index >= 0;
}
