import { expect, test } from 'vitest';
import { Random } from '../base/random.js';
import { drawn } from '../gpu/testing/draw.js';
import { TestForms } from './testing/accepts.js';

const forms = new TestForms(['aa', 'ab', 'ba', 'bb', 'ca', 'abc', 'bca', 'aab', 'cc', 'éa', 'bé']);

type Part =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'set'; readonly of: string; readonly negated: boolean }
  | { readonly kind: 'rule'; readonly rule: number }
  | { readonly kind: 'times'; readonly part: Part; readonly least: number; readonly most: number }
  | { readonly kind: 'options'; readonly options: readonly (readonly Part[])[] };
type Rules = readonly (readonly (readonly Part[])[])[];

const LETTERS = 'abcé';

/** Rules that name later ones, or themselves behind a letter. */
function drawnRules(random: Random): Rules {
  const count = 1 + random.integer(4);
  const options = (rule: number, depth: number): Part[][] =>
    Array.from({ length: 1 + random.integer(4) }, () => {
      const parts: Part[] = [];
      for (let left = random.integer(5); left > 0; left--) parts.push(part(rule, depth, parts.length > 0));
      return parts;
    });
  const part = (rule: number, depth: number, mayRecur: boolean): Part => {
    const kind = random.integer(10);
    if (kind < 4)
      return {
        kind: 'text',
        text: Array.from({ length: 1 + random.integer(3) }, () => LETTERS[random.integer(4)]).join(''),
      };
    if (kind < 6)
      return {
        kind: 'set',
        of: LETTERS.slice(random.integer(2), 2 + random.integer(3)),
        negated: random.integer(8) === 0,
      };
    if (kind === 6 && rule + 1 < count) return { kind: 'rule', rule: rule + 1 + random.integer(count - rule - 1) };
    if (kind === 7 && mayRecur && rule > 0 && random.integer(3) === 0)
      return {
        kind: 'options',
        options: [
          [],
          [
            { kind: 'text', text: 'c' },
            { kind: 'rule', rule },
          ],
        ],
      };
    if (kind === 8 && depth > 0) return { kind: 'options', options: options(rule, depth - 1) };
    const [least, most] = [
      [0, 1],
      [0, Infinity],
      [1, Infinity],
      [1, 3],
      [2, 2],
      [0, 20],
      [16, 18],
      [2, 17],
    ][random.integer(8)]!;
    const inner =
      random.integer(2) === 0 || depth === 0
        ? part(rule, 0, false)
        : { kind: 'options' as const, options: options(rule, depth - 1) };
    return inner.kind === 'times' ? inner : { kind: 'times', part: inner, least: least!, most: most! };
  };
  return Array.from({ length: count }, (_, rule) => options(rule, 2));
}

function source(rules: Rules): string {
  const quantifier = (least: number, most: number): string =>
    most === Infinity
      ? least === 0
        ? '*'
        : '+'
      : least === 0 && most === 1
        ? '?'
        : least === most
          ? `{${least}}`
          : `{${least},${most}}`;
  const sequence = (parts: readonly Part[]): string => parts.map(written).join(' ');
  const written = (part: Part): string => {
    switch (part.kind) {
      case 'text':
        return JSON.stringify(part.text);
      case 'set':
        return `[${part.negated ? '^' : ''}${part.of}]`;
      case 'rule':
        return `part-${part.rule}`;
      case 'options':
        return `(${part.options.map(sequence).join(' | ')})`;
      case 'times':
        return written(part.part) + quantifier(part.least, part.most);
    }
  };
  return rules
    .map((options, at) => `${at === 0 ? 'root' : `part-${at}`} ::= ${options.map(sequence).join('\n  | ')} # ${at}\n`)
    .join('');
}

/** Where in the text a part may end that begins at a place: by trying everything. */
function matches(rules: Rules, text: readonly string[]): boolean {
  const known = new Map<Part, Map<number, Set<number>>>();
  const sequence = (parts: readonly Part[], from: Set<number>): Set<number> =>
    parts.reduce((ends, part) => new Set([...ends].flatMap((at) => [...endsOf(part, at)])), from);
  const anyOf = (options: readonly (readonly Part[])[], at: number): Set<number> =>
    new Set(options.flatMap((parts) => [...sequence(parts, new Set([at]))]));
  const endsOf = (part: Part, at: number): Set<number> => {
    const ofPart = known.get(part) ?? new Map<number, Set<number>>();
    known.set(part, ofPart);
    let ends = ofPart.get(at);
    if (!ends) ofPart.set(at, (ends = found(part, at)));
    return ends;
  };
  const found = (part: Part, at: number): Set<number> => {
    switch (part.kind) {
      case 'text': {
        const letters = Array.from(part.text);
        return new Set(letters.every((letter, i) => text[at + i] === letter) ? [at + letters.length] : []);
      }
      case 'set':
        return new Set(at < text.length && part.of.includes(text[at]!) !== part.negated ? [at + 1] : []);
      case 'options':
        return anyOf(part.options, at);
      case 'rule':
        return anyOf(rules[part.rule]!, at);
      case 'times': {
        const all = new Set<number>();
        let ends = new Set([at]);
        for (let times = 0; times <= part.most && ends.size > 0 && times <= text.length + part.least; times++) {
          if (times >= part.least) for (const end of ends) all.add(end);
          ends = sequence([part.part], ends);
        }
        return all;
      }
    }
  };
  return anyOf(rules[0]!, 0).has(text.length);
}

