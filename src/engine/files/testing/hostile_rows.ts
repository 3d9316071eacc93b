/**
 * Room: model folders made to keep whoever opens them busy, or to end their process (here, as data), what reads one as a model is
 * read before a GPU is asked (read_files.ts), and a process that does so and says what it took (hostile_child.ts).
 */
import { readFileSync } from 'node:fs';
import { bytesOf, MAGIC } from '../../../loader/testing/header_bytes.js';
import { type GgufValue, text as ggufText, u32 } from '../../../model/testing/gguf/file.js';
import { modelToGguf } from '../../../model/testing/gguf/model.js';
import { makeRandomModel } from '../../../model/testing/random_model.js';

/** A file: what is in it, or what it begins with before zeros up to a size. */
type Content = string | Uint8Array | { readonly start: Uint8Array; readonly bytes: number };

/** A folder, or one GGUF file, by what is special about it. */
export interface HostileRow {
  readonly name: string;
  readonly files: () => Readonly<Record<string, Content>>;
  /** What is asked of its tokenizer, beside what all are asked. */
  readonly text?: string;
  /** Nothing in it is wrong, however odd: it may be read. */
  readonly harmless?: true;
}

type Json = Record<string, unknown>;
const MODEL = 'models/tiny-gqa';
const base = (file: string): string => readFileSync(`${MODEL}/${file}`, 'utf8');
const parsed = (file: string): Json => JSON.parse(base(file)) as Json;
const SMALL = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json'];
/** The folder of a model with some of its files replaced. Without weights, which come last. */
const folder = (files: Readonly<Record<string, Content>>): Readonly<Record<string, Content>> => ({
  ...Object.fromEntries(SMALL.map((file) => [file, base(file)])),
  ...files,
});

const times = <T>(count: number, of: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => of(i));
const nest = (depth: number, open: string, close: string, inner = ''): string =>
  open.repeat(depth) + inner + close.repeat(depth);
const lists = (depth: number): string => nest(depth, '[', ']');

// Templates.

const template = (name: string, chat_template: string, harmless?: true): HostileRow => ({
  name: `template: ${name}`,
  files: () =>
    folder({ 'tokenizer_config.json': JSON.stringify({ ...parsed('tokenizer_config.json'), chat_template }) }),
  ...(harmless && { harmless }),
});
const loops = (depth: number, turns: number, body = 'x'): string =>
  nest(depth, `{% for i in range(${turns}) %}`, '{% endfor %}', body);
const namespaced = (first: string, step: string, turns: number): string =>
  `{% set n = namespace(x=${first}) %}{% for i in range(${turns}) %}{% set n.x = ${step} %}{% endfor %}{{ n.x }}`;

