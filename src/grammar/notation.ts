import { usageError } from '../base/errors.js';
import { valueIn } from '../base/lists.js';
import type { Automaton } from './automaton.js';
import { ALL, characters, type CodePoints, codePoints, difference, intersection } from './code_points.js';

/** What a grammar, or a part of one, stands for: texts of symbols. Bytes are symbols, and from 256 on marks, tokens that are no text. */
export type Expression =
  | { readonly kind: 'text'; readonly symbols: readonly number[] }
  | { readonly kind: 'one'; readonly of: CodePoints }
  | { readonly kind: 'all'; readonly parts: readonly Expression[] }
  | { readonly kind: 'any'; readonly options: readonly Expression[] }
  | { readonly kind: 'repeat'; readonly part: Expression; readonly least: number; readonly most: number }
  | Rule
  /**
   * A JSON string, of which no two in a list are the same: answers remember them (distinct.ts). Each beginning of one is that of ever more.
   * It is so many brackets within the list.
   */
  | { readonly kind: 'distinct'; readonly of: Expression; readonly within: number }
  /** Texts of an automaton, each character written as `write` says: alone in its rule. */
  | { readonly kind: 'states'; readonly of: Automaton; readonly write: (of: CodePoints) => Expression };

/** What may stand in many places, in its own body too. It has none while it is being made. */
export interface Rule {
  readonly kind: 'rule';
  body?: Expression;
}

const encoder = new TextEncoder();

export const symbolOfMark = (index: number): number => 256 + index;
/** The mark of this number. */
export const markOf = (index: number): Expression => ({ kind: 'text', symbols: [symbolOfMark(index)] });
export const text = (value: string): Expression => ({ kind: 'text', symbols: [...encoder.encode(value)] });
/** A character of the set. */
export const oneOf = (of: CodePoints): Expression => (of.length === 0 ? NEVER : { kind: 'one', of });

export const NOTHING = text('');
/** Stands for no text at all, not even the empty one. */
export const NEVER: Expression = { kind: 'any', options: [] };

export function all(...parts: readonly Expression[]): Expression {
  const flat = parts.flatMap((part) => (part.kind === 'all' ? part.parts : isNothing(part) ? [] : [part]));
  if (flat.some(isNever)) return NEVER;
  return only(flat) ?? (flat.length === 0 ? NOTHING : { kind: 'all', parts: flat });
}

export const any = (...options: readonly Expression[]): Expression => anyOf(options);

export function anyOf(options: readonly Expression[]): Expression {
  const flat = options.flatMap((option) => (option.kind === 'any' ? option.options : option));
  return only(flat) ?? { kind: 'any', options: flat };
}

const only = (parts: readonly Expression[]): Expression | undefined => (parts.length === 1 ? parts[0] : undefined);

export function repeat(part: Expression, least: number, most: number): Expression {
  if (most < least || (isNever(part) && least > 0)) return NEVER;
  if (most === 0 || isNever(part)) return NOTHING;
  // Up to so many of up to so many.
  if (part.kind === 'repeat' && (part.least === 0 || (part.least === 1 && (part.most === Infinity || least <= 1)))) {
    return repeat(part.part, part.least * least, part.most * most);
  }
  return least === 1 && most === 1 ? part : { kind: 'repeat', part, least, most };
}

export const optional = (part: Expression): Expression => (isNever(part) ? NOTHING : repeat(part, 0, 1));

const isNothing = (part: Expression): boolean => part.kind === 'text' && part.symbols.length === 0;
const isNever = (part: Expression): boolean => part.kind === 'any' && part.options.length === 0;

/** Larger grammars are refused: they would keep who compiles them waiting. */
const MAX_RULES = 20_000;

/** The rules of one grammar, while they are put together. */
export class Rules {
  readonly #known = new Map<string, Rule>();
  #count = 0;

  /** A rule, or one whose body is made later. */
  add(body?: Expression): Rule {
    if (this.#count++ >= MAX_RULES) throw usageError(`the grammar needs more than ${MAX_RULES} rules: make it smaller`);
    return body ? { kind: 'rule', body } : { kind: 'rule' };
  }

  /** A rule of this key: made by `make` when first asked for, which may ask for it again. */
  rule(key: string, make: () => Expression): Expression {
    const known = this.#known.get(key);
    if (known) return known;
    const rule = this.add();
    this.#known.set(key, rule);
    rule.body = make();
    return rule;
  }

  /** Texts of an automaton, each character written as `write` says. */
  texts(of: Automaton, write: (of: CodePoints) => Expression): Expression {
    return this.add({ kind: 'states', of, write });
  }
}

/** In a JSON text characters below the blank, quotes and backslashes are written otherwise. */
const PLAIN = difference(
  ALL,
  codePoints([
    [0, 0x1f],
    [0x22, 0x22],
    [0x5c, 0x5c],
  ]),
);
const SPECIAL = difference(ALL, PLAIN);

const jsonOf = new WeakMap<CodePoints, Expression>();

/** What comes behind a backslash, a rule that all share. */
const behind = new Map<string, Expression>();

/** A character within a JSON string, as JSON.stringify writes it. */
export const inJson = (of: CodePoints): Expression =>
  valueIn(jsonOf, of, () => {
    const plain = intersection(of, PLAIN);
    const special = intersection(of, SPECIAL);
    const options = plain.length > 0 ? [oneOf(plain)] : [];
    if (special.length > 0) {
      const key = special.join();
      let rest = behind.get(key);
      if (!rest) {
        const codes = special.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, i) => first + i));
        const body = anyOf(codes.map((code) => text(JSON.stringify(String.fromCodePoint(code)).slice(2, -1))));
        rest = codes.length > 1 ? { kind: 'rule', body } : body;
        if (behind.size < 1000) behind.set(key, rest);
      }
      options.push(all(text('\\'), rest));
    }
    return anyOf(options);
  });

const HEX = codePoints([
  [0x30, 0x39],
  [0x41, 0x46],
  [0x61, 0x66],
]);
const hex = oneOf(HEX);
const LOW_D = oneOf(characters('dD'));

/** \\, then what JSON allows there: also \\u with any character but half a pair. */
export const JSON_ESCAPE = all(
  text('\\'),
  any(
    oneOf(characters('"\\/bfnrt')),
    all(
      text('u'),
      any(
        all(oneOf(difference(HEX, characters('dD'))), repeat(hex, 3, 3)),
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
