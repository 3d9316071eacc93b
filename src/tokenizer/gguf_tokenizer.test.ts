import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LlamaModel } from 'node-llama-cpp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sweepsAll } from '../gpu/testing/draw.js';
import { modelToGguf } from '../model/testing/gguf/model.js';
import type { GgufValue } from '../model/testing/gguf/file.js';
import { vocabularyMetadata } from '../model/testing/gguf/vocabulary.js';
import { openGguf } from '../loader/index.js';
import { MemorySource } from '../loader/testing/memory_source.js';
import { findLlamaCpp, llamaCppSources } from '../model/testing/llama_cpp.js';
import { makeRandomModel } from '../model/testing/random_model.js';
import { ggufTokenizerFiles } from './gguf_tokenizer.js';
import { preTokenizerNames } from './gguf_pre_tokenizers.js';
import { byteLevelTokenizer, learnMerges, metaspaceTokenizer } from './testing/tiny_tokenizers.js';
import { byteCharacters } from './token_bytes.js';
import { loadTokenizer } from './testing/load_tokenizer.js';
import type { Tokenizer } from './tokenizer.js';

type Metadata = Record<string, GgufValue>;
const build = (metadata: Metadata): Tokenizer => {
  const values = new Map(Object.entries(metadata).map(([key, { value }]) => [key, value]));
  return loadTokenizer(ggufTokenizerFiles(values, 'm.gguf')!);
};

const llama = await findLlamaCpp();
if (typeof llama === 'string') console.warn(`skipped: tokenizers against llama.cpp (${llama})`);
const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
afterAll(async () => {
  if (typeof llama !== 'string') await llama.dispose();
  await rm(folder, { recursive: true });
});

/** llama.cpp's tokenizer of a file that holds nothing else worth having. */
async function oracle(name: string, metadata: Metadata): Promise<LlamaModel> {
  if (typeof llama === 'string') throw new Error(llama);
  const vocab_size = (metadata['tokenizer.ggml.tokens']!.value as string[]).length;
  const small = { vocab_size, hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, head_dim: 8 };
  const { config, weights } = makeRandomModel({ config: { ...small, num_attention_heads: 2, num_key_value_heads: 1 } });
  const path = join(folder, `${name}.gguf`);
  await writeFile(path, modelToGguf(config, weights, { metadata }));
  return llama.loadModel({ modelPath: path, gpuLayers: 0, vocabOnly: true });
}

const texts = [
  'the cat sat on the mat, and the dog ran after the cat.',
  "I'm sure they're here; WE'LL SEE, it'S HE'D don't y'all 'tis",
  '1 12 123 1234 12345 3.14159 2026-11-21 1,000,000 ½ ² Ⅷ ٣٤٥ １２３',
  'def f(x):\n\treturn x**2 + 1  # comment\n\n\n    print("hi")\r\n',
  '  leading,   many    blanks   and trailing   ',
  'naïve café Über die Brücke ÆØÅ ŁÓDŹ œuvre ﬁne K Ω',
  '東京の猫は 한국어 中文字符。、！？ 「こんにちは」カタカナ',
  'Привет, мир! Γειά σου Κόσμε. שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดี',
  '🐈 👩‍👩‍👧 🇩🇪 x̂ e\u0332 \u00a0nbsp\u2003wide\u200bzero',
  'a_b-c/d\\e|f~g`h^i$j%k&l*(m)[n]{o}<p>=q+r@s#t!u?v"w\'x',
  'camelCaseWords HTTPServer iOS XMLHttpRequest ABCdef abcDEF',
  '...!!!??? --- === <<>> $$ ^^ ~~ || `` “quoted” ‘single’ – — …',
  '\n',
  '\t',
  ' ',
  '  ',
  '\n\n',
  '\r\n\r\n',
  ' \n ',
  'a',
  '',
];

const letters = (text: string): string[] => Array.from(new TextEncoder().encode(text), (byte) => byteCharacters[byte]!);
/** A whole piece that no merges lead to. */
const rareWord = ' zyzzyva';
const crossingMerges = learnMerges(
  texts
    .flatMap((text) => [text, ...(text.match(/\s?[^\s]+|\s+/g) ?? []), ...(text.match(/\p{L}+|\p{N}+/gu) ?? [])])
    .map(letters),
  900,
);
const allTexts = [...texts, `a${rareWord}${rareWord}s`, 'a<|im_end|> b<tool>c <|begin|>\n'];

