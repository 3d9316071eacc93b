import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import type { GenerateOptions, LoadOptions, Model } from '../../index.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { STATE_SPACE } from '../../model/testing/small_configs.js';
import { NodeKvFile } from '../cache/kept/node_folder.js';
import { pageKvFolder } from '../cache/kept/page_folder.js';
import { type Misbehaviour, startServer, type TestServer } from '../../loader/testing/http_server.js';
import { MemoryFolder } from '../../loader/testing/memory_folder.js';
import { randomFiles } from '../testing/random_source.js';
import { load } from './load.js';
import { serve } from './serving_model.js';

const adapter = (await testAdapters()).at(-1)!.name;
const scratch = mkdtempSync(join(tmpdir(), 'splitkv-kept-'));
afterAll(() => rmSync(scratch, { recursive: true }));

const models: Record<string, RandomModelOptions> = {
  llama: { seed: 41, config: { num_attention_heads: 6, num_key_value_heads: 2, head_dim: 24, hidden_size: 72 } },
  deepseek: { seed: 42, config: { model_type: 'deepseek_v3' } },
  windows: {
    seed: 43,
    config: {
      model_type: 'gemma2',
      hidden_act: undefined,
      hidden_activation: 'gelu_pytorch_tanh',
      num_hidden_layers: 4,
      sliding_window: 70,
      query_pre_attn_scalar: 16,
    },
  },
  convolutions: {
    seed: 44,
    config: {
      model_type: 'lfm2',
      num_hidden_layers: 4,
      hidden_size: 72,
      head_dim: undefined,
      num_attention_heads: 9,
      num_key_value_heads: 3,
      full_attn_idxs: [1, 3],
    },
  },
  delta: {
    seed: 45,
    config: {
      model_type: 'qwen3_5_text',
      num_hidden_layers: 4,
      head_dim: 32,
      linear_num_key_heads: 3,
      linear_num_value_heads: 6,
      linear_key_head_dim: 16,
      linear_value_head_dim: 24,
    },
  },
  spaces: {
    seed: 46,
    config: { ...STATE_SPACE, num_attention_heads: 9, num_key_value_heads: 3, hidden_size: 72, mamba_n_heads: 6 },
  },
};
const files = (name: string): File[] => randomFiles(models[name]!).files;
const prompt = (length: number): number[] => Array.from({ length }, (_, i) => (i * 37 + 11 + ((i * i) % 53)) % 320);
const plans: Record<string, LoadOptions> = {
  single: {},
  tp: { plan: 'tp', ranks: 2, virtualRanks: true },
  sp: { plan: 'sp', ranks: 2, virtualRanks: true },
  pp: { plan: 'pp', ranks: 2, virtualRanks: true },
  adp: { plan: 'adp', ranks: 2, virtualRanks: true },
  'token x sp': { plan: 'token x sp', ranks: 3, virtualRanks: true },
  'tp+sp': { plan: 'tp+sp', ranks: 4, virtualRanks: true },
};

interface Told {
  readonly tokens: readonly number[];
  readonly cached: number;
  readonly logits: Float32Array;
}

async function ask(model: Model, ids: readonly number[], options: GenerateOptions = {}): Promise<Told> {
  let logits = new Float32Array();
  const { tokens, stats } = await model.generate([...ids], {
    maxTokens: 6,
    temperature: 0.8,
    seed: 5,
    ignoreEos: true,
    onFirstLogits: (first) => (logits = first.slice()),
    ...options,
  }).result;
  return { tokens, cached: stats.cached_tokens!, logits };
}

let folders = 0;
const newFolder = (): string => join(scratch, String(folders++));
const warned: string[] = [];
const open = (name: string, plan: string, options: LoadOptions = {}): Promise<Model> =>
  load(files(name), {
    adapter,
    contextLength: 400,
    kv: 'f16',
    prefillChunk: 24,
    onWarning: (text) => warned.push(text),
    ...plans[plan],
    ...options,
  });

/** One answer of a model that is opened for it. */
async function alone(name: string, plan: string, ids: readonly number[], options?: LoadOptions): Promise<Told> {
  const model = await open(name, plan, options);
  try {
    return await ask(model, ids);
  } finally {
    await model.dispose();
  }
}