const TEMPLATES: readonly HostileRow[] = [
  template('range(1e9)', '{% for i in range(1000000000) %}x{% endfor %}'),
  template('range(1e9) as a list', '{{ range(1000000000) | list | length }}'),
  template('range from below', '{{ range(-1000000000, 0) | length }}'),
  template('range by little', '{{ range(0, 1, 0.000000001) | length }}'),
  template('three loops of 3,000', loops(3, 3000)),
  template('three empty loops of 3,000', loops(3, 3000, '')),
  template('a loop of 100,000 in a loop', loops(2, 100_000, '{% set a = i * i %}')),
  template(
    'a macro that calls itself twice',
    '{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(30) }}',
  ),
  template('a macro that calls itself for ever', '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}'),
  template(
    'two macros that call each other',
    '{% macro f(n) %}{{ g(n) }}{{ g(n) }}{% endmacro %}{% macro g(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}',
  ),
  template('a text that doubles', namespaced("'x'", 'n.x ~ n.x', 60)),
  template('a text that doubles by join', namespaced("'x'", '[n.x, n.x] | join', 60)),
  template('a text that doubles by +', namespaced("'x'", 'n.x + n.x', 60)),
  template('a text times a number', "{{ ('x' * 1000000000) | length }}{{ raise_exception('none') }}"),
  template('a list that doubles', namespaced('[1]', 'n.x + n.x', 60)),
  template('lists in lists that double', namespaced('[1]', '[n.x, n.x]', 60)),
  template('lists in lists as JSON', namespaced('[1]', '[n.x, n.x]', 60).replace('{{ n.x }}', '{{ n.x | tojson }}')),
  template('lists in lists as text', namespaced('[1]', '[n.x, n.x]', 60).replace('{{ n.x }}', '{{ n.x | string }}')),
  template(
    'lists in lists compared',
    namespaced('[1]', '[n.x, n.x]', 60).replace('{{ n.x }}', '{{ n.x == n.x }}'),
    true,
  ),
  template('replace of nothing', namespaced("'abcdefgh'", "n.x | replace('', n.x)", 30)),
  template('replace that grows', namespaced("'aaaa'", "n.x.replace('a', 'aaaa')", 60)),
  template('join by a long text', namespaced("'abcdefgh'", '[1, 2, 3, 4, 5, 6, 7, 8, 9] | join(n.x)', 40)),
  template('indent by 1e9', '{{ "a\\nb\\nc" | indent(1000000000) }}'),
  template('JSON with an indent of 1e9', '{{ [[1, 2], [3, 4]] | tojson(indent=1000000000) }}', true),
  template(
    'a loop that sorts',
    "{% set l = range(50000) | list %}{% for i in range(50000) %}{{ (l | sort(reverse=true) | first) ~ '' }}{% endfor %}",
  ),
  template(
    'a loop that looks in a long list',
    '{% set l = range(100000) | list %}{% for i in l %}{% if -1 in l %}x{% endif %}{% endfor %}',
  ),
  template(
    'a loop that looks in a long text',
    `{% set l = '${'a'.repeat(100_000)}' %}{% for i in range(100000) %}{% if '${'a'.repeat(5000)}b' in l %}x{% endif %}{% endfor %}`,
  ),
  template('a loop that maps', "{% for i in range(10000) %}{{ range(10000) | map('string') | join }}{% endfor %}"),
  template(
    'a loop that selects',
    "{% for i in range(10000) %}{{ range(10000) | select('odd') | list | length }}{% endfor %}",
  ),
  template('slices of slices', `{% set l = range(100000) | list %}${loops(1, 100_000, '{{ l[1:] | length }}')}`),
  template('a slice by 0', '{{ range(10)[::0] }}', true),
  template(
    'a text turned round for ever',
    `{% set t = '${'ab'.repeat(50_000)}' %}${loops(2, 1000, '{% set u = t[::-1] %}')}`,
  ),
  template(
    'a filter for each letter',
    `{% set t = '${'ab '.repeat(20_000)}' %}${loops(2, 1000, '{% set u = t | upper | title | trim %}')}`,
  ),
  template(
    'split and join',
    `{% set t = '${'a '.repeat(20_000)}' %}${loops(1, 100_000, "{% set u = t.split(' ') | join('-') %}")}`,
  ),
  template(
    'call blocks in a loop',
    `{% macro m() %}{{ caller() }}{% endmacro %}${loops(2, 2000, '{% call m() %}x{% endcall %}')}`,
  ),
  template('10,000 brackets', `{{ ${nest(10_000, '(', ')', '1')} }}`),
  template('100,000 brackets', `{{ ${nest(100_000, '[', ']')} }}`),
  template('60,000 additions', `{{ ${'1+'.repeat(60_000)}1 }}`),
  template('60,000 not', `{{ ${'not '.repeat(60_000)}1 }}`),
  template('20,000 ifs in ifs', nest(10_000, '{% if 1 %}', '{% endif %}')),
  template('10,000 elifs', `{% if 0 %}${'{% elif 0 %}'.repeat(10_000)}{% endif %}`, true),
  template('comments that never end', '{#'.repeat(100_000)),
  template('braces', '{'.repeat(200_000), true),
  template('open statements', '{%'.repeat(100_000)),
  template('open texts', `{{ "${'\\"'.repeat(100_000)}`),
  template('60,000 filters', `{{ 1${'|string'.repeat(30_000)} }}`),
  template('60,000 members', `{{ messages${'.a'.repeat(60_000)} }}`),
  template('a megabyte of text', 'x'.repeat(1 << 20)),
  template('a million blanks', `{{ 1 }}${' '.repeat(1 << 20)}`),
  template('blanks before tags', `${' '.repeat(900)}{%- if 1 -%}`.repeat(280)),
  template('half a million turns that print', `{% for i in range(100000) %}{{ messages }}{% endfor %}`),
  template('strftime in a loop', loops(2, 1000, "{{ strftime_now('%Y%m%d%H%M%S%B%A') }}")),
  template('a long format of a time', `{{ strftime_now('${'%c'.repeat(60_000)}') }}`, true),
  template('dictionaries that double', namespaced('{"a": 1}', '{"a": n.x, "b": n.x}', 60)),
  template('names in names', `${'{% set a = namespace(b=a) %}'.repeat(7000)}{{ a | string }}`, true),
  template('a million messages of none', '{{ messages[1000000000] }}{{ messages[-1e9] }}'.repeat(4000), true),
];

