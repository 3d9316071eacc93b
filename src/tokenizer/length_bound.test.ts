import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  byteLevelTokenizer,
  metaspaceTokenizer,
  type TinyTokenizer,
  wordLevelTokenizer,
} from './testing/tiny_tokenizers.js';
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

/** With what a megabyte of letters, of blanks and of marks must be told to have: nothing at all, or some tokens. */
const cases: [string, TinyTokenizer, { letters: boolean; blanks: boolean; marks: boolean }][] = [
  ['byte-level', level, { letters: true, blanks: true, marks: true }],
  ['byte fallback', pieces, { letters: true, blanks: true, marks: true }],
  ['NFC', changed(level, { normalizer: { type: 'NFC' } }), { letters: true, blanks: true, marks: false }],
  ['NFKC', changed(level, { normalizer: { type: 'NFKC' } }), { letters: true, blanks: true, marks: false }],
  [
    'strip',
    changed(level, { normalizer: { type: 'Strip', strip_left: true } }),
    { letters: true, blanks: false, marks: false },
  ],
  ['blanks become one', changed(level, { normalizer: blanks }), { letters: true, blanks: false, marks: false }],
  [
    'blanks become one, then normal form and a prefix',
    changed(level, {
      normalizer: { type: 'Sequence', normalizers: [blanks, { type: 'NFC' }, { type: 'Prepend', prepend: '_' }] },
    }),
    { letters: true, blanks: false, marks: false },
  ],
  [
    'letters are replaced',
    changed(level, { normalizer: { type: 'Replace', pattern: { String: 'aa' }, content: '' } }),
    { letters: false, blanks: false, marks: false },
  ],
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
    { letters: false, blanks: false, marks: false },
  ],
  [
    'an expression that may match anything',
    changed(level, { normalizer: { type: 'Replace', pattern: { Regex: 'a+' }, content: 'a' } }),
    { letters: false, blanks: false, marks: false },
  ],
  [
    'a special token that swallows blanks',
    changed(level, { added_tokens: [...(level.json.added_tokens as Json[]).slice(0, 3), swallowing] }),
    { letters: true, blanks: false, marks: false },
  ],
  [
    'unknown letters are dropped',
    withModel(level, { vocab: { a: 4, b: 5, '[UNK]': 1 }, merges: [] }),
    { letters: false, blanks: false, marks: false },
  ],
  [
    'unknown letters are one token together',
    withModel(pieces, {
      byte_fallback: false,
      fuse_unk: true,
      vocab: { '[UNK]': 0, a: 4, b: 5, '\u2581': 6 },
      merges: [],
    }),
    { letters: false, blanks: false, marks: false },
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
    { letters: true, blanks: true, marks: true },
  ],
  ['words', words, { letters: false, blanks: false, marks: false }],
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
    { letters: false, blanks: false, marks: false },
  ],
  ['unigram, letters known', unigram([...letters, 'the', 'aaaa']), { letters: true, blanks: false, marks: false }],
  ['unigram, letters unknown', unigram(['the', 'b']), { letters: false, blanks: false, marks: false }],
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
      fc.integer({ min: 1, max: 40 }),
    ),
  )
  .map((parts) => parts.map(([text, times]) => text.repeat(times)).join(''));

describe.each(cases)('%s', (_name, { json, config }, tells) => {
  const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });

  it('no text is said to have more tokens than it has', () => {
    fc.assert(
      fc.property(anyText, (text) => {
        let length: number;
        try {
          ({ length } = tokenizer.encode(text, { addSpecial: false }));
        } catch {
          return; // what can't be encoded never fits
        }
        expect(tokenizer.fewestTokens(text)).toBeLessThanOrEqual(length);
      }),
      { numRuns: 100 },
    );
  });

  it('a long text is told by its length where that is safe', () => {
    expect(tokenizer.fewestTokens('a'.repeat(2 ** 20)) > 1000).toBe(tells.letters);
    expect(tokenizer.fewestTokens(' '.repeat(2 ** 20)) > 1000).toBe(tells.blanks);
    expect(tokenizer.fewestTokens('\u0301'.repeat(2 ** 20)) > 1000).toBe(tells.marks);
  });
});
