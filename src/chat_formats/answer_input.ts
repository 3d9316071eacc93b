import { parsed } from '../base/json.js';

/** Steps of a reader: it yields where it needs more of the answer. */
export type Steps<T = void> = Generator<undefined, T, undefined>;
export type Take = (text: string) => void;

/**
 * An answer's text as it comes. Readers are written as if all of it were there: what they make of it is the same wherever its pieces
 * are cut.
 */
export class AnswerInput {
  #text = '';
  #ended = false;
  #kept: string | undefined;

  push(text: string): void {
    this.#text += text;
  }

  /** No more comes. */
  end(): void {
    this.#ended = true;
  }

  /** The next characters: fewer where the answer ends before. */
  *peek(length: number): Steps<string> {
    while (this.#text.length < length && !this.#ended) yield;
    return this.#text.slice(0, length);
  }

  take(length: number): string {
    const text = this.#text.slice(0, length);
    this.#text = this.#text.slice(length);
    if (this.#kept !== undefined) this.#kept += text;
    return text;
  }

  /** From here on what is taken is remembered. */
  keep(): void {
    this.#kept = '';
  }

  /** What was taken since `keep`. */
  kept(): string {
    const text = this.#kept ?? '';
    this.#kept = undefined;
    return text;
  }

  blanks(): Steps<string> {
    return this.word(/\s/);
  }

  /** Takes a bracket that comes next, and what is within, commas and blanks between. @returns whether all of it, up to `close`, was there */
  *items(close: string, one: () => Steps<boolean>): Steps<boolean> {
    for (this.take(1); ;) {
      yield* this.blanks();
      if (yield* this.literal(close)) return true;
      if (!(yield* this.literal(',')) && !(yield* one())) return false;
    }
  }

  /**
   * As `items`, but as JSON: a list, or an object where braces are around it. @returns undefined where it isn't whole
   * @param one an item, or a member; undefined where it isn't whole
   * @param take gets what there is of it as it comes
   */
  *collect(
    close: string,
    one: () => Steps<string | undefined>,
    take?: Take,
    [before = '', behind = ''] = close === '}' ? '{}' : '[]',
  ): Steps<string | undefined> {
    let whole = '';
    const add = (text: string): void => {
      whole += text;
      take?.(text);
    };
    add(before);
    const isWhole = yield* this.items(close, function* () {
      const item = yield* one();
      if (item !== undefined) add(whole === before ? item : `, ${item}`);
      return item !== undefined;
    });
    if (isWhole) add(behind);
    return isWhole ? whole : undefined;
  }

  /** Passes a JSON value on as it comes. @returns whether it was whole */
  *jsonValue(take: Take): Steps<boolean> {
    let depth = 0;
    let quoted = false;
    do {
      const next = yield* this.peek(1);
      if (next === '') return false;
      if (depth === 0 && !quoted && !'{["'.includes(next)) {
        // A number or a word: up to what can't be of it.
        const word = yield* this.word(/[-+.\w]/);
        take(word);
        return word !== '';
      }
      const length = quoted && next === '\\' ? 2 : 1;
      if ((yield* this.peek(length)).length < length) return false;
      take(this.take(length));
      if (next === '"') quoted = !quoted;
      else if (!quoted) depth += '{['.includes(next) ? 1 : '}]'.includes(next) ? -1 : 0;
    } while (quoted || depth > 0);
    return true;
  }

  /** The value of a JSON string; undefined where none comes. */
  *jsonString(): Steps<string | undefined> {
    if ((yield* this.peek(1)) !== '"') return undefined;
    let raw = '';
    const value = (yield* this.jsonValue((piece) => (raw += piece))) ? parsed(raw) : undefined;
    return typeof value === 'string' ? value : undefined;
  }

  /** Takes a text if it is what comes next. */
  *literal(literal: string): Steps<boolean> {
    for (;;) {
      const there = this.#text.slice(0, literal.length);
      if (there === literal) {
        this.take(literal.length);
        return true;
      }
      if (!literal.startsWith(there) || this.#ended) return false;
      yield;
    }
  }

  /** Takes a sign between two things, with the blanks around it. */
  *between(sign: string): Steps<boolean> {
    yield* this.blanks();
    const there = yield* this.literal(sign);
    yield* this.blanks();
    return there;
  }

  /** Takes the characters that `accept` allows. */
  *word(accept: RegExp): Steps<string> {
    let all = '';
    for (;;) {
      const next = yield* this.peek(1);
      if (next === '' || !accept.test(next)) return all;
      all += this.take(1);
    }
  }

  /**
   * Passes text on up to the first of `stops`, takes that and tells it; undefined: the answer ended. Blanks before a stop are dropped
   * unless `exact`.
   */
  *until(stops: readonly string[], take: Take, exact = false): Steps<string | undefined> {
    for (;;) {
      const text = this.#text;
      let at = text.length;
      let found: string | undefined;
      for (const stop of stops) {
        const place = text.indexOf(stop);
        if (place >= 0 && place < at) [at, found] = [place, stop];
      }
      const held = Math.max(0, ...stops.map((stop) => overlap(text, stop)));
      const end = found !== undefined ? at : this.#ended ? text.length : text.length - held;
      const isLast = found === undefined && this.#ended;
      const sure = exact || isLast ? end : text.slice(0, end).trimEnd().length;
      if (sure > 0) take(this.take(sure));
      if (found !== undefined) {
        this.take(at - sure + found.length);
        return found;
      }
      if (this.#ended) return undefined;
      yield;
    }
  }

  /** Passes on all that comes. */
  *rest(take: Take): Steps {
    for (;;) {
      if (this.#text !== '') take(this.take(this.#text.length));
      if (this.#ended) return;
      yield;
    }
  }
}

/** Length of the longest end of `text` that is a beginning of `stop`, and not all of it. */
function overlap(text: string, stop: string): number {
  let length = Math.min(text.length, stop.length - 1);
  while (length > 0 && !text.endsWith(stop.slice(0, length))) length--;
  return length;
}