// Tokenizers.

const tokenizer = (name: string, change: (json: Json) => Json, more: Partial<HostileRow> = {}): HostileRow => ({
  name: `tokenizer: ${name}`,
  files: () => folder({ 'tokenizer.json': JSON.stringify(change(parsed('tokenizer.json'))) }),
  ...more,
});
const model = (json: Json): Json => json['model'] as Json;
const split = (Regex: string): Json => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });
const replace = (pattern: object, content: string): Json => ({ type: 'Replace', pattern, content });
const EXPRESSIONS: readonly (readonly [string, string?])[] = [
  ['(a+)+$'],
  ['(a|a)*b'],
  ['(a|aa)+$'],
  ['(a*)*b'],
  ['(a*a*)*b'],
  ['^(a+)+$'],
  ['([a-zA-Z]+)*1'],
  ['(.*a){12}x'],
  ['(\\w+\\s?)+$', 'aaaa aaaa aaaa aaaa aaaa aaaa aaaa aaaa aaaa!'],
  ['(?:a?){30}a{30}x'],
  ['(a+a+)+y'],
  ['(?=(a+)+b)c'],
  ['(?<=x(a+)+)b'],
  ['(?<=x(a|aa)*)b'],
  ['(?<!(a+)+$)b'],
  ['(a+)\\1+b'],
  ['(?:(?:a{1,50}){1,50}){1,50}b'],
  ['a{1,100000}b'],
  ['(\\p{L}|\\w)+\\d'],
  ['(\\s|\\n| )+x', ' \n'.repeat(30)],
  ['(?:[^x]|[^y])*z'],
  ['(a|b|ab)*c', 'ab'.repeat(30)],
  ['a*a*a*a*a*a*a*b', 'a'.repeat(400)],
  ['(?i:(A+)+)$'],
  ['((((((((((a+)+)+)+)+)+)+)+)+)+)+b'],
  [`(${times(500, (i) => `a{${i}}`).join('|')})*b`],
  ['('.repeat(5000) + 'a' + ')'.repeat(5000)],
  ['a+b', 'a'.repeat(20_000)],
  ['.*x', 'a'.repeat(20_000)],
  ['\\s+x', ' '.repeat(20_000)],
  ['[^x]+x|y', 'a'.repeat(20_000)],
];
const long = 'a'.repeat(20_000);

