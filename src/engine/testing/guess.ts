import { Random } from '../../base/random.js';
import type { Drafter, Proposal } from '../serving/speculation/speculation.js';

/** Knows what comes, and is often wrong: at any place of what it proposes, or not at all. */
export class Guess implements Drafter {
  readonly #random = new Random(11);
  #at = 0;

  constructor(readonly answer: readonly number[]) {}

  take(): void {
    this.#at++;
  }

  propose(most: number): Proposal {
    const length = this.#random.integer(most + 1);
    const right = this.answer.slice(this.#at, this.#at + length);
    const wrong = this.#random.integer(length + 4);
    const tokens = right.map((token, at) => (at === wrong ? token ^ 1 : token));
    return { length: tokens.length, sureness: 0.5, tokens: (count) => tokens.slice(0, count) };
  }
}
