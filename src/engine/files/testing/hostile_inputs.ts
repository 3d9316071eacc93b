import { readFileSync } from 'node:fs';
import { isObject } from '../../../base/json.js';
import { Random } from '../../../base/random.js';
import { ggufSource } from '../../../loader/gguf/file.js';
import type { Source } from '../../../loader/index.js';
import { MemorySource } from '../../../loader/testing/memory_source.js';
import { type GgufValue, writeGguf } from '../../../model/testing/gguf/file.js';
import { ggufContents } from '../../../model/testing/gguf/model.js';
import { vocabularyMetadata } from '../../../model/testing/gguf/vocabulary.js';
import { makeRandomModel } from '../../../model/testing/random_model.js';
import {
  byteLevelTokenizer,
  metaspaceTokenizer,
  type TinyTokenizer,
  wordLevelTokenizer,
} from '../../../tokenizer/testing/tiny_tokenizers.js';

/** A model's files changed at random. */
export interface HostileInput {
  readonly kind: string;
  readonly source: Source;
}

type Json = Record<string, unknown>;

const configs = ['tiny-gqa', 'tiny-mla', 'tiny-gqa-moe']
  .flatMap((name) => {
    try {
      return [readFileSync(`models/${name}/config.json`, 'utf8')];
    } catch {
      return [];
    }
  })
  .map((text) => documentOf(JSON.parse(text)));
const generation = documentOf(JSON.parse(readFileSync('models/tiny-gqa/generation_config.json', 'utf8')));
const tiny: readonly TinyTokenizer[] = [byteLevelTokenizer(262), metaspaceTokenizer(), wordLevelTokenizer()];
const tokenizers = tiny.map(({ json, config }) => ({ json: documentOf(json), config: documentOf(config) }));
const plain = tokenizers[0]!;
const { files: weights, config, weights: values } = makeRandomModel({ seed: 3 });
const safetensors = weights.get('model.safetensors')!;
const headerBytes = Number(new DataView(safetensors.buffer, safetensors.byteOffset).getBigUint64(0, true));
const header = documentOf(JSON.parse(new TextDecoder().decode(safetensors.subarray(8, 8 + headerBytes))));
const contents = ggufContents(config, values, {
  metadata: {
    ...vocabularyMetadata(tiny[0]!.json as never, tiny[0]!.config, { pre: 'gpt-2' }),
    'tokenizer.chat_template': { type: 'string', value: String(tiny[0]!.config['chat_template']) },
  },
});
const gguf = writeGguf(contents.metadata, contents.tensors);
const modelConfig = { 'config.json': configs[0]!.text };

const nested = (depth: number): unknown => {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
};
const split = (Regex: string): Json => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });
const replace = (pattern: object, content: string): Json => ({ type: 'Replace', pattern, content });

/** What once froze or ended the process, and what is merely odd. */
const VALUES: readonly unknown[] = [
  split('(a+)+$'),
  split('a+b'),
  replace({ Regex: '(a|a)*b' }, ''),
  replace({ String: '' }, 'ab'),
  { type: 'Sequence', normalizers: Array.from({ length: 40 }, () => replace({ String: 'a' }, 'aa')) },
  { type: 'Sequence', decoders: [{ type: 'Sequence', decoders: [{ type: 'Fuse' }] }] },
  { type: 'Sequence', pretokenizers: [{ type: 'ByteLevel' }, { type: 'Metaspace' }, { type: 'Digits' }] },
  { type: 'FixedLength', length: 0 },
  { type: 'Unigram', unk_id: 0, vocab: [['a', 0]] },
  nested(600),
  '['.repeat(5000),
  Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`hidden_siz${i}`, i])),
  'a'.repeat(10_000),
  4_294_967_290,
  2 ** 53,
  1e308,
  1e9,
  65_536,
  7,
  1,
  0,
  -1,
  0.5,
  null,
  true,
  '',
  'llama',
  'BPE',
  'F32',
  '__proto__',
  'constructor',
  [],
  [1, 2, 3],
  {},
];
const KEYS = ['__proto__', 'constructor', 'type', 'vocab', 'merges', 'pattern', 'content', 'x'];

interface Place {
  readonly holder: Record<string | number, unknown>;
  readonly key: string;
}

/** A JSON document, and every place in it (no list's items beyond the first few): it is changed where it lies, and changed back. */
interface Document {
  readonly tree: unknown;
  readonly text: string;
  readonly places: readonly Place[];
}

function documentOf(tree: unknown): Document {
  const places: Place[] = [];
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    const holder = value as Place['holder'];
    const keys = Object.keys(holder);
    // Of a vocabulary a few are as good as all.
    for (const key of keys.slice(0, 40)) {
      places.push({ holder, key });
      visit(holder[key]);
    }
  };
  visit(tree);
  return { tree, text: JSON.stringify(tree), places };
}

