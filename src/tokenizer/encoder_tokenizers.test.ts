import { describe, expect, test } from 'vitest';
import { ggufTokenizerFiles } from './gguf_tokenizer.js';
import { loadTokenizer } from './testing/load_tokenizer.js';
import { rustTokenizers } from './testing/rust_tokenizers.js';
import { type TinyTokenizer, unigramTokenizer, wordPieceTokenizer } from './testing/tiny_tokenizers.js';

const texts = [
  'the cat sat on the mat, and the dog ran after the cat.',
  'Über die Brücke! naïve CAFÉ nobody knows',
  'unknownness xyz qqq the',
  '東京 の猫 caté 🐈',
  'a',
  '  leading   blanks\tand tabs ',
];

const kinds: Record<string, TinyTokenizer> = { WordPiece: wordPieceTokenizer(), Unigram: unigramTokenizer() };

describe.each(Object.entries(kinds))('%s', (_, { json, config }) => {
  const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });

  test.skipIf(typeof rustTokenizers === 'string')('texts and pairs as in Hugging Face tokenizers', async () => {
    if (typeof rustTokenizers === 'string') throw new Error(rustTokenizers);
    const rust = rustTokenizers.Tokenizer.fromString(JSON.stringify(json));
    for (const text of texts) {
      const single = await rust.encode(text, null, { addSpecialTokens: true });
      expect(tokenizer.encode(text)).toEqual(single.getIds());
      for (const other of texts) {
        const pair = await rust.encode(text, other, { addSpecialTokens: true });
        const types = pair.getTypeIds();
        expect(tokenizer.encodePair(text, other, 2)).toEqual(pair.getIds().map((id, at) => id + types[at]! * 2 ** 24));
        expect(tokenizer.encodePair(text, other, 1)).toEqual(pair.getIds());
      }
    }
    // Cut to so many, and not.
    for (const most of [5, 8, 13]) {
      rust.setTruncation(most);
      for (const text of [...texts, 'the cat '.repeat(1200)]) {
        const single = await rust.encode(text, null, { addSpecialTokens: true });
        expect(tokenizer.encodeWithin(text, most)).toEqual(single.getIds());
        for (const other of texts.slice(0, 3)) {
          const pair = await rust.encode(text, other, { addSpecialTokens: true });
          expect(tokenizer.encodePair(text, other, 1, most)).toEqual(pair.getIds());
        }
      }
    }
  });

  test('what it wrote is read again', () => {
    expect(tokenizer.decode(tokenizer.encode('the cat sat on the mat'))).toBe('the cat sat on the mat');
  });
});

/** As convert_hf_to_gguf.py writes them. */
describe('in GGUF', () => {
  test('WordPiece: words have a mark, their parts none', () => {
    const { json } = wordPieceTokenizer();
    const { vocab } = json.model as { vocab: Record<string, number> };
    const tokens = Object.keys(vocab).toSorted((a, b) => vocab[a]! - vocab[b]!);
    const types = tokens.map((token) => (/^\[.*\]$/.test(token) ? 3 : 1));
    const stored = tokens.map((token, id) =>
      types[id] === 3 ? token : token.startsWith('##') ? token.slice(2) : `\u2581${token}`,
    );
    const metadata = new Map<string, unknown>([
      ['tokenizer.ggml.model', 'bert'],
      ['tokenizer.ggml.tokens', stored],
      ['tokenizer.ggml.token_type', types],
      ['tokenizer.ggml.cls_token_id', 2],
      ['tokenizer.ggml.seperator_token_id', 3],
      ['tokenizer.ggml.unknown_token_id', 1],
    ]);
    same(wordPieceTokenizer(), metadata);
  });

  test('Unigram', () => {
    const { json } = unigramTokenizer();
    const { vocab } = json.model as { vocab: readonly (readonly [string, number])[] };
    const metadata = new Map<string, unknown>([
      ['tokenizer.ggml.model', 't5'],
      ['tokenizer.ggml.tokens', vocab.map(([token]) => token)],
      ['tokenizer.ggml.scores', vocab.map(([, score]) => score)],
      ['tokenizer.ggml.token_type', vocab.map((_, id) => (id === 3 ? 2 : id < 3 ? 3 : 1))],
      ['tokenizer.ggml.bos_token_id', 0],
      ['tokenizer.ggml.eos_token_id', 2],
      ['tokenizer.ggml.seperator_token_id', 2],
      ['tokenizer.ggml.unknown_token_id', 3],
    ]);
    same(unigramTokenizer(), metadata);
  });

  function same({ json, config }: TinyTokenizer, metadata: ReadonlyMap<string, unknown>): void {
    const expected = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });
    const read = loadTokenizer(ggufTokenizerFiles(metadata, 'm.gguf')!);
    for (const text of texts) {
      expect(read.encode(text)).toEqual(expected.encode(text));
      expect(read.encodePair(text, texts[0]!, 2)).toEqual(expected.encodePair(text, texts[0]!, 2));
    }
  }
});
