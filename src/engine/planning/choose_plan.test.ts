import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { fileListSource } from '../../loader/index.js';
import { compressionOptions } from '../../model/compression/options.js';
import { modelShape } from '../../model/shape.js';
import {
  type LayerMeasure,
  type MachineMeasure,
  makePlan,
  type Plan,
  type RowsMeasure,
} from '../../placement/index.js';
import { LAYER, machineOf } from '../../placement/testing/machine.js';
import type { LoadOptions } from '../contracts/api.js';
import { adapterMisfit } from './adapter_fit.js';
import { formBySpeed, planOutlook } from './auto_plan.js';
import { choosePlan } from './choose_plan.js';
import { load } from '../faces/load.js';
import { planModel } from '../faces/plan_model.js';
import { type PlanSubject, runnerOf } from './plan_subject.js';
import { loadSeats } from './seats.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';
import { randomFiles } from '../testing/random_source.js';

const { model, files } = randomFiles({
  config: { max_position_embeddings: 2048, hidden_size: 256, intermediate_size: 768, num_hidden_layers: 3 },
});
const { config } = model;
const contextLength = 1024;
/** Short, so that activations aren't most of the memory. */
const prefillChunk = 64;
const subject: PlanSubject = {
  config,
  type: 'f32',
  kvType: 'f32',
  contextLength,
  prefillChunk,
  seatsOf: (plan) => loadSeats(plan, contextLength, undefined),
};
/** No such adapter: whoever opens a device fails. */
const nowhere = { adapter: 'no adapter has this name' };
const choose = (options: LoadOptions) => choosePlan({ ...nowhere, ...options }, subject);

/** Bytes of the fullest rank of a policy on that many ranks. */
async function needs(policy: string, ranks: number): Promise<number> {
  const plan = makePlan(policy, ranks, modelShape(config));
  const memory = await memoryOnPaper(plan, subject, runnerOf(subject, plan));
  return Math.max(...memory.map(({ totalBytes }) => totalBytes));
}

