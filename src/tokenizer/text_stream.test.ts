import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { byteLevelTokenizer, metaspaceTokenizer, wordLevelTokenizer } from './testing/tiny_tokenizers.js';
import { loadTokenizer } from './testing/load_tokenizer.js';

/** Well-formed text of every kind: ASCII, any code point, words both tokenizers have merges for. U+2581 is a blank to one of them. */
const anyText = fc
  .array(
    fc.oneof(
      fc.string({ unit: 'binary-ascii' }),
      fc.string({ unit: 'binary' }),
      fc.string({ unit: 'grapheme' }),
      fc.constantFrom(' the cat', ' ', '  ', '🐈', '👩‍👩‍👧‍👦', '東京', '\uFEFF', '\n'),
    ),
  )
  .map((parts) => parts.join('').replaceAll('\u2581', '_'));

describe.each([
  ['byte-level', byteLevelTokenizer()],
  ['SentencePiece-like', metaspaceTokenizer()],
])('%s', (_name, { json, config }) => {
  const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });
  const library = new HuggingFaceTokenizer(json, { ...config, clean_up_tokenization_spaces: false });

  const stream = (ids: number[], skipSpecial: boolean) => {
    const text = tokenizer.stream({ skipSpecial });
    return [...ids.map((id) => text.push(id)), text.flush()];
  };

  it('gives back every text, in pieces of whole characters', () => {
    fc.assert(
      fc.property(anyText, (text) => {
        const pieces = stream(tokenizer.encode(text), true);
        expect(pieces.join('')).toBe(text);
        for (const piece of pieces) expect(piece).not.toMatch(/\p{Surrogate}/u);
        if (!text.includes('\uFFFD')) expect(pieces.join('|')).not.toContain('\uFFFD');
      }),
      { numRuns: 500 },
    );
  });

  it('agrees with the library on any ids, be they text or not', () => {
    const anyIds = fc.array(fc.integer({ min: 0, max: tokenizer.vocabSize - 1 }), { minLength: 1, maxLength: 40 });
    fc.assert(
      fc.property(anyIds, fc.boolean(), (ids, skipSpecial) => {
        expect(stream(ids, skipSpecial).join('')).toBe(library.decode(ids, { skip_special_tokens: skipSpecial }));
        expect(tokenizer.decode(ids, { skipSpecial })).toBe(stream(ids, skipSpecial).join(''));
      }),
      { numRuns: 1000 },
    );
  });
});

describe('characters in several tokens', () => {
  const { json, config } = byteLevelTokenizer();
  const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });
  const bytes = (...values: number[]) => values.map((byte) => 4 + byte);

  it('wait for their last byte', () => {
    const stream = tokenizer.stream();
    const pieces = bytes(0x41, 0xf0, 0x9f, 0x90, 0x88, 0x42).map((id) => stream.push(id));
    expect(pieces).toEqual(['A', '', '', '', '🐈', 'B']);
    expect(stream.flush()).toBe('');
  });

  it('become U+FFFD when they are cut, by the end, by other text or by a special token', () => {
    const stream = tokenizer.stream({ skipSpecial: false });
    const [a, b, letter] = bytes(0xe2, 0x82, 0x41) as [number, number, number];
    expect([a, b, letter].map((id) => stream.push(id))).toEqual(['', '', '\uFFFDA']);
    expect([a, 2].map((id) => stream.push(id))).toEqual(['', '\uFFFD<|end|>']);
    expect([a, b].map((id) => stream.push(id))).toEqual(['', '']);
    expect(stream.flush()).toBe('\uFFFD');
  });

  it('survive a special token that is left out', () => {
    const stream = tokenizer.stream();
    const ids = [...bytes(0xe2, 0x82), 2, ...bytes(0xac)];
    expect(ids.map((id) => stream.push(id)).join('')).toBe('€');
  });
});

describe('leading blanks of a Metaspace decoder', () => {
  const { json, config } = metaspaceTokenizer();
  const metaspace = loadTokenizer({
    tokenizerJson: { ...json, decoder: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first' } },
    tokenizerConfig: config,
  });
  const blank = metaspace.idOf('▁')!;
  const the = metaspace.idOf('▁the')!;

  it('go from the first token only', () => {
    expect(metaspace.decode([the, the])).toBe('the the');
    expect(metaspace.decode([blank, blank, the])).toBe('  the');
    expect(metaspace.decode([1, the])).toBe('the');
  });

  it('stay where the scheme never puts any', () => {
    const never = loadTokenizer({
      tokenizerJson: { ...json, decoder: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'never' } },
    });
    expect(never.decode([the, the])).toBe(' the the');
  });
});

describe('no decoder: tokens with blanks between', () => {
  const level = byteLevelTokenizer();
  const { decoder: _, ...levelWithout } = level.json;
  const words = wordLevelTokenizer();
  const { decoder: __, ...wordsWithout } = words.json;
  const cases: [string, Record<string, unknown>, Record<string, unknown>][] = [
    ['byte-level, null', { ...level.json, decoder: null }, level.config],
    ['byte-level, no key', levelWithout, level.config],
    ['words, null', words.json, words.config],
    ['words, no key', wordsWithout, words.config],
  ];

  it.each(cases)('%s: as the library, in pieces too', (_name, json, config) => {
    const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });
    const library = new HuggingFaceTokenizer({ ...json, decoder: null }, { clean_up_tokenization_spaces: false });
    const anyIds = fc.array(fc.integer({ min: 0, max: tokenizer.vocabSize - 1 }), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(anyIds, fc.boolean(), (ids, skipSpecial) => {
        const expected = library.decode(ids, { skip_special_tokens: skipSpecial });
        expect(tokenizer.decode(ids, { skipSpecial })).toBe(expected);
        const stream = tokenizer.stream({ skipSpecial });
        expect(ids.map((id) => stream.push(id)).join('') + stream.flush()).toBe(expected);
      }),
      { numRuns: 300 },
    );
  });

  it('an answer goes on behind its prompt', () => {
    const tokenizer = loadTokenizer({ tokenizerJson: words.json, tokenizerConfig: words.config });
    const ids = tokenizer.encode('the cat sat', { addSpecial: false });
    expect(tokenizer.decode(ids)).toBe('the cat sat');
    const stream = tokenizer.stream({ continues: true });
    expect(ids.map((id) => stream.push(id))).toEqual([' the', ' cat', ' sat']);
  });

  it('a word of any length without a token is the one unknown token', () => {
    const tokenizer = loadTokenizer({ tokenizerJson: words.json, tokenizerConfig: words.config });
    expect(tokenizer.encode(`the ${'x'.repeat(100_000)} cat`)).toEqual([
      tokenizer.idOf('the'),
      tokenizer.idOf('[UNK]'),
      tokenizer.idOf('cat'),
    ]);
  });
});
