import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Random } from '../../base/random.js';
import { preTokenizer } from '../gguf_pre_tokenizers.js';
import { loadTokenizer } from '../testing/load_tokenizer.js';
import { byteCharacters } from '../token_bytes.js';
import { rustEncoder, rustTokenizers } from '../testing/rust_tokenizers.js';

/** Characters that JavaScript and Rust take for different things, and some of every other kind. */
const CHARACTERS = [
  ...Array.from(
    "abKZst12.,!$+<_- \t\n\r'\u0000 éÄßİΣςſıǅªªⒶ½²①Ⅷ٣१᠒〇𝟙 \ufeff\u0085\u00a0\u200b\u200d\u3000\u2028\u180e\u00ad",
  ),
  ...Array.from(' \u0301\u0308\u0903\u20ddिनक中日𠀀𫝀か한😀👩\u{1F3FD}\ufe0f‿—«€\ufffd\ue000▁゛\u{e0001}\u0378'),
];

function texts(random: Random, count: number, extra: readonly string[] = []): string[] {
  const pool = [...CHARACTERS, ...extra, ...extra, ...extra, ...extra];
  const pick = (): string => pool[random.integer(pool.length)]!;
  return Array.from({ length: count }, () => Array.from({ length: 1 + random.integer(14) }, pick).join(''));
}

/** A token for every two characters: where a text is cut shows in its tokens. */
function pairs(): Record<string, unknown> {
  const random = new Random(3);
  const bytes = byteCharacters;
  const forms = CHARACTERS.flatMap((one) => [one, one.toLowerCase(), one.normalize('NFKD'), one.normalize('NFKC')]);
  const vocab: Record<string, number> = { '<unk>': 0 };
  const add = (token: string): void => {
    vocab[token] ??= Object.keys(vocab).length;
  };
  for (const one of [...forms.flatMap((form) => Array.from(form)), ...bytes]) add(one);
  const own = [...new Set(CHARACTERS)];
  const merges = own.flatMap((a) => own.filter(() => random.integer(2) > 0).map((b) => [a, b]));
  for (const a of bytes) for (const b of bytes) if (random.integer(8) === 0) merges.push([a, b]);
  const order = new Map(merges.map((merge) => [JSON.stringify(merge), { merge, rank: random.next() }]));
  const sorted = [...order.values()].sort((a, b) => a.rank - b.rank).map(({ merge }) => merge);
  let next = Object.keys(vocab).length;
  for (const merge of sorted) vocab[merge.join('')] ??= next++;
  return {
    type: 'BPE',
    vocab,
    merges: sorted,
    unk_token: '<unk>',
    byte_fallback: false,
    fuse_unk: false,
    dropout: null,
    continuing_subword_prefix: null,
    end_of_word_suffix: null,
    ignore_merges: false,
  };
}
const model = pairs();
const vocabulary = Object.keys(model['vocab'] as object).length;
const tokenizerJson = (parts: Record<string, unknown>): Record<string, unknown> => ({
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: [],
  post_processor: null,
  decoder: null,
  normalizer: null,
  pre_tokenizer: null,
  model,
  ...parts,
});

/** How many texts have other ids, and the first of them. */
async function differing(json: Record<string, unknown>, samples: readonly string[]): Promise<unknown[]> {
  const rust = rustEncoder(json);
  const tokenizer = loadTokenizer({ tokenizerJson: json });
  const found: unknown[] = [];
  for (const text of samples) {
    const [ours, theirs] = [tokenizer.encode(text, { addSpecial: false }), await rust(text)];
    if (ours.join() !== theirs.join()) found.push({ text, ours, theirs });
  }
  return found;
}

