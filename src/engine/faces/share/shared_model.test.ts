import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { SplitkvError } from '../../../base/errors.js';
import { VERSION } from '../../../base/version.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { MemoryLocks } from '../../../loader/testing/memory_locks.js';
import type { RankGroup } from '../../ranks/rank_group.js';
import { randomFiles } from '../../testing/random_source.js';
import { load as loadHere } from '../../../index.js';
import type { GenerateOptions, LoadOptions, Model } from '../../contracts/api.js';
import { load } from '../load.js';
import type { LoadedModel } from '../model.js';
import { putInLine, WorkerLine } from './share_line.js';
import type { ShareWorld } from './share_protocol.js';
import { joinShared, shareKey } from './shared_model.js';

const adapter = (await testAdapters()).at(-1)!.name;
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: 512 } });
const loadOptions = { adapter, requests: 2, contextLength: 512 } as const;

const anyGpu = { requestAdapter: async () => ({}) as GPUAdapter };

/** Tabs of one origin. What a tab loads is counted; `kill` ends it without a word. */
class Origin {
  readonly #locks = new MemoryLocks();
  readonly loaded: { tab: number; model: LoadedModel }[] = [];
  #tabs = 0;
  /** Of the next loads. */
  failing: unknown;
  /** Asked by tabs that open from then on. */
  line: WorkerLine | undefined;

  constructor(
    readonly where: Parameters<typeof load>[0] = files,
    readonly idle?: number,
  ) {}

  get held(): string[] {
    return this.#locks.held;
  }

  tab(key: string) {
    const number = this.#tabs++;
    const { locks, close } = this.#locks.tab();
    const channels: BroadcastChannel[] = [];
    let dead = false;
    const channel = (name: string): BroadcastChannel => {
      const made = new BroadcastChannel(name);
      channels.push(made);
      // A channel that the tab closed, or that died with it, has no ears.
      const post = made.postMessage.bind(made);
      made.postMessage = (message) => void (dead || post(message));
      return made;
    };
    const open = async (told: LoadOptions): Promise<LoadedModel> => {
      if (this.failing !== undefined) throw this.failing;
      const model = (await load(this.where, { ...loadOptions, ...told })) as LoadedModel;
      this.loaded.push({ tab: number, model });
      return model;
    };
    const { idle, line } = this;
    const world: ShareWorld = { locks, channel, open, idle };
    const asked = { key: `${process.pid} ${key}`, where: '', options: {}, base: undefined };
    return {
      number,
      join: (told: LoadOptions = {}): Promise<Model> =>
        joinShared(
          asked.key,
          { ...world, putWorkerInLine: line && (async () => void (await line.stand(asked))) },
          told,
        ),
      /** This one is no tab but a worker of all tabs. */
      serve: (gpu: ConstructorParameters<typeof WorkerLine>[0] = anyGpu): WorkerLine =>
        (this.line = new WorkerLine(gpu, () => world)),
      kill: async (): Promise<void> => {
        dead = true;
        for (const each of channels) each.close();
        close();
        const own = this.loaded.find((each) => each.tab === number);
        await own?.model.dispose();
      },
    };
  }
}

const prompt = Array.from({ length: 20 }, (_, at) => (at * 31) % 320);
const greedy: GenerateOptions = { maxTokens: 40, ignoreEos: true };
const drawn: GenerateOptions = { ...greedy, temperature: 1, topK: 50, seed: 7 };
const whole = async (
  generation: ReturnType<Model['generate']>,
): Promise<{ text: string; tokens: readonly number[] }> => {
  let text = '';
  for await (const piece of generation) text += piece;
  const { tokens, text: all } = await generation.result;
  expect(text).toBe(all);
  return { text, tokens };
};

