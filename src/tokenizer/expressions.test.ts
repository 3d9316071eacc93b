import { describe, expect, it } from 'vitest';
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
