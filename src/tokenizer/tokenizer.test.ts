import { describe, expect, it } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import { byteLevelTokenizer, metaspaceTokenizer, type TinyTokenizer } from './testing/tiny_tokenizers.js';
import { loadTokenizer } from './testing/load_tokenizer.js';
import type { TokenizerFiles } from './tokenizer.js';

const load = ({ json, config }: TinyTokenizer, more: Partial<TokenizerFiles> = {}) =>
  loadTokenizer({ tokenizerJson: json, tokenizerConfig: config, ...more });

function failure(run: () => unknown): SplitkvError {
  try {
    run();
  } catch (error) {
    if (error instanceof SplitkvError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('a byte-level tokenizer', () => {
  const tokenizer = load(byteLevelTokenizer());

  it('encodes words as merges, other text as bytes', () => {
    const the = tokenizer.idOf('Ġthe')!;
    expect(the).toBeGreaterThan(259);
    expect(tokenizer.encode(' the the', { addSpecial: false })).toEqual([the, the]);
    // Byte b is id 4 + b; the Euro sign is E2 82 AC.
    expect(tokenizer.encode('€', { addSpecial: false })).toEqual([4 + 0xe2, 4 + 0x82, 4 + 0xac]);
  });

  it('adds the first token unless told not to, also to no text', () => {
    expect(tokenizer.encode('Z')).toEqual([1, 4 + 90]);
    expect(tokenizer.encode('')).toEqual([1]);
    expect(tokenizer.encode('', { addSpecial: false })).toEqual([]);
  });

  it('recognises special tokens in the text and leaves them out of decoded text, or not', () => {
    const ids = tokenizer.encode('<|user|>Z<|end|>', { addSpecial: false });
    expect(ids).toEqual([3, 4 + 90, 2]);
    expect(tokenizer.decode(ids)).toBe('Z');
    expect(tokenizer.decode(ids, { skipSpecial: false })).toBe('<|user|>Z<|end|>');
  });

  it('knows its special ids and its size', () => {
    expect(tokenizer).toMatchObject({ bosId: 1, eosIds: [2], vocabSize: 320 });
    expect([0, 1, 2, 3, 4].map((id) => tokenizer.isSpecial(id))).toEqual([true, true, true, true, false]);
    expect(load(byteLevelTokenizer(), { generationConfig: { eos_token_id: [0, 2] } }).eosIds).toEqual([0, 2]);
    expect(load(byteLevelTokenizer(), { generationConfig: { eos_token_id: 0 } }).eosIds).toEqual([0, 2]);
  });

  it('keeps blanks before punctuation, whatever the config says about cleaning up', () => {
    const tiny = byteLevelTokenizer();
    const eager = load({ json: tiny.json, config: { ...tiny.config, clean_up_tokenization_spaces: true } });
    expect(eager.decode(eager.encode("it 's , so ."))).toBe("it 's , so .");
  });

  it('gives nothing for ids of a padded vocabulary, and refuses what is no id', () => {
    expect(tokenizer.decode([4 + 90, 100_000, 4 + 90])).toBe('ZZ');
    expect(tokenizer.decode([])).toBe('');
    expect(failure(() => tokenizer.decode([-1]))).toMatchObject({
      code: 'usage',
      message: expect.stringContaining('-1'),
    });
    expect(failure(() => tokenizer.decode([1.5])).code).toBe('usage');
  });

  it('reads text as well as objects', () => {
    const { json, config } = byteLevelTokenizer();
    const parsed = loadTokenizer({ tokenizerJson: JSON.stringify(json), tokenizerConfig: JSON.stringify(config) });
    expect(parsed.encode('the cat')).toEqual(tokenizer.encode('the cat'));
  });
});

describe('a SentencePiece-like tokenizer', () => {
  const tokenizer = load(metaspaceTokenizer());

  it('drops the blank it put before the text, and keeps it in a continuation', () => {
    const ids = tokenizer.encode('the cat', { addSpecial: false });
    expect(tokenizer.decode(ids)).toBe('the cat');
    expect(tokenizer.decode([1, ...ids])).toBe('the cat');
    const stream = tokenizer.stream({ continues: true });
    expect(ids.map((id) => stream.push(id)).join('')).toBe(' the cat');
  });

  it('falls back to bytes', () => {
    const bytes = [0xf0, 0x9f, 0x90, 0x88].map((byte) => 3 + byte);
    expect(tokenizer.encode('🐈', { addSpecial: false })).toEqual([tokenizer.idOf('▁'), ...bytes]);
    expect(tokenizer.decode(bytes)).toBe('🐈');
  });
});

describe('files that are no tokenizer', () => {
  const { json } = byteLevelTokenizer();
  const cases: [name: string, files: TokenizerFiles, code: string, message: RegExp][] = [
    ['missing', { tokenizerJson: undefined }, 'io', /tokenizer\.json is missing/],
    ['cut short', { tokenizerJson: JSON.stringify(json).slice(0, 999) }, 'format', /tokenizer\.json: not valid JSON/],
    ['a list', { tokenizerJson: [] }, 'format', /expected a JSON object/],
    ['no model', { tokenizerJson: {} }, 'format', /'model' is null/],
    [
      'no vocabulary',
      { tokenizerJson: { ...json, model: { type: 'BPE' } } },
      'format',
      /not a tokenizer this runtime reads/,
    ],
    [
      'a strange pre-tokenizer',
      { tokenizerJson: { ...json, pre_tokenizer: { type: 'Magic' } } },
      'unsupported',
      /Unknown PreTokenizer type: Magic/,
    ],
    [
      'a post-processor that fails with the first text',
      {
        tokenizerJson: {
          ...json,
          post_processor: { type: 'TemplateProcessing', single: [1], pair: [], special_tokens: {} },
        },
      },
      'format',
      /not a tokenizer this runtime reads/,
    ],
    [
      'another decoder',
      { tokenizerJson: { ...json, decoder: { type: 'BPEDecoder' } } },
      'unsupported',
      /BPEDecoder.*ByteLevel/,
    ],
    [
      'a config that is a list',
      { tokenizerJson: json, tokenizerConfig: [1] },
      'format',
      /^tokenizer_config\.json: expected/,
    ],
    [
      'a config cut short',
      { tokenizerJson: json, tokenizerConfig: '{' },
      'format',
      /^tokenizer_config\.json: not valid JSON/,
    ],
    [
      'a bad end token',
      { tokenizerJson: json, generationConfig: { eos_token_id: 'x' } },
      'format',
      /eos_token_id is "x"/,
    ],
  ];
  it.each(cases)('%s', (_name, files, code, message) => {
    const error = failure(() => loadTokenizer(files));
    expect(error.message).toMatch(message);
    expect(error.code).toBe(code);
  });
});

describe('chat templates', () => {
  const tiny = byteLevelTokenizer();
  const withTemplate = (chat_template: unknown, chatTemplate?: string) =>
    load({ json: tiny.json, config: { ...tiny.config, chat_template } }, { chatTemplate });
  const messages = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Yo' },
    { role: 'user', content: 'Bye' },
  ];

  it('renders the conversation', () => {
    const tokenizer = load(tiny);
    expect(tokenizer.applyChatTemplate(messages)).toBe('<|begin|><|user|>HiYo<|end|><|user|>Bye ');
    expect(tokenizer.applyChatTemplate(messages, { addGenerationPrompt: false })).toBe(
      '<|begin|><|user|>HiYo<|end|><|user|>Bye',
    );
    expect(tokenizer.encode(tokenizer.applyChatTemplate(messages), { addSpecial: false }).slice(0, 2)).toEqual([1, 3]);
  });

  it('prefers chat_template.jinja', () => {
    expect(withTemplate('old', 'new {{ messages | length }}').applyChatTemplate(messages)).toBe('new 3');
  });

  it('chooses among named templates by tools', () => {
    const tokenizer = withTemplate([
      { name: 'default', template: 'plain' },
      { name: 'tool_use', template: '{{ tools[0].name }}' },
    ]);
    expect(tokenizer.applyChatTemplate(messages)).toBe('plain');
    expect(tokenizer.applyChatTemplate(messages, { tools: [{ name: 'clock' }] })).toBe('clock');
    expect(tokenizer.applyChatTemplate(messages, { template: 'tool_use', tools: [{ name: 'a' }] })).toBe('a');
    const error = failure(() => tokenizer.applyChatTemplate(messages, { template: 'tool-use' }));
    expect(error.message).toMatch(/default, tool_use\. Did you mean 'tool_use'\?/);
  });

  it('passes further variables', () => {
    const tokenizer = withTemplate(
      '{% if enable_thinking is defined and enable_thinking is false %}quick{% else %}slow{% endif %}',
    );
    expect(tokenizer.applyChatTemplate(messages)).toBe('slow');
    expect(tokenizer.applyChatTemplate(messages, { variables: { enable_thinking: false } })).toBe('quick');
  });

  it('says so where there is none, where it is broken, and where it refuses', () => {
    expect(load(tiny).hasChatTemplate).toBe(true);
    const none = withTemplate(null);
    expect(none.hasChatTemplate).toBe(false);
    expect(failure(() => none.applyChatTemplate(messages))).toMatchObject({
      code: 'usage',
      message: expect.stringMatching(/no chat template/),
    });
    expect(failure(() => withTemplate('{% if %}').applyChatTemplate(messages)).code).toBe('format');
    const refusing = withTemplate("{{ raise_exception('roles must alternate') }}");
    expect(failure(() => refusing.applyChatTemplate(messages)).message).toMatch(/refused.*roles must alternate/);
    expect(failure(() => withTemplate([{ name: 'x' }])).message).toMatch(/chat_template must be text, or a list/);
  });

  it('refuses what are no messages', () => {
    const tokenizer = load(tiny);
    expect(failure(() => tokenizer.applyChatTemplate([])).message).toMatch(/messages is empty/);
    expect(failure(() => tokenizer.applyChatTemplate([{ content: 'x' } as never])).message).toMatch(
      /messages\[0\] has no role/,
    );
    expect(failure(() => tokenizer.applyChatTemplate([{ role: 'user', content: 7 }])).message).toMatch(
      /content is number/,
    );
  });
});

describe('tokenizer.json files that could take for ever', () => {
  const { json, config } = byteLevelTokenizer();
  const replace = (pattern: object, content: string) => ({ type: 'Replace', pattern, content });
  const sequence = (key: string, steps: unknown[]) => ({ type: 'Sequence', [key]: steps });
  const model = json.model as Record<string, object>;
  const split = { type: 'Split', pattern: { Regex: '(a+)+$' }, behavior: 'Isolated', invert: false };
  let deep: object = { type: 'ByteLevel' };
  for (let depth = 0; depth < 20_000; depth++) deep = sequence('decoders', [deep]);

  it.each<[name: string, more: Record<string, unknown>, message: RegExp]>([
    ['a split', { pre_tokenizer: split }, /"\(a\+\)\+\$" of pre_tokenizer \(Split\) could take for ever: it repeats/],
    ['a replacement', { normalizer: replace({ Regex: '(a|a)*b' }, '') }, /"\(a\|a\)\*b" of normalizer \(Replace\)/],
    [
      'normalizers that double a text forty times',
      {
        normalizer: sequence(
          'normalizers',
          Array.from({ length: 40 }, () => replace({ String: 'a' }, 'aa')),
        ),
      },
      /can make a text 3298534883328 times as long/,
    ],
    ['one that fills the gaps', { normalizer: replace({ String: '' }, 'x'.repeat(20)) }, /63 times as long/],
    ['one that repeats what it found', { normalizer: replace({ String: 'ab' }, '$`') }, /replaces by "\$`"/],
    ['a long beginning', { normalizer: { type: 'Prepend', prepend: 'x'.repeat(1000) } }, /1000 letters longer/],
    ['decoders in one another', { decoder: deep }, /decoder has more than 64 steps, or 16 in one another/],
    [
      'a great many steps',
      {
        normalizer: sequence(
          'normalizers',
          Array.from({ length: 1e6 }, () => ({ type: 'NFC' })),
        ),
      },
      /normalizer has more than 64 steps/,
    ],
    [
      'an added token near 2^32',
      { added_tokens: [{ id: 4_294_967_290, content: '<x>', special: true }] },
      /token "<x>" has the id 4294967290; expected a whole number below 100321/,
    ],
    [
      'a token near 2^32',
      { model: { ...model, vocab: { ...model['vocab'], x: 4_294_967_290 } } },
      /token "x" has the id 4294967290/,
    ],
    ['a token below 0', { model: { ...model, vocab: { ...model['vocab'], x: -5 } } }, /token "x" has the id -5/],
    [
      'bytes of bytes',
      { pre_tokenizer: sequence('pretokenizers', Array(5).fill({ type: 'ByteLevel' })) },
      /a text 48 times as long/,
    ],
    ['pieces of no letters', { pre_tokenizer: { type: 'FixedLength', length: 0 } }, /pieces of the length 0/],
    [
      'templates that double',
      {
        post_processor: sequence(
          'processors',
          Array(5).fill({
            type: 'TemplateProcessing',
            single: Array(2).fill({ Sequence: { id: 'A', type_id: 0 } }),
            pair: [],
            special_tokens: {},
          }),
        ),
      },
      /a text 96 times as long/,
    ],
    [
      'decoders that double a token',
      { decoder: sequence('decoders', Array(5).fill(replace({ String: 'a' }, 'aa'))) },
      /a token 32 times as long/,
    ],
    [
      'words of any length',
      { model: { type: 'WordPiece', vocab: { a: 0 }, max_input_chars_per_word: 1e9 } },
      /max_input_chars_per_word of the model is 1000000000; expected at most 256/,
    ],
    [
      'pieces in one another',
      {
        model: { type: 'Unigram', unk_id: 0, vocab: Array.from({ length: 200 }, (_, i) => ['a'.repeat(i + 1), -i]) },
      },
      /more than 128 tokens of the model begin one another/,
    ],
    [
      'too many merges',
      { model: { ...model, merges: Array.from({ length: 2e6 }, () => 'a b') } },
      /tokens, or 640000 merges/,
    ],
  ])('%s', (_, more, message) => {
    const files = { tokenizerJson: { ...json, ...more }, tokenizerConfig: config };
    const error = expect.objectContaining({ code: 'format', message: expect.stringMatching(message) });
    expect(() => loadTokenizer(files)).toThrow(error);
  });

  it('a text whose runs are looked at again and again is refused, where they are long', () => {
    const step = { ...split, pattern: { Regex: 'a+b| ' } };
    const tokenizer = load({ json: { ...json, pre_tokenizer: { type: 'Sequence', pretokenizers: [step] } }, config });
    expect(tokenizer.encode('a'.repeat(5000)).length).toBeGreaterThan(1);
    expect(tokenizer.encode('the aab cat '.repeat(5000)).length).toBeGreaterThan(5000);
    const refused = expect.objectContaining({ code: 'usage', message: expect.stringMatching(/20,000 letters.*again/) });
    expect(() => tokenizer.encode('a'.repeat(20_000))).toThrow(refused);
  });

  it('replacements of equal length, and a few longer ones, are none', () => {
    const normalizers = [
      ...Array.from({ length: 40 }, () => replace({ String: ' ' }, '_')),
      replace({ String: '\n' }, '<nl>'),
      replace({ Regex: ' {2,}' }, '$'),
    ];
    const tokenizer = load({ json: { ...json, normalizer: sequence('normalizers', normalizers) }, config });
    expect(tokenizer.decode(tokenizer.encode('a b\n'))).toBe('a_b<nl>');
  });
});
