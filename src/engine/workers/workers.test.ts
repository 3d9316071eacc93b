import { drawn } from '../../gpu/testing/draw.js';
import { SlotDriver } from '../testing/slot_driver.js';
import { afterAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { modelShape } from '../../model/shape.js';
import { makePlan } from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { load } from '../faces/load.js';
import { LoadedModel } from '../faces/model.js';
import { placeOf } from './model_place.js';
import type { Runner } from '../ranks/runner.js';
import { BreakableRanks, type BreakCommand } from '../testing/breakable_ranks.js';
import { openRunner } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';
import { WorkerGroup, type WorkerGroupOptions } from './worker_group.js';

// The quicker one to compile for, where there are two software adapters.
const adapter = (await testAdapters()).at(-1)!.name;
const prompt = (length: number): number[] => Array.from({ length }, (_, i) => (i * 37 + ((i * i) % 53)) % 320);
const runnerOptions = { slots: 1, contextLength: 320, prefillChunk: 64, kvType: 'f32' } as const;

const models: Record<string, RandomModelOptions> = {
  llama: { seed: 3, config: { num_hidden_layers: 2 } },
  deepseek: { seed: 4, config: { model_type: 'deepseek_v3' } },
  gemma4: {
    seed: 5,
    config: {
      model_type: 'gemma4_text',
      hidden_act: undefined,
      rope_theta: undefined,
      head_dim: 16,
      global_head_dim: 16,
      sliding_window: 64,
      hidden_size_per_layer_input: 64,
      vocab_size_per_layer_input: 320,
    },
  },
};

/** A random model on two ranks in breakable workers. */
async function openWorkers(name: string, plan: string, more: Partial<WorkerGroupOptions> = {}) {
  const { model, files } = randomFiles(models[name]!);
  const ranks = new BreakableRanks();
  const group = await WorkerGroup.open({
    config: model.config,
    place: await placeOf(files),
    cache: true,
    oneByOne: false,
    type: 'f32',
    plan: makePlan(plan, 2, modelShape(model.config)),
    runner: runnerOptions,
    adapters: [{ adapterName: adapter }, { adapterName: adapter }],
    places: ranks.places,
    ...more,
  }).catch((error: unknown) => {
    expect(ranks.live, 'no worker is left after a failure').toBe(0);
    throw error;
  });
  return { group, ranks, config: model.config };
}

/** Logits of every position of a prompt, then of 3 generated rows. */
async function rowsOf(ranks: Runner): Promise<Buffer[]> {
  const runner = new SlotDriver(ranks);
  const rows: Buffer[] = [];
  const add = (row: Float32Array): void => void rows.push(Buffer.from(row.slice().buffer));
  const tokens = prompt(270);
  await runner.logits(tokens, true, (_position, row) => add(row));
  await runner.prefill(tokens, 8, { seed: 0 });
  for (let step = 0; step < 3; step++) {
    await (step === 0 ? runner.sampleFirst() : runner.step());
    add(await runner.slotLogits(0));
  }
  await runner.release();
  return rows;
}

describe('ranks in workers give the same bits as one rank', () => {
  const plans: [name: string, plan: string][] = [
    ['llama', 'tp'],
    ['llama', 'sp'],
    ['deepseek', 'tp+sp'],
    // Workers read rows of the tokens from the files.
    ['gemma4', 'tp'],
  ];
  test.each(drawn(plans, 1, 'workers'))('%s, %s', async (name, plan) => {
    const one = await openRunner({ adapter, model: models[name]!, ...runnerOptions });
    const expected = await rowsOf(one.runner);
    one.group.dispose();
    const { group, ranks } = await openWorkers(name, plan);
    const rows = await rowsOf(group.runner);
    expect(rows).toHaveLength(expected.length);
    expect(rows.findIndex((row, index) => !row.equals(expected[index]!))).toBe(-1);
    const [counts] = await group.runner.counts();
    expect(counts!.bytesSent).toBeGreaterThan(0);
    await group.dispose();
    expect(ranks.live).toBe(0);
  });
});

describe('a rank that breaks', () => {
  const breaks: readonly [how: BreakCommand['how'], code: string, message: RegExp][] = [
    ['device', 'device_lost', /lost/],
    ['error', 'device_lost', /it reported/],
    ['exit', 'peer_lost', /rank \d.*gone/],
    ['throw', 'peer_lost', /rank('s worker broke| \d.*gone).*/],
  ];
  test.each(drawn(breaks, 1, 'breaks'))(
    '%s: the generation fails with %s, and recover() replaces that rank',
    async (how, code, message) => {
      const { group, ranks, config } = await openWorkers('llama', 'tp');
      const model = new LoadedModel(
        { config, group, tokenizer: undefined, name: 'test', sampling: {}, loadSeconds: 0 },
        { stepsInFlight: 4 },
      );
      const run = (maxTokens = 20) => model.generate(prompt(100), { ignoreEos: true, maxTokens, seed: 1 }).result;
      const expected = (await run()).tokens;
      const started = performance.now();
      await run();
      const usual = performance.now() - started;
      // Rank 1 at once, then rank 0, which samples, in the midst of it.
      for (const [round, rank] of [1, 0].entries()) {
        const running = run(220);
        await new Promise((resolve) => setTimeout(resolve, round * usual));
        ranks.break(rank, how);
        await expect(running).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
        await expect(run()).rejects.toMatchObject({ code });
        await expect(model.logits([1])).rejects.toMatchObject({ code });
        expect(ranks.handles).toHaveLength(2 + round);
        await model.recover();
        expect(ranks.handles, 'the other keeps its worker').toHaveLength(3 + round);
        expect(ranks.live).toBe(2);
        expect((await run()).tokens).toEqual(expected);
      }
      await model.dispose();
      expect(ranks.live).toBe(0);
      await expect(run()).rejects.toMatchObject({ code: 'usage', message: expect.stringContaining('disposed') });
    },
  );

  test('an abort of recover() leaves a model that can still be recovered', async () => {
    const { group, ranks } = await openWorkers('llama', 'sp');
    const expected = await rowsOf(group.runner);
    ranks.break(0, 'exit');
    await expect(rowsOf(group.runner)).rejects.toMatchObject({ code: 'peer_lost' });
    const abort = new AbortController();
    const recovering = group.recover(abort.signal);
    setTimeout(() => abort.abort(), 50);
    await expect(recovering).rejects.toMatchObject({ code: 'aborted' });
    expect(() => group.assertUsable()).toThrow(/gone/);
    await group.recover();
    expect(await rowsOf(group.runner)).toEqual(expected);
    await group.dispose();
    expect(ranks.live).toBe(0);
  });
});

describe('loading', () => {
  test("a worker's error crosses with its code and message", async () => {
    const none = { adapterName: 'no such adapter' };
    await expect(openWorkers('llama', 'tp', { adapters: [{ adapterName: adapter }, none] })).rejects.toMatchObject({
      name: 'SplitkvError',
      code: 'no_webgpu',
      message: expect.stringContaining(adapter),
    });
  });

  test('an abort ends the workers', async () => {
    const abort = new AbortController();
    const onProgress = (): void => abort.abort();
    await expect(openWorkers('llama', 'tp', { signal: abort.signal, onProgress })).rejects.toMatchObject({
      code: 'aborted',
    });
  });
});

describe('load with workers', async () => {
  const { files } = randomFiles(models['llama']!);
  const common = { adapter, contextLength: 320, plan: 'tp', ranks: 2 } satisfies LoadOptions;
  const here = await load(files, common);
  const progress: number[] = [];
  const there = await load(files, {
    ...common,
    workers: true,
    onProgress: ({ phase, loadedBytes, totalBytes }) => {
      if (phase === 'weights') progress.push(loadedBytes / totalBytes);
    },
  });
  afterAll(async () => {
    await Promise.all([here.dispose(), there.dispose()]);
  });

  test('says the same of itself, and how far it is', () => {
    expect({ ...there.info, loadSeconds: 0 }).toEqual({ ...here.info, loadSeconds: 0 });
    expect(progress.at(-1)).toBe(1);
    expect(progress).toEqual(progress.toSorted((a, b) => a - b));
  });

  test('draws the same tokens', async () => {
    const options = { temperature: 1, topK: 20, seed: 5, ignoreEos: true, maxTokens: 12 };
    const signal = new AbortController().signal;
    const { tokens } = await there.generate(prompt(30), { ...options, signal }).result;
    expect(tokens).toEqual((await here.generate(prompt(30), options).result).tokens);
    expect(tokens).toHaveLength(12);
  });

  test('an aborted generation leaves the ranks in step', async () => {
    const options = { ignoreEos: true, seed: 1 };
    const whole = (await here.generate(prompt(200), { ...options, maxTokens: 6 }).result).tokens;
    const abort = new AbortController();
    const running = there.generate(prompt(200), { ...options, maxTokens: 110, signal: abort.signal });
    for await (const _piece of running) abort.abort();
    expect((await running.result).finish_reason).toBe('abort');
    expect((await there.generate(prompt(200), { ...options, maxTokens: 6 }).result).tokens).toEqual(whole);
  });

  test('refuses what no worker can do', async () => {
    const source = { name: 'mine', size: async () => 0, read: async () => new Uint8Array(), version: async () => '' };
    await expect(load(source, { workers: true })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringMatching(/Source.*URL, a path/),
    });
    await expect(load(files, { ...common, workers: true, virtualRanks: true })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('virtualRanks'),
    });
  });
});