describe('one model for several tabs', () => {
  let alone: Model;
  const expected: { text: string; tokens: readonly number[] }[] = [];
  beforeAll(async () => {
    alone = await load(files, loadOptions);
    for (const options of [greedy, drawn]) expected.push(await whole(alone.generate(prompt, options)));
  });
  afterAll(() => alone.dispose());

  test('ten tabs have one model, and answers are those of a model alone; it is freed with the last', async () => {
    const origin = new Origin();
    const models = await Promise.all(Array.from({ length: 10 }, () => origin.tab('ten').join()));
    expect(origin.loaded).toHaveLength(1);
    const answers = await Promise.all(
      models.map((model, at) => whole(model.generate(prompt, at % 2 ? drawn : greedy))),
    );
    for (const [at, answer] of answers.entries()) expect(answer).toEqual(expected[at % 2]);
    for (const model of models) {
      expect(model.info.weightBytes).toBe(alone.info.weightBytes);
      expect(model.tokenize('a text')).toEqual(alone.tokenize('a text'));
      expect(model.stats().plan).toBe(alone.stats().plan);
    }
    const dispose = vi.spyOn(origin.loaded[0]!.model, 'dispose');
    // The host's own goes first, and the tab goes on for the others.
    for (const [at, model] of models.entries()) {
      expect(dispose).not.toHaveBeenCalled();
      await model.dispose();
      if (at < 9)
        expect((await models[9]!.generate(prompt, { ...greedy, maxTokens: 2 }).result).tokens).toHaveLength(2);
    }
    await vi.waitFor(() => expect(dispose).toHaveBeenCalledOnce(), { timeout: 10_000 });
    await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });
    expect(() => models[9]!.info).not.toThrow();
    await expect(models[9]!.generate(prompt).result).rejects.toMatchObject({ code: 'usage' });
  });

  test('the host is killed in mid-answer, again and again: answers go on at the same token', async () => {
    const origin = new Origin();
    const tabs = Array.from({ length: 4 }, () => origin.tab('killed'));
    const models: Model[] = [];
    for (const tab of tabs) models.push(await tab.join());
    const last = models.at(-1)!;
    const pieces: string[] = [];
    const [cut, other] = [last.generate(prompt, drawn), last.generate(prompt, greedy)];
    let killed = 0;
    for await (const piece of cut) {
      pieces.push(piece);
      if (pieces.length % 4 === 0 && killed < 3) {
        expect(origin.loaded.map(({ tab }) => tab)).toEqual(tabs.slice(0, killed + 1).map(({ number }) => number));
        await tabs[killed++]!.kill();
      }
    }
    expect(killed).toBe(3);
    const { tokens, text } = await cut.result;
    expect({ text: pieces.join(''), tokens }).toEqual(expected[1]);
    expect(text).toBe(pieces.join(''));
    const { tokens: greedily } = await other.result;
    expect(greedily).toEqual(expected[0]!.tokens);
    expect(origin.loaded).toHaveLength(4);
    await last.dispose();
  });

  test('a tab that dies frees what it asked for; one that stops gets what there was', async () => {
    const origin = new Origin();
    const [host, dying] = [origin.tab('dying'), origin.tab('dying')];
    const mine = await host.join();
    const theirs = await dying.join();
    const inHost = vi.spyOn(origin.loaded[0]!.model, 'generate');
    // More than the model has places for.
    const asked = [0, 1, 2].map(() => theirs.generate(prompt, { ...greedy, maxTokens: 480 }));
    for (const each of asked) each.result.catch(() => {});
    for await (const _ of asked[0]!) break;
    await dying.kill();
    const results = inHost.mock.results.map(({ value }) => (value as ReturnType<Model['generate']>).result);
    expect(results).toHaveLength(3);
    for (const { finish_reason: reason, tokens } of await Promise.all(results)) {
      expect(reason).toBe('abort');
      expect(tokens.length).toBeLessThan(480);
    }
    expect(await whole(mine.generate(prompt, greedy))).toEqual(expected[0]);
    const stop = new AbortController();
    const stopped = mine.generate(prompt, { ...greedy, maxTokens: 480, signal: stop.signal });
    let text = '';
    for await (const piece of stopped) {
      text += piece;
      if (text.length > 5) stop.abort();
    }
    const result = await stopped.result;
    expect(result).toMatchObject({ finish_reason: 'abort', text });
    expect(result.tokens.length).toBeLessThan(480);
    await mine.dispose();
  });

  test('vectors, logits and several answers are as of a model alone', async () => {
    const origin = new Origin();
    const [host, tab] = [origin.tab('faces'), origin.tab('faces')];
    await host.join();
    const model = await tab.join();
    const { embeddings } = await model.embed(['a cat', 'a dog']);
    expect(embeddings).toEqual((await alone.embed(['a cat', 'a dog'])).embeddings);
    const told: number[] = [];
    const logits = await model.logits(prompt, { all: true });
    expect(logits).toEqual(await alone.logits(prompt, { all: true }));
    await model.logits(prompt, { onRow: (position) => told.push(position) });
    expect(told).toEqual([prompt.length - 1]);
    let first: Float32Array | undefined;
    await model.generate(prompt, { ...greedy, maxTokens: 1, onFirstLogits: (row) => (first = row) }).result;
    expect(first).toEqual(logits.rows.at(-1));
    const many: number[] = [];
    for await (const { index, tokens } of model.generateMany([prompt, prompt], drawn)) {
      many.push(index);
      expect(tokens).toEqual(expected[1]!.tokens);
    }
    expect(many.toSorted((a, b) => a - b)).toEqual([0, 1]);
    await expect(model.generate([], {}).result).rejects.toMatchObject({ code: 'usage' });
    await expect(model.generate(prompt, { maxTokens: 0 }).result).rejects.toThrow('maxTokens');
    const notPlain = { tools: [{ type: 'function', function: { name: 'f', parameters: { at: () => {} } } }] };
    await expect(model.generate(prompt, notPlain as never).result).rejects.toMatchObject({ code: 'usage' });
    await expect(model.adapters.add('a', 'b')).rejects.toMatchObject({ code: 'usage' });
    await host.kill();
    expect((await model.embed('a cat')).embeddings[0]).toEqual(embeddings[0]);
    await model.dispose();
  });

  test('a load that fails is told to all tabs that wait, and the next may try', async () => {
    const origin = new Origin();
    origin.failing = new SplitkvError('io', 'the server is away');
    const results = await Promise.allSettled(Array.from({ length: 3 }, () => origin.tab('failing').join()));
    for (const result of results) {
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'io', message: 'the server is away' } });
    }
    await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });
    origin.failing = undefined;
    const [host, heir] = [origin.tab('failing'), origin.tab('failing')];
    const own = await host.join();
    const model = await heir.join();
    expect(await whole(own.generate(prompt, greedy))).toEqual(expected[0]);
    // Nor does one that takes over hang where it can't load.
    origin.failing = new SplitkvError('limit', 'no room');
    const asked = model.generate(prompt, { ...greedy, maxTokens: 400 });
    for await (const _ of asked.deltas()) if (origin.loaded.length === 1) break;
    const cut = model.generate(prompt, { ...greedy, maxTokens: 400 });
    await host.kill();
    await expect(cut.result).rejects.toMatchObject({ code: 'limit' });
    origin.failing = undefined;
    expect(await whole(model.generate(prompt, greedy))).toEqual(expected[0]);
    await model.dispose();
  });

  test('a worker of all tabs has the model: tabs close in mid-answer, and where it dies a tab takes over', async () => {
    const origin = new Origin();
    const key = `worker ${VERSION}`;
    const worker = origin.tab(key);
    worker.serve();
    const tabs = Array.from({ length: 4 }, () => origin.tab(key));
    const models = await Promise.all(tabs.map((tab) => tab.join()));
    expect(origin.loaded.map(({ tab }) => tab)).toEqual([worker.number]);
    const last = models.at(-1)!;
    const pieces: string[] = [];
    const [cut, other] = [last.generate(prompt, drawn), last.generate(prompt, greedy)];
    for await (const piece of cut) {
      // Three tabs, then the worker.
      if (pieces.push(piece) % 4 !== 0 || pieces.length > 16) continue;
      expect(origin.loaded).toHaveLength(1);
      await (tabs[pieces.length / 4 - 1] === tabs[3] ? worker : tabs[pieces.length / 4 - 1]!).kill();
    }
    const { tokens } = await cut.result;
    expect({ text: pieces.join(''), tokens }).toEqual(expected[1]);
    expect((await other.result).tokens).toEqual(expected[0]!.tokens);
    expect(origin.loaded.map(({ tab }) => tab)).toEqual([worker.number, tabs[3]!.number]);
    await last.dispose();
    await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });
  });

  test('a worker frees the model with the last tab and loads again for the next; one that can load none leaves it to tabs', async () => {
    const origin = new Origin();
    const key = `next ${VERSION}`;
    const worker = origin.tab(key);
    const line = worker.serve();
    for (const loads of [1, 2]) {
      const model = await origin.tab(key).join();
      expect(await whole(model.generate(prompt, greedy))).toEqual(expected[0]);
      expect(origin.loaded.map(({ tab }) => tab)).toEqual(Array<number>(loads).fill(worker.number));
      await model.dispose();
      await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });
    }
    origin.failing = new SplitkvError('limit', 'no room');
    const results = await Promise.allSettled([0, 1].map(() => origin.tab(key).join()));
    for (const result of results) expect(result).toMatchObject({ reason: { code: 'limit', message: 'no room' } });
    origin.failing = undefined;
    await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });
    // Nobody says hello.
    await line.stand({ key: `${process.pid} ${key}`, where: '', options: {}, base: undefined });
    await vi.waitFor(() => expect(origin.loaded).toHaveLength(3), { timeout: 60_000 });
    await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });

    origin.tab(key).serve({ requestAdapter: async () => null });
    for (const other of [key, 'next 0.0.1']) {
      if (other !== key) origin.tab(other).serve();
      const tab = origin.tab(other);
      const model = await tab.join();
      expect(origin.loaded.at(-1)!.tab).toBe(tab.number);
      await model.dispose();
      await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });
    }
  });

  test('a model that nobody asks is freed after a time, and loaded again for the next question', async () => {
    const origin = new Origin(files, 1);
    const [host, tab] = [origin.tab('idle'), origin.tab('idle')];
    await host.join();
    const model = await tab.join();
    const disposed = (): Promise<unknown>[] =>
      origin.loaded.map(async (each) => each.model.generate(prompt, { maxTokens: 1 }).result.catch(() => 'disposed'));
    for (const loads of [1, 2]) {
      expect(await whole(model.generate(prompt, greedy))).toEqual(expected[0]);
      expect(origin.loaded).toHaveLength(loads);
      const { model: loaded } = origin.loaded.at(-1)!;
      const dispose = vi.spyOn(loaded, 'dispose');
      // Longer than that: while it answers it stays.
      const long = model.generate(prompt, { ...greedy, maxTokens: 200 });
      for await (const _ of long.deltas()) expect(dispose).not.toHaveBeenCalled();
      await vi.waitFor(() => expect(dispose).toHaveBeenCalledOnce(), { timeout: 10_000 });
    }
    expect(await Promise.all(disposed())).toEqual(['disposed', 'disposed']);
    // Who comes now is told of it without a load, and a load that fails is of the question that needed it.
    const late = await origin.tab('idle').join();
    expect(late.info.plan).toEqual(model.info.plan);
    expect(origin.loaded).toHaveLength(2);
    origin.failing = new SplitkvError('io', 'the server is away');
    await expect(late.generate(prompt, greedy).result).rejects.toMatchObject({ code: 'io' });
    origin.failing = undefined;
    expect(await whole(late.generate(prompt, greedy))).toEqual(expected[0]);
    await host.kill();
    expect(await whole(model.generate(prompt, drawn))).toEqual(expected[1]);
    expect(origin.loaded.map(({ tab: of }) => of)).toEqual([...Array<number>(3).fill(host.number), tab.number]);
    for (const each of [model, late]) await each.dispose();
    await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });
  });

  test('a GPU that is lost comes back, or another tab takes over; texts are the same', async () => {
    const origin = new Origin();
    const [host, heir] = [origin.tab('lost'), origin.tab('lost')];
    await host.join();
    const model = await heir.join();
    const lose = async (): Promise<string> => {
      const pieces: string[] = [];
      const answer = model.generate(prompt, drawn);
      for await (const piece of answer) {
        if (pieces.push(piece) === 5) {
          (origin.loaded.at(-1)!.model.opened.group as RankGroup).devices[0]!.gpu.destroy();
        }
      }
      expect((await answer.result).tokens).toEqual(expected[1]!.tokens);
      return pieces.join('');
    };
    expect(await lose()).toBe(expected[1]!.text);
    expect(origin.loaded).toHaveLength(1);
    vi.spyOn(origin.loaded[0]!.model, 'recover').mockRejectedValue(new SplitkvError('device_lost', 'gone for good'));
    expect(await lose()).toBe(expected[1]!.text);
    expect(origin.loaded.map(({ tab }) => tab)).toEqual([host.number, heir.number]);
    await model.dispose();
  });
});

