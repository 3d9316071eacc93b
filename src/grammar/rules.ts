import { usageError } from '../base/errors.js';
import type { Automaton } from './automaton.js';
import { ALL, characters, type CodePoints, codePoints, difference, intersection } from './code_points.js';
import { symbolRuns, symbolsOfMark, symbolsOfText } from './symbols.js';

/** What a rule of a grammar, or a part of one, stands for: texts of symbols (symbols.ts). */
export type Expression =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'one'; readonly of: CodePoints }
  | { readonly kind: 'all'; readonly parts: readonly Expression[] }
  | { readonly kind: 'any'; readonly options: readonly Expression[] }
  | { readonly kind: 'repeat'; readonly part: Expression; readonly least: number; readonly most: number }
  | { readonly kind: 'rule'; readonly number: number }
  /** A rule that is written elsewhere. */
  | { readonly kind: 'named'; readonly name: string };

/** The mark of this number (symbols.ts). */
export const markOf = (index: number): Expression => ({ kind: 'text', text: symbolsOfMark(index) });
export const text = (value: string): Expression => ({ kind: 'text', text: symbolsOfText(value) });
/** A character of the set. */
export const oneOf = (of: CodePoints): Expression =>
  any(...symbolRuns(of).map((run) => all(...run.map((part): Expression => ({ kind: 'one', of: part })))));
/** The alternatives that an expression is of. */
export const optionsOf = (of: Expression): readonly Expression[] => (of.kind === 'any' ? of.options : [of]);
export const NOTHING = text('');
/** Stands for no text at all, not even the empty one. */
export const NEVER: Expression = { kind: 'any', options: [] };

export function all(...parts: readonly Expression[]): Expression {
  const flat = parts.flatMap((part) => (part.kind === 'all' ? part.parts : isNothing(part) ? [] : [part]));
  if (flat.some(isNever)) return NEVER;
  return flat.length === 1 ? flat[0]! : flat.length === 0 ? NOTHING : { kind: 'all', parts: flat };
}

export function any(...options: readonly Expression[]): Expression {
  const flat = options.flatMap((option) => (option.kind === 'any' ? option.options : [option]));
  return flat.length === 1 ? flat[0]! : { kind: 'any', options: flat };
}

export function repeat(part: Expression, least: number, most: number): Expression {
  if (most < least || (isNever(part) && least > 0)) return NEVER;
  if (most === 0 || isNever(part)) return NOTHING;
  return least === 1 && most === 1 ? part : { kind: 'repeat', part, least, most };
}

export const optional = (part: Expression): Expression => (isNever(part) ? NOTHING : repeat(part, 0, 1));

const isNothing = (part: Expression): boolean => part.kind === 'text' && part.text === '';
const isNever = (part: Expression): boolean => part.kind === 'any' && part.options.length === 0;

/** Larger grammars are refused: they would keep who compiles them waiting. */
const MAX_RULES = 20_000;
const MAX_LETTERS = 4_000_000;

/** Of patterns, formats and expressions in all: each is looked at with the whole vocabulary once. */
const MAX_STATES = 1000;

/** The rules of one grammar, while they are put together. */
export class Rules {
  readonly #rules: (Expression | undefined)[] = [];
  readonly #known = new Map<string, number>();
  #states = 0;

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
    const ends = this.#productive();
    const top = ends(root);
    if (!top) return undefined;
    const wanted = new Map<number, string>();
    const rules: number[] = [];
    const nameOf = (number: number): string => {
      let name = wanted.get(number);
      if (name === undefined) {
        wanted.set(number, (name = `r${wanted.size}`));
        rules.push(number);
      }
      return name;
    };
    const lines = [`root ::= ${print(top, nameOf)}`];
    for (let at = 0; at < rules.length; at++) {
      lines.push(`${nameOf(rules[at]!)} ::= ${print(ends(this.#rules[rules[at]!]!)!, nameOf)}`);
    }
    const grammar = `${lines.join('\n')}\n`;
    if (grammar.length > MAX_LETTERS) throw usageError('the grammar comes to more than 4 MB: make it smaller');
    return grammar;
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
    for (let more = true; more;) {
      more = false;
      for (let number = this.#rules.length - 1; number >= 0; number--) {
        if (!ends[number] && holds(this.#rules[number]!)) more = ends[number] = true;
      }
    }
    const left = (of: Expression): Expression | undefined => {
      if (!holds(of)) return undefined;
      switch (of.kind) {
        case 'all':
          return { kind: 'all', parts: of.parts.map((part) => left(part)!) };
        case 'any':
          return any(...of.options.flatMap((option) => left(option) ?? []));
        case 'repeat':
          return holds(of.part) ? { ...of, part: left(of.part)! } : NOTHING;
        default:
          return of;
      }
    };
    return left;
  }
}

/** An expression without rules, in XGrammar's notation. */
export const printed = (of: Expression): string => print(of, () => '');

function print(of: Expression, nameOf: (number: number) => string): string {
  switch (of.kind) {
    case 'text':
      return `"${Array.from(of.text, (symbol) => escaped(symbol.charCodeAt(0))).join('')}"`;
    case 'one':
      return `[${of.of.map(([first, last]) => (first === last ? escaped(first) : `${escaped(first)}-${escaped(last)}`)).join('')}]`;
    case 'all':
      return of.parts.map((part) => (part.kind === 'any' ? `(${print(part, nameOf)})` : print(part, nameOf))).join(' ');
    case 'any':
      return of.options.map((option) => print(option, nameOf)).join(' | ');
    case 'repeat': {
      const { least, most } = of;
      const times = most !== Infinity ? `{${least},${most}}` : least === 0 ? '*' : least === 1 ? '+' : `{${least},}`;
      const part = print(of.part, nameOf);
      return `${of.part.kind === 'one' || of.part.kind === 'rule' || of.part.kind === 'text' ? part : `(${part})`}${times}`;
    }
    case 'rule':
      return nameOf(of.number);
    case 'named':
      return of.name;
  }
}

/** A symbol as it stands in a text or a set. */
function escaped(symbol: number): string {
  const character = String.fromCharCode(symbol);
  return /[A-Za-z0-9]/.test(character) ? character : `\\u${symbol.toString(16).padStart(4, '0')}`;
}

/** In a JSON text characters below the blank, quotes and backslashes are written otherwise. */
const PLAIN = difference(ALL, codePoints([[0, 0x1f], [0x22, 0x22], [0x5c, 0x5c]])); // prettier-ignore
const SPECIAL = difference(ALL, PLAIN);

/** A character within a JSON string, as JSON.stringify writes it. */
export function inJson(of: CodePoints): Expression {
  const plain = intersection(of, PLAIN);
  const written = intersection(of, SPECIAL).flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, i) =>
      text(JSON.stringify(String.fromCodePoint(first + i)).slice(1, -1)),
    ),
  );
  return any(...(plain.length > 0 ? [oneOf(plain)] : []), ...written);
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
