import { usageError } from '../base/errors.js';
import type { Automaton } from './automaton.js';
import { ALL, characters, type CodePoints, codePoints, difference, intersection } from './code_points.js';
import { networkOf, type Network } from './network.js';
import { all, any, anyOf, type Expression, oneOf, repeat, text } from './notation.js';

/** Larger grammars are refused: they would keep who compiles them waiting. */
const MAX_RULES = 20_000;

/** The rules of one grammar, while they are put together. */
export class Rules {
  readonly #rules: (Expression | undefined)[] = [];
  readonly #known = new Map<string, number>();

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
  texts(of: Automaton, write: (of: CodePoints) => Expression): Expression {
    const number = this.#reserve();
    this.#rules[number] = { kind: 'states', of, write };
    return { kind: 'rule', number };
  }

  /** With `root` as what is begun with; undefined where no text fits. */
  network(root: Expression): Network | undefined {
    return networkOf(root, (number) => this.#rules[number]!);
  }
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
