/**
 * Room: tokenizers for tests: tiny ones of each kind (here), and a way to have one at once, without waiting for its parts
 * (load_tokenizer.ts).
 */

import { byteCharacters } from '../token_bytes.js';

/** A tokenizer.json and its tokenizer_config.json, as objects. */
export interface TinyTokenizer {
  json: Record<string, unknown>;
  config: Record<string, unknown>;
}

const corpus = `the cat sat on the mat and the dog ran after the cat because the dog saw the cat run to the other side of the
town where a small river runs under an old stone bridge and nobody knows how the story of the river and the bridge ends
Über die Brücke läuft 東京 の 猫 🐈 naïve café`;

/** Learns `count` merges on the words of the corpus: the most frequent pair first, of equals the first in the alphabet. */
export function learnMerges(words: string[][], count: number): [string, string][] {
  const merges: [string, string][] = [];
  while (merges.length < count) {
    const frequency = new Map<string, number>();
    for (const word of words) {
      for (let i = 1; i < word.length; i++) {
        const pair = `${word[i - 1]} ${word[i]}`;
        frequency.set(pair, (frequency.get(pair) ?? 0) + 1);
      }
    }
    const best = [...frequency].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1))[0];
    if (best === undefined) return merges;
    const [left, right] = best[0].split(' ') as [string, string];
    merges.push([left, right]);
    for (const word of words) {
      for (let i = 0; i + 1 < word.length; i++) {
        if (word[i] === left && word[i + 1] === right) word.splice(i, 2, left + right);
      }
    }
  }
  return merges;
}

const added = (tokens: readonly string[]) =>
  tokens.map((content, id) => {
    return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  });

const index = (tokens: readonly string[]) => Object.fromEntries(tokens.map((token, id) => [token, id]));