const TOKENIZERS: readonly HostileRow[] = [
  ...EXPRESSIONS.map(([Regex, text]) =>
    tokenizer(`Split by ${Regex.slice(0, 60)}`, (json) => ({ ...json, pre_tokenizer: split(Regex) }), {
      ...(text !== undefined && { text }),
      // These take n * n steps for n letters.
      ...(text?.length === 20_000 && { harmless: true }),
    }),
  ),
  ...['(a+)+$', '(a|a)*b', '(a|aa)*c'].flatMap((Regex) => [
    tokenizer(`Replace ${Regex}`, (json) => ({ ...json, normalizer: replace({ Regex }, '') })),
    tokenizer(`a decoder that replaces ${Regex}`, (json) => ({ ...json, decoder: replace({ Regex }, '') })),
  ]),
  tokenizer('40 normalizers that double', (json) => ({
    ...json,
    normalizer: { type: 'Sequence', normalizers: times(40, () => replace({ String: 'a' }, 'aa')) },
  })),
  tokenizer('40 normalizers that double by an expression', (json) => ({
    ...json,
    normalizer: { type: 'Sequence', normalizers: times(40, () => replace({ Regex: 'a' }, 'aa')) },
  })),
  tokenizer('pre-tokenizers that double', (json) => ({
    ...json,
    pre_tokenizer: { type: 'Sequence', pretokenizers: times(40, () => replace({ String: 'a' }, 'aa')) },
  })),
  tokenizer('decoders that double', (json) => ({
    ...json,
    decoder: { type: 'Sequence', decoders: times(40, () => replace({ String: 'a' }, 'aa')) },
  })),
  tokenizer('replaces nothing by much', (json) => ({ ...json, normalizer: replace({ String: '' }, 'x'.repeat(1e6)) })),
  tokenizer('replaces what a text holds', (json) => ({ ...json, normalizer: replace({ String: 'a' }, "$'$`$'$`") })),
  tokenizer(
    'a blank of a million letters',
    (json) => ({
      ...json,
      pre_tokenizer: { type: 'Metaspace', replacement: 'x'.repeat(1e6), prepend_scheme: 'always', split: false },
    }),
    { text: 'a '.repeat(1000) },
  ),
  tokenizer('a prefix of a million letters', (json) => ({
    ...json,
    normalizer: { type: 'Sequence', normalizers: times(500, () => ({ type: 'Prepend', prepend: 'x'.repeat(1e4) })) },
  })),
  tokenizer(
    'letters that unfold',
    (json) => ({
      ...json,
      normalizer: {
        type: 'Sequence',
        normalizers: times(900, (i) => ({ type: ['NFKD', 'NFKC', 'NFD', 'NFC'][i % 4]! })),
      },
    }),
    { text: '\ufdfa'.repeat(2000), harmless: true },
  ),
  tokenizer('bytes of bytes', (json) => ({
    ...json,
    pre_tokenizer: { type: 'Sequence', pretokenizers: times(40, () => ({ type: 'ByteLevel', use_regex: false })) },
  })),
  tokenizer('blanks that become two', (json) => ({
    ...json,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: times(40, () => ({ type: 'Metaspace', replacement: ' ', str_rep: '  ' })),
    },
  })),
  tokenizer('templates that double', (json) => ({
    ...json,
    post_processor: {
      type: 'Sequence',
      processors: times(40, () => ({
        type: 'TemplateProcessing',
        single: times(2, () => ({ Sequence: { id: 'A', type_id: 0 } })),
        pair: [],
        special_tokens: {},
      })),
    },
  })),
  tokenizer('pieces of length 0', (json) => ({ ...json, pre_tokenizer: { type: 'FixedLength', length: 0 } })),
  tokenizer('pieces of length -1', (json) => ({ ...json, pre_tokenizer: { type: 'FixedLength', length: -1 } })),
  tokenizer(
    '1,000 splits',
    (json) => ({
      ...json,
      pre_tokenizer: { type: 'Sequence', pretokenizers: times(999, () => split('a')) },
    }),
    { text: long, harmless: true },
  ),
  tokenizer('a decoder 20,000 deep', (json) => ({ ...json, decoder: 'here' }), {
    files: () =>
      folder({
        'tokenizer.json': JSON.stringify({ ...parsed('tokenizer.json'), decoder: 'here' }).replace(
          '"here"',
          nest(20_000, '{"type":"Sequence","decoders":[', ']}', '{"type":"Fuse"}'),
        ),
      }),
  }),
  tokenizer('a normalizer 20,000 deep', (json) => json, {
    files: () =>
      folder({
        'tokenizer.json': JSON.stringify({ ...parsed('tokenizer.json'), normalizer: 'here' }).replace(
          '"here"',
          nest(20_000, '{"type":"Sequence","normalizers":[', ']}', '{"type":"NFC"}'),
        ),
      }),
  }),
  ...['added_tokens', 'normalizer', 'pre_tokenizer', 'post_processor', 'decoder', 'model'].map((key) =>
    tokenizer(`${key} of 200,000 lists in one another`, (json) => json, {
      files: () =>
        folder({
          'tokenizer.json': JSON.stringify({ ...parsed('tokenizer.json'), [key]: 'here' }).replace(
            '"here"',
            lists(200_000),
          ),
        }),
    }),
  ),
  tokenizer('200,000 lists in one another', (json) => json, {
    files: () => folder({ 'tokenizer.json': lists(200_000) }),
  }),
  tokenizer('200 MB of blanks', (json) => json, {
    files: () => folder({ 'tokenizer.json': { start: Buffer.alloc(200e6, ' '), bytes: 200e6 } }),
  }),
  tokenizer('200 MB of zeros in a list', (json) => json, {
    files: () => folder({ 'tokenizer.json': `{"model":{"vocab":[${'0,'.repeat(1e8)}0]}}` }),
  }),
  tokenizer('60 MB of lists in a list', (json) => json, {
    files: () => folder({ 'tokenizer.json': `{"model":{"vocab":[${'[],'.repeat(2e7)}0]}}` }),
  }),
  tokenizer('30 MB of objects in a list', (json) => json, {
    files: () => folder({ 'tokenizer.json': `{"x":[${'{"a":{}},'.repeat(33e5)}0]}` }),
  }),
  tokenizer('a token id near 2^32', (json) => ({
    ...json,
    model: { ...model(json), vocab: { ...(model(json)['vocab'] as Json), zzzz: 4_294_967_290 } },
  })),
  tokenizer('an added token id near 2^32', (json) => ({
    ...json,
    added_tokens: [...(json['added_tokens'] as Json[]), { id: 4_294_967_294, content: '<x>', special: true }],
  })),
  tokenizer('a token id of 2^53', (json) => ({
    ...json,
    model: { ...model(json), vocab: { ...(model(json)['vocab'] as Json), zzzz: 2 ** 53 } },
  })),
  tokenizer('token ids below 0', (json) => ({
    ...json,
    model: { ...model(json), vocab: { ...(model(json)['vocab'] as Json), zzzz: -5, y: 0.5 } },
  })),
  tokenizer(
    'an added token without a letter',
    (json) => ({
      ...json,
      added_tokens: [...(json['added_tokens'] as Json[]), { id: 933, content: '', special: true }],
    }),
    { text: long, harmless: true },
  ),
  tokenizer(
    '100,000 added tokens that begin alike',
    (json) => ({
      ...json,
      added_tokens: times(100_000, (i) => ({ id: i, content: `aaaaaaaaaaaaaaaaaaaa${i}`, special: true })),
    }),
    { text: long, harmless: true },
  ),
  tokenizer(
    'added tokens a, aa, aaa, ... up to 2,000',
    (json) => ({
      ...json,
      added_tokens: times(2000, (i) => ({ id: i, content: `${'a'.repeat(i)}b`, special: true })),
    }),
    { text: long, harmless: true },
  ),
  tokenizer(
    'a token of a million letters',
    (json) => ({
      ...json,
      model: { ...model(json), vocab: { ...(model(json)['vocab'] as Json), ['a'.repeat(1e6)]: 900 } },
    }),
    { text: long, harmless: true },
  ),
  tokenizer(
    'a million merges',
    (json) => ({
      ...json,
      model: { ...model(json), merges: times(1_000_000, (i) => `a${i} b${i}`) },
    }),
    { harmless: true },
  ),
  tokenizer(
    'a million tokens',
    (json) => ({
      ...json,
      model: { ...model(json), vocab: Object.fromEntries(times(1_000_000, (i) => [`t${i}`, i])) },
    }),
    { harmless: true },
  ),
  tokenizer('two million tokens', (json) => ({
    ...json,
    model: { ...model(json), vocab: Object.fromEntries(times(2_000_000, (i) => [`t${i}`, i])) },
  })),
  tokenizer(
    'a word of WordPiece without an end',
    (json) => ({
      ...json,
      pre_tokenizer: null,
      model: {
        type: 'WordPiece',
        unk_token: '[UNK]',
        continuing_subword_prefix: '##',
        max_input_chars_per_word: 1e9,
        vocab: { '[UNK]': 0, a: 1, '##a': 2 },
      },
    }),
    { text: long, harmless: true },
  ),
  tokenizer(
    'a Unigram of a, aa, aaa, ... up to 2,000',
    (json) => ({
      ...json,
      pre_tokenizer: null,
      model: { type: 'Unigram', unk_id: 0, vocab: [['<unk>', 0], ...times(2000, (i) => ['a'.repeat(i + 1), -i])] },
    }),
    { text: long, harmless: true },
  ),
  tokenizer(
    'a BPE of a, aa, aaaa, ... without words',
    (json) => ({
      ...json,
      normalizer: null,
      pre_tokenizer: null,
      model: {
        type: 'BPE',
        unk_token: 'a',
        vocab: Object.fromEntries(times(12, (i) => ['a'.repeat(2 ** i), i])),
        merges: times(11, (i) => ['a'.repeat(2 ** i), 'a'.repeat(2 ** i)]),
      },
    }),
    { text: long, harmless: true },
  ),
  tokenizer('a template of a million steps', (json) => ({
    ...json,
    post_processor: {
      type: 'TemplateProcessing',
      single: times(1_000_000, () => ({ Sequence: { id: 'A', type_id: 0 } })),
      pair: [],
      special_tokens: {},
    },
  })),
  tokenizer(
    'a special token of 1,000,000 ids',
    (json) => ({
      ...json,
      post_processor: {
        ...(json['post_processor'] as Json),
        special_tokens: {
          '<|begin|>': { id: '<|begin|>', ids: times(1e6, () => 1), tokens: times(1e6, () => '<|begin|>') },
        },
      },
    }),
    { harmless: true },
  ),
  tokenizer(
    'a character map of 10 MB',
    (json) => ({
      ...json,
      normalizer: { type: 'Precompiled', precompiled_charsmap: 'A'.repeat(1e7) },
    }),
    { harmless: true },
  ),
];