/** A byte-level vocabulary whose merges cross every border that a pre-tokenizer may draw, so that the borders show. */
function crossingVocabulary(pre: string, specials = ['<|begin|>', '<|im_end|>', '<|endoftext|>', '<tool>']): Metadata {
  const merged = crossingMerges.map((pair) => pair.join(''));
  const tokens = [...new Set([...specials, ...byteCharacters, ...merged, letters(rareWord).join('')])];
  return {
    'tokenizer.ggml.model': { type: 'string', value: 'gpt2' },
    'tokenizer.ggml.pre': { type: 'string', value: pre },
    'tokenizer.ggml.tokens': { type: 'string[]', value: tokens },
    'tokenizer.ggml.token_type': {
      type: 'i32[]',
      value: tokens.map((token, id) => (id >= specials.length ? 1 : token === '<tool>' ? 4 : 3)),
    },
    'tokenizer.ggml.merges': { type: 'string[]', value: crossingMerges.map((pair) => pair.join(' ')) },
    'tokenizer.ggml.bos_token_id': { type: 'u32', value: 0 },
    'tokenizer.ggml.eos_token_id': { type: 'u32', value: 1 },
  };
}

/** Letters as they are, bytes for others, merges over blanks but not over lines, and runs of lines. */
function gemma4Vocabulary(): Metadata {
  const lines = texts
    .flatMap((text) => text.replaceAll(' ', '\u2581').match(/[^\n]+/g) ?? [])
    .map((line) => Array.from(line));
  const merges = learnMerges(lines, 300);
  const specials = ['<pad>', '<eos>', '<bos>', '<unk>', '<|turn>', '<turn|>'];
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const seen = [...new Set(lines.flat())].filter((letter) => letter !== 'é' && letter !== '東');
  const runs = ['\n', '\n\n', '\n\n\n'];
  const tokens = [...new Set([...specials, ...bytes, ...seen, ...merges.map((pair) => pair.join('')), ...runs])];
  return {
    'tokenizer.ggml.model': { type: 'string', value: 'gemma4' },
    'tokenizer.ggml.tokens': { type: 'string[]', value: tokens },
    'tokenizer.ggml.token_type': {
      type: 'i32[]',
      value: tokens.map((token) => (specials.includes(token) ? 3 : bytes.includes(token) ? 6 : 1)),
    },
    'tokenizer.ggml.merges': { type: 'string[]', value: [...merges.map((pair) => pair.join(' ')), '\n \n', '\n\n \n'] },
    'tokenizer.ggml.bos_token_id': { type: 'u32', value: 2 },
    'tokenizer.ggml.eos_token_id': { type: 'u32', value: 1 },
    'tokenizer.ggml.unknown_token_id': { type: 'u32', value: 3 },
    'tokenizer.ggml.add_bos_token': { type: 'bool', value: false },
  };
}

it('the vocabulary tells the pre-tokenizers apart', () => {
  const ids = (pre: string): string => {
    const tokenizer = build(crossingVocabulary(pre));
    return JSON.stringify(allTexts.map((text) => tokenizer.encode(text, { addSpecial: false })));
  };
  const kinds = [
    'llama-bpe',
    'dbrx',
    'qwen2',
    'qwen35',
    'deepseek-llm',
    'deepseek-coder',
    'deepseek-v3',
    'tekken',
    'smollm',
    'gpt-2',
    'default',
  ];
  expect(new Set(kinds.map(ids)).size).toBe(kinds.length);
});

