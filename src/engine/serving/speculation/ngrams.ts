import { nth } from '../../../base/lists.js';
import type { Drafter, Proposal } from './speculation.js';

/** The longest run of tokens that is compared, and how many earlier places are. */
const LONGEST = 24;
const PLACES = 8;
/** Runs by length from so many tokens on: of each it is counted how often the token behind was right. */
const RUNS = [2, 3, 5, 8, 16];
/** How often before anything was counted, which weighs as much as so many tokens. */
const USUAL = [0.2, 0.35, 0.6, 0.75, 0.85];
const WEIGHT = 6;
/** What was counted long ago counts less. */
const FADES = 0.98;

/** Proposes what followed the same tokens before, in prompt or answer: where the longest run of the last tokens was, and of these lately. */
export class Ngrams implements Drafter {
  readonly #tokens: number[] = [];
  /** By two tokens: the last place behind them. By place: the one before of the same two tokens. */
  readonly #last = new Map<number, number>();
  readonly #before: number[] = [];
  /** Of RUNS: tokens that came behind such a run, and how many of them were the ones proposed. */
  readonly #came = RUNS.map((): { all: number; right: number } => ({ all: 0, right: 0 }));
  /** The place behind the best run; undefined: not looked for yet, 0: none. */
  #found: { readonly place: number; readonly run: number } | undefined;

  constructor(prompt: readonly number[]) {
    for (const token of prompt) this.#add(token);
  }

  take(token: number): void {
    const { place, run } = this.#find();
    if (place > 0) {
      const came = nth(this.#came, run);
      came.all = came.all * FADES + 1;
      came.right = came.right * FADES + (this.#tokens[place] === token ? 1 : 0);
    }
    this.#add(token);
  }

  propose(most: number): Proposal {
    const { place, run } = this.#find();
    const { all, right } = nth(this.#came, run);
    // What repeats goes on repeating behind the last token.
    const period = this.#tokens.length - place;
    return {
      length: place === 0 ? 0 : most,
      sureness: (right + nth(USUAL, run) * WEIGHT) / (all + WEIGHT),
      tokens: (count) => Array.from({ length: count }, (_, at) => nth(this.#tokens, place + (at % period))),
    };
  }

  #add(token: number): void {
    const { length } = this.#tokens;
    if (length >= 2) {
      const key = this.#key(length);
      this.#before[length] = this.#last.get(key) ?? 0;
      this.#last.set(key, length);
    }
    this.#tokens.push(token);
    this.#found = undefined;
  }

  /** Of the two tokens before a place. */
  #key(place: number): number {
    return nth(this.#tokens, place - 2) * 2 ** 24 + nth(this.#tokens, place - 1);
  }

  #find(): { readonly place: number; readonly run: number } {
    if (this.#found) return this.#found;
    const tokens = this.#tokens;
    const end = tokens.length;
    let [best, longest] = [0, 1];
    let place = end < 2 ? 0 : (this.#last.get(this.#key(end)) ?? 0);
    for (let left = PLACES; place > 0 && left > 0; left--) {
      let length = 2;
      while (length < Math.min(LONGEST, place) && tokens[place - 1 - length] === tokens[end - 1 - length]) length++;
      if (length > longest) [best, longest] = [place, length];
      place = this.#before[place] ?? 0;
    }
    const run = Math.max(
      0,
      RUNS.findLastIndex((from) => longest >= from),
    );
    return (this.#found = { place: best, run });
  }
}