// Configurations.

const config = (name: string, change: (json: Json) => Json, more: Partial<HostileRow> = {}): HostileRow => ({
  name: `config: ${name}`,
  files: () => folder({ 'config.json': JSON.stringify(change(parsed('config.json'))) }),
  ...more,
});
const CONFIGS: readonly HostileRow[] = [
  config('a million keys', () => Object.fromEntries(times(1e6, (i) => [`hidden_siz${i}`, i]))),
  config('80,000 keys', () => Object.fromEntries(times(80_000, (i) => [`hidden_siz${i}`, i]))),
  config('200,000 lists in one another', (json) => json, { files: () => folder({ 'config.json': lists(200_000) }) }),
  config('200,000 lists as a key', (json) => json, {
    files: () => folder({ 'config.json': base('config.json').replace('null', lists(200_000)) }),
  }),
  ...[
    'num_hidden_layers',
    'num_attention_heads',
    'num_key_value_heads',
    'head_dim',
    'vocab_size',
    'hidden_size',
    'intermediate_size',
    'max_position_embeddings',
  ].flatMap((key) =>
    [1e9, 2 ** 53, 1e308].map((value) =>
      config(`${key} of ${value}`, (json) => ({ ...json, [key]: value }), { harmless: true }),
    ),
  ),
  config('a billion layers of experts', (json) => ({
    ...json,
    model_type: 'qwen3_moe',
    num_hidden_layers: 1e9,
    num_experts: 1e9,
    num_experts_per_tok: 1e8,
    moe_intermediate_size: 1,
    decoder_sparse_step: 1,
  })),
  config('300,000 kinds of layers', (json) => ({
    ...json,
    model_type: 'gemma3_text',
    num_hidden_layers: 130_000,
    layer_types: times(130_000, () => 'x'),
  })),
  config('300,000 ends', (json) => ({ ...json, eos_token_id: times(300_000, (i) => i) }), { harmless: true }),
  config('a factor for each of 300,000', (json) => ({
    ...json,
    rope_scaling: {
      rope_type: 'longrope',
      long_factor: times(300_000, () => 1),
      short_factor: times(300_000, () => 1),
    },
  })),
  config('a name of a million letters', (json) => ({ ...json, model_type: 'x'.repeat(1e6) })),
  config('a generation config of 80,000 keys', (json) => json, {
    files: () =>
      folder({ 'generation_config.json': JSON.stringify(Object.fromEntries(times(80_000, (i) => [`top_${i}`, i]))) }),
    harmless: true,
  }),
  config('a tokenizer config of 200,000 lists in one another', (json) => json, {
    files: () => folder({ 'tokenizer_config.json': lists(200_000) }),
  }),
  config('a tokenizer config of 100 MB', (json) => json, {
    files: () => folder({ 'tokenizer_config.json': `{"x":[${'{},'.repeat(33e6)}0]}` }),
  }),
  config('a tokenizer config of a million tokens', (json) => json, {
    files: () =>
      folder({
        'tokenizer_config.json': JSON.stringify(Object.fromEntries(times(1e6, (i) => [`a${i}_token`, `${i}`]))),
      }),
    harmless: true,
  }),
];