describe.skipIf(typeof llama === 'string')('the same ids as llama.cpp', () => {
  it.each([...preTokenizerNames])('byte-level, %s', async (pre) => {
    const metadata = crossingVocabulary(pre);
    const model = await oracle(pre, metadata);
    const ours = build(metadata);
    for (const text of allTexts) {
      // Its own expression keeps marks with their letters; llama.cpp's stand-in for it doesn't.
      if (['tekken', 'gpt-4o', 'llama4', 'kanana2'].includes(pre) && /\p{M}/u.test(text)) continue;
      const expected = [...model.tokenize(text, true)];
      expect(ours.encode(text, { addSpecial: false }), text).toEqual(expected);
      expect(ours.decode(expected, { skipSpecial: false })).toBe(text);
    }
    await model.dispose();
  });

  it.each([true, false])('SentencePiece, with a blank before the text: %s', async (prefix) => {
    const { json, config } = metaspaceTokenizer();
    const metadata: Metadata = {
      ...vocabularyMetadata(json as never, config, {}),
      'tokenizer.ggml.add_space_prefix': { type: 'bool', value: prefix },
    };
    const model = await oracle(`spm ${prefix}`, metadata);
    const ours = build(metadata);
    for (const text of [...texts, 'the cat</s> the cat<s>cat', 'the      cat       sat', '▁the▁cat']) {
      const expected = [...model.tokenize(text, true)];
      expect(ours.encode(text, { addSpecial: false }), text).toEqual(expected);
    }
    await model.dispose();
  });

  it('SentencePiece with merges, as Gemma 4 has it', async () => {
    const metadata = gemma4Vocabulary();
    const model = await oracle('gemma4', metadata);
    const ours = build(metadata);
    const more = ['a<turn|>\n<|turn>model\n', 'the\n\n\ncat\n\n\n\nsat', '\u2581the\u2581cat', ' \n  \n\n '];
    for (const text of [...texts, ...more]) {
      const expected = [...model.tokenize(text, true)];
      expect(ours.encode(text, { addSpecial: false }), text).toEqual(expected);
      if (!text.includes('\u2581')) expect(ours.decode(expected, { skipSpecial: false })).toBe(text);
    }
    expect(ours.encode('the cat')[0]).toBe(ours.bosId);
    expect(ours.decode([ours.bosId!, ...ours.encode('the cat', { addSpecial: false })])).toBe('the cat');
    await model.dispose();
  });

  it.each<[family: string, specials: readonly string[], ends: readonly string[]]>([
    ['Qwen', ['<|endoftext|>', '<|im_start|>', '<|im_end|>'], ['<|endoftext|>', '<|im_end|>']],
    ['Gemma 2 and 3', ['<eos>', '<start_of_turn>', '<end_of_turn>'], ['<eos>', '<end_of_turn>']],
    ['Gemma 4', ['<eos>', '</s>', '<|turn>', '<turn|>', '<|tool_response>'], ['<eos>', '<turn|>', '<|tool_response>']],
    ['Phi', ['<|endoftext|>', '<|user|>', '<|end|>'], ['<|endoftext|>', '<|end|>']],
    ['Granite', ['<|end_of_text|>', '<|start_of_role|>', '<|end_of_role|>'], ['<|end_of_text|>']],
    [
      'Llama, SmolLM3',
      ['<|end_of_text|>', '<|eot_id|>', '<|eom_id|>', '<|im_end|>'],
      ['<|end_of_text|>', '<|eot_id|>', '<|eom_id|>', '<|im_end|>'],
    ],
    // Its <|end|> ends a message of an answer, not the answer.
    ['gpt-oss', ['<|return|>', '<|end|>', '<|call|>', '<|channel|>', '<|message|>'], ['<|return|>', '<|call|>']],
  ])('ends an answer where llama.cpp does: %s', async (family, specials, ends) => {
    const metadata = crossingVocabulary('qwen2', ['<|begin|>', ...specials]);
    const model = await oracle(`ends of ${family}`, metadata);
    const { eosIds } = build(metadata);
    const tokens = metadata['tokenizer.ggml.tokens']!.value as string[];
    // llama.cpp takes gpt-oss's <|end|> out of its list; the binding adds it again.
    const taken = (id: number): boolean => family === 'gpt-oss' && tokens[id] === '<|end|>';
    const theirs = tokens.map((_, id) => id).filter((id) => model.isEogToken(id as never) && !taken(id));
    expect(eosIds.toSorted((a, b) => a - b)).toEqual(theirs);
    expect(theirs.map((id) => tokens[id])).toEqual(ends);
    await model.dispose();
  });
});