describe('without measuring, without a device', () => {
  test('one rank where nothing is asked for, and what is asked for else', async () => {
    const usual = await choose({});
    expect(usual).toMatchObject({
      plan: { policy: 'single', worldSize: 1 },
      adapters: [{ adapterName: nowhere.adapter }],
    });
    expect(usual.picked).toBeUndefined();
    const sp = await choose({ ranks: 2, plan: 'sp' });
    expect(sp).toMatchObject({ plan: { policy: 'sp', worldSize: 2 }, adapters: [{}, {}] });
    expect(sp.picked).toBeUndefined();
  });

  test("a named pipeline's stages have as much to read: experts count", async () => {
    const experts = { num_experts: 16, num_experts_per_tok: 2, moe_intermediate_size: 128 };
    const { model } = randomFiles({
      config: { model_type: 'qwen3_moe', num_hidden_layers: 4, vocab_size: 2048, ...experts },
    });
    const asked = { ...nowhere, plan: 'pp', ranks: 2 };
    const { plan } = await choosePlan(asked, { ...subject, config: model.config });
    // The head is as large as a third of a layer, and as three without the experts.
    expect(plan.stages.map(({ layers }) => layers)).toEqual([
      [0, 2],
      [2, 4],
    ]);
  });

  test.each([
    ['single', 1],
    ['tp', 2],
    ['sp', 2],
    ['pp', 2],
    ['adp', 2],
  ])('%s on %i: fits into what it needs, and not into a byte less', async (policy, ranks) => {
    const exact = await needs(policy, ranks);
    await expect(choose({ plan: policy, ranks, memory: exact })).resolves.toMatchObject({ plan: { policy } });
    await expect(choose({ plan: policy, ranks, memory: exact - 1 })).rejects.toMatchObject({
      code: 'limit',
      message: expect.stringMatching(new RegExp(`^plan '${policy}': rank \\d needs .* but has .*: `)) as string,
    });
  });

  test('copies of an arrangement: by sequences; by lanes for one at a time where its heads have entries enough for that to pay', async () => {
    const { kvHeads } = modelShape(config);
    const halves = [0, 1].map((rank) => ({ rank, share: 0.5 }));
    const placement = [0, 1, 2].map((layer) =>
      Array.from({ length: kvHeads }, (_, head) => (layer < 2 && head === 0 ? halves : [{ rank: head % 2, share: 1 }])),
    );
    // The first layer's copied head is long, the second's is not.
    const loads = [0, 1, 2].map((layer) =>
      Array.from({ length: kvHeads }, (_, head) => (layer === 0 && head === 0 ? 400 : 100)),
    );
    const plan = { version: 1, policy: 'arranged', model: 'm', ranks: 2, mode: 'wrap', placement, loads } as const;
    const compression = compressionOptions({ policy: 'snap', budget: 0.5 }, { numLayers: 3, numKvHeads: kvHeads });
    const ask = (of: Partial<PlanSubject>, sharing?: 'lanes') =>
      choosePlan({ ...nowhere, plan: { ...plan, ...(sharing && { sharing }) } }, { ...subject, ...of });
    const copiesOf = ({ plan: { stages } }: Awaited<ReturnType<typeof ask>>): number[] =>
      [0, 1, 2].filter((layer) =>
        stages.some(
          ({ layers: [first, end], shares }) => layer >= first && layer < end && shares.some(({ copies }) => copies),
        ),
      );

    const batched = await ask({ seatsOf: () => ({ slots: 4 }) });
    expect([batched.plan.sharing, copiesOf(batched), batched.note]).toEqual(['sequences', [0, 1], undefined]);
    const short = await ask({});
    expect([short.plan.sharing, copiesOf(short), short.note]).toEqual(['sequences', [0, 1], undefined]);
    const some = await ask({ contextLength: 6000, compression });
    expect([some.plan.sharing, copiesOf(some)]).toEqual(['lanes', [0]]);
    expect(some.note).toMatch(
      /a head help one only where it keeps 2048 entries or more: with this context copies run in 1 of the 2 layers that have any.*--sharing lanes/,
    );
    // Without a budget heads are as long as each other: one on each rank is even.
    const whole = await ask({ contextLength: 6000 });
    expect([whole.plan.sharing, copiesOf(whole)]).toEqual(['sequences', [0, 1]]);
    const forced = await ask({}, 'lanes');
    expect([forced.plan.sharing, copiesOf(forced), forced.note]).toEqual(['lanes', [0, 1], undefined]);
  });

  test('auto on one rank is checked too', async () => {
    await expect(choose({ memory: 1000 })).rejects.toMatchObject({ code: 'limit' });
  });

  test.each([
    [
      { ranks: 2, plan: 'tp', memory: [1e9] },
      'memory: 1 budgets for 2 ranks; give one number for all ranks, or one each',
    ],
    [{ ranks: 2, memory: [1e9, 1e9, 1e9] }, 'memory: 3 budgets for 2 ranks'],
    [{ memory: [1e9, 1e9] }, 'memory: 2 budgets for 1 rank;'],
    [{ memory: 0 }, 'memory 0: expected a number of bytes above 0'],
    [{ ranks: 2, plan: 'tp', memory: [1e9, NaN] }, 'memory NaN: expected'],
    [{ ranks: 0 }, 'ranks 0: expected a number of ranks from 1 to 64'],
  ] satisfies [LoadOptions, string][])('%o is refused', async (options, message) => {
    await expect(choose(options)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining(message) as string,
    });
  });
});