// Headers of safetensors.

function safetensors(json: string, data = 0): Uint8Array {
  const header = new TextEncoder().encode(json);
  const bytes = new Uint8Array(8 + header.length + data);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true);
  bytes.set(header, 8);
  return bytes;
}
const weights = (name: string, json: () => string, data = 0, harmless?: true): HostileRow => ({
  name: `safetensors: ${name}`,
  files: () => folder({ 'model.safetensors': safetensors(json(), data) }),
  ...(harmless && { harmless }),
});
const tensor = (name: string, dtype: string, shape: string, offsets = '[0,0]'): string =>
  `"${name}":{"dtype":${dtype},"shape":${shape},"data_offsets":${offsets}}`;
const SAFETENSORS: readonly HostileRow[] = [
  weights('200,000 lists as dtype', () => `{${tensor('a', lists(200_000), '[]')}}`),
  weights('200,000 lists as shape', () => `{${tensor('a', '"F32"', lists(200_000))}}`),
  weights('200,000 lists as offsets', () => `{${tensor('a', '"F32"', '[]', lists(200_000))}}`),
  weights('200,000 lists as metadata', () => `{"__metadata__":{"a":${lists(200_000)}}}`),
  weights('200,000 objects in one another', () => nest(200_000, '{"a":', '}', '1')),
  weights('a million tensors', () => `{${times(1e6, (i) => tensor(`t${i}`, '"F32"', '[0]')).join()}}`),
  weights(
    '130,000 tensors of nothing',
    () => `{${times(130_000, (i) => tensor(`t${i}`, '"F32"', '[0]')).join()}}`,
    0,
    true,
  ),
  weights('a shape of ten million axes', () => `{${tensor('a', '"F32"', `[${'1,'.repeat(1e7)}1]`, '[0,4]')}}`),
  weights('a shape of two million axes', () => `{${tensor('a', '"F32"', `[${'1,'.repeat(2e6)}1]`, '[0,4]')}}`, 4),
  weights('a name of 50 MB', () => `{${tensor('a'.repeat(5e7), '"F32"', '[]')}}`),
  weights('a type of 50 MB', () => `{${tensor('a', `"${'a'.repeat(5e7)}"`, '[]')}}`),
  weights('90 MB of blanks', () => `{${' '.repeat(9e7)}}`, 0, true),
  weights('a million notes', () => `{"__metadata__":{${times(1e6, (i) => `"k${i}":"v"`).join()}}}`),
  weights('six million notes', () => `{"__metadata__":{${times(6e6, (i) => `"${i}":""`).join()}}}`),
  weights('90 MB of quotes', () => `{"${'\\"'.repeat(45e6)}":1}`),
  weights('90 MB of an open text', () => `{"${'a'.repeat(9e7)}`),
  {
    name: 'safetensors: a header as long as numbers go',
    files: () => folder({ 'model.safetensors': { start: bytesOf(2n ** 63n), bytes: 2 ** 30 } }),
  },
  {
    name: 'safetensors: a header of 100 MB of zeros',
    files: () => folder({ 'model.safetensors': { start: bytesOf(100_000_000n), bytes: 2 ** 30 } }),
  },
  {
    name: 'safetensors: an index of 200,000 lists in one another',
    files: () => folder({ 'model.safetensors.index.json': `{"weight_map":${lists(200_000)}}` }),
  },
  {
    name: 'safetensors: an index of 100,000 files',
    files: () =>
      folder({
        'model.safetensors.index.json': JSON.stringify({
          weight_map: Object.fromEntries(times(100_000, (i) => [`t${i}`, `model-${i}.safetensors`])),
        }),
      }),
  },
  {
    name: 'safetensors: an index of 3,000,000 tensors',
    files: () =>
      folder({
        'model.safetensors.index.json': `{"weight_map":{${times(3e6, (i) => `"t${i}":"model-1.safetensors"`).join()}}}`,
      }),
  },
  {
    name: 'safetensors: an index of 200 MB of blanks',
    files: () => folder({ 'model.safetensors.index.json': { start: Buffer.alloc(200e6, ' '), bytes: 200e6 } }),
  },
];

