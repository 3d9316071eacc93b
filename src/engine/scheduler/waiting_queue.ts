import { listIn } from '../../base/lists.js';
import { type Client, inOrder, nextInTurn } from './priority.js';
import type { Sequence } from './sequence.js';

/** Sequences that wait, by client, each client's in order. */
export class WaitingQueue {
  readonly #of = new Map<Client, Sequence[]>();
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Whose turn it is. */
  get first(): Sequence | undefined {
    return nextInTurn(this.firsts());
  }

  /** Each client's first that meets a condition. */
  firsts(meets?: (sequence: Sequence) => boolean): Sequence[] {
    const firsts: Sequence[] = [];
    for (const own of this.#of.values()) {
      const first = meets ? own.find(meets) : own[0];
      if (first) firsts.push(first);
    }
    return firsts;
  }

  /** The first `count`, as if each got a slot in its turn. */
  inTurn(count: number): Sequence[] {
    const [only] = this.#of.values();
    if (only && (this.#of.size === 1 || count <= 0)) return only.slice(0, Math.max(0, count));
    const turn: Sequence[] = [];
    const given = new Map<Client, number>();
    while (turn.length < count) {
      const firsts = [...this.#of].flatMap(([client, own]) => own[given.get(client) ?? 0] ?? []);
      const next = nextInTurn(firsts, given);
      if (!next) break;
      given.set(next.client, (given.get(next.client) ?? 0) + 1);
      turn.push(next);
    }
    return turn;
  }

  insert(sequence: Sequence): void {
    insertInOrder(listIn(this.#of, sequence.client), sequence);
    this.#length++;
  }

  /** Takes all out, in no order. */
  takeAll(): Sequence[] {
    const all = [...this];
    this.#of.clear();
    this.#length = 0;
    return all;
  }

  remove(sequence: Sequence): boolean {
    const { client } = sequence;
    const own = this.#of.get(client);
    if (!own || !removeFrom(own, sequence)) return false;
    if (own.length === 0) this.#of.delete(client);
    this.#length--;
    return true;
  }

  *[Symbol.iterator](): IterableIterator<Sequence> {
    for (const own of this.#of.values()) yield* own;
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
