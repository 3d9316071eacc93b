import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { isObject } from '../../base/json.js';
import { Random } from '../../base/random.js';
import { ggufSource } from '../../loader/gguf/file_source.js';
import type { Source } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import { modelToGguf } from '../../model/testing/gguf/model.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { openModelFiles, openTokenizer } from './model_files.js';

/** Inputs; a million by SPLITKV_FUZZ=1000000 npx vitest run src/engine/files/hostile_files.test.ts */
const INPUTS = Number(process.env['SPLITKV_FUZZ'] ?? 600);

const random = new Random(Number(process.env['SPLITKV_SEED'] ?? 1));
const pick = <T>(list: readonly T[]): T => list[random.integer(list.length)]!;

const folder = (name: string): Record<string, string> =>
  Object.fromEntries(
    ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json'].map((file) => [
      file,
      readFileSync(`models/${name}/${file}`, 'utf8'),
    ]),
  );
const folders = ['tiny-gqa', 'tiny-mla'].map(folder);
const { files: weights, config, weights: map } = makeRandomModel({ seed: 3 });
const safetensors = weights.get('model.safetensors')!;
const headerBytes = Number(new DataView(safetensors.buffer, safetensors.byteOffset).getBigUint64(0, true));
const header = new TextDecoder().decode(safetensors.subarray(8, 8 + headerBytes));
const gguf = modelToGguf(config, map);

const nested = (depth: number): unknown => {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
};
const loops = (depth: number, turns: number): string =>
  `${`{% for i in range(${turns}) %}`.repeat(depth)}x${'{% endfor %}'.repeat(depth)}`;
const split = (Regex: string) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });
const replace = (pattern: object, content: string) => ({ type: 'Replace', pattern, content });

/** What once froze or ended the process, and what is merely odd. */
const VALUES: readonly (() => unknown)[] = [
  () => loops(1, 1e9),
  () => loops(3, 3000),
  () => '{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(30) }}',
  () => split('(a+)+$'),
  () => replace({ Regex: '(a|a)*b' }, ''),
  () => ({ type: 'Sequence', normalizers: Array.from({ length: 40 }, () => replace({ String: 'a' }, 'aa')) }),
  () => ({ type: 'Sequence', decoders: [{ type: 'Sequence', decoders: [{ type: 'Fuse' }] }] }),
  () => nested(600),
  () => '['.repeat(50_000),
  () => Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`hidden_siz${i}`, i])),
  () => 'a'.repeat(100_000),
  () => 4_294_967_290,
  () => 2 ** 53,
  () => -1,
  () => 0,
  () => 0.5,
  () => null,
  () => true,
  () => '',
  () => [],
  () => ({}),
  () => '__proto__',
];
const KEYS = ['__proto__', 'constructor', 'type', 'vocab', 'merges', 'pattern', 'content', 'x'];

interface Place {
  readonly holder: Record<string, unknown> | unknown[];
  readonly key: string | number;
}

/** Every place in a JSON tree, no list's items beyond the first few. */
function placesIn(value: unknown, found: Place[] = []): Place[] {
  if (typeof value !== 'object' || value === null) return found;
  for (const key of Object.keys(value).slice(0, 400)) {
    found.push({ holder: value as Record<string, unknown>, key });
    placesIn((value as Record<string, unknown>)[key], found);
  }
  return found;
}

/** The text of a JSON document with one to three places changed. */
function changedJson(text: string): string {
  const tree = JSON.parse(text) as unknown;
  for (let left = 1 + random.integer(3); left > 0; left--) {
    const { holder, key } = pick(placesIn(tree));
    const values = holder as Record<string | number, unknown>;
    const how = random.integer(4);
    if (how === 0) delete values[key];
    else if (how === 1 && isObject(holder))
      Object.defineProperty(holder, pick(KEYS), {
        value: pick(VALUES)(),
        enumerable: true,
        configurable: true,
        writable: true,
      });
    else values[key] = pick(VALUES)();
    if (placesIn(tree).length === 0) break;
  }
  return JSON.stringify(tree);
}