describe.runIf(sweepsAll)("llama.cpp's own texts, by the models' own vocabularies", () => {
  let read: (path: string) => Buffer;
  beforeAll(() => {
    read = llamaCppSources(folder);
  });
  const names = ['gemma-4', 'qwen35', 'qwen2', 'llama-bpe', 'llama-spm', 'phi-3', 'refact', 'gpt-2', 'deepseek-llm'];
  it.each([...names, 'deepseek-coder', 'command-r', 'starcoder'])('%s', { timeout: 60_000 }, async (name) => {
    const file = `models/ggml-vocab-${name}.gguf`;
    const gguf = await openGguf(new MemorySource({ m: new Uint8Array(read(file)) }), 'm');
    const tokenizer = loadTokenizer(ggufTokenizerFiles(gguf.metadata, file)!);
    const inputs = read(`${file}.inp`).toString().split('\n__ggml_vocab_test__\n');
    const ids = inputs.map((text) => tokenizer.encode(text, { addSpecial: false }).join(' '));
    const expected = read(`${file}.out`)
      .toString()
      .split('\n')
      .slice(0, inputs.length)
      .map((line) => line.trim());
    expect(ids.length).toBeGreaterThan(40);
    expect(ids).toEqual(expected);
  });
});

describe('models/tiny-gqa exported to GGUF', async () => {
  const read = async (name: string): Promise<unknown> => JSON.parse(await readFile(`models/tiny-gqa/${name}`, 'utf8'));
  const [json, config, generation] = await Promise.all(
    ['tokenizer.json', 'tokenizer_config.json', 'generation_config.json'].map(read),
  );
  const original = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config, generationConfig: generation });
  const exported = build(
    vocabularyMetadata(json as never, config as never, { pre: 'gpt-2', vocabSize: 960, addBos: true }),
  );

  it('is the same tokenizer', () => {
    for (const text of texts) expect(exported.encode(text), text).toEqual(original.encode(text));
    expect(exported.encode('<|user|>x', { addSpecial: false })).toEqual(
      original.encode('<|user|>x', { addSpecial: false }),
    );
    expect(exported).toMatchObject({ bosId: original.bosId, eosIds: original.eosIds });
    expect([0, 1, 2, 3, 4, 5].map((id) => exported.isSpecial(id))).toEqual(
      [0, 1, 2, 3, 4, 5].map((id) => original.isSpecial(id)),
    );
    const ids = original.encode('lena hid the red needle . 東京', { addSpecial: false });
    expect(exported.decode([1, ...ids, 2])).toBe(original.decode([1, ...ids, 2]));
    expect(exported.decode([950])).toBe(''); // a place that only pads the vocabulary
  });

  it('renders the same chat', () => {
    const messages = [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'Yo' },
      { role: 'user', content: 'Bye' },
    ];
    expect(exported.applyChatTemplate(messages)).toBe(original.applyChatTemplate(messages));
  });
});

