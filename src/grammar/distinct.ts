import { unsupportedError } from '../base/errors.js';
import { parsed } from '../base/json.js';
import type { NextTokens, ReadyForm } from './masks.js';
import type { State } from './matcher.js';

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const [OPEN, CLOSE] = ['[{', ']}'].map((of) => Array.from(of, (one) => one.charCodeAt(0))) as [number[], number[]];

interface List {
  /** Brackets that are open where its strings are, and how many of them are within it. */
  readonly depth: number;
  readonly within: number;
  readonly said: readonly string[];
}

interface Reading {
  readonly lists: readonly List[];
  /** Brackets that are open since the first of them. */
  readonly depth: number;
  /** Of the string that isn't whole yet, as a JSON text. */
  readonly open: string | undefined;
  /** The list that it is of. */
  readonly list: List | undefined;
}

const NOTHING: Reading = { lists: [], depth: 0, open: undefined, list: undefined };

/** The lists that an answer is in, of which no two items may have the same string. */
export class Distinct {
  /** Where the answer is. */
  at = NOTHING;

  constructor(private readonly form: ReadyForm) {}

  /** One symbol more, behind a state. @returns false: it makes a string that was there before */
  take(state: State, symbol: number): boolean {
    const next = this.#behind(this.at, state, symbol);
    if (next) this.at = next;
    return next !== undefined;
  }

  clear(): void {
    this /** Where the answer is. */.at = NOTHING;
  }

  #behind(at: Reading, state: State, symbol: number): Reading | undefined {
    const { lists, depth, open, list } = at;
    if (open !== undefined) {
      const text = open + String.fromCharCode(symbol);
      if (symbol !== QUOTE || isEscaped(open)) return { ...at, open: text };
      if (!list) return { ...at, open: undefined };
      const value = valueOf(text);
      if (list.said.includes(value)) return undefined;
      const own = { ...list, said: [...list.said, value] };
      return {
        lists: [...lists.filter((other) => other.depth !== depth), own],
        depth,
        open: undefined,
        list: undefined,
      };
    }
    if (symbol === QUOTE) {
      const { distinct } = this.form.matcher.network;
      const within = Math.max(0, ...state.places.map(({ node }) => distinct?.[node] ?? 0));
      const of = within === 0 ? undefined : (lists.find((one) => one.depth === depth) ?? { depth, within, said: [] });
      return of || lists.length > 0 ? { ...at, open: '"', list: of } : at;
    }
    if (lists.length === 0) return at;
    if (OPEN.includes(symbol)) return { ...at, depth: depth + 1 };
    if (!CLOSE.includes(symbol)) return at;
    const left = lists.filter((one) => depth - 1 > one.depth - one.within);
    return left.length === 0 ? NOTHING : { ...at, lists: left, depth: depth - 1 };
  }

  /**
   * What may come next without tokens that would make a string that was there before.
   * @param symbolsOf of a token
   * @param quoted tokens with quotes, and how many they have
   */
  without(
    next: NextTokens,
    state: State,
    symbolsOf: (id: number) => ArrayLike<number>,
    quoted: ReadonlyMap<number, number>,
  ): NextTokens {
    // A token alone can have two strings.
    const least = this.at.lists.length > 0 ? 1 : this.at.open === undefined ? 4 : 3;
    let allowed: Uint32Array | undefined;
    for (const [id, quotes] of quoted) {
      if (quotes < least || !((next.allowed[id >>> 5]! >>> (id & 31)) & 1) || !this.#repeats(state, symbolsOf(id)))
        continue;
      allowed ??= next.allowed.slice();
      allowed[id >>> 5]! &= ~(1 << (id & 31));
    }
    if (!allowed) return next;
    if (allowed.every((word) => word === 0))
      throw unsupportedError('the model has no token that the text could go on with in its form');
    return { allowed };
  }

  #repeats(from: State, symbols: ArrayLike<number>): boolean {
    let at: Reading | undefined = this.at;
    let state: State | null = from;
    for (let i = 0; state && i < symbols.length; i++) {
      at = this.#behind(at, state, symbols[i]!);
      if (!at) return true;
      state = this.form.matcher.step(state, symbols[i]!);
    }
    return false;
  }
}

/** Whether what comes behind is: an odd number of backslashes is the end. */
function isEscaped(text: string): boolean {
  let at = text.length;
  while (text.charCodeAt(at - 1) === BACKSLASH) at--;
  return (text.length - at) % 2 === 1;
}

/** The same for all spellings of a string; its characters are bytes here. */
const valueOf = (text: string): string => {
  const bytes = Uint8Array.from(text, (one) => one.charCodeAt(0));
  return JSON.stringify(parsed(new TextDecoder().decode(bytes))) ?? text;
};
