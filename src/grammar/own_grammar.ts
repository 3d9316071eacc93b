import { usageError } from '../base/errors.js';
import { shortened } from '../base/json.js';
import { valueIn } from '../base/lists.js';
import { ALL, type CodePoints, codePoints, complement } from './code_points.js';
import { all, any, type Expression, oneOf, repeat, type Rule, Rules, text } from './notation.js';
import type { FormGrammar } from './text_form.js';

/** What a backslash and a letter stand for; other letters for themselves. */
const LETTERS: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  b: '\b',
  f: '\f',
  v: '\v',
  a: '\x07',
  e: '\x1b',
  0: '\0',
};
const TOKEN =
  /(?<blank>(?:\s|#[^\n]*)+)|(?<rule>(?<name>[A-Za-z_][\w.-]*)[ \t]*::=)|(?<word>[A-Za-z_][\w.-]*)|"(?<text>(?:\\[^]|[^"\\\n])*)"|\[(?<not>\^?)(?<set>(?:\\[^]|[^\]\\\n])*)\]|\{\s*(?<least>\d*)\s*(?<comma>,?)\s*(?<most>\d*)\s*\}|(?<mark>\(=|[|()*+?.])/uy;
const LETTER = /\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([^]))|([^\\])/gu;

const MAX_DEPTH = 100;
/** Repetitions are counted up to it. */
const MAX_TIMES = 10_000;

/**
 * A grammar that somebody wrote, in XGrammar's EBNF or llama.cpp's GBNF.
 * @throws SplitkvError `usage` for what is none, and for what isn't done: with its line
 */
export function ownGrammar(source: string): FormGrammar {
  const reader = new Reader(source);
  const none = 'grammar: no text is of it: its rules name one another without an end';
  return { root: reader.read(), rules: reader.rules, none };
}

class Reader {
  readonly rules = new Rules();
  readonly #named = new Map<string, { readonly line: number; readonly rule: Rule }>();
  #at = 0;
  #depth = 0;
  #token: Readonly<Record<string, string | undefined>> | undefined;
  /** Where the token begins. */
  #start = 0;

  constructor(private readonly source: string) {
    this.#next();
  }

  #wrong(what: string, at = this.#start): Error {
    return usageError(`grammar: line ${this.source.slice(0, at).split('\n').length}: ${what}`);
  }

  #next(): void {
    do {
      this.#start = TOKEN.lastIndex = this.#at;
      const found = this.#at < this.source.length ? TOKEN.exec(this.source) : undefined;
      if (found === null) {
        const rest = JSON.stringify(this.source.slice(this.#at, this.#at + 20));
        throw this.#wrong(`${rest}: expected a rule, a text in quotes, a set or a quantifier`);
      }
      this.#at += found?.[0].length ?? 0;
      this.#token = found?.groups;
    } while (this.#token?.['blank'] !== undefined);
  }

  #rule(name: string): Rule {
    return valueIn(this.#named, name, () => ({ line: this.#start, rule: this.rules.add() })).rule;
  }

  read(): Expression {
    while (this.#token) {
      const { name } = this.#token;
      if (name === undefined) throw this.#wrong('expected a rule, such as root ::= "yes" | "no"');
      const rule = this.#rule(name);
      if (rule.body) throw this.#wrong(`the rule ${shortened(name)} is there twice`);
      this.#next();
      rule.body = this.#options();
    }
    for (const [name, { rule, line }] of this.#named)
      if (!rule.body) throw this.#wrong(`the rule ${shortened(name)} is missing`, line);
    const root = this.#named.get('root');
    if (!root) throw usageError('grammar: the rule root is missing');
    return root.rule;
  }

  #options(): Expression {
    if (++this.#depth > MAX_DEPTH) throw this.#wrong(`it is nested deeper than ${MAX_DEPTH}`);
    const options = [this.#sequence()];
    while (this.#token?.['mark'] === '|') {
      this.#next();
      options.push(this.#sequence());
    }
    this.#depth--;
    return any(...options);
  }

  #sequence(): Expression {
    const parts: Expression[] = [];
    for (;;) {
      const part = this.#part();
      if (!part) return all(...parts);
      parts.push(this.#repeated(part));
    }
  }

  /** Undefined where a sequence ends. */
  #part(): Expression | undefined {
    const token = this.#token;
    if (!token || token['rule'] !== undefined) return undefined;
    const start = this.#start;
    if (token['mark'] === '|' || token['mark'] === ')') {
      if (token['mark'] === ')' && this.#depth === 1) throw this.#wrong('")" without "("');
      return undefined;
    }
    if (token['mark'] === '(') {
      this.#next();
      const inner = this.#options();
      if (this.#token?.['mark'] !== ')') throw this.#wrong('"(" without ")"', start);
      this.#next();
      return inner;
    }
    this.#next();
    if (token['word'] !== undefined) {
      if (this.#token?.['mark'] === '(' && /^(TagDispatch|Token)/.test(token['word']))
        throw this.#wrong(`${token['word']} is not done`, start);
      return this.#rule(token['word']);
    }
    if (token['text'] !== undefined)
      return text(
        lettersOf(token['text'])
          .map(({ code }) => String.fromCodePoint(code))
          .join(''),
      );
    if (token['set'] !== undefined) return oneOf(this.#set(token['set'], token['not'] === '^', start));
    if (token['mark'] === '.') return oneOf(ALL);
    throw this.#wrong(
      token['mark'] === '(='
        ? 'lookaheads are not done'
        : `${JSON.stringify(this.source.slice(start, start + 20))}: a quantifier without a part before it`,
      start,
    );
  }

  #repeated(part: Expression): Expression {
    for (let of = part; ;) {
      const { mark, least, comma, most } = this.#token ?? {};
      if (mark === '*' || mark === '+' || mark === '?') {
        of = repeat(of, mark === '+' ? 1 : 0, mark === '?' ? 1 : Infinity);
      } else if (least !== undefined) {
        const from = Number(least || '0');
        const to = comma ? (most ? Number(most) : Infinity) : from;
        if (!comma && least === '') throw this.#wrong('{}: expected a number of times, such as {2} or {1,3}');
        if (to < from) throw this.#wrong(`{${from},${to}}: the least number of times is above the most`);
        if (from > MAX_TIMES || (to > MAX_TIMES && to !== Infinity))
          throw this.#wrong(`{${least},${most}}: at most ${MAX_TIMES} times are counted`);
        of = repeat(of, from, to);
      } else {
        return of;
      }
      if (of.kind === 'repeat' && of.most !== Infinity && of.most > MAX_TIMES)
        throw this.#wrong(`repetitions of repetitions come to ${of.most} times; at most ${MAX_TIMES} are counted`);
      this.#next();
    }
  }

  #set(of: string, negated: boolean, start: number): CodePoints {
    const letters = lettersOf(of);
    const ranges: [number, number][] = [];
    for (let at = 0, first = letters[0]; first; first = letters[++at]) {
      const [dash, last] = letters.slice(at + 1, at + 3);
      const isRange = dash !== undefined && last !== undefined && dash.code === 0x2d && !dash.escaped;
      if (isRange && last.code < first.code) throw this.#wrong(`[${of}]: a range that goes down`, start);
      ranges.push([first.code, isRange ? last.code : first.code]);
      if (isRange) at += 2;
    }
    const characters = codePoints(ranges);
    return negated ? complement(characters) : characters;
  }
}

interface Letter {
  readonly code: number;
  /** Stands for itself, whatever it is. */
  readonly escaped: boolean;
}

const lettersOf = (of: string): Letter[] =>
  Array.from(of.matchAll(LETTER), ([, x, u, long, escape, plain]) => {
    const hex = x ?? u ?? long;
    if (hex !== undefined) return { code: Math.min(Number.parseInt(hex, 16), 0x10ffff), escaped: true };
    const letter = escape === undefined ? (plain ?? '') : (LETTERS[escape] ?? escape);
    return { code: letter.codePointAt(0) ?? 0, escaped: escape !== undefined };
  });