describe('what the file says, and what it leaves out', () => {
  const { json, config } = byteLevelTokenizer();
  const bytes = vocabularyMetadata(json as never, config, { pre: 'gpt-2' });
  const sentencePiece = vocabularyMetadata(metaspaceTokenizer().json as never, metaspaceTokenizer().config, {});
  const flag = (value: boolean): GgufValue => ({ type: 'bool', value });
  const string = (value: string): GgufValue => ({ type: 'string', value });

  it('adds a first and a last token as told, or by the kind of tokenizer', () => {
    const text = 'the';
    const around = (metadata: Metadata): [boolean, boolean] => {
      const ids = build(metadata).encode(text);
      return [ids[0] === 1, ids.at(-1) === 2];
    };
    expect(around(bytes)).toEqual([false, false]);
    expect(around({ ...bytes, 'tokenizer.ggml.pre': string('llama-bpe') })).toEqual([true, false]);
    expect(
      around({ ...bytes, 'tokenizer.ggml.add_bos_token': flag(true), 'tokenizer.ggml.add_eos_token': flag(true) }),
    ).toEqual([true, true]);
    expect(around(sentencePiece)).toEqual([true, false]);
    expect(around({ ...sentencePiece, 'tokenizer.ggml.add_bos_token': flag(false) })).toEqual([false, false]);
  });

  it('takes end tokens from their keys', () => {
    expect(build({ ...bytes, 'tokenizer.ggml.eot_token_id': { type: 'u32', value: 3 } }).eosIds).toEqual([2, 3]);
    expect(build({ ...bytes, 'tokenizer.ggml.eos_token_id': { type: 'u32', value: 1e6 } }).eosIds).toEqual([2]); // <|end|> by name
  });

  it('composes characters for Qwen, as its own tokenizer does', () => {
    const qwen = build({ ...bytes, 'tokenizer.ggml.pre': string('qwen2') });
    expect(qwen.encode('e\u0301')).toEqual(qwen.encode('\u00e9'));
  });

  it('chooses among several chat templates', () => {
    const several = build({
      ...bytes,
      'tokenizer.chat_template': string('plain'),
      'tokenizer.chat_templates': { type: 'string[]', value: ['tool_use', 'gone'] },
      'tokenizer.chat_template.tool_use': string('tools'),
    });
    const messages = [{ role: 'user', content: 'x' }];
    expect(several.applyChatTemplate(messages)).toBe('plain');
    expect(several.applyChatTemplate(messages, { tools: [{}] })).toBe('tools');
    expect(build({ ...bytes, 'tokenizer.chat_template': string('') }).hasChatTemplate).toBe(true);
    const { 'tokenizer.chat_template': _, ...none } = bytes;
    expect(build(none).hasChatTemplate).toBe(false);
  });

  it.each([
    ['one long token', ['a'.repeat(20_000)]],
    ['tokens that begin one another', Array.from({ length: 2000 }, (_, i) => 'a'.repeat(i + 1))],
  ])('refuses %s, which would be cut in two everywhere', (_, more) => {
    const longer = <T>(key: string, value: readonly T[]): { type: never; value: T[] } => {
      const { type, value: before } = sentencePiece[`tokenizer.ggml.${key}`] as { type: never; value: T[] };
      return { type, value: [...before, ...value] };
    };
    const metadata = {
      ...sentencePiece,
      'tokenizer.ggml.tokens': longer('tokens', more),
      'tokenizer.ggml.scores': longer(
        'scores',
        more.map(() => -1),
      ),
      'tokenizer.ggml.token_type': longer(
        'token_type',
        more.map(() => 1),
      ),
    } as Metadata;
    expect(() => build(metadata)).toThrow(
      expect.objectContaining({
        code: 'format',
        message: expect.stringMatching(/m\.gguf.*too long to be taken apart/),
      }),
    );
  });

  it('no tokenizer is none', () => {
    expect(ggufTokenizerFiles(new Map(), 'm.gguf')).toBeUndefined();
    expect(ggufTokenizerFiles(new Map([['tokenizer.ggml.model', 'no_vocab']]), 'm.gguf')).toBeUndefined();
  });

  const without = (key: string): Metadata =>
    Object.fromEntries(Object.entries(sentencePiece).filter(([name]) => name !== key));
  it.each<[name: string, metadata: Metadata, code: string, message: RegExp]>([
    ['another model', { ...bytes, 'tokenizer.ggml.model': string('rwkv') }, 'unsupported', /"rwkv".*'gpt2'/],
    [
      'an unknown pre-tokenizer',
      { ...bytes, 'tokenizer.ggml.pre': string('qwen22') },
      'unsupported',
      /'qwen22'.*Did you mean 'qwen2'/,
    ],
    ['no tokens', without('tokenizer.ggml.tokens'), 'format', /m\.gguf has no tokenizer\.ggml\.tokens/],
    ['no scores', without('tokenizer.ggml.scores'), 'format', /no tokenizer\.ggml\.scores/],
    [
      'types of other tokens',
      { ...bytes, 'tokenizer.ggml.token_type': { type: 'i32[]', value: [1] } },
      'format',
      /token_type has 1 entries; expected 320/,
    ],
    [
      'tokens that are numbers',
      { ...bytes, 'tokenizer.ggml.tokens': { type: 'i32[]', value: [1] } },
      'format',
      /tokens is \[1\]; expected a list of strings/,
    ],
    [
      'a flag that is none',
      { ...bytes, 'tokenizer.ggml.add_bos_token': string('yes') },
      'format',
      /add_bos_token is "yes"/,
    ],
    [
      'a list of templates that is none',
      { ...bytes, 'tokenizer.chat_templates': string('x') },
      'format',
      /chat_templates is "x"/,
    ],
  ])('refuses %s', (_name, metadata, code, message) => {
    expect(() => build(metadata)).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }));
  });
});