test('conversations outlive the tab that has the model, and go on with the same bits', async () => {
  const where = 'models/tiny-gqa';
  const talk = async (model: Model, before: () => Promise<void>): Promise<unknown[]> => {
    const conversation = model.conversation({ system: 'lena hid the red needle in the garden box .' });
    const answers: unknown[] = [];
    for (const [at, question] of ['where is the red needle ?', 'who hid it ?', 'what is in the box ?'].entries()) {
      const generation = conversation.send(question, { maxTokens: 12, ignoreEos: true, temperature: 1, seed: 3 });
      let text = '';
      for await (const piece of generation) {
        if (at === 1 && text === '') await before();
        text += piece;
      }
      answers.push(text, (await generation.result).tokens);
    }
    const again = await conversation.regenerate({ maxTokens: 5, temperature: 0 }).result;
    const { choices } = await model.chat.completions.create({ messages: conversation.messages, max_tokens: 6 });
    return [...answers, again.text, conversation.save(), choices];
  };
  const alone = await load(where, loadOptions);
  const expected = await talk(alone, async () => {});
  await alone.dispose();
  const origin = new Origin(where);
  const [host, tab] = [origin.tab('talk'), origin.tab('talk')];
  await host.join();
  const model = await tab.join();
  expect(await talk(model, host.kill)).toEqual(expected);
  expect(origin.loaded).toHaveLength(2);
  await model.dispose();
});