describe('plans on a measured machine', () => {
  const workload = { promptLength: 512, newTokens: 128 };
  const outlook = (machine: MachineMeasure, budgets: readonly (number | undefined)[] = []) =>
    planOutlook({
      subject: { ...subject, measure: () => Promise.resolve(machine) },
      virtual: false,
      budgets,
      workload,
      adapters: machine.ranks.map((_, i) => ({ adapterName: `${i}` })),
      exactMemory: true,
    });
  const slow = (machine: MachineMeasure, rank: number): MachineMeasure => ({
    ...machine,
    ranks: machine.ranks.map((measure, i) =>
      i === rank
        ? { ...measure, name: 'slow', head: { secondsPerByte: 1, secondsPerByteRow: 1 } }
        : { ...measure, name: 'fast' },
    ),
  });

  test('the fastest adapter comes first, its links with it', async () => {
    const machine = slow(machineOf(3, { latencySeconds: 1 }), 0);
    const links = machine.links.map((row) => [...row]);
    links[2]![1] = { latencySeconds: 9, bytesPerSecond: 1 };
    const { adapters, machine: ordered } = await outlook({ ...machine, links });
    expect(adapters.map(({ adapterName }) => adapterName)).toEqual(['1', '2', '0']);
    expect(ordered.ranks.map(({ name }) => name)).toEqual(['fast', 'fast', 'slow']);
    expect(ordered.links[1]![0]).toEqual({ latencySeconds: 9, bytesPerSecond: 1 });
    expect(ordered.links[0]![0]).toBeUndefined();
  });

  test('a rank with room for the model comes before a faster one without', async () => {
    const machine = slow(machineOf(2, { latencySeconds: 10 }), 1);
    const { adapters, budgets, candidates } = await outlook(machine, [1000, 1e9]);
    expect(adapters.map(({ adapterName }) => adapterName)).toEqual(['1', '0']);
    expect(budgets).toEqual([1e9, 1000]);
    expect(candidates[0]).toMatchObject({ policy: 'single' });
    expect(candidates[0]!.refused).toBeUndefined();
  });

  test('a named plan: the faster ranks have more, where that is predicted to help', async () => {
    const scaled = (layer: LayerMeasure, by: number): LayerMeasure => {
      const rows = (of: RowsMeasure): RowsMeasure => ({
        secondsPerByte: of.secondsPerByte * by,
        secondsPerByteRow: of.secondsPerByteRow * by,
        layerSeconds: of.layerSeconds * by,
        attention: of.attention * by,
      });
      return { generated: rows(layer.generated), prompt: rows(layer.prompt) };
    };
    const even = machineOf(2);
    const machine = {
      ...even,
      ranks: even.ranks.map((rank, at) => ({ ...rank, dense: scaled(LAYER, at === 0 ? 1 : 3) })),
    };
    const of = (on: MachineMeasure, policy: string) =>
      formBySpeed(makePlan(policy, 2, modelShape(config)), {
        subject: { ...subject, measure: () => Promise.resolve(on) },
        virtual: false,
        budgets: [],
        workload,
        adapters: [],
      });
    const mlp = (plan: Plan): number[] => plan.stages[0]!.shares.map((share) => share.mlp.length);
    const tp = await of(machine, 'tp');
    expect(mlp(tp)).toEqual([6, 2]);
    expect(mlp(await of(even, 'tp'))).toEqual([4, 4]);
    // Lanes of sequences, too.
    expect((await of(machine, 'sp')).stages[0]!.shares[0]!.copies![0]!.share).toBeGreaterThan(0.6);
    // The planner does so unasked.
    const { candidates } = await outlook(machine);
    expect(candidates.find(({ policy }) => policy === 'tp')!.plan).toEqual(tp);
  });

  test('memory is all that loading takes', async () => {
    const { candidates } = await outlook(machineOf(2));
    const tp = candidates.find(({ policy }) => policy === 'tp')!;
    if (!tp.plan) throw new Error('tp makes no plan');
    expect(Math.max(...tp.memory.map(({ totalBytes }) => totalBytes))).toBe(await needs('tp', 2));
  });
});