/** The bytes with some of them changed, cut, or repeated; mostly among the first `within`. */
function changedBytes(bytes: Uint8Array, within: number): Uint8Array {
  const changed = Uint8Array.from(bytes);
  for (let left = 1 + random.integer(8); left > 0; left--) {
    const at = random.integer(Math.min(within, changed.length));
    const view = new DataView(changed.buffer);
    if (random.integer(3) > 0) changed[at] = random.integer(256);
    else if (at + 8 <= changed.length)
      view.setBigUint64(at, pick([0n, 1n, 2n ** 31n, 2n ** 32n, 2n ** 62n, 2n ** 64n - 1n]), true);
  }
  return random.integer(10) === 0 ? changed.subarray(0, random.integer(changed.length)) : changed;
}

const withHeader = (json: string): Uint8Array => {
  const text = new TextEncoder().encode(json);
  const bytes = new Uint8Array(8 + text.length + safetensors.length - 8 - headerBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(safetensors.subarray(8 + headerBytes), 8 + text.length);
  return bytes;
};

const own = Object.fromEntries([...weights].map(([name, bytes]) => [name, bytes])) as Record<string, Uint8Array>;
const KINDS: Readonly<Record<string, () => Source>> = {
  'safetensors, JSON changed': () => new MemorySource({ ...own, 'model.safetensors': withHeader(changedJson(header)) }),
  'safetensors, bytes changed': () =>
    new MemorySource({ ...own, 'model.safetensors': changedBytes(safetensors, headerBytes) }),
  'GGUF, bytes changed': () => ggufSource(new MemorySource({ 'm.gguf': changedBytes(gguf, 4096) }), 'm.gguf'),
  'config.json': () => {
    const base = pick(folders);
    return new MemorySource({ ...base, 'config.json': changedJson(base['config.json']!) });
  },
  'tokenizer.json': () => {
    const base = pick(folders);
    return new MemorySource({ ...base, 'tokenizer.json': changedJson(base['tokenizer.json']!) });
  },
  'tokenizer_config.json': () => {
    const base = pick(folders);
    const text = base['tokenizer_config.json']!;
    if (random.integer(2) === 0) return new MemorySource({ ...base, 'tokenizer_config.json': changedJson(text) });
    const chat_template = pick(VALUES)();
    return new MemorySource({
      ...base,
      'tokenizer_config.json': JSON.stringify({ ...JSON.parse(text), chat_template }),
    });
  },
};

/** All that reading a model does before a GPU is asked. @throws what refuses it */
async function readAll(source: Source): Promise<void> {
  const files = await openModelFiles(source);
  if (source.gguf !== undefined || (await source.size('model.safetensors')) !== undefined) await files.reader();
  const { tokenizer } = await openTokenizer(files);
  if (!tokenizer) return;
  const ids = tokenizer.encode(`aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab the cat${'a'.repeat(200)}`);
  tokenizer.decode(ids.slice(0, 100));
  if (!tokenizer.hasChatTemplate) return;
  tokenizer.encode(tokenizer.applyChatTemplate(tokenizer.asText([{ role: 'user', content: 'a <|user|> b' }])));
}

test(
  'whatever is in a model file: it is read, or refused by an error of ours',
  { timeout: 300_000 + INPUTS * 20 },
  async () => {
    const counts: Record<string, { refused: number; read: number }> = {};
    const bad: string[] = [];
    let slowest = 0;
    for (let input = 0; input < INPUTS; input++) {
      const kind = pick(Object.keys(KINDS));
      const source = KINDS[kind]!();
      const count = (counts[kind] ??= { refused: 0, read: 0 });
      const started = process.cpuUsage();
      try {
        await readAll(source);
        count.read++;
      } catch (error) {
        if (error instanceof SplitkvError && error.code !== 'internal') count.refused++;
        else bad.push(`${kind}, input ${input}: ${error instanceof Error ? error.stack : String(error)}`);
      }
      // Of this process, whatever else the machine does.
      const { user, system } = process.cpuUsage(started);
      const ms = (user + system) / 1000;
      slowest = Math.max(slowest, ms);
    }
    if (INPUTS > 1000) {
      const memory = Math.round(process.resourceUsage().maxRSS / 1000);
      console.log(
        JSON.stringify({ inputs: INPUTS, bad: bad.length, slowestMs: Math.round(slowest), maxMB: memory, counts }),
      );
    }
    expect(bad).toEqual([]);
    expect(Object.keys({})).toEqual([]);
    expect(({} as Record<string, unknown>)['x']).toBeUndefined();
    for (const { refused } of Object.values(counts)) expect(refused).toBeGreaterThan(0);
  },
);