// GGUF files.

const [U8, BOOL, STRING, ARRAY, U64, F64] = [0, 7, 8, 9, 10, 12];
const MI = 1024 * 1024;
const gguf = (name: string, start: () => Uint8Array, bytes: number): HostileRow => ({
  name: `GGUF: ${name}`,
  files: () => ({ 'm.gguf': { start: start(), bytes } }),
});
/** A list of one value with the given head. */
const list = (type: number, length: bigint, ...rest: (number | bigint | string)[]): Uint8Array =>
  bytesOf(MAGIC, 3, 0n, 1n, 'k', ARRAY, type, length, ...rest);
const HEADERS: readonly HostileRow[] = [
  gguf('a list of 512 Mi u8', () => list(U8, 2n ** 29n), 513 * MI),
  gguf('a list of 512 Mi truths', () => list(BOOL, 2n ** 29n), 513 * MI),
  gguf('a list of 64 Mi f64', () => list(F64, 2n ** 26n), 513 * MI),
  gguf('a list of 2 Mi u64', () => list(U64, 2n ** 21n), 17 * MI),
  gguf('a list of 2^27 empty texts', () => list(STRING, 2n ** 27n), 1025 * MI),
  gguf('a list of 2 Mi empty texts', () => list(STRING, 2n ** 21n), 17 * MI),
  gguf('a text of 600 MB', () => bytesOf(MAGIC, 3, 0n, 1n, 'k', STRING, 600_000_000n), 601e6),
  gguf('a text of 64 MB', () => bytesOf(MAGIC, 3, 0n, 1n, 'k', STRING, 64_000_000n), 65e6),
  gguf('a key of 600 MB', () => bytesOf(MAGIC, 3, 0n, 1n, 600_000_000n), 601e6),
  gguf('lists of lists, 2^24', () => list(ARRAY, 2n ** 24n), 1024 * MI),
  gguf('lists of lists, 1 Mi', () => list(ARRAY, 2n ** 20n), 64 * MI),
  gguf('lists in lists in lists', () => list(ARRAY, 1n, ...times(1000, () => [ARRAY, 1n] as const).flat()), MI),
  gguf('2^27 keys', () => bytesOf(MAGIC, 3, 0n, 2n ** 27n), 4096 * MI),
  gguf('10,000 keys', () => bytesOf(MAGIC, 3, 0n, 10_000n), MI),
  gguf('a million tensors', () => bytesOf(MAGIC, 3, 10n ** 6n, 0n), 100 * MI),
  gguf('130,000 tensors', () => bytesOf(MAGIC, 3, 130_000n, 0n), 100 * MI),
  gguf('2^63 values in a file of 100 bytes', () => list(U8, 2n ** 63n), 100),
  gguf('2^63 texts in a file of 100 bytes', () => list(STRING, 2n ** 63n), 100),
  gguf('2^63 tensors', () => bytesOf(MAGIC, 3, 2n ** 63n, 2n ** 63n), 100),
  gguf('a text of 2^64 - 1', () => bytesOf(MAGIC, 3, 0n, 1n, 'k', STRING, 2n ** 64n - 1n), MI),
  gguf('a tensor of 2^32 axes', () => bytesOf(MAGIC, 3, 1n, 0n, 'x', 0xffffffff), 64 * MI),
];