describe('keys and values that were kept', () => {
  const ways: [saved: string, read: string, model: string][] = [
    ['single', 'single', 'llama'],
    ['single', 'tp', 'llama'],
    ['tp', 'single', 'llama'],
    ['single', 'sp', 'llama'],
    ['sp', 'pp', 'llama'],
    ['pp', 'sp', 'llama'],
    ['single', 'adp', 'llama'],
    ['adp', 'single', 'llama'],
    ['token x sp', 'tp', 'llama'],
    ['single', 'tp+sp', 'deepseek'],
    ['sp', 'single', 'deepseek'],
    ['tp', 'pp', 'windows'],
    ['sp', 'single', 'windows'],
    ['single', 'tp', 'convolutions'],
    ['tp', 'adp', 'convolutions'],
    ['single', 'tp', 'delta'],
    ['tp', 'pp', 'delta'],
    ['single', 'tp', 'spaces'],
    ['tp', 'adp', 'spaces'],
  ];
  test.each(drawn(ways, 3, 'kept keys and values'))(
    'of %s, read by %s (%s): the same bits',
    async (saved, read, name) => {
      const kvDir = newFolder();
      const first = await alone(name, saved, prompt(330), { kvDir });
      expect(first.cached).toBe(0);
      // It goes on otherwise than what was kept.
      const ids = [...prompt(330), 7, 8, 9];
      const own = await alone(name, read, ids);
      const taken = await alone(name, read, ids, { kvDir });
      expect(taken.cached).toBe(320);
      expect(taken.tokens).toEqual(own.tokens);
      expect(taken.logits).toEqual(own.logits);
    },
  );

  const ids = [...prompt(330), 7, 8, 9];
  /** Answers of a fresh model without and with what is kept. */
  const both = async (kvDir: LoadOptions['kvDir'], options: LoadOptions = {}): Promise<readonly [Told, Told]> => {
    warned.length = 0;
    const own = await alone('llama', 'single', ids, options);
    return [own, await alone('llama', 'single', ids, { ...options, kvDir })];
  };
  const bits = ({ tokens, logits }: Told) => ({ tokens, logits });

  test('what is damaged is computed anew, up to there it is taken, and then it is whole again', async () => {
    const kvDir = newFolder();
    await alone('llama', 'single', prompt(330), { kvDir });
    const names = readdirSync(kvDir);
    expect(names).toHaveLength(5);
    // In the order of the tokens, as they were written.
    const [, second] = names.toSorted((a, b) => statSync(join(kvDir, b)).mtimeMs - statSync(join(kvDir, a)).mtimeMs);
    const path = join(kvDir, second!);
    const bytes = readFileSync(path);
    bytes[bytes.length - 9]! ^= 1;
    writeFileSync(path, bytes);
    const [own, taken] = await both(kvDir);
    expect(bits(taken)).toEqual(bits(own));
    expect(taken.cached).toBeLessThan(320);
    expect(taken.cached % 64).toBe(0);
    expect(warned).toEqual([expect.stringContaining('has a damaged piece')]);
    const [, again] = await both(kvDir);
    expect(again.cached).toBe(320);
    expect(warned).toEqual([]);
  });

  test('another KV type, other weights of the same shapes, and another version find nothing', async () => {
    const kvDir = newFolder();
    await alone('llama', 'single', prompt(330), { kvDir });
    expect((await alone('llama', 'single', ids, { kvDir, kv: 'q8' })).cached).toBe(0);
    const other = await load(randomFiles({ ...models['llama']!, seed: 99 }).files, {
      adapter,
      contextLength: 400,
      kv: 'f16',
      kvDir,
    });
    expect((await ask(other, ids)).cached).toBe(0);
    await other.dispose();
  });

  test('a file: it is read where it fits, and told where it is foreign, cut short, older, or no such file', async () => {
    const path = join(scratch, 'prompt.kv');
    const file = (): NodeKvFile => new NodeKvFile(path);
    const first = await both(file());
    expect(first[1].cached).toBe(0);
    expect(bits(first[1])).toEqual(bits(first[0]));
    const [own, taken] = await both(file());
    expect(taken.cached).toBe(320);
    expect(bits(taken)).toEqual(bits(own));
    expect(warned).toEqual([]);
    const whole = readFileSync(path);
    const foreign = await alone('llama', 'single', ids, { kvDir: file(), kv: 'q8' });
    expect(foreign.cached).toBe(0);
    expect(warned).toEqual([expect.stringContaining('is of another KV type')]);
    const broken: [Buffer, number, string][] = [
      [whole.subarray(0, whole.length - 1000), 256, 'has a damaged piece'],
      [whole.subarray(0, 100), 0, 'is of another'],
      [Buffer.from('{"splitkv":"kv","subject":"{}","pieces":{"a":-5,"b":1e300}}\n'), 0, 'is of another format'],
      [Buffer.from('What I did today.\n'), 0, 'left as it is'],
    ];
    for (const [bytes, cached, warning] of broken) {
      writeFileSync(path, bytes);
      const [alike, after] = await both(file());
      expect(after.cached).toBe(cached);
      expect(bits(after)).toEqual(bits(alike));
      expect(warned).toEqual([expect.stringContaining(warning)]);
      // What is nobody's else is written anew.
      expect(readFileSync(path).equals(bytes)).toBe(warning === 'left as it is');
    }
  });

  test('the budget holds, what was used last stays; a folder that takes or gives nothing is told, and no error', async () => {
    const kvDir = newFolder();
    await alone('llama', 'single', prompt(330), { kvDir });
    const sizes = readdirSync(kvDir).map((name) => statSync(join(kvDir, name)).size);
    const budget = { kvDir, kvDirBytes: 3 * sizes[0]! };
    const others = prompt(330).map((id) => (id + 1) % 320);
    await alone('llama', 'single', others, budget);
    expect(readdirSync(kvDir)).toHaveLength(3);
    const denied = (): Promise<never> => Promise.reject(new DOMException('no room', 'QuotaExceededError'));
    const folder = { name: 'full', list: () => Promise.resolve([]), read: denied, write: denied, remove: denied };
    const [own, taken] = await both(folder);
    expect(bits(taken)).toEqual(bits(own));
    expect(warned).toEqual([expect.stringContaining('full takes nothing more (no room)')]);
    const [, none] = await both({ ...folder, list: denied });
    expect(bits(none)).toEqual(bits(own));
    expect(warned[0]).toContain("can't be read (no room)");
  });

  test('in a page: the same in its private file system', async () => {
    const root = new MemoryFolder();
    await alone('llama', 'single', prompt(330), { kvDir: pageKvFolder('a', root) });
    const [own, taken] = await both(pageKvFolder('a', root));
    expect(taken.cached).toBe(320);
    expect(bits(taken)).toEqual(bits(own));
    expect((await both(pageKvFolder('b', root)))[1].cached).toBe(0);
  });

  test.each([
    [{ kvBudget: 0.5 }, 'kvBudget'],
    [{ prefill: { kind: 'splitkv' } }, 'a prefill worker'],
    [{ prefixCaching: false }, 'leave prefixCaching on'],
  ] as [LoadOptions, string][])('not with %o', async (options, message) => {
    await expect(open('llama', 'single', { kvDir: newFolder(), ...options })).rejects.toThrow(message);
  });
});

