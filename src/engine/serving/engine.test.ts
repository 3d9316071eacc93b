import { drawn } from '../../gpu/testing/draw.js';
import { placing } from './loop/rank_balance.js';
import { describe, expect, test, vi } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { LINEAR_ATTENTION, STATE_SPACE } from '../../model/testing/small_configs.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { PrefillPool } from '../prefill/open_prefill.js';
import { SplitkvPrefill } from '../prefill/open_prefill.js';
import type { PrefillWorker } from '../contracts/prefill_worker.js';
import type { DrawOptions } from '../contracts/rank.js';
import type { RankGroup } from '../ranks/rank_group.js';
import { RankRunner } from '../ranks/rank_runner.js';
import { LinearFit } from '../scheduler/adp/fits.js';
import { type EngineSetup, openRunner } from '../testing/open_runner.js';
import { Engine } from './engine.js';
import type { EngineRequest } from './loop/requests.js';

const adapter = (await testAdapters()).at(-1)!;
const llama: RandomModelOptions = { seed: 31, config: { max_position_embeddings: 2048 } };
/** Models whose layers have a state beside the cache of others. */
const lfm2: RandomModelOptions = {
  seed: 33,
  config: {
    model_type: 'lfm2',
    max_position_embeddings: 2048,
    num_hidden_layers: 4,
    full_attn_idxs: [2],
    block_auto_adjust_ff_dim: false,
  },
};
const qwen35: RandomModelOptions = {
  seed: 34,
  config: { ...LINEAR_ATTENTION, max_position_embeddings: 2048 },
};

const VOCAB = 320;
/** Prompts of several lengths, some of which begin alike. */
function prompts(count: number, longest: number): number[][] {
  const random = new Random(count);
  const common = Array.from({ length: 150 }, () => random.integer(VOCAB));
  return Array.from({ length: count }, (_, index) => {
    const own = Array.from({ length: 1 + random.integer(longest) }, () => random.integer(VOCAB));
    return index % 3 === 0 ? [...common, ...own] : own;
  });
}

/** What was generated before decides what comes. */
const controls = {
  logitBias: new Map([5, 90, 200, 310].map((id) => [id, 3])),
  frequencyPenalty: 0.9,
  presencePenalty: 0.3,
  minTokens: 25,
  endIds: [5, 200],
  minP: 0.01,
};

const sampling = (index: number): DrawOptions => ({
  seed: index,
  ...(index % 2 === 1 && { temperature: 0.9, topP: 0.95, repetitionPenalty: 1.1 }),
  ...(index % 5 > 2 && controls),
});

async function open(
  options: Partial<Parameters<typeof openRunner>[0]>,
  engine: EngineSetup,
): Promise<{ engine: Engine; group: RankGroup }> {
  const slots = engine.slots ?? 4;
  const { kvBlocks = 64, ...own } = engine;
  const { group } = await openRunner({
    adapter: adapter.name,
    model: llama,
    contextLength: 640,
    prefillChunk: 64,
    slots: slots / (options.batches ?? 1),
    kvBlocks,
    ...options,
  });
  return { engine: new Engine(group, { placing, slots, tokensPerIteration: 96, ...own }), group };
}

function ask(
  engine: Engine,
  request: Partial<EngineRequest> & Pick<EngineRequest, 'prompt' | 'maxTokens' | 'seed'>,
): { tokens: number[]; ended: Promise<string>; abort: () => void } {
  const tokens: number[] = [];
  const handle = engine.submit({
    eosIds: [],
    ...request,
    onToken: (token, logits) => {
      tokens.push(token);
      return request.onToken?.(token, logits) ?? false;
    },
  });
  return { tokens, ended: handle.ended, abort: () => handle.abort() };
}

const all = prompts(10, 200);
const maxTokens = 40;
const known = new Map<RandomModelOptions, Promise<number[][]>>();

/** What each request gives when it runs by itself. */
function alone(model: RandomModelOptions = llama): Promise<number[][]> {
  if (!known.has(model)) known.set(model, computedAlone(model));
  return known.get(model)!;
}