/** Draws of one input. */
class Draw {
  readonly random: Random;

  constructor(seed: number, input: number) {
    this.random = new Random(Math.imul(seed, 0x9e3779b1) ^ Math.imul(input + 1, 0x85ebca6b));
  }

  upTo(bound: number): number {
    return this.random.integer(bound);
  }

  pick<T>(list: readonly T[]): T {
    return list[this.upTo(list.length)]!;
  }

  /** The text of the document with one to three places changed. */
  json({ tree, places }: Document): string {
    const undo: (() => void)[] = [];
    for (let left = 1 + this.upTo(3); left > 0; left--) {
      const { holder, key } = this.pick(places);
      const how = this.upTo(4);
      const changed = how === 1 && isObject(holder) ? this.pick(KEYS) : key;
      const before = Object.getOwnPropertyDescriptor(holder, changed);
      undo.push(() => (before ? Object.defineProperty(holder, changed, before) : delete holder[changed]));
      if (how === 0) delete holder[changed];
      else
        Object.defineProperty(holder, changed, {
          value: this.pick(VALUES),
          enumerable: true,
          configurable: true,
          writable: true,
        });
    }
    const text = JSON.stringify(tree);
    for (const step of undo.toReversed()) step();
    return text;
  }

  /** The bytes with some of them changed, cut, or repeated; mostly among the first `within`. */
  bytes(bytes: Uint8Array, within: number): Uint8Array {
    const changed = Uint8Array.from(bytes);
    const view = new DataView(changed.buffer);
    for (let left = 1 + this.upTo(8); left > 0; left--) {
      const at = this.upTo(Math.min(within, changed.length));
      if (this.upTo(3) > 0) changed[at] = this.upTo(256);
      else if (at + 8 <= changed.length)
        view.setBigUint64(at, this.pick([0n, 1n, 2n ** 31n, 2n ** 32n, 2n ** 62n, 2n ** 64n - 1n]), true);
    }
    return this.upTo(10) === 0 ? changed.subarray(0, this.upTo(changed.length)) : changed;
  }

  /** Metadata of a GGUF file with some values of another kind. */
  metadata(): Record<string, GgufValue> {
    const metadata = { ...contents.metadata };
    for (let left = 1 + this.upTo(3); left > 0; left--) {
      const key = this.pick(Object.keys(metadata));
      if (this.upTo(5) === 0) delete metadata[key];
      else metadata[key] = this.#ggufValue();
    }
    return metadata;
  }