/** A text that the rules make, not longer than about so much. */
function made(rules: Rules, random: Random, room: number): string {
  let left = room;
  const sequence = (parts: readonly Part[]): string => parts.map(of).join('');
  const of = (part: Part): string => {
    left--;
    const pick = <T>(options: readonly T[]): T => options[left < 0 ? 0 : random.integer(options.length)]!;
    switch (part.kind) {
      case 'text':
        return part.text;
      case 'set':
        return part.negated ? pick(['z', 'y']) : pick(Array.from(part.of));
      case 'rule':
        return sequence(pick(rules[part.rule]!));
      case 'options':
        return sequence(pick(part.options));
      case 'times': {
        const more = left < 0 ? 0 : random.integer(1 + Math.min(part.most, part.least + 3) - part.least);
        return Array.from({ length: part.least + more }, () => of(part.part)).join('');
      }
    }
  };
  return sequence(random.integer(1) === 0 ? rules[0]![random.integer(rules[0]!.length)]! : []);
}

test('drawn grammars: the texts that a recogniser of another kind finds', { timeout: 300_000 }, async () => {
  let [inside, outside] = [0, 0];
  for (const seed of drawn([...Array(400).keys()], 60, 'grammars')) {
    const random = new Random(500 + seed);
    const rules = drawnRules(random);
    const texts = new Set<string>();
    for (let i = 0; i < 25; i++) {
      const text = Array.from(made(rules, random, 30)).slice(0, 60);
      texts.add(text.join(''));
      const at = random.integer(text.length + 1);
      texts.add([...text.slice(0, at), ...text.slice(at + 1)].join(''));
      texts.add([...text.slice(0, at), LETTERS[random.integer(4)], ...text.slice(at)].join(''));
      texts.add([...text.slice(0, at), ...text.slice(Math.max(0, at - 2))].join(''));
      texts.add(Array.from({ length: random.integer(6) }, () => LETTERS[random.integer(4)]).join(''));
    }
    const list = [...texts];
    const grammar = source(rules);
    const expected = list.map((text) => matches(rules, Array.from(text)));
    if (list.every((text, i) => text === '' || !expected[i])) continue;
    const accepted = await forms.accepted({ grammar }, list, seed);
    expect(
      list.filter((_, i) => accepted[i] !== expected[i]),
      grammar,
    ).toEqual([]);
    inside += expected.filter(Boolean).length;
    outside += expected.filter((of) => !of).length;
  }
  expect(Math.min(inside, outside)).toBeGreaterThan(100);
});

test.each([
  [
    'root ::= "1" [0-9] | [1-9] [0-9] [0-9] | [1-9] [0-9] [0-9] [0-9]',
    ['10', '999', '1000'],
    ['1', '20', '10000', '55555'],
  ],
  ['root ::= "qxyq" | "qxq"', ['qxyq', 'qxq'], ['qxyyq', 'qyq']],
  ['root ::= [a]* "ab"', ['ab', 'aaab'], ['b', 'a']],
  ['root ::= item+\nitem ::= [a-c]* [a-c] "d"', ['ad', 'abdad'], ['d', 'add']],
  ['root ::= "[" ws [0-9] ws "]"\nws ::= | " " | "\\n" [ \\t]{0,20}', ['[1]', '[ 1\n\t ]'], ['[]', '[  1]']],
  ['root ::= . [^.\\]\\\\]+ # any, then others\n', ['.a', ' é"\''], ['a.', 'a]', 'a\\']],
] as const)('grammars that an engine has misread: %s', async (grammar, inside, outside) => {
  expect(await forms.accepted({ grammar }, [...inside, ...outside], 1)).toEqual([
    ...inside.map(() => true),
    ...outside.map(() => false),
  ]);
});