const bosFirst = (bos: string, id: number) => ({
  type: 'TemplateProcessing',
  single: [{ SpecialToken: { id: bos, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
  pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
  special_tokens: { [bos]: { id: bos, ids: [id], tokens: [bos] } },
});

/**
 * A byte-level BPE (as GPT-2, Llama 3 and Qwen) of at most `vocabSize` tokens, at least 260: ids 0..3 are <|pad|>, <|begin|>,
 * <|end|> and <|user|>, then the 256 bytes in order, then merges.
 */
export function byteLevelTokenizer(vocabSize = 320): TinyTokenizer {
  const specials = ['<|pad|>', '<|begin|>', '<|end|>', '<|user|>'];
  const toCharacters = (text: string) => Array.from(new TextEncoder().encode(text), (byte) => byteCharacters[byte]!);
  const words = corpus.split(/\s+/).map((word) => toCharacters(` ${word}`));
  const merges = learnMerges(words, vocabSize - specials.length - 256);
  const vocab = index([...specials, ...byteCharacters, ...merges.map((pair) => pair.join(''))]);
  const level = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    json: {
      version: '1.0',
      added_tokens: added(specials),
      normalizer: null,
      pre_tokenizer: level,
      post_processor: bosFirst('<|begin|>', 1),
      decoder: level,
      model: {
        type: 'BPE',
        unk_token: null,
        byte_fallback: false,
        vocab,
        merges: merges.map((pair) => pair.join(' ')),
      },
    },
    config: {
      tokenizer_class: 'PreTrainedTokenizerFast',
      clean_up_tokenization_spaces: false,
      bos_token: '<|begin|>',
      eos_token: '<|end|>',
      pad_token: '<|pad|>',
      chat_template:
        "{{ bos_token }}{% for m in messages %}{{ '<|user|>' if m['role'] == 'user' else '' }}{{ m['content'] }}" +
        "{{ '<|end|>' if m['role'] == 'assistant' else '' }}{% endfor %}{% if add_generation_prompt %} {% endif %}",
    },
  };
}

/**
 * A SentencePiece-like BPE with byte fallback, as Llama 2 has it: <unk>, <s>, </s>, the bytes <0x00>..<0xFF>, the letters of
 * the corpus, merges; U+2581 stands for a blank, and one is put before every text.
 */
export function metaspaceTokenizer(): TinyTokenizer {
  const specials = ['<unk>', '<s>', '</s>'];
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const words = corpus.split(/\s+/).map((word) => Array.from(`\u2581${word}`));
  const letters = [...new Set(words.flat())].filter((letter) => letter !== '🐈').sort();
  const merges = learnMerges(words, 120).filter((pair) => !pair.join('').includes('🐈'));
  const vocab = index([...specials, ...bytes, ...letters, ...merges.map((pair) => pair.join(''))]);
  return {
    json: {
      version: '1.0',
      added_tokens: added(specials),
      normalizer: {
        type: 'Sequence',
        normalizers: [
          { type: 'Prepend', prepend: '\u2581' },
          { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' },
        ],
      },
      pre_tokenizer: null,
      post_processor: bosFirst('<s>', 1),
      decoder: {
        type: 'Sequence',
        decoders: [
          { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' },
          { type: 'ByteFallback' },
          { type: 'Fuse' },
          { type: 'Strip', content: ' ', start: 1, stop: 0 },
        ],
      },
      model: {
        type: 'BPE',
        unk_token: '<unk>',
        fuse_unk: true,
        byte_fallback: true,
        vocab,
        merges: merges.map((pair) => pair.join(' ')),
      },
    },
    config: { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' },
  };
}

/** Words of the corpus, one token each; every other word is [UNK]. Without a decoder, as such files mostly are. */
export function wordLevelTokenizer(): TinyTokenizer {
  const specials = ['[PAD]', '[UNK]', '[EOS]'];
  const words = [...new Set(corpus.split(/\s+/))];
  return {
    json: {
      version: '1.0',
      added_tokens: added(specials),
      normalizer: null,
      pre_tokenizer: { type: 'WhitespaceSplit' },
      post_processor: null,
      decoder: null,
      model: { type: 'WordLevel', vocab: index([...specials, ...words]), unk_token: '[UNK]' },
    },
    config: { tokenizer_class: 'PreTrainedTokenizerFast', clean_up_tokenization_spaces: false, eos_token: '[EOS]' },
  };
}

/** Around a text, and between two of a pair, `cut` times. @param segment of the second */
const around = ([first, end]: readonly [string, string], ids: readonly number[], cut: number, segment: number) => {
  const special = (id: string, type_id = 0) => ({ SpecialToken: { id, type_id } });
  const text = (id: string, type_id = 0) => ({ Sequence: { id, type_id } });
  const between = Array.from({ length: cut }, () => special(end));
  return {
    type: 'TemplateProcessing',
    single: [special(first), text('A'), special(end)],
    pair: [special(first), text('A'), ...between, text('B', segment), special(end, segment)],
    special_tokens: Object.fromEntries(
      [first, end].map((token, at) => [token, { id: token, ids: [ids[at]], tokens: [token] }]),
    ),
  };
};

/** WordPiece without capitals, as BERT's: [PAD], [UNK], [CLS], [SEP], [MASK], the corpus's letters, as beginnings and ends, and words. */
export function wordPieceTokenizer(): TinyTokenizer {
  const specials = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'];
  const words = [
    ...new Set(
      corpus
        .toLowerCase()
        .normalize('NFD')
        .replace(/\p{Mn}/gu, '')
        .split(/\s+/),
    ),
  ];
  const letters = [...new Set(words.join(''))].sort();
  const longer = words.filter((_, at) => at % 2 === 0);
  const parts = words.filter((word, at) => at % 3 === 0 && word.length > 3).map((word) => `##${word.slice(2)}`);
  const tokens = [
    ...specials,
    ...letters,
    ...letters.map((letter) => `##${letter}`),
    ...longer,
    ...parts,
    ',',
    '.',
    '!',
  ];
  return {
    json: {
      version: '1.0',
      added_tokens: added(specials),
      normalizer: {
        type: 'BertNormalizer',
        clean_text: true,
        handle_chinese_chars: true,
        strip_accents: null,
        lowercase: true,
      },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      post_processor: around(['[CLS]', '[SEP]'], [2, 3], 1, 1),
      decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
      model: {
        type: 'WordPiece',
        unk_token: '[UNK]',
        continuing_subword_prefix: '##',
        max_input_chars_per_word: 100,
        vocab: index([...new Set(tokens)]),
      },
    },
    config: { cls_token: '[CLS]', sep_token: '[SEP]', unk_token: '[UNK]', pad_token: '[PAD]', mask_token: '[MASK]' },
  };
}

/** Unigram, as XLM-RoBERTa's: <s>, <pad>, </s>, <unk>, letters and pieces of the corpus, with log probabilities. */
export function unigramTokenizer(): TinyTokenizer {
  const specials = ['<s>', '<pad>', '</s>', '<unk>'];
  const words = [...new Set(corpus.split(/\s+/))].map((word) => `\u2581${word}`);
  const letters = [...new Set(Array.from(words.join('')))].sort();
  const pieces = words.flatMap((word) => [word, word.slice(0, 3), word.slice(-2)]).filter(({ length }) => length > 1);
  const tokens = [...new Set([...letters, ...pieces])];
  const mark = { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true };
  return {
    json: {
      version: '1.0',
      added_tokens: added(specials),
      normalizer: { type: 'NFKC' },
      pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'WhitespaceSplit' }, mark] },
      post_processor: around(['<s>', '</s>'], [0, 2], 2, 0),
      decoder: mark,
      model: {
        type: 'Unigram',
        unk_id: 3,
        vocab: [
          ...specials.map((token) => [token, 0]),
          ...tokens.map((token, at) => [token, -3 - (at % 17) / 3 - (Array.from(token).length < 2 ? 4 : 0)]),
        ],
        byte_fallback: false,
      },
    },
    config: {
      bos_token: '<s>',
      eos_token: '</s>',
      unk_token: '<unk>',
      pad_token: '<pad>',
      cls_token: '<s>',
      sep_token: '</s>',
    },
  };
}