test('what is denied, and another version of the library, is told in a word', async () => {
  const origin = new Origin();
  const old = await origin.tab('app-a 0.1.0').join();
  const warnings: string[][] = [[], [], []];
  const join = (at: number, key: string): Promise<Model> =>
    origin.tab(key).join({ onWarning: (message) => warnings[at]!.push(message) });
  const models = await Promise.all([join(0, 'app-a 0.2.0'), join(1, 'app-b 0.2.0')]);
  expect(origin.loaded).toHaveLength(3);
  expect(warnings[0]).toEqual([
    expect.stringMatching(/another tab has this model by splitkv 0\.1\.0.*, this one has 0\.2\.0.*: each loads it/),
  ]);
  expect(warnings[1]).toEqual([]);
  for (const model of [old, ...models]) await model.dispose();
  await vi.waitFor(() => expect(origin.held).toEqual([]), { timeout: 10_000 });

  // Web Locks, and the folder of keys and values, as a page without storage has them.
  const denied = (): Promise<never> => Promise.reject(new DOMException('denied here', 'SecurityError'));
  const world = { locks: { request: denied, query: denied }, channel: (name: string) => new BroadcastChannel(name) };
  await expect(joinShared(`denied ${process.pid} 1`, { ...world, open: denied }, {})).rejects.toMatchObject({
    code: 'unsupported',
    message: expect.stringMatching(/may hold no Web Locks \(denied here\): load without share/),
  });
  const storage = { name: 'here', list: denied, read: denied, write: denied, remove: denied };
  const { locks } = new MemoryLocks().tab();
  const open = async (told: LoadOptions) =>
    (await load(files, { ...loadOptions, ...told, kvDir: storage })) as LoadedModel;
  const shared = await joinShared(
    `storage ${process.pid} 1`,
    { ...world, locks, open },
    { onWarning: (message) => warnings[2]!.push(message) },
  );
  expect((await shared.generate(prompt, { ...greedy, maxTokens: 2 }).result).tokens).toHaveLength(2);
  expect(warnings[2]).toEqual([expect.stringContaining("here can't be read (denied here)")]);
  await shared.dispose();
});