test.each([
  ['root ::= root "+" "a" | "a"', ['a', 'a+a', 'a+a+a'], ['', '+a', 'a+', 'aa']],
  ['root ::= root "+" root | root "*" root | "(" root ")" | "a"', ['a', 'a+a*a', '(a+(a))*a'], ['(a', 'a)', 'a+*a']],
  ['root ::= x "b" | "c"\nx ::= root "a" | "d"', ['c', 'db', 'cab', 'dbab', 'cabab'], ['d', 'ca', 'cb', 'dab']],
  [
    'root ::= "<" x ">"\nx ::= y x "b" | "c"\ny ::= | "a"',
    ['<c>', '<acb>', '<cb>', '<aacbb>', '<acbb>'],
    ['<ac>', '<aac>', '<aacb>'],
  ],
  ['root ::= root root | "ab" |', ['ab', 'abab', 'ababab'], ['a', 'aba', 'b']],
  [
    'root ::= "a" root "b" | "a" root "c" | "d"',
    ['d', 'adb', 'aadbc', `${'a'.repeat(40)}d${'bc'.repeat(20)}`],
    ['ad', 'adbb', `${'a'.repeat(40)}d${'bc'.repeat(19)}`],
  ],
  [
    'root ::= ("a"{3,70} "b"){2}',
    [`${'a'.repeat(3)}b${'a'.repeat(70)}b`, `${'a'.repeat(33)}b${'a'.repeat(64)}b`],
    [`aab${'a'.repeat(70)}b`, `aaab${'a'.repeat(71)}b`],
  ],
] as const)('rules that begin with themselves, or go on in several ways: %s', async (grammar, inside, outside) => {
  expect(await forms.accepted({ grammar }, [...inside, ...outside], 1)).toEqual([
    ...inside.map(() => true),
    ...outside.map(() => false),
  ]);
});

test('choices and listed values that begin and end alike stay apart', async () => {
  for (const seed of drawn([...Array(200).keys()], 30, 'choices')) {
    const random = new Random(seed);
    const word = (): string => Array.from({ length: 1 + random.integer(6) }, () => 'abc'[random.integer(3)]).join('');
    const choice = [...new Set(Array.from({ length: 1 + random.integer(12) }, word))];
    const others = Array.from({ length: 60 }, word);
    const texts = [...choice, ...others];
    const expected = texts.map((text) => choice.includes(text));
    expect(await forms.accepted({ choice }, texts, seed), choice.join()).toEqual(expected);
    const responseFormat = { type: 'json_schema', json_schema: { schema: { enum: choice } } } as const;
    expect(
      await forms.accepted(
        { responseFormat },
        texts.map((text) => `"${text}"`),
        seed,
      ),
      choice.join(),
    ).toEqual(expected);
    const regex = choice.join('|');
    expect(await forms.accepted({ regex }, texts, seed), choice.join()).toEqual(expected);
  }
});

test.each([
  ['root ::= missing', 'grammar: line 1: the rule missing is missing'],
  ['root ::= "a" |\n  ("b"', 'grammar: line 2: "(" without ")"'],
  ['root ::= "a\n', 'grammar: line 1: "\\"a'],
  ['a ::= "b"', 'the rule root is missing'],
  ['root ::= "a"\nroot ::= "b"', 'line 2: the rule root is there twice'],
  ['root ::= a\na ::= "x" a', 'no text is of it'],
  ['root ::= [z-a]', '[z-a]: a range that goes down'],
  ['root ::= * "a"', 'without a part before it'],
  ['root ::= "a"{3,2}', '{3,2}'],
  ['root ::= "a"{0,20000}', 'at most 10000 times'],
  [`root ::= ${'('.repeat(5000)}"a"${')'.repeat(5000)}`, 'nested deeper than 100'],
  ['root ::= "a" (="b")', 'lookaheads are not done'],
])('a wrong grammar is told, with its line: %s', async (grammar, message) => {
  await expect(forms.accepted({ grammar }, [''], 1)).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringContaining(message) as string,
  });
});

test('a text that goes on in ever more ways is refused where it is followed, not only where masks are made', () => {
  const goesOn = (i: number, by: number, from: number): string => `"a" r${(i * by + from) % 1000}`;
  const rules = Array.from(
    { length: 1000 },
    (_, i) => `r${i} ::= ${goesOn(i, 7, 1)} "x" | ${goesOn(i, 11, 3)} "y" | ${goesOn(i, 13, 5)} | "d"`,
  );
  const root = `root ::= ${rules.map((_, i) => `r${i}`).join(' | ')}`;
  const answer = forms.constraints.compile({ grammar: [root, ...rules].join('\n') })!.start();
  const follow = (): void => {
    for (let token = 0; token < 200; token++) answer.accept(1 + 'a'.charCodeAt(0));
  };
  expect(follow).toThrow(/can be read in too many ways at once/);
});