describe('on adapters that are measured', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'splitkv-choose-'));
  let adapter = '';
  beforeAll(async () => {
    adapter = (await testAdapters()).at(-1)!.name;
    vi.stubEnv('SPLITKV_CACHE_DIR', scratch);
  });
  afterAll(() => {
    vi.unstubAllEnvs();
    rmSync(scratch, { recursive: true });
  });

  test('more ranks where one has no room; the model then runs on them, and says what was expected', async () => {
    const memory = await needs('tp', 2);
    expect(memory).toBeLessThan(await needs('single', 1));
    const loaded = await load(fileListSource(files), { adapter, ranks: 2, memory, contextLength, prefillChunk });
    try {
      expect(loaded.info.ranks).toHaveLength(2);
      expect(loaded.info.planReason).toContain('one rank has no room for the model');
      const { stats } = await loaded.generate([5, 6, 7], { maxTokens: 4, ignoreEos: true }).result;
      expect(stats.plan).toBe(loaded.info.plan.policy);
      expect(stats.predicted!.tokens_per_second).toBeGreaterThan(0);
      expect(stats.predicted!.ttft_ms).toBeGreaterThan(0);
    } finally {
      await loaded.dispose();
    }
  });

  test('a server’s sequences are sharded where only the first rank has room for weights', async () => {
    const many: PlanSubject = { ...subject, together: 8, seatsOf: () => ({ slots: 8 }) };
    const bytes = async (policy: string, ranks: number): Promise<number[]> => {
      const plan = makePlan(policy, ranks, modelShape(config));
      return (await memoryOnPaper(plan, many, runnerOf(many, plan))).map(({ totalBytes }) => totalBytes);
    };
    const [root, keeper] = (await bytes('token', 2)) as [number, number];
    const memory = [root + 1e6, keeper + 1e6];
    expect(memory[0]).toBeLessThan((await bytes('single', 1))[0]!);
    expect(memory[1]).toBeLessThan(Math.min(...(await bytes('tp', 2)), ...(await bytes('pp', 2))));
    const options = { adapter, ranks: 2, memory };
    const { plan, budgets, picked } = await choosePlan(options, many);
    expect(plan.policy).toBe('token');
    expect(budgets).toEqual(memory);
    expect(picked!.why).toContain('one rank has no room');
    // One request at a time has nothing to shard.
    await expect(choosePlan(options, { ...many, together: undefined })).rejects.toMatchObject({ code: 'limit' });
  });

  test('one rank where ranks would only wait for each other, and a word about it', async () => {
    const warnings: string[] = [];
    const onWarning = (message: string): void => void warnings.push(message);
    const options = { adapter, ranks: 2, virtualRanks: true, contextLength, onWarning };
    const loaded = await load(fileListSource(files), options);
    try {
      expect(loaded.info.plan).toMatchObject({ policy: 'single', worldSize: 1 });
      expect(loaded.info.ranks).toHaveLength(1);
      expect(warnings).toEqual([`ranks 2: ${loaded.info.planReason}`]);
      expect(warnings[0]).toMatch(/^ranks 2: one rank: a request takes .*; with the fastest split, /);
    } finally {
      await loaded.dispose();
    }
  });

  test('none where none fits, with what each needs', async () => {
    const options = { adapter, ranks: 2, memory: 1000, contextLength };
    await expect(load(fileListSource(files), options)).rejects.toMatchObject({
      code: 'limit',
      message: expect.stringMatching(/^no plan fits; needed on the fullest rank: single .*, tp on 2 ranks /) as string,
    });
    const report = await planModel(fileListSource(files), options);
    expect(report.pick).toBeUndefined();
    expect(report.why).toMatch(/^no plan fits/);
  });

  test('planModel picks what load would take, and tells every plan', async () => {
    const report = await planModel(fileListSource(files), { adapter, contextLength, promptTokens: 100, newTokens: 20 });
    expect(report).toMatchObject({
      weights: 'f32',
      kv: 'f32',
      contextLength,
      promptTokens: 100,
      newTokens: 20,
      batch: 1,
    });
    expect(report.machine.ranks).toHaveLength(2);
    const tokenizer = files.find(({ name }) => name === 'tokenizer.json')!.size;
    const { bytes } = report.download!;
    // The tensors in f32, without the header.
    expect(bytes - tokenizer).toBe([...model.weights.values()].reduce((sum, { data }) => sum + data.length * 4, 0));
    expect(report).toMatchObject({ download: { storedBytes: 0, complete: false }, misfit: undefined });
    expect(report.candidates).toContain(report.pick);
    for (const { policy } of report.candidates.filter(({ plan }) => plan)) expect(report.table).toContain(policy);
    // Plain data, as it crosses from a page to the command line.
    expect(JSON.parse(JSON.stringify(report))).toMatchObject({ why: report.why });
    await expect(
      planModel(fileListSource(files), { adapter, contextLength, promptTokens: 1020 }),
    ).resolves.toMatchObject({
      newTokens: 5,
    });
    await expect(planModel(fileListSource(files), { adapter, promptTokens: 0 })).rejects.toMatchObject({
      code: 'usage',
    });
    const withoutWeights = files.filter(({ name }) => !name.endsWith('.safetensors'));
    await expect(
      planModel(fileListSource(withoutWeights), { adapter, contextLength, weights: 'f32', tryMemory: true }),
    ).resolves.toMatchObject({ download: undefined, misfit: undefined });
  });

  test('planModel tells of the plan that is named, though the planner would take another', async () => {
    const options = { adapter, ranks: 2, virtualRanks: true, contextLength };
    const { pick, candidates, why } = await planModel(fileListSource(files), { ...options, plan: 'tp' });
    const listed = candidates.find(({ policy, worldSize }) => policy === 'tp' && worldSize === 2);
    expect(pick).toEqual(listed);
    expect(why).toBe("plan 'tp' was asked for");
    // One request has nothing to shard, so the planner lists no token plan; named, it is told of.
    expect(candidates.some(({ policy }) => policy === 'token')).toBe(false);
    const token = await planModel(fileListSource(files), { ...options, plan: 'token' });
    expect(token.pick!.memory).toHaveLength(2);
    await expect(planModel(fileListSource(files), { ...options, plan: 'tpp' })).rejects.toMatchObject({
      code: 'usage',
    });
  });

  test('adapterMisfit tells which buffer is too large, before anything is loaded', async () => {
    const single = makePlan('single', 1, modelShape(config));
    const request = { adapterName: adapter };
    expect(await adapterMisfit(single, subject, [request], false)).toBeUndefined();
    const large = { ...config, vocabSize: 2 ** 26 };
    const misfit = await adapterMisfit(single, { ...subject, config: large }, [request], false);
    expect(misfit).toMatch(/exceed this adapter's max\w+ of [\d,]+ \(.+\); use smaller weights/);
    expect(misfit).toContain(adapter);
  });
});