async function computedAlone(model: RandomModelOptions): Promise<number[][]> {
  const { engine } = await open({ model }, { slots: 1 });
  const results: number[][] = [];
  for (const [index, prompt] of all.entries()) {
    const { tokens, ended } = ask(engine, { prompt, maxTokens, ...sampling(index) });
    expect(await ended).toBe('length');
    results.push(tokens);
  }
  await engine.dispose();
  return results;
}

describe('engine', () => {
  type Setup = [string, Partial<Parameters<typeof openRunner>[0]>, EngineSetup];
  test.each<Setup>(
    drawn<Setup>(
      [
        ['one rank', {}, {}],
        ['too few blocks: requests are preempted and computed again', {}, { kvBlocks: 9 }],
        ['prefixes shared', {}, { prefixCaching: true }],
        ['prefixes shared, too few blocks', {}, { prefixCaching: true, kvBlocks: 9 }],
        ['two ranks, tp', { plan: 'tp', ranks: 2, virtual: true }, { kvBlocks: 20 }],
        [
          'three ranks, tp on two heads, prefixes shared',
          { plan: 'tp', ranks: 3, virtual: true },
          { kvBlocks: 20, prefixCaching: true },
        ],
        ['two ranks, sp, micro-batches', { plan: 'sp', ranks: 2, virtual: true, batches: 2 }, { kvBlocks: 20 }],
        ['two ranks, token', { plan: 'token', ranks: 2, virtual: true }, { kvBlocks: 36 }],
        [
          'three ranks, token, prefixes shared, micro-batches',
          { plan: 'token', ranks: 3, virtual: true, batches: 2 },
          { slots: 6, prefixCaching: true },
        ],
        ['two ranks, pp, micro-batches', { plan: 'pp', ranks: 2, virtual: true, batches: 2 }, { kvBlocks: 9 }],
      ],
      1,
      'engine',
    ).concat(
      drawn<Setup>(
        [
          ['convolutions, too few blocks', { model: lfm2 }, { kvBlocks: 9 }],
          ['convolutions, prefixes shared', { model: lfm2 }, { prefixCaching: true }],
          [
            'linear attention, prefixes shared, too few blocks',
            { model: qwen35 },
            { prefixCaching: true, kvBlocks: 9 },
          ],
          [
            'linear attention, three ranks, token, prefixes shared',
            { model: qwen35, plan: 'token', ranks: 3, virtual: true },
            { slots: 6, prefixCaching: true },
          ],
          [
            'convolutions, adp, prefixes shared',
            { model: lfm2, plan: 'adp', ranks: 2, virtual: true },
            { prefixCaching: true },
          ],
          ['linear attention, pp', { model: qwen35, plan: 'pp', ranks: 2, virtual: true, batches: 2 }, { kvBlocks: 9 }],
          ['linear attention, tp', { model: qwen35, plan: 'tp', ranks: 2, virtual: true }, { kvBlocks: 9 }],
          [
            'linear attention, tp on more ranks than heads, prefixes shared',
            { model: qwen35, plan: 'tp', ranks: 4, virtual: true },
            { prefixCaching: true },
          ],
          [
            'convolutions, three ranks, token, micro-batches',
            { model: lfm2, plan: 'token', ranks: 3, virtual: true, batches: 2 },
            { slots: 6, kvBlocks: 36 },
          ],
        ],
        1,
        'recurrent',
      ),
    ),
  )('%s: every request gives what it gives alone', { timeout: 300_000 }, async (_name, options, engineOptions) => {
    const { model = llama } = options;
    const expected = await alone(model);
    const { engine } = await open(options, engineOptions);
    const running = all.map((prompt, index) => ask(engine, { prompt, maxTokens, ...sampling(index) }));
    for (const [index, { tokens, ended }] of running.entries()) {
      expect(await ended).toBe('length');
      expect(tokens, `request ${index}`).toEqual(expected[index]);
    }
    const { metrics } = engine;
    expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
    expect(metrics.generatedTokensTotal).toBe(all.length * maxTokens);
    if (engineOptions.kvBlocks === 9) expect(metrics.preemptionsTotal).toBeGreaterThan(0);
    if (engineOptions.prefixCaching && engineOptions.kvBlocks === undefined) {
      expect(metrics.cachedTokensTotal).toBeGreaterThan(0);
    }
    await engine.dispose();
  });

  type Shared = [string, Partial<Parameters<typeof openRunner>[0]>, EngineSetup];
  test.each<Shared>(
    drawn<Shared>(
      [
        ['one rank', {}, {}],
        ['prefixes shared', {}, { prefixCaching: true }],
        ['three ranks, token', { plan: 'token', ranks: 3, virtual: true }, { slots: 6 }],
        ['two ranks, adp', { plan: 'adp', ranks: 2, virtual: true }, { slots: 6 }],
        ['two ranks, pp, micro-batches', { plan: 'pp', ranks: 2, virtual: true, batches: 2 }, {}],
        ['linear attention, prefixes shared', { model: qwen35 }, { prefixCaching: true }],
      ],
      1,
      'clients',
    ),
  )(
    "%s: answers that make room for another client's, and rest beside them, are what they are alone",
    { timeout: 300_000 },
    async (_name, options, engineOptions) => {
      const { model = llama } = options;
      const expected = await alone(model);
      // As on a CPU: rows are all that takes time.
      vi.spyOn(LinearFit.prototype, 'line', 'get').mockReturnValue({ intercept: 0, slope: 1 });
      const wentOn = vi.spyOn(RankRunner.prototype, 'goOn');
      const { engine } = await open(options, engineOptions);
      const begin = (index: number, client: string) =>
        ask(engine, { prompt: all[index]!, maxTokens, ...sampling(index), client });
      const greedy = all.slice(0, 7).map((_, index) => begin(index, 'greedy'));
      // All slots are taken.
      const slots = engineOptions.slots ?? 4;
      await vi.waitUntil(() => greedy.filter(({ tokens }) => tokens.length > 1).length >= slots, {
        timeout: 60_000,
        interval: 1,
      });
      const order: string[] = [];
      const others = [begin(7, 'polite')];
      for (const [index, { ended }] of [...greedy, ...others].entries()) void ended.then(() => order.push(`${index}`));
      for (const [index, { tokens, ended }] of [...greedy, ...others].entries()) {
        expect(await ended).toBe('length');
        expect(tokens, `request ${index}`).toEqual(expected[index]);
      }
      const { metrics } = engine;
      expect(metrics.preemptionsTotal).toBeGreaterThan(0);
      // On the rank of the other's one alone of them may be.
      if (options.plan !== 'adp') expect(wentOn).toHaveBeenCalled();
      expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
      // The last of the greedy one's comes after it.
      expect(order.indexOf('7')).toBeLessThan(7);
      await engine.dispose();
      vi.restoreAllMocks();
    },
  );

  const recurrent: [string, RandomModelOptions][] = [
    ['convolutions', lfm2],
    ['linear attention', qwen35],
    ['state spaces', { seed: 9, config: { ...STATE_SPACE, max_position_embeddings: 2048 } }],
  ];
  test.each(drawn(recurrent, 1, 'kept states'))(
    '%s: turns, forks and undone turns begin with kept states',
    { timeout: 300_000 },
    async (_name, model) => {
      const random = new Random(9);
      const words = (count: number): number[] => Array.from({ length: count }, () => random.integer(VOCAB));
      const { engine } = await open({ model }, { prefixCaching: true });
      const fresh = await open({ model }, { slots: 1 });
      /** Tokens and the first one's logits, cached as far as may be and computed from the beginning; how many were cached. */
      const turn = async (prompt: readonly number[], spans: [number, number][]): Promise<[number[], number]> => {
        const answers = await Promise.all(
          [engine, fresh.engine].map(async (on) => {
            const logits: Float32Array[] = [];
            const tokens: number[] = [];
            const onToken = (token: number, row: Float32Array | undefined): boolean => {
              tokens.push(token);
              if (row) logits.push(row);
              return false;
            };
            const handle = on.submit({
              prompt,
              generatedSpans: spans,
              maxTokens: 70,
              seed: 4,
              eosIds: [],
              logits: 'first',
              onToken,
            });
            await handle.ended;
            return { tokens, logits, cached: handle.cachedTokens };
          }),
        );
        const [cached, whole] = answers as [(typeof answers)[number], (typeof answers)[number]];
        expect(cached.tokens).toEqual(whole.tokens);
        expect(cached.logits).toEqual(whole.logits);
        expect(whole.cached).toBe(0);
        return [cached.tokens, cached.cached];
      };
      const first = words(200);
      const [answer, none] = await turn(first, []);
      expect(none).toBe(0);
      const spans: [number, number][] = [[200, 200 + answer.length - 1]];
      const told = [...first, ...answer];
      // The last edge of the answer; then the last one before the first prompt's end.
      for (const question of [words(30), words(90)]) expect((await turn([...told, ...question], spans))[1]).toBe(256);
      expect((await turn(first, []))[1]).toBe(128);
      // Prompts that have a beginning in common: where the second one left the first, the third one goes on.
      const beginnings = [words(40), words(50), words(60)];
      const common = words(330);
      const cached: number[] = [];
      for (const own of beginnings) cached.push((await turn([...common, ...own], []))[1]);
      expect(cached[0]).toBe(0);
      expect(cached[2]).toBe(320);
      await engine.dispose();
      await fresh.engine.dispose();
    },
  );

  describe('prompts computed by a worker', () => {
    const openWorker = async (): Promise<SplitkvPrefill> =>
      new SplitkvPrefill((await openRunner({ adapter: adapter.name, model: llama, contextLength: 640 })).group);
    /** The first prompts are handed over together, so that requests meet however fast the worker is. */
    const together = (worker: SplitkvPrefill, atOnce = 4): PrefillWorker => {
      let computed = 0;
      let open = (): void => {};
      const opened = new Promise<void>((resolve) => (open = resolve));
      return {
        kind: worker.kind,
        atOnce,
        adapter: worker.adapter,
        weightBytes: worker.weightBytes,
        async prefill(prompt, signal) {
          const kv = await worker.prefill(prompt, signal);
          if (++computed === atOnce) open();
          await opened;
          return kv;
        },
        assertUsable: () => worker.assertUsable(),
        recover: () => worker.recover(),
        dispose: () => worker.dispose(),
      };
    };

    const setups: Setup[] = [
      ['one rank, too few blocks', {}, { kvBlocks: 9 }],
      ['one rank, prefixes shared', {}, { prefixCaching: true }],
      [
        'three ranks, token, micro-batches',
        { plan: 'token', ranks: 3, virtual: true, batches: 2 },
        { slots: 6, kvBlocks: 45 },
      ],
    ];
    test.each(drawn(setups, 1, 'worker'))(
      '%s: every request gives what it gives alone',
      { timeout: 300_000 },
      async (_name, options, engineOptions) => {
        const expected = await alone();
        const prefiller = together(await openWorker());
        const { engine } = await open(options, { prefiller, ...engineOptions });
        const running = all.map((prompt, index) => ask(engine, { prompt, maxTokens, ...sampling(index) }));
        const dropped = ask(engine, { prompt: all[1]!, maxTokens, seed: 0 });
        setTimeout(dropped.abort, 5);
        for (const [index, { tokens, ended }] of running.entries()) {
          expect(await ended).toBe('length');
          expect(tokens, `request ${index}`).toEqual(expected[index]);
        }
        expect(await dropped.ended).toBe('aborted');
        const { metrics } = engine;
        expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
        if (engineOptions.kvBlocks === 9) expect(metrics.preemptionsTotal).toBeGreaterThan(0);
        await engine.dispose();
      },
    );

    test('the worker loses its device: another one computes what is left', { timeout: 300_000 }, async () => {
      const expected = await alone();
      const prefiller = await openWorker();
      const { engine } = await open({}, { prefiller });
      const running = all.map((prompt, index) => ask(engine, { prompt, maxTokens, ...sampling(index) }));
      (prefiller.ranks as RankGroup).devices[0]!.gpu.destroy();
      for (const [index, { tokens, ended }] of running.entries()) {
        expect(await ended).toBe('length');
        expect(tokens, `request ${index}`).toEqual(expected[index]);
      }
      expect(engine.metrics.recoveriesTotal).toBe(0);
      await engine.dispose();
    });

    test(
      'several workers share the prompts; those of one that fails go to the others',
      { timeout: 300_000 },
      async () => {
        const expected = await alone();
        const workers = await Promise.all([openWorker(), openWorker(), openWorker()]);
        const given = workers.map(() => [] as number[]);
        const broken = workers[2]!;
        const warnings: string[] = [];
        for (const [index, worker] of workers.entries()) {
          const prefill = worker.prefill.bind(worker);
          worker.prefill = (prompt, signal) => {
            given[index]!.push(prompt.length);
            return worker === broken ? Promise.reject(new SplitkvError('limit', 'no room')) : prefill(prompt, signal);
          };
        }
        const prefiller = new PrefillPool(workers, (text) => warnings.push(text));
        expect(prefiller.atOnce).toBe(3);
        const { engine } = await open({}, { prefiller });
        const running = all.map((prompt, index) => ask(engine, { prompt, maxTokens, ...sampling(index) }));
        // One more is lost on the way, and comes back.
        (workers[1]!.ranks as RankGroup).devices[0]!.gpu.destroy();
        for (const [index, { tokens, ended }] of running.entries()) {
          expect(await ended).toBe('length');
          expect(tokens, `request ${index}`).toEqual(expected[index]);
        }
        expect(given.map(({ length }) => length)).toEqual([expect.any(Number), expect.any(Number), 1]);
        expect(given[0]!.length).toBeGreaterThan(0);
        expect(given[1]!.length).toBeGreaterThan(0);
        expect(warnings[0]).toMatch(/a prefill worker \(.*\) failed: no room; its prompts are computed by the others/);
        expect(engine.metrics.recoveriesTotal).toBe(0);
        await engine.dispose();
      },
    );

    test('a worker that fails for good ends every request', { timeout: 300_000 }, async () => {
      const prefiller = await openWorker();
      prefiller.prefill = () => Promise.reject(new SplitkvError('limit', 'no room'));
      const { engine } = await open({}, { prefiller });
      const { ended } = ask(engine, { prompt: [1, 2, 3], maxTokens: 2, seed: 0 });
      await expect(ended).rejects.toThrow('no room');
      await engine.dispose();
    });
  });

  test('requests come, leave and are aborted at random', { timeout: 300_000 }, async () => {
    const expected = await alone();
    const { engine } = await open({}, { kvBlocks: 16, prefixCaching: true });
    const random = new Random(5);
    const outcomes: Promise<void>[] = [];
    for (let round = 0; round < 30; round++) {
      const index = random.integer(all.length);
      const leaves = random.integer(3) === 0;
      const stopAt = 1 + random.integer(maxTokens);
      const request = ask(engine, { prompt: all[index]!, maxTokens, ...sampling(index) });
      if (leaves) setTimeout(request.abort, random.integer(200));
      outcomes.push(
        request.ended.then((end) => {
          expect(leaves ? ['aborted', 'length'] : ['length']).toContain(end);
          expect(request.tokens).toEqual(expected[index]!.slice(0, request.tokens.length));
          if (end === 'length') expect(request.tokens).toHaveLength(maxTokens);
        }),
      );
      if (stopAt % 4 === 0) await new Promise((resolve) => setTimeout(resolve, random.integer(40)));
    }
    await Promise.all(outcomes);
    expect(engine.metrics).toMatchObject({ running: 0, waiting: 0 });
    await engine.dispose();
  });

  test.each<Setup>(
    drawn<Setup>(
      [
        ['two ranks, tp', { plan: 'tp', ranks: 2 }, {}],
        ['convolutions, tp, prefixes shared', { model: lfm2, plan: 'tp', ranks: 2 }, { prefixCaching: true }],
        ['convolutions, token', { model: lfm2, plan: 'token', ranks: 3 }, { slots: 6 }],
        ['linear attention, pp, prefixes shared', { model: qwen35, plan: 'pp', ranks: 2 }, { prefixCaching: true }],
        ['linear attention, adp, prefixes shared', { model: qwen35, plan: 'adp', ranks: 2 }, { prefixCaching: true }],
      ],
      1,
      'lost states',
    ),
  )('%s, a lost device: requests are computed again and give the same', { timeout: 300_000 }, async (...setup) => {
    const [, options, engineOptions] = setup;
    const { model = llama } = options;
    const expected = await alone(model);
    const { engine, group } = await open(options, engineOptions);
    const running = all.map((prompt, index) => ask(engine, { prompt, maxTokens, ...sampling(index) }));
    await new Promise((resolve) => setTimeout(resolve, 300));
    group.devices[1]!.gpu.destroy();
    for (const [index, { tokens, ended }] of running.entries()) {
      expect(await ended).toBe('length');
      expect(tokens, `request ${index}`).toEqual(expected[index]);
    }
    expect(engine.metrics.recoveriesTotal).toBe(1);
    // What was kept is gone with the device: it isn't taken for what is kept now.
    const after = ask(engine, { prompt: all[0]!, maxTokens, ...sampling(0) });
    expect(await after.ended).toBe('length');
    expect(after.tokens).toEqual(expected[0]);
    await engine.dispose();
  });

  test('a driver that hangs: a new device computes what was under way', { timeout: 120_000 }, async () => {
    const expected = await alone();
    const { engine } = await open({}, {});
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const hangs = new Promise<void>((resolve) => {
        vi.spyOn(GPUBuffer.prototype, 'mapAsync').mockImplementationOnce(() => {
          resolve();
          return new Promise(() => {});
        });
      });
      const running = [0, 1].map((index) => ask(engine, { prompt: all[index]!, maxTokens, ...sampling(index) }));
      await hangs;
      while (engine.metrics.recoveriesTotal === 0) {
        vi.advanceTimersByTime(60_000);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      for (const [index, { tokens, ended }] of running.entries()) {
        expect(await ended).toBe('length');
        expect(tokens).toEqual(expected[index]);
      }
    } finally {
      vi.useRealTimers();
      vi.restoreAllMocks();
      await engine.dispose();
    }
  });

  test('a driver that refuses devices for a while is asked again', { timeout: 120_000 }, async () => {
    const expected = await alone();
    const waits: number[] = [];
    const onFailure = vi.fn();
    const sleep = (ms: number): Promise<void> => {
      waits.push(ms);
      expect(engine.metrics.recovering).toBe(true);
      return Promise.resolve();
    };
    const { engine, group } = await open({}, { recovery: { sleep }, onFailure });
    const recover = vi.spyOn(group, 'recover');
    for (let refusal = 0; refusal < 3; refusal++) {
      recover.mockRejectedValueOnce(new SplitkvError('no_webgpu', 'not now'));
    }
    const running = [0, 1].map((index) => ask(engine, { prompt: all[index]!, maxTokens, ...sampling(index) }));
    await new Promise((resolve) => setTimeout(resolve, 100));
    // As a driver's error that nobody waited for.
    group.devices[0]!.gpu.onuncapturederror!({ error: { message: 'a validation error' } } as never);
    for (const [index, { tokens, ended }] of running.entries()) {
      expect(await ended).toBe('length');
      expect(tokens).toEqual(expected[index]);
    }
    expect(waits).toEqual([250, 1000, 4000]);
    expect(engine.metrics).toMatchObject({ recoveriesTotal: 1, recovering: false });
    expect(onFailure).not.toHaveBeenCalled();
    recover.mockRejectedValue(new SplitkvError('no_webgpu', 'never again'));
    group.devices[0]!.gpu.destroy();
    await expect(ask(engine, { prompt: [1, 2], maxTokens: 4, seed: 0 }).ended).rejects.toThrow('never again');
    expect(engine.failure).toMatchObject({ code: 'no_webgpu' });
    expect(onFailure.mock.calls).toEqual([[engine.failure]]);
    await engine.dispose();
  });

  test('a request that is there at three losses fails alone', { timeout: 120_000 }, async () => {
    const expected = await alone();
    const { engine, group } = await open({}, {});
    const recover = group.recover.bind(group);
    let losses = 0;
    vi.spyOn(group, 'recover').mockImplementation(async () => {
      await recover();
      if (++losses < 3) group.devices[0]!.gpu.destroy();
    });
    group.devices[0]!.gpu.destroy();
    const killer = ask(engine, { prompt: all[1]!, maxTokens, seed: 1 });
    await expect(killer.ended).rejects.toMatchObject({ code: 'limit' });
    expect(killer.tokens).toEqual([]);
    const other = ask(engine, { prompt: all[0]!, maxTokens, ...sampling(0) });
    expect(await other.ended).toBe('length');
    expect(other.tokens).toEqual(expected[0]);
    expect(engine.failure).toBeUndefined();
    expect(engine.metrics.requestsTotal.failed).toBe(1);
    await engine.dispose();
  });

  test('a request that kills every device fails alone, also among others', { timeout: 120_000 }, async () => {
    const expected = await alone();
    const { engine, group } = await open({}, {});
    const killing = Array.from({ length: 7 }, (_, index) => VOCAB - 1 - index);
    const { prefill } = RankRunner.prototype;
    const runs = vi.spyOn(RankRunner.prototype, 'prefill').mockImplementation(function (this: RankRunner, ...call) {
      if (killing.every((token, index) => call[0].tokens[index] === token)) group.devices[0]!.gpu.destroy();
      return prefill.apply(this, call);
    });
    const others = [0, 1].map((index) => ask(engine, { prompt: all[index]!, maxTokens, ...sampling(index) }));
    const killer = ask(engine, { prompt: killing, maxTokens, seed: 1 });
    others.push(ask(engine, { prompt: all[2]!, maxTokens, ...sampling(2) }));
    await expect(killer.ended).rejects.toMatchObject({ code: 'limit' });
    for (const [index, { tokens, ended }] of others.entries()) {
      expect(await ended).toBe('length');
      expect(tokens).toEqual(expected[index]);
    }
    expect(engine.metrics).toMatchObject({ recoveriesTotal: 3, recovering: false, waiting: 0 });
    expect(engine.metrics.requestsTotal.failed).toBe(1);
    runs.mockRestore();
    await engine.dispose();
  });

  test('without recovery a lost device fails every request, and later ones at once', { timeout: 120_000 }, async () => {
    const { engine, group } = await open({}, { recover: false });
    const { ended } = ask(engine, { prompt: all[0]!, maxTokens: 400, seed: 0 });
    await new Promise((resolve) => setTimeout(resolve, 100));
    group.devices[0]!.gpu.destroy();
    await expect(ended).rejects.toMatchObject({ code: 'device_lost' });
    expect(() => ask(engine, { prompt: [1], maxTokens: 1, seed: 0 })).toThrow(
      expect.objectContaining({ code: 'device_lost' }),
    );
    await engine.dispose();
  });

  test(
    'ends at an end-of-text id or where the taker says, and gives logits when asked',
    { timeout: 120_000 },
    async () => {
      const { engine } = await open({}, {});
      const prompt = all[1]!;
      const whole = ask(engine, { prompt, maxTokens: 12, seed: 0 });
      await whole.ended;
      const eos = whole.tokens[5]!;
      const first = whole.tokens.indexOf(eos);
      const ending = ask(engine, { prompt, maxTokens: 12, seed: 0, eosIds: [eos] });
      expect(await ending.ended).toBe('eos');
      expect(ending.tokens).toEqual(whole.tokens.slice(0, first));
      const rows: Float32Array[] = [];
      const taking = ask(engine, {
        prompt,
        maxTokens: 12,
        seed: 0,
        logits: true,
        onToken: (_token, logits) => rows.push(logits!) === 3,
      });
      expect(await taking.ended).toBe('ended');
      expect(taking.tokens).toEqual(whole.tokens.slice(0, 3));
      for (const [at, row] of rows.entries()) {
        expect(row.indexOf(Math.max(...row))).toBe(whole.tokens[at]);
      }
      expect(() => ask(engine, { prompt: [], maxTokens: 1, seed: 0 })).toThrow('the prompt is empty');
      expect(() => ask(engine, { prompt: [VOCAB], maxTokens: 1, seed: 0 })).toThrow('token 0 of the prompt is 320');
      await engine.dispose();
      expect(() => ask(engine, { prompt: [1], maxTokens: 1, seed: 0 })).toThrow('closed');
    },
  );
});
