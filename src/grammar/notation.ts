import { usageError } from '../base/errors.js';
import { type CodePoints, intersection } from './code_points.js';
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
const charactersOf = new WeakMap<CodePoints, Expression>();
const othersOf = new Map<string, Expression>();

/** A character of the set. What is behind the first symbol of all but ASCII is one part, which is written once however often it's used. */
export function oneOf(of: CodePoints): Expression {
  let made = charactersOf.get(of);
  if (!made) {
    const ascii = intersection(of, [[0, 0x7e]]);
    const others = intersection(of, [[0x7f, 0x10ffff]]);
    const short: Expression[] = ascii.length > 0 ? [{ kind: 'one', of: ascii }] : [];
    if (others.length > 0) {
      const key = others.join();
      let long = othersOf.get(key);
      if (!long) {
        const runs = symbolRuns(others);
        const rests = runs.map((run) => all(...run.slice(1).map((part): Expression => ({ kind: 'one', of: part }))));
        long = all({ kind: 'one', of: runs[0]![0]! }, anyOf(rests));
        if (othersOf.size < 100) othersOf.set(key, long);
      }
      short.push(long);
    }
    charactersOf.set(of, (made = anyOf(short)));
  }
  return made;
}
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

export const any = (...options: readonly Expression[]): Expression => anyOf(options);

export function anyOf(options: readonly Expression[]): Expression {
  const flat = options.flatMap((option) => (option.kind === 'any' ? option.options : option));
  return flat.length === 1 ? flat[0]! : { kind: 'any', options: flat };
}

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

const isNothing = (part: Expression): boolean => part.kind === 'text' && part.text === '';
const isNever = (part: Expression): boolean => part.kind === 'any' && part.options.length === 0;

/**
 * Grammars in XGrammar's notation, as XGrammar 0.1.27 reads them rightly. For each rule it makes an automaton, in which it joins states
 * that are reached alike and, in the same round, states that go on alike: alternatives that begin alike and end alike but are of other
 * lengths ("1" [0-9] | [1-9] [0-9] [0-9] | ...) run together. A rule that begins with a set and a star begins alike with itself. So here
 * alternatives of a rule begin with symbols of disjoint sets, or with other rules: what begins alike goes on in a rule of its own.
 */

/** Larger grammars are refused: they would keep who compiles them waiting. */
const MAX_RULES = 40_000;
const MAX_LETTERS = 2_000_000;
const MAX_STEPS = 400_000;
/** XGrammar writes out repetitions up to it, as alternatives that begin alike. */
const WRITTEN_OUT = 15;
const MANY = 16;
/** A rule's tail of more letters gets its own rule: XGrammar's time for a rule grows as the square of its states. */
const [TAIL, PIECE] = [8, 64];

/** Parts one after the other; every such list exists once. */
interface Parts {
  readonly id: number;
  readonly head: Expression;
  readonly tail: Parts | undefined;
}

interface Alternatives {
  readonly empty: boolean;
  readonly symbols: readonly { readonly of: CodePoints; readonly rests: readonly (Parts | undefined)[] }[];
  readonly rules: readonly { readonly name: string; readonly rests: readonly (Parts | undefined)[] }[];
}

const tooLarge = (): Error => usageError('the grammar comes to too many alternatives or letters: make it smaller');

/**
 * @param rule what a rule's number stands for, without parts that nothing comes of
 */
export function written(root: Expression, rule: (number: number) => Expression): string {
  return new Writer(rule).write(root);
}

class Writer {
  readonly #lines: string[] = [];
  readonly #names = new Map<string, string>();
  readonly #todo: (() => void)[] = [];
  readonly #ids = new WeakMap<Expression, number>();
  readonly #known = new Map<string, number>();
  readonly #parts = new Map<string, Parts>();
  readonly #ruled = new Map<number, boolean>();
  #letters = 0;
  #steps = 0;

  constructor(private readonly rule: (number: number) => Expression) {}

