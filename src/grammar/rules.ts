import { usageError } from '../base/errors.js';
import type { Automaton } from './automaton.js';
import { ALL, characters, type CodePoints, codePoints, difference, intersection } from './code_points.js';
import { NOTHING, all, any, oneOf, optionsOf, repeat, text, type Expression, written, anyOf } from './notation.js';

/** Larger grammars are refused: they would keep who compiles them waiting. */
const MAX_RULES = 20_000;

/** Of patterns, formats and expressions in all: each is looked at with the whole vocabulary once. */
const MAX_STATES = 1000;

/** The rules of one grammar, while they are put together. */
export class Rules {
  readonly #rules: (Expression | undefined)[] = [];
  readonly #known = new Map<string, number>();
  #states = 0;

  /** A rule that is made later, and what makes it. */
  later(): { readonly rule: Expression; readonly make: (of: Expression) => void } {
    const number = this.#reserve();
    return { rule: { kind: 'rule', number }, make: (of) => void (this.#rules[number] = of) };
  }

  /** A rule of this key: made by `make` when first asked for, which may ask for it again. */
  rule(key: string, make: () => Expression): Expression {
    let number = this.#known.get(key);
    if (number === undefined) {
      number = this.#reserve();
      this.#known.set(key, number);
      this.#rules[number] = make();
    }
    return { kind: 'rule', number };
  }

  #reserve(): number {
    if (this.#rules.length >= MAX_RULES)
      throw usageError(`the grammar needs more than ${MAX_RULES} rules: make it smaller`);
    return this.#rules.push(undefined) - 1;
  }

  /** Texts of an automaton, each character written as `write` says. */
  texts({ states }: Automaton, write: (of: CodePoints) => Expression): Expression {
    this.#states += states.length;
    if (this.#states > MAX_STATES) {
      throw usageError(
        `patterns, formats and expressions come to ${this.#states} states; at most ${MAX_STATES} are taken: make their bounds smaller, or the text's length one by minLength and maxLength alone`,
      );
    }
    const first = states.map(() => this.#reserve())[0]!;
    for (const [state, { accepts, edges }] of states.entries()) {
      // Each alternative begins with a symbol: the engine is quick with those.
      const options = edges.flatMap(([of, target]) =>
        optionsOf(write(of)).map((option) => all(option, { kind: 'rule', number: first + target })),
      );
      this.#rules[first + state] = any(...options, ...(accepts ? [NOTHING] : []));
    }
    return { kind: 'rule', number: first };
  }

  /**
   * In XGrammar's notation, with `root` as the first rule; undefined where no text fits. What no text can come of is left out, so that a
   * text never gets where it can't go on.
   */
  print(root: Expression): string | undefined {
    const left = this.#productive();
    const top = left(root);
    return top && written(top, (number) => left(this.#rules[number]!)!);
  }

  /** What is left of an expression without the parts that no text comes of; undefined where that is nothing. */
  #productive(): (of: Expression) => Expression | undefined {
    const ends = this.#rules.map(() => false);
    const holds = (of: Expression): boolean => {
      switch (of.kind) {
        case 'text':
        case 'named':
          return true;
        case 'one':
          return of.of.length > 0;
        case 'all':
          return of.parts.every(holds);
        case 'any':
          return of.options.some(holds);
        case 'repeat':
          return of.least === 0 || holds(of.part);
        case 'rule':
          return ends[of.number]!;
      }
    };
    // Who names a rule is looked at again when that rule is found to end.
    const users: number[][] = this.#rules.map(() => []);
    for (const [number, of] of this.#rules.entries()) for (const used of rulesOf(of!)) users[used]!.push(number);
    const waiting = [...this.#rules.keys()];
    for (let number = waiting.pop(); number !== undefined; number = waiting.pop()) {
      if (ends[number] || !holds(this.#rules[number]!)) continue;
      ends[number] = true;
      for (const user of users[number]!) if (!ends[user]) waiting.push(user);
    }
    // What stays as it is remains the same object.
    const known = new Map<Expression, Expression | undefined>();
    const left = (of: Expression): Expression | undefined => {
      if (of.kind === 'text' || of.kind === 'named') return of;
      if (of.kind === 'one') return of.of.length > 0 ? of : undefined;
      if (of.kind === 'rule') return ends[of.number] ? of : undefined;
      if (!known.has(of)) known.set(of, leftOf(of));
      return known.get(of);
    };
    const leftOf = (of: Extract<Expression, { kind: 'all' | 'any' | 'repeat' }>): Expression | undefined => {
      if (of.kind === 'repeat') {
        const part = left(of.part);
        if (!part) return of.least === 0 ? NOTHING : undefined;
        return part === of.part ? of : { ...of, part };
      }
      const parts = of.kind === 'all' ? of.parts : of.options;
      const kept = parts.map(left).filter((part) => part !== undefined);
      if (parts.every((part, at) => part === kept[at])) return kept.length > 0 ? of : undefined;
      return of.kind === 'all' ? undefined : kept.length > 0 ? anyOf(kept) : undefined;
    };
    return left;
  }
}

function rulesOf(of: Expression): Set<number> {
  const found = new Set<number>();
  const waiting = [of];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    if (next.kind === 'rule') found.add(next.number);
    else if (next.kind === 'all') waiting.push(...next.parts);
    else if (next.kind === 'any') for (const option of next.options) waiting.push(option);
    else if (next.kind === 'repeat') waiting.push(next.part);
  }
  return found;
}

/** In a JSON text characters below the blank, quotes and backslashes are written otherwise. */
const PLAIN = difference(ALL, codePoints([[0, 0x1f], [0x22, 0x22], [0x5c, 0x5c]])); // prettier-ignore
const SPECIAL = difference(ALL, PLAIN);

/** A character within a JSON string, as JSON.stringify writes it. */
export function inJson(of: CodePoints): Expression {
  let made = jsonOf.get(of);
  if (!made) jsonOf.set(of, (made = asJson(of)));
  return made;
}

const jsonOf = new WeakMap<CodePoints, Expression>();

const behind = new Map<string, Expression>();

function asJson(of: CodePoints): Expression {
  const plain = intersection(of, PLAIN);
  const special = intersection(of, SPECIAL);
  const options = plain.length > 0 ? [oneOf(plain)] : [];
  if (special.length > 0) {
    const key = special.join();
    let rest = behind.get(key);
    if (!rest) {
      const codes = special.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, i) => first + i));
      rest = anyOf(codes.map((code) => text(JSON.stringify(String.fromCodePoint(code)).slice(2, -1))));
      if (behind.size < 1000) behind.set(key, rest);
    }
    options.push(all(text('\\'), rest));
  }
  return anyOf(options);
}

const hex = oneOf(codePoints([[0x30, 0x39], [0x41, 0x46], [0x61, 0x66]])); // prettier-ignore
const hexBut = (out: string): Expression =>
  oneOf(difference(codePoints([[0x30, 0x39], [0x41, 0x46], [0x61, 0x66]]), characters(out))); // prettier-ignore
const LOW_D = oneOf(characters('dD'));

/** \\, then what JSON allows there: also \\u with any character but half a pair. */
export const JSON_ESCAPE = all(
  text('\\'),
  any(
    oneOf(characters('"\\/bfnrt')),
    all(
      text('u'),
      any(
        all(hexBut('dD'), repeat(hex, 3, 3)),
        all(LOW_D, oneOf(codePoints([[0x30, 0x37]])), repeat(hex, 2, 2)),
        // A character beyond the first 65,536, as its two halves.
        all(
          LOW_D,
          oneOf(characters('89aAbB')),
          repeat(hex, 2, 2),
          text('\\u'),
          LOW_D,
          oneOf(characters('cCdDeEfF')),
          repeat(hex, 2, 2),
        ),
      ),
    ),
  ),
);
export const JSON_PLAIN = oneOf(PLAIN);