const small = makeRandomModel({ seed: 3 });
const whole = (
  name: string,
  metadata: Readonly<Record<string, GgufValue>>,
  more: Partial<HostileRow> = {},
): HostileRow => ({
  name: `GGUF: ${name}`,
  files: () => ({ 'm.gguf': modelToGguf(small.config, small.weights, { metadata }) }),
  ...more,
});
const words = (tokens: readonly string[], kind = 'llama'): Record<string, GgufValue> => ({
  'tokenizer.ggml.model': ggufText(kind),
  'tokenizer.ggml.tokens': { type: 'string[]', value: tokens },
  'tokenizer.ggml.scores': { type: 'f32[]', value: tokens.map((_, i) => -i) },
  'tokenizer.ggml.token_type': { type: 'i32[]', value: tokens.map(() => 1) },
  'tokenizer.ggml.merges': { type: 'string[]', value: [] },
});
const GGUFS: readonly HostileRow[] = [
  whole('a token of 20,000 letters', words(['<unk>', '<s>', '</s>', 'a'.repeat(20_000)])),
  whole('a token of 2,000,000 letters', words(['<unk>', '<s>', '</s>', 'a'.repeat(2_000_000)])),
  whole(
    'tokens a, aa, aaa, ... up to 2,000',
    words(['<unk>', '<s>', '</s>', ...times(2000, (i) => 'a'.repeat(i + 1))]),
  ),
  whole('tokens a, aa, aaa, ... up to 600', words(['<unk>', '<s>', '</s>', ...times(600, (i) => 'a'.repeat(i + 1))])),
  whole('300,000 equal tokens', words(times(300_000, () => 'a')), { harmless: true }),
  whole(
    '300,000 merges without a blank',
    {
      ...words(['a', 'b', 'ab'], 'gpt2'),
      'tokenizer.ggml.merges': { type: 'string[]', value: times(300_000, () => 'aaaa') },
    },
    { harmless: true },
  ),
  whole('a template that loops', {
    ...words(['<unk>', '<s>', '</s>', ...Array.from(' abcdefghijklmnopqrstuvwxyz')]),
    'tokenizer.chat_template': ggufText(loops(3, 3000)),
  }),
  whole(
    '300,000 templates',
    {
      ...words(['<unk>', '<s>', '</s>', ...Array.from(' abcdefghijklmnopqrstuvwxyz')]),
      'tokenizer.chat_templates': { type: 'string[]', value: times(300_000, (i) => `t${i}`) },
    },
    { harmless: true },
  ),
  ...['block_count', 'embedding_length', 'context_length', 'attention.head_count', 'feed_forward_length'].map((key) =>
    whole(`${key} of 2^32 - 1`, { [`llama.${key}`]: u32(0xffffffff) }, { harmless: true }),
  ),
  whole(
    '400,000 numbers of heads',
    {
      'llama.attention.head_count': { type: 'i32[]', value: times(400_000, () => 4) },
    },
    { harmless: true },
  ),
];

export const HOSTILE_ROWS: readonly HostileRow[] = [
  ...TEMPLATES,
  ...TOKENIZERS,
  ...CONFIGS,
  ...SAFETENSORS,
  ...HEADERS,
  ...GGUFS,
];