  write(root: Expression): string {
    this.#line('root', () => this.#body([this.#list(root, undefined)]));
    for (let next = this.#todo.shift(); next; next = this.#todo.shift()) next();
    return `${this.#lines.join('\n')}\n`;
  }

  #line(name: string, body: () => string): void {
    this.#todo.push(() => {
      const line = `${name} ::= ${body()}`;
      this.#letters += line.length;
      if (this.#letters > MAX_LETTERS) throw tooLarge();
      this.#lines.push(line);
    });
  }

  /** The name of a rule; written when first asked for. */
  #named(key: string, body: () => string): string {
    let name = this.#names.get(key);
    if (name === undefined) {
      if (this.#names.size >= MAX_RULES)
        throw usageError(`the grammar needs more than ${MAX_RULES} rules: make it smaller`);
      name = `r${this.#names.size}`;
      this.#names.set(key, name);
      this.#line(name, body);
    }
    return name;
  }

  /** Expressions that are written alike have the same number. */
  #id(of: Expression): number {
    let id = this.#ids.get(of);
    if (id === undefined) {
      const key = this.#key(of);
      id = this.#known.get(key);
      if (id === undefined) this.#known.set(key, (id = this.#known.size));
      this.#ids.set(of, id);
    }
    return id;
  }

  #key(of: Expression): string {
    switch (of.kind) {
      case 'text':
        return `"${of.text}`;
      case 'one':
        return `[${of.of.join()}`;
      case 'rule':
        return `r${of.number}`;
      case 'named':
        return `n${of.name}`;
      case 'repeat':
        return `{${this.#id(of.part)},${of.least},${of.most}`;
      case 'all':
        return `a${of.parts.map((part) => this.#id(part)).join()}`;
      case 'any':
        return `o${of.options.map((part) => this.#id(part)).join()}`;
    }
  }

  #list(head: Expression, tail: Parts | undefined): Parts | undefined {
    if (head.kind === 'all') return head.parts.reduceRight((rest, part) => this.#list(part, rest), tail);
    if (head.kind === 'text' && head.text === '') return tail;
    const key = `${this.#id(head)} ${tail?.id}`;
    let list = this.#parts.get(key);
    if (!list) this.#parts.set(key, (list = { id: this.#parts.size, head, tail }));
    return list;
  }

  /** A rule of these alternatives. */
  #alternatives(of: readonly (Parts | undefined)[]): string {
    const lists = [...new Set(of)].sort((a, b) => (a?.id ?? -1) - (b?.id ?? -1));
    return this.#named(`of ${lists.map((list) => list?.id).join()}`, () => this.#body(lists));
  }

  #ruleOf(of: Expression): string {
    if (of.kind === 'named') return of.name;
    if (of.kind === 'rule') {
      const body = this.rule(of.number);
      return this.#named(`rule ${of.number}`, () => this.#body([this.#list(body, undefined)]));
    }
    return this.#alternatives([this.#list(of, undefined)]);
  }

  #body(lists: readonly (Parts | undefined)[]): string {
    const [only] = lists;
    if (lists.length === 1 && (!only || only.head.kind !== 'any')) return this.#sequence(only, PIECE) || '""';
    if (lists.length === 1 && only!.tail) return this.#sequence(only, PIECE);
    const { empty, symbols, rules } = this.#begun(lists);
    const options = [
      ...(empty ? ['""'] : []),
      ...symbols.map(({ of, rests }) => `${set(of)}${this.#rest(rests)}`),
      ...rules.map(({ name, rests }) => `${name}${this.#rest(rests)}`),
    ];
    return options.length > 0 ? options.join(' | ') : '""';
  }

  #rest(rests: readonly (Parts | undefined)[]): string {
    const [only] = rests;
    if (rests.length > 1) return ` ${this.#alternatives(rests)}`;
    if (!only) return '';
    let letters = 0;
    for (let part: Parts | undefined = only; part; part = part.tail)
      letters += part.head.kind === 'text' ? part.head.text.length : 1;
    return ` ${letters > TAIL ? this.#alternatives(rests) : this.#sequence(only, PIECE)}`;
  }

  /** One part behind the other, up to so many letters, and a rule for what is left. */
  #sequence(list: Parts | undefined, room: number): string {
    const items: string[] = [];
    for (let part = list, left = room; part; part = part.tail) {
      const { head, tail } = part;
      if (head.kind === 'text' && head.text.length > left) {
        items.push(quoted(head.text.slice(0, left)));
        items.push(this.#alternatives([this.#list({ kind: 'text', text: head.text.slice(left) }, tail)]));
        break;
      }
      if (left === 0) {
        items.push(this.#alternatives([part]));
        break;
      }
      left -= head.kind === 'text' ? head.text.length : 1;
      items.push(this.#item(head));
    }
    return items.join(' ');
  }

  #item(of: Expression): string {
    switch (of.kind) {
      case 'text':
        return quoted(of.text);
      case 'one':
        return set(of.of);
      case 'repeat':
        return this.#repeated(of.part, of.least, of.most);
      default:
        return this.#ruleOf(of);
    }
  }

  #repeated(part: Expression, least: number, most: number): string {
    const one = this.#item(part);
    const times = (count: number): string[] => Array.from({ length: count }, () => one);
    /** Up to so many. */
    const upTo = (count: number): string[] =>
      count === 0 ? [] : [this.#named(`up to ${count} ${one}`, () => `"" | ${[one, ...upTo(count - 1)].join(' ')}`)];
    const many = (from: number, to: number): string =>
      this.#named(`many ${from} ${to} ${one}`, () => `${one}{${from},${to}}`);
    const exactly = (count: number): string[] => (count > WRITTEN_OUT ? [many(count, count)] : times(count));
    if (most === Infinity) {
      const any: string = this.#named(`any ${one}`, () => `"" | ${one} ${any}`);
      return [...exactly(least), any].join(' ');
    }
    if (most <= WRITTEN_OUT) return [...times(least), ...upTo(most - least)].join(' ');
    if (least >= WRITTEN_OUT) return many(least, most);
    return this.#named(`${least} to ${most} ${one}`, () => {
      const few = [...times(least), ...upTo(WRITTEN_OUT - 1 - least)].join(' ');
      const name = this.#named(`few ${least} ${one}`, () => few || '""');
      return `${name} | ${many(WRITTEN_OUT, most)}`;
    });
  }

  /** What the lists begin with, by symbol, and what comes behind it. */
  #begun(lists: readonly (Parts | undefined)[]): Alternatives {
    let empty = false;
    const bySymbol: Set<Parts | undefined>[] = [];
    const byName = new Map<string, Set<Parts | undefined>>();
    const seen = new Set<Parts | undefined>();
    const waiting = [...lists].reverse();
    const add = (first: number, last: number, rest: Parts | undefined): void => {
      for (let symbol = first; symbol <= last; symbol++) (bySymbol[symbol] ??= new Set()).add(rest);
    };
    while (waiting.length > 0) {
      const list = waiting.pop();
      if (seen.has(list)) continue;
      seen.add(list);
      if (++this.#steps > MAX_STEPS) throw tooLarge();
      if (!list) {
        empty = true;
        continue;
      }
      const { head, tail } = list;
      switch (head.kind) {
        case 'text': {
          const symbol = head.text.charCodeAt(0);
          add(symbol, symbol, this.#list({ kind: 'text', text: head.text.slice(1) }, tail));
          break;
        }
        case 'one':
          for (const [first, last] of head.of) add(first, last, tail);
          break;
        case 'any':
          // Sets of many characters are a rule rather than in each place again.
          if (tail && head.options.length > MANY && lists.length > 1) {
            this.#behind(byName, head, tail);
            break;
          }
          for (const option of head.options.toReversed()) waiting.push(this.#list(option, tail));
          break;
        case 'repeat': {
          const { part, least, most } = head;
          if (part.kind === 'one' && (most === Infinity || most <= 2 * WRITTEN_OUT)) {
            const again = repeat(part, Math.max(0, least - 1), most - 1);
            waiting.push(this.#list(all(part, again), tail));
            if (least === 0) waiting.push(tail);
            break;
          }
          if (least === 0 && most === 1) {
            waiting.push(tail, this.#list(part, tail));
            break;
          }
          this.#behind(byName, head, tail);
          break;
        }
        default:
          this.#behind(byName, head, tail);
      }
    }
    const bySet = new Map<string, { of: [number, number][]; rests: (Parts | undefined)[] }>();
    bySymbol.forEach((rests, symbol) => {
      const key = [...rests]
        .map((rest) => rest?.id ?? -1)
        .sort((a, b) => a - b)
        .join();
      const same = bySet.get(key);
      const last = same?.of.at(-1);
      if (last?.[1] === symbol - 1) last[1] = symbol;
      else if (same) same.of.push([symbol, symbol]);
      else bySet.set(key, { of: [[symbol, symbol]], rests: [...rests] });
    });
    return {
      empty,
      symbols: [...bySet.values()],
      rules: [...byName].map(([name, rests]) => ({ name, rests: [...rests] })),
    };
  }

  /** What XGrammar would put in the place of a rule's name, where that comes first, gets a name more: rules of symbols alone. */
  #behind(byName: Map<string, Set<Parts | undefined>>, head: Expression, rest: Parts | undefined): void {
    const rule = this.#ruleOf(head);
    const name = this.#hasRules(head) ? rule : this.#named(`first ${rule}`, () => rule);
    const rests = byName.get(name) ?? new Set();
    byName.set(name, rests.add(rest));
  }

  #hasRules(of: Expression): boolean {
    if (of.kind !== 'rule') return false;
    let has = this.#ruled.get(of.number);
    if (has === undefined) this.#ruled.set(of.number, (has = namesRule(this.rule(of.number))));
    return has;
  }
}

/** As a part of its own, so that it stays one. */
function namesRule(of: Expression): boolean {
  switch (of.kind) {
    case 'rule':
      return true;
    case 'all':
      return of.parts.some(namesRule);
    case 'any':
      return of.options.some((option) => option.kind !== 'rule' && namesRule(option));
    default:
      return false;
  }
}

const quoted = (text: string): string => `"${Array.from(text, (symbol) => escaped(symbol.charCodeAt(0))).join('')}"`;
const set = (of: CodePoints): string =>
  of.length === 1 && of[0]![0] === of[0]![1]
    ? `"${escaped(of[0]![0])}"`
    : `[${of.map(([first, last]) => (first === last ? escaped(first) : `${escaped(first)}-${escaped(last)}`)).join('')}]`;

/** A symbol as it stands in a text or a set. */
function escaped(symbol: number): string {
  const character = String.fromCharCode(symbol);
  return /[A-Za-z0-9]/.test(character) ? character : `\\u${symbol.toString(16).padStart(4, '0')}`;
}
