import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  byteLevelTokenizer,
  metaspaceTokenizer,
  type TinyTokenizer,
  wordLevelTokenizer,
} from './testing/tiny_tokenizers.js';
import { drawn } from '../gpu/testing/draw.js';
import { loadTokenizer } from './testing/load_tokenizer.js';

const level = byteLevelTokenizer();
const pieces = metaspaceTokenizer();
const words = wordLevelTokenizer();
const letters = Array.from('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789');

type Json = Record<string, unknown>;
const changed = ({ json, config }: TinyTokenizer, changes: Json): TinyTokenizer => ({
  json: { ...json, ...changes },
  config,
});
const withModel = (tiny: TinyTokenizer, model: Json): TinyTokenizer =>
  changed(tiny, { model: { ...(tiny.json.model as Json), ...model } });
const unigram = (vocab: readonly string[]): TinyTokenizer =>
  changed(words, {
    model: {
      type: 'Unigram',
      unk_id: 1,
      vocab: ['[PAD]', '[UNK]', '[EOS]', ...vocab].map((piece, at) => [piece, -at]),
    },
  });
const swallowing = { id: 3, content: '<|user|>', lstrip: true, rstrip: true, normalized: false, special: true };
const blanks = { type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' };

const cases: [string, TinyTokenizer][] = [
  ['byte-level', level],
  ['byte fallback', pieces],
  ['NFC', changed(level, { normalizer: { type: 'NFC' } })],
  ['NFKC', changed(level, { normalizer: { type: 'NFKC' } })],
  ['strip', changed(level, { normalizer: { type: 'Strip', strip_left: true } })],
  ['blanks become one', changed(level, { normalizer: blanks })],
  [
    'blanks become one, then normal form and a prefix',
    changed(level, {
      normalizer: { type: 'Sequence', normalizers: [blanks, { type: 'NFC' }, { type: 'Prepend', prepend: '_' }] },
    }),
  ],
  ['letters are replaced', changed(level, { normalizer: { type: 'Replace', pattern: { String: 'aa' }, content: '' } })],
  [
    'letters become blanks that are dropped',
    changed(level, {
      normalizer: {
        type: 'Sequence',
        normalizers: [
          { type: 'Replace', pattern: { String: 'a' }, content: ' ' },
          { type: 'Strip', strip_left: true, strip_right: true },
        ],
      },
    }),
  ],
  [
    'an expression that may match anything',
    changed(level, { normalizer: { type: 'Replace', pattern: { Regex: 'a+' }, content: 'a' } }),
  ],
  [
    'a special token that swallows blanks',
    changed(level, { added_tokens: [...(level.json.added_tokens as Json[]).slice(0, 3), swallowing] }),
  ],
  ['unknown letters are dropped', withModel(level, { vocab: { a: 4, b: 5, '[UNK]': 1 }, merges: [] })],
  [
    'unknown letters are one token together',
    withModel(pieces, {
      byte_fallback: false,
      fuse_unk: true,
      vocab: { '[UNK]': 0, a: 4, b: 5, '\u2581': 6 },
      merges: [],
    }),
  ],
  [
    'unknown letters are a token each',
    withModel(pieces, {
      byte_fallback: false,
      fuse_unk: false,
      unk_token: '[UNK]',
      vocab: { '[UNK]': 0, a: 4, b: 5, '\u2581': 6 },
      merges: [],
    }),
  ],
  ['words', words],
  [
    'pieces of words, words too long for them unknown',
    changed(words, {
      model: {
        type: 'WordPiece',
        unk_token: '[UNK]',
        continuing_subword_prefix: '##',
        vocab: { '[UNK]': 1, a: 2, '##a': 3 },
      },
    }),
  ],
  ['unigram, letters known', unigram([...letters, 'the', 'aaaa'])],
  ['unigram, letters unknown', unigram(['the', 'b'])],
];

const anyText = fc
  .array(
    fc.tuple(
      fc.oneof(
        fc.string({ unit: 'binary' }),
        fc.constantFrom(
          'a',
          'A',
          'aa',
          ' ',
          '  ',
          'the ',
          '\u0301',
          'e\u0301',
          '\u1100\u1161\u11a8',
          '\u03b1\u0313\u0300\u0345',
        ),
        fc.constantFrom(
          '\u{1d400}',
          '\u{2f800}',
          '\u00a0',
          '\u0001',
          '<|user|>',
          '\n',
          'x',
          '7',
          '\u2581',
          '\u00b4',
          '\ud800',
        ),
      ),
      fc.constantFrom(1, 40, 1000, 5000),
    ),
    { maxLength: 4 },
  )
  .map((parts) => parts.map(([text, times]) => text.repeat(times)).join(''));

describe.each(drawn(cases, 8, 'fewest tokens'))('%s', (name, { json, config }) => {
  const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });
  const tokensOf = (text: string): number => {
    try {
      return tokenizer.encode(text, { addSpecial: false }).length;
    } catch {
      return Infinity; // what can't be encoded never fits
    }
  };

  it('no text is said to have more tokens than it has', () => {
    fc.assert(
      fc.property(anyText, fc.integer({ min: 1, max: 200 }), (text, most) => {
        const tokens = tokensOf(text);
        if (tokens !== Infinity) expect(tokenizer.fewestTokens(text, most)).toBeLessThanOrEqual(tokens);
      }),
      { numRuns: 20 },
    );
  });

  it('a long text is told by its beginning', () => {
    const blanks = name.includes('swallows') ? [] : [' '];
    for (const text of ['a', ...blanks, '\u0301', 'the cat '].map((part) => part.repeat(20_000))) {
      const tokens = tokensOf(text);
      const told = tokenizer.fewestTokens(text, 100) > 100;
      if (tokens > text.length / 5) expect(told).toBe(true);
      if (tokens <= 100) expect(told).toBe(false);
    }
  });
});
