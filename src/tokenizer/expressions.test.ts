import { describe, expect, it } from 'vitest';
import { Random } from '../base/random.js';
import { looksAgain, slowExpression } from './expressions.js';
import { preTokenizer, preTokenizerNames } from './gguf_pre_tokenizers.js';

/** Expressions of published tokenizer.json files that a GGUF file doesn't name. */
const PUBLISHED = {
  'o200k (GPT-4o, gpt-oss, Phi-4-mini)':
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  'cl100k (GPT-4, Phi-4, OLMo 2)':
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
  GPT2: "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
  CLIP: "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+",
  BLOOM: ' ?[^(\\s|[.,!?…。，、।۔،])]+',
  'digits in threes from the right': '\\p{N}{1,3}(?=(?:\\p{N}{3})*\\b)|\\d{1,3}(?=(?:\\d{3})*(?!\\d))',
  'Kimi K2':
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\s+(?!\\S)|\\s+",
  blanks: ' {2,}',
  'Gemma, Llama': ' ',
  CodeT5: '\\s+',
};

const known = preTokenizerNames.flatMap((name) => {
  const { pretokenizers = [] } = preTokenizer(name, 'm').steps as { pretokenizers?: { pattern?: { Regex: string } }[] };
  return pretokenizers.flatMap(({ pattern }) => (pattern ? [[name, pattern.Regex] as const] : []));
});

describe('slowExpression', () => {
  it.each([
    ...new Map(known.map(([name, source]) => [source, name])),
    ...Object.entries(PUBLISHED).map(([a, b]) => [b, a]),
  ])('passes %s (%s)', (source) => expect(slowExpression(source)).toBeUndefined());

  it.each([
    '(a+)+$',
    '(a|a)*b',
    '(a*)*b',
    '(a|aa)+$',
    '(\\w+\\s?)*x',
    '(abc|abc)*d',
    '(ab|a|b)*c',
    '(?:a?b?)*c',
    '(.*)(.*)(.*)(.*)z',
    'a*a*a*a*b',
    '(ab)*(ab)*(ab)*c',
    `${'a?'.repeat(30)}${'a'.repeat(30)}`,
    '(a?){30}a{30}',
    '(a{1,20}){1,7}b',
    '(é|\\w)*b',
    '([\\u4e00-\\u9fa5]|[\\u5000-\\u6000])*b',
    '(?i:(a|A)*b)',
    '(?=(a+)+$)a',
    'x(?<!(a|a)*b)',
    '(?<=x(a+)+)b',
    '(?<=x(a|aa)*)b',
    'xa*a*a*a*b',
    'x(?:y|z)a*b?a*b?a*c',
    '(?:aa)+(?:aa)+b',
    '(?:aa)*(?:aaa)*b',
    '(?:\\w\\w)+(?:\\w\\w)+!',
    '(?:[ab])*(?:a{2}){2,}(?=\\s)(?:b){2,}',
    '(?:abc)+x?(?:abcabc)+d',
    '(?:abcde)*abc(?:deabc)*x',
    'a+(?=a+b)',
    '(?:a(?=a*b))*c',
    'a+(?!(?:aa)*c)b',
    'a*(?<=ba*)c',
    'a*(?<=a(?=a*b))c',
    '\\p{Script=Armenian}*\\p{Script=Armenian}*b',
    '(a)\\1*',
    '[[:alpha:]]*[[:alnum:]]*[\\w]*b',
    `${'('.repeat(60)}a${')'.repeat(60)}`,
    'a{1000}',
    'ab'.repeat(1000),
    '(a',
    '[a',
    '(?',
  ])('refuses %s', (source) => expect(slowExpression(source)).toEqual(expect.any(String)));
});

type Matcher = (at: number, then: (at: number) => boolean) => boolean;

/** An expression drawn at random, and a matcher of it that tries one way after the other as JavaScript's does, and counts. */
class Drawn {
  readonly source: string;
  readonly #match: Matcher;
  #text = '';
  #steps = 0;