test('a worker that fails to start, or can be sent nothing, is waited for no longer', async () => {
  const asked = { key: 'a 1', where: 'a', options: {}, base: undefined };
  const forbidden = (): SharedWorker => {
    throw new DOMException('of another origin', 'SecurityError');
  };
  expect(await putInLine(forbidden, asked)).toBe('of another origin');
  const [started, posted]: [unknown[], unknown[]] = [[], []];
  const worker = {
    onerror: () => {},
    port: { onmessage: (_: { data: unknown }) => {}, postMessage: (message: unknown) => posted.push(message) },
  };
  const start = (name: string): SharedWorker => {
    started.push(name);
    return worker as unknown as SharedWorker;
  };
  for (const [end, told] of [
    [() => worker.onerror(), "its script can't be loaded"],
    [() => worker.port.onmessage({ data: undefined }), undefined],
    [() => worker.port.onmessage({ data: 'it is old' }), 'it is old'],
  ] as const) {
    const waits = putInLine(start, asked);
    end();
    expect(await waits).toBe(told);
  }
  expect([started, posted]).toEqual([
    ['a 1', 'a 1', 'a 1'],
    [asked, asked, asked],
  ]);
});

test('pages share what is of one place and has the same options', async () => {
  const key = (where: string, options: LoadOptions = {}, page = 'https://a.test/x/'): Promise<string> =>
    shareKey(where, options, page);
  const same = await key('models/a', { weights: 'q4', share: true, onProgress: () => {} });
  expect(await key('/x/models/a', { weights: 'q4', hubToken: 't', kv: undefined })).toBe(same);
  expect(await key('https://a.test/x/models/a', { weights: 'q4' }, 'https://a.test/y/')).toBe(same);
  expect(await key('models/a', { contextLength: 9, weights: 'q4' })).toBe(
    await key('models/a', { weights: 'q4', contextLength: 9 }),
  );
  expect(await key('models/a', { weights: 'q4', ranks: 1, tune: true, images: false })).toBe(same);
  for (const other of [
    await key('models/a', { weights: 'q4', ranks: 2 }),
    await key('models/a', { weights: 'q4', tune: false }),
    await key('models/a'),
    await key('models/b', { weights: 'q4' }),
    await key('models/a', { weights: 'q4' }, 'https://a.test/y/'),
    await key('models/a', { weights: 'q4', contextLength: 9 }),
  ]) {
    expect(other).not.toBe(same);
  }
  expect(await key('smollm2-360m-instruct')).toBe(await key('smollm2-360m-instruct', {}, 'https://a.test/y/'));
  // What is loaded beside it may be relative to the page, too.
  for (const [beside, whole] of [
    [{ draft: 'small' }, { draft: new URL('https://a.test/x/small') }],
    [
      { adapters: { a: './l', b: [{ from: 'm', scale: 2 }] } },
      { adapters: { a: '/x/l', b: [{ from: '/x/m', scale: 2 }] } },
    ],
    [{ prefixes: ['a.kv#sha256-1'] }, { prefixes: ['https://a.test/x/a.kv#sha256-1'] }],
  ] as const) {
    const here = await key('/m', beside);
    expect(await key('/m', whole, 'https://a.test/y/')).toBe(here);
    expect(await key('/m', beside, 'https://a.test/y/')).not.toBe(here);
  }
  expect(await key('/m', { draft: 'hf:a/b' })).toBe(await key('/m', { draft: 'hf:a/b' }, 'https://a.test/y/'));
  const folder = { name: 'mine', list: async () => [] } as never;
  await expect(key('models/a', { kvDir: folder })).rejects.toThrow('kvDir');
  await expect(shareKey(files, {})).rejects.toMatchObject({ code: 'usage' });
});

test('Node has no tabs', async () => {
  for (const share of [true, '/share.js', new URL('https://a.test/share.js')])
    await expect(loadHere('models/tiny-gqa', { share })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('in Node: load'),
    });
  for (const share of [5, {}, '']) {
    const asked = loadHere('models/tiny-gqa', { share: share as never });
    await expect(asked).rejects.toThrow('expected true, false or an address');
  }
  await expect(loadHere('models/tiny-gqa', { idle: 60 })).rejects.toThrow('give share, too');
});