describe('a file that a site ships', () => {
  const ids = [...prompt(330), 7, 8, 9];
  let made: readonly [file: Buffer, digest: string];
  let server: TestServer;
  let travelled = 0;
  const counted: Misbehaviour = (_, response) => {
    response.on('finish', () => (travelled += Number(response.getHeader('content-length') ?? 0)));
    return false;
  };
  /** A file of what one plan computed. */
  async function make(name: string, plan: string): Promise<readonly [file: Buffer, digest: string]> {
    const file = new NodeKvFile(join(scratch, `shipped-${name}-${plan}.kv`));
    rmSync(file.name, { force: true }); // what is there already isn't written again
    await alone(name, plan, prompt(330), { kvDir: file });
    return [readFileSync(file.name), file.digest!];
  }
  beforeAll(async () => {
    made = await make('llama', 'single');
    server = await startServer({});
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const owns = new Map<string, Told>();
  /** Answers of a fresh model without and with a file that the server has. */
  async function both(file: Uint8Array | undefined, more: Partial<Shipping> = {}): Promise<readonly [Told, Told]> {
    const { asked = ids, pin = '', misbehave = counted, name = 'llama', plan = 'single', options } = more;
    server.files.clear();
    if (file) server.files.set('manual.kv', file);
    server.misbehave = misbehave;
    travelled = 0;
    const key = JSON.stringify([name, plan, asked, options?.kv]);
    const own = owns.get(key) ?? (await alone(name, plan, asked, { ...options, kvDir: undefined }));
    owns.set(key, own);
    warned.length = 0;
    return [own, await alone(name, plan, asked, { prefixes: [`${server.url}manual.kv${pin}`], ...options })];
  }
  interface Shipping {
    readonly asked: readonly number[];
    readonly pin: string;
    readonly misbehave: Misbehaviour;
    readonly name: string;
    readonly plan: string;
    readonly options: LoadOptions;
  }
  const bits = ({ tokens, logits }: Told) => ({ tokens, logits });
  /** Bytes of a piece; the first look at a file brings so many. */
  const [piece, look] = [(file: Uint8Array) => (file.length - file.indexOf(10) - 1) / 5, 65_536];

  /** How many pieces come after that. */
  const beyond = (file: Uint8Array): number => 5 - Math.floor((look - file.indexOf(10) - 1) / piece(file));

  test.each(
    drawn(
      [
        ['single', 'tp', 'llama'],
        ['tp', 'sp', 'llama'],
        ['single', 'adp', 'llama'],
        ['sp', 'tp+sp', 'deepseek'],
        ['tp', 'pp', 'windows'],
        ['single', 'tp', 'convolutions'],
        ['tp', 'pp', 'delta'],
      ] as const,
      3,
      'shipped keys and values',
    ),
  )('of %s, taken by %s (%s): the same bits', async (by, plan, name) => {
    const [file, digest] = await make(name, by);
    const [own, taken] = await both(file, { plan, name, pin: `#${digest}` });
    expect(bits(taken)).toEqual(bits(own));
    expect([own.cached, taken.cached]).toEqual([0, 320]);
    expect(warned.filter((text) => text.startsWith('kept'))).toEqual([]);
  });

  test('of it only the pieces travel that a prompt begins with, and those that a folder has not at all', async () => {
    const [file, digest] = made;
    expect(piece(file)).toBeGreaterThan(20_000);
    const half = ids.map((id, at) => (at < 170 ? id : (id + 1) % 320));
    const [own, taken] = await both(file, { asked: half });
    expect(bits(taken)).toEqual(bits(own));
    expect(taken.cached).toBe(128);
    // The first look has the first two.
    expect(travelled).toBe(look);
    const [, whole] = await both(file, { pin: `#sha256-${Buffer.from(digest, 'hex').toString('base64')}` });
    expect(whole.cached).toBe(320);
    expect(travelled).toBe(look + beyond(file) * piece(file));
    const [, none] = await both(file, { asked: half.toReversed() });
    expect([none.cached, travelled]).toEqual([0, look]);
    const options = { kvDir: newFolder() };
    expect((await both(file, { options }))[1].cached).toBe(320);
    expect(travelled).toBe(look + beyond(file) * piece(file));
    const [, gone] = await both(undefined, { options });
    expect(gone.cached).toBe(320);
    expect(warned).toEqual([expect.stringContaining('answered HTTP 404')]);
  });

  test('what is damaged, foreign, cut short or missing is told, and computed', async () => {
    const [file] = made;
    const damaged = Buffer.from(file);
    damaged[file.length - 9]! ^= 1;
    const otherHeader = Buffer.from(file);
    otherHeader[file.indexOf(10) + 1 + piece(file) * 4 + 5]! ^= 1;
    const other = Buffer.from(
      file.toString('latin1').replace(/(version[^:]*:[^0-9]*)\d+/, (_, before: string) => `${before}9`),
      'latin1',
    );
    const cases: readonly [Uint8Array | undefined, Partial<Shipping>, number, string][] = [
      [damaged, {}, 256, 'has a damaged piece'],
      [otherHeader, {}, 256, "a piece isn't the one that its head names"],
      [file.subarray(0, file.length - 5), {}, 0, `it has ${file.length - 5} bytes, where its head tells of`],
      [file.subarray(0, 100), {}, 0, 'its head has no end'],
      [file, { options: { kv: 'q8' } }, 0, 'is of another KV type'],
      [file, { name: 'convolutions' }, 0, 'is of another model'],
      [other, {}, 0, 'is of another version'],
      [file, { pin: `#${'ab'.repeat(32)}` }, 0, "its digest isn't abab"],
      [Buffer.from('What I did today.\n'), {}, 0, 'no file of keys and values'],
      [undefined, {}, 0, 'answered HTTP 404'],
    ];
    for (const [bytes, how, cached, warning] of cases) {
      const [own, taken] = await both(bytes, how);
      expect(bits(taken)).toEqual(bits(own));
      expect([taken.cached, warned]).toEqual([cached, [expect.stringContaining(warning)]]);
      if (cached > 0) expect(travelled).toBe(look + beyond(file) * piece(file)); // nothing twice
    }
    await expect(open('llama', 'single', { prefixes: 'a.kv' as never })).rejects.toThrow('expected a list of URLs');
    expect((await alone('llama', 'single', ids, { prefixes: ['http://:'] })).cached).toBe(0);
    expect(warned.at(-1)).toContain('Invalid URL');
  });

  test('a server that ignores ranges is told of: a small file comes whole, a large one not at all', async () => {
    const [file] = made;
    const whole =
      (length: number): Misbehaviour =>
      (_, response) => {
        response.writeHead(200, { 'Content-Length': length });
        travelled += file.length;
        return Boolean(response.write(file)) || true;
      };
    const [own, taken] = await both(file, { misbehave: whole(file.length) });
    expect(bits(taken)).toEqual(bits(own));
    expect([taken.cached, travelled]).toEqual([320, file.length]);
    expect(warned).toEqual([expect.stringContaining('its server ignores ranges')]);
    const [, none] = await both(file, { misbehave: whole(5e9) });
    expect(bits(none)).toEqual(bits(own));
    expect(none.cached).toBe(0);
    expect(warned.at(-1)).toContain('sends whole files only');
  });

  test('where it is named by its path, and many requests are served', async () => {
    const path = join(scratch, 'served.kv');
    writeFileSync(path, made[0]);
    const model = await serve(files('llama'), { adapter, contextLength: 400, kv: 'f16', slots: 2, prefixes: [path] });
    for await (const _ of model.complete(ids, { maxTokens: 2, ignoreEos: true }));
    expect(model.metrics.cachedTokensTotal).toBe(320);
    await model.dispose();
  });
});

describe('a conversation that is saved with its keys and values', () => {
  const say = { maxTokens: 70, temperature: 0.8, seed: 3, ignoreEos: true } as const;
  const openTiny = (options: LoadOptions = {}): Promise<Model> =>
    load('models/tiny-gqa', { adapter, contextLength: 1024, onWarning: (text) => warned.push(text), ...options });

  test('goes on after a reload with the bits of one that was never saved, answers included', async () => {
    const kvDir = newFolder();
    const model = await openTiny({ kvDir });
    const talk = model.conversation({ system: 'Answer in few words.' });
    await talk.send('Who was there?', say).result;
    await talk.send('And then?', say).result;
    const saved = structuredClone(await talk.save({ kv: true }));
    expect(saved).toEqual({ ...talk.save(), kv: true });
    const own = await talk.send('Why?', say).result;
    await model.dispose();
    for (const plan of ['single', 'sp']) {
      const again = await openTiny({ kvDir, ...plans[plan] });
      const { tokens, stats } = await again.conversation({ restore: saved }).send('Why?', say).result;
      expect(tokens).toEqual(own.tokens);
      // Whole blocks, the answers' among them.
      expect(stats.cached_tokens).toBeGreaterThanOrEqual(128);
      await again.dispose();
    }
    const none = await openTiny({ kvDir: newFolder() });
    const { tokens, stats } = await none.conversation({ restore: saved }).send('Why?', say).result;
    expect([tokens, stats.cached_tokens]).toEqual([own.tokens, 0]);
    await none.dispose();
  });

  test('is refused by name where nothing can be kept', async () => {
    const model = await openTiny({ kvBudget: 0.5 });
    const talk = model.conversation();
    await talk.send('Who was there?', { ...say, maxTokens: 3 }).result;
    await expect(talk.save({ kv: true })).rejects.toThrow('kvBudget');
    await model.dispose();
  });
});

test('a server begins with what the one before it kept, many requests at once', async () => {
  const kvDir = newFolder();
  const prompts = [0, 1, 2].map((own) => [...prompt(140), own, own, own]);
  const told: { readonly answers: readonly unknown[]; readonly cached: number }[] = [];
  for (const plan of ['single', 'adp']) {
    const options = { adapter, contextLength: 400, slots: 2, prefillChunk: 64, ...plans[plan] };
    const model = await serve(files('llama'), { ...options, kvDir });
    const answer = async (ids: readonly number[]): Promise<unknown[]> => {
      const chances: unknown[] = [];
      const sampling = { maxTokens: 5, temperature: 0.8, seed: 5, ignoreEos: true, logprobs: 1 };
      for await (const { logprobs } of model.complete(ids, sampling)) {
        for (const { id, logprob } of logprobs) chances.push([id, logprob]);
      }
      return chances;
    };
    told.push({ answers: await Promise.all(prompts.map(answer)), cached: model.metrics.cachedTokensTotal });
    await model.dispose();
  }
  expect(told[0]!.answers.map((chances) => (chances as unknown[]).length)).toEqual([5, 5, 5]);
  expect(told[1]!.answers).toEqual(told[0]!.answers);
  expect(told[1]!.cached).toBeGreaterThanOrEqual(3 * 128);
});