const byteLevel = (add_prefix_space: boolean, use_regex: boolean) => ({
  type: 'ByteLevel',
  add_prefix_space,
  use_regex,
  trim_offsets: true,
});
const sequence = (...pretokenizers: readonly object[]) => ({ type: 'Sequence', pretokenizers });
const metaspace = (more: object) => ({ type: 'Metaspace', replacement: '▁', ...more });
const digits = (individual_digits: boolean) => ({ type: 'Digits', individual_digits });
const BEHAVIORS = ['Removed', 'Isolated', 'Contiguous', 'MergedWithPrevious', 'MergedWithNext'];
const PATTERNS = [
  { String: ' ' },
  { String: '.' },
  { String: '' },
  { Regex: '\\s+' },
  { Regex: '(\\d)|a(?=b)' },
  { Regex: "(?i:'s|'t|K)|\\w+|[^\\w\\s]+" },
];
const PRE_TOKENIZERS = [
  ...[true, false].flatMap((one) => [digits(one), byteLevel(one, true), byteLevel(one, false)]),
  ...['Whitespace', 'WhitespaceSplit', 'BertPreTokenizer'].map((type) => ({ type })),
  { type: 'CharDelimiterSplit', delimiter: ' ' },
  { type: 'FixedLength', length: 3 },
  ...BEHAVIORS.map((behavior) => ({ type: 'Punctuation', behavior })),
  ...BEHAVIORS.flatMap((behavior) =>
    [true, false].flatMap((invert) => PATTERNS.map((pattern) => ({ type: 'Split', pattern, behavior, invert }))),
  ),
  ...['always', 'first', 'never'].flatMap((prepend_scheme) =>
    [true, false].map((split) => metaspace({ prepend_scheme, split })),
  ),
  metaspace({ add_prefix_space: true }),
  metaspace({ add_prefix_space: false, prepend_scheme: 'never', replacement: '_' }),
  sequence(digits(true), byteLevel(false, true)),
  sequence({ type: 'Whitespace' }, byteLevel(true, true)),
  ...['always', 'first', 'never'].flatMap((prepend_scheme) =>
    [{ type: 'Punctuation', behavior: 'Isolated' }, { type: 'Whitespace' }, digits(true)].map((before) =>
      sequence(before, metaspace({ prepend_scheme, split: before.type !== 'Whitespace' })),
    ),
  ),
];
const NORMALIZERS = [
  ...['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents'].map((type) => ({ type })),
  { type: 'Prepend', prepend: '▁' },
  {
    type: 'Sequence',
    normalizers: [
      { type: 'Strip', strip_left: true, strip_right: true },
      { type: 'Prepend', prepend: '▁' },
    ],
  },
  ...[0, 1, 2, 3].map((bits) => ({ type: 'Strip', strip_left: bits % 2 > 0, strip_right: bits > 1 })),
  ...[{ String: ' ' }, { String: '' }, { Regex: '\\s+' }, { Regex: '\\d|\\w\\b' }].map((pattern) => ({
    type: 'Replace',
    pattern,
    content: '▁',
  })),
  ...Array.from({ length: 12 }, (_, bits) => ({
    type: 'BertNormalizer',
    clean_text: bits % 2 > 0,
    handle_chinese_chars: (bits & 2) > 0,
    lowercase: (bits & 4) > 0,
    strip_accents: bits > 7 ? null : bits % 2 > 0,
  })),
  { type: 'Sequence', normalizers: [{ type: 'NFD' }, { type: 'Lowercase' }, { type: 'StripAccents' }] },
];

describe.skipIf(typeof rustTokenizers === 'string')('ids are those of the tokenizers written in Rust', () => {
  const samples = texts(new Random(5), 120);

  it.each(PRE_TOKENIZERS.map((step) => [JSON.stringify(step), step]))('cut by %s', async (_, step) => {
    expect(await differing(tokenizerJson({ pre_tokenizer: step }), samples)).toEqual([]);
  });

  it.each(NORMALIZERS.map((step) => [JSON.stringify(step), step]))('normalized by %s', async (_, step) => {
    expect(await differing(tokenizerJson({ normalizer: step }), samples)).toEqual([]);
  });

  const flags = [0, 1, 2, 3, 4].map((bits) => ({
    lstrip: bits % 2 > 0,
    rstrip: (bits & 2) > 0,
    single_word: bits > 3,
  }));
  it.each(
    flags.flatMap((one) => [0, 1, 2, 3].map((bits) => ({ ...one, special: bits % 2 > 0, normalized: bits > 1 }))),
  )('with added tokens of %o', async (flag) => {
    // Beside one another, tokens that must stand alone are more than is done here.
    const contents = flag.single_word ? ['<x>'] : ['<x>', 'xyz', '本本', '<x>a', '<\n>'];
    const added_tokens = contents.map((content, i) => ({ content, id: vocabulary + i, ...flag }));
    const parts = { added_tokens, normalizer: { type: 'Lowercase' }, pre_tokenizer: byteLevel(false, true) };
    const mixed = texts(new Random(6), 120, [...contents, ' ', '\ufeff', '\u0085']);
    const apart = mixed.filter((text) => !flag.single_word || !/<x>(?=<x>)/i.test(text));
    expect(await differing(tokenizerJson(parts), apart)).toEqual([]);
  });
});

const folder = new URL('../../../../shared/real/tokenizers/', import.meta.url);
const real = ['smollm2', 'phi-2'].filter((name) => existsSync(new URL(`${name}/tokenizer.json`, folder)));
const jsonOf = (name: string) =>
  JSON.parse(readFileSync(new URL(`${name}/tokenizer.json`, folder), 'utf8')) as Record<string, unknown>;

describe.skipIf(real.length < 2)('of published models', () => {
  it.skipIf(typeof rustTokenizers === 'string').each(real)('%s has the ids of Rust', async (name) => {
    expect(await differing(jsonOf(name), texts(new Random(9), 400, ['the', ' and', '١٢', "it's"]))).toEqual([]);
  });

  it('SmolLM2 has the ids that its library gives, from a folder and with the steps that a GGUF file names', () => {
    const cases = JSON.parse(readFileSync(new URL('smollm2/hf_cases.json', folder), 'utf8')) as [string, number[]][];
    const json = jsonOf('smollm2');
    const named = { ...json, pre_tokenizer: preTokenizer('smollm', 'it').steps };
    for (const tokenizer of [json, named].map((tokenizerJson) => loadTokenizer({ tokenizerJson }))) {
      for (const [text, ids] of cases) expect(tokenizer.encode(text, { addSpecial: false })).toEqual(ids);
      expect(tokenizer.encode('add ½ cup', { addSpecial: false })).toEqual([2104, 216, 16738, 7118]);
    }
  });
});