  constructor(readonly random: Random) {
    [this.source, this.#match] = this.#sequence(3);
  }

  /** Steps for all matches in a text. */
  steps(text: string): number {
    [this.#text, this.#steps] = [text, 0];
    for (let at = 0; at <= text.length;) {
      let end = at;
      this.#match(at, (reached) => ((end = reached), true));
      at = Math.max(at + 1, end);
    }
    return this.#steps;
  }

  #below(n: number): number {
    return Math.floor(this.random.next() * n);
  }

  #sequence(depth: number): [string, Matcher] {
    const parts = Array.from({ length: 1 + this.#below(3) }, () => this.#repeated(depth));
    const whole = parts
      .map(([, part]) => part)
      .reduceRight((after, part) => (at, then) => part(at, (end) => after(end, then)));
    return [parts.map(([source]) => source).join(''), whole];
  }

  #repeated(depth: number): [string, Matcher] {
    const [source, part] = this.#one(depth);
    const kinds = [
      ['', 1, 1],
      ['', 1, 1],
      ['*', 0, Infinity],
      ['+', 1, Infinity],
      ['?', 0, 1],
      ['{2}', 2, 2],
      ['{2,}', 2, Infinity],
      ['*?', 0, Infinity],
    ] as const;
    const [sign, least, most] =
      source.startsWith('(?=') || source.startsWith('(?!') ? kinds[0] : kinds[this.#below(8)]!;
    const again =
      (times: number): Matcher =>
      (at, then) => {
        const more = (): boolean =>
          times < most && part(at, (end) => (end > at || times < least) && again(times + 1)(end, then));
        const done = (): boolean => times >= least && then(at);
        return sign === '*?' ? done() || more() : more() || done();
      };
    return [`${source}${sign}`, again(0)];
  }

  #one(depth: number): [string, Matcher] {
    const kind = depth === 0 ? 0 : this.#below(8);
    if (kind < 4) {
      const source = ['a', 'b', '[ab]', 'a'][this.#below(4)]!;
      const match: Matcher = (at, then) => {
        if (++this.#steps > 1e7) throw new Error(`${this.source} takes for ever`);
        const letter = this.#text[at];
        return letter !== undefined && source.includes(letter) && then(at + 1);
      };
      return [source, match];
    }
    const [source, part] = this.#sequence(depth - 1);
    if (kind === 4) {
      const [other, second] = this.#sequence(depth - 1);
      return [`(?:${source}|${other})`, (at, then) => part(at, then) || second(at, then)];
    }
    if (kind === 5) {
      const not = this.random.next() < 0.5;
      return [`(?${not ? '!' : '='}${source})`, (at, then) => part(at, () => true) !== not && then(at)];
    }
    return [`(?:${source})`, part];
  }
}

it('what slowExpression passes takes at most n * n steps', { timeout: 300_000 }, () => {
  const random = new Random(7);
  const growing = new Set<string>();
  let passed = 0;
  for (let i = 0; i < 10_000; i++) {
    const drawn = new Drawn(random);
    if (slowExpression(drawn.source) !== undefined) continue;
    passed++;
    for (const word of ['a', 'b', 'ab', 'aab', 'abb'])
      for (const end of ['', 'c']) {
        const steps = (length: number): number => drawn.steps(word.repeat(length / word.length) + end);
        // A short text may not show it: what is left over of repeats weighs more there.
        const grows = (length: number): boolean => steps(2 * length) > 4.5 * steps(length);
        if (steps(48) >= 48 ** 2 && grows(48) && grows(96)) growing.add(drawn.source);
      }
  }
  expect([...growing]).toEqual([]);
  expect(passed).toBeGreaterThan(2500);
});

describe('looksAgain', () => {
  it.each([
    ...new Map(known.map(([name, source]) => [source, name])),
    ...Object.entries(PUBLISHED).map(([a, b]) => [b, a]),
  ])('%s (%s) looks at a run of letters or blanks once', (source, name) => {
    const again = looksAgain(source).map((run) => run.source);
    // DeepSeek's first ones look for blanks at the end of a text; digits are counted from the end of a number.
    if (source === '\\s+$') expect(again).toEqual(['(?:[\\p{White_Space}])+']);
    else if (name.startsWith('digits in threes')) expect(again).toEqual(['(?:\\p{N})+', '(?:[\\p{Nd}])+']);
    else expect(again).toEqual([]);
  });

  it.each<[string, string, string[]]>([
    ['a+b', 'xaaaxaax', ['aaa', 'aa']],
    ['x|(?:ab)+c', 'ababxab', ['abab', 'ab']],
    ['.*x', 'ab\ncd', ['ab', 'cd']],
    ['\\s+x|\\s+(?!\\S)|\\s+', 'a  b', ['  ']],
    ['(?i:A+)b', 'aAx', ['aA']],
    ['\\p{L}+|a+', 'aaa', []],
  ])('%s in %j', (source, text, runs) => {
    expect(looksAgain(source).flatMap((run) => text.match(run) ?? [])).toEqual(runs);
  });
});