  #ggufValue(): GgufValue {
    const numbers = VALUES.filter((value) => typeof value === 'number');
    const texts = [...VALUES.filter((value) => typeof value === 'string'), this.template()];
    const several = <T>(list: readonly T[]): T[] => Array.from({ length: this.upTo(300) }, () => this.pick(list));
    return this.pick<() => GgufValue>([
      () => ({ type: 'u32', value: this.pick(numbers) >>> 0 }),
      () => ({ type: 'i32', value: this.pick(numbers) | 0 }),
      () => ({ type: 'f32', value: this.pick(numbers) }),
      () => ({ type: 'bool', value: true }),
      () => ({ type: 'string', value: this.pick(texts) }),
      () => ({ type: 'i32[]', value: several(numbers).map((value) => value | 0) }),
      () => ({ type: 'string[]', value: several(texts) }),
      () => ({ type: 'string[]', value: several(['a', 'b', 'c', 'ab', 'a b', 'aa', '<unk>']) }),
    ])();
  }

  /** A template of loops, conditions, macros and growing values in one another, or a usual one with a piece of that in it. */
  template(): string {
    const own = this.#statements(3);
    if (this.upTo(4) > 0) return own;
    const usual = String(plain.config.tree && (plain.config.tree as Json)['chat_template']);
    const at = this.upTo(usual.length);
    return usual.slice(0, at) + (this.upTo(2) > 0 ? own : '') + usual.slice(at + this.upTo(10));
  }

  #statements(depth: number): string {
    return Array.from({ length: 1 + this.upTo(3) }, () => this.#statement(depth)).join('');
  }

  #statement(depth: number): string {
    const name = this.pick(['a', 'b', 'messages']);
    const kind = this.upTo(depth > 0 ? 8 : 3);
    const inner = (): string => this.#statements(depth - 1);
    switch (kind) {
      case 0:
        return `{{ ${this.#expression(3)} }}`;
      case 1:
        return `{% set ${name} = ${this.#expression(3)} %}`;
      case 2:
        return `{%- set n = namespace(x=${this.#expression(2)}) %}{% set n.x = ${this.#expression(2)} -%}`;
      case 3:
      case 4:
        return `{% for ${name} in ${this.#expression(2)} %}${inner()}{% endfor %}`;
      case 5:
        return `{% if ${this.#expression(2)} %}${inner()}{% else %}${inner()}{% endif %}`;
      case 6:
        return `{% macro m(a) %}${inner()}{% endmacro %}{{ m(${this.#expression(1)}) }}`;
      default:
        return `{% generation %}${inner()}{% endgeneration %}`;
    }
  }

  #expression(depth: number): string {
    const part = (): string => this.#expression(depth - 1);
    const small = this.pick([
      'a',
      'b',
      'n.x',
      'messages',
      "'xyz '",
      "'a\\nb'",
      '3',
      '-1',
      '2.5',
      'none',
      '[1, 2, 3]',
      "{'a': 1}",
      'loop.index',
      'range(9)',
      'range(300)',
      'messages[0].content',
    ]);
    if (depth <= 0) return small;
    switch (this.upTo(9)) {
      case 0:
        return `(${part()} ${this.pick(['~', '+', '*', '-', '/', '//', '%', '==', '<', 'in', 'and', 'or', 'not in'])} ${part()})`;
      case 1:
        return `(${part()} | ${this.pick(['join', 'tojson', 'string', 'length', 'sort', 'list', 'upper', 'trim', 'reverse', 'unique', 'first', 'items', 'int', 'float', 'abs', 'title'])})`;
      case 2:
        return `(${part()} | ${this.pick(['join', 'replace', 'indent', 'default', 'map', 'select', 'selectattr', 'tojson', 'round', 'batch'])}(${part()}${this.upTo(2) ? `, ${part()}` : ''}))`;
      case 3:
        return `[${part()}, ${part()}]`;
      case 4:
        return `(${part()} if ${part()} else ${part()})`;
      case 5:
        return `${part()}[${part()}:${part()}${this.upTo(2) ? `:${part()}` : ''}]`;
      case 6:
        return `${part()}.${this.pick(['split', 'replace', 'strip', 'items', 'get', 'format', 'startswith', 'upper'])}(${part()})`;
      case 7:
        return `(${part()} is ${this.pick(['defined', 'string', 'mapping', 'iterable', 'odd', 'none'])})`;
      default:
        return small;
    }
  }
}

const withHeader = (json: string): Uint8Array => {
  const text = new TextEncoder().encode(json);
  const bytes = new Uint8Array(8 + text.length + safetensors.length - 8 - headerBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(safetensors.subarray(8 + headerBytes), 8 + text.length);
  return bytes;
};
const ownConfig = Object.fromEntries([...weights].filter(([name]) => name === 'config.json')) as Record<
  string,
  Uint8Array
>;

const KINDS: Readonly<Record<string, (draw: Draw) => Source>> = {
  'safetensors, JSON changed': (draw) =>
    new MemorySource({ ...ownConfig, 'model.safetensors': withHeader(draw.json(header)) }),
  'safetensors, bytes changed': (draw) =>
    new MemorySource({ ...ownConfig, 'model.safetensors': draw.bytes(safetensors, headerBytes) }),
  'GGUF, bytes changed': (draw) => ggufSource(new MemorySource({ 'm.gguf': draw.bytes(gguf, 4096) }), 'm.gguf'),
  'GGUF, values changed': (draw) =>
    ggufSource(new MemorySource({ 'm.gguf': writeGguf(draw.metadata(), contents.tensors) }), 'm.gguf'),
  'config.json': (draw) =>
    new MemorySource({ 'config.json': draw.json(draw.pick(configs)), 'generation_config.json': generation.text }),
  'generation_config.json': (draw) =>
    new MemorySource({ ...modelConfig, 'generation_config.json': draw.json(generation) }),
  'tokenizer.json': (draw) => {
    const { json, config: beside } = draw.pick(tokenizers);
    return new MemorySource({
      ...modelConfig,
      'tokenizer.json': draw.json(json),
      'tokenizer_config.json': beside.text,
    });
  },
  'tokenizer_config.json': (draw) => {
    const { json, config: beside } = draw.pick(tokenizers);
    return new MemorySource({
      ...modelConfig,
      'tokenizer.json': json.text,
      'tokenizer_config.json': draw.json(beside),
    });
  },
  'chat_template.jinja': (draw) =>
    new MemorySource({ ...modelConfig, 'tokenizer.json': plain.json.text, 'chat_template.jinja': draw.template() }),
};

export const INPUT_KINDS = Object.keys(KINDS);

/** One input of a seed: the same each time. */
export function hostileInput(seed: number, input: number): HostileInput {
  const draw = new Draw(seed, input);
  const kind = draw.pick(INPUT_KINDS);
  return { kind, source: KINDS[kind]!(draw) };
}
