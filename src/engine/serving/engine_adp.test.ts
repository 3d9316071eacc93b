import { drawn } from '../../gpu/testing/draw.js';
import { type IterationRecord, placing } from './loop/rank_balance.js';
import { describe, expect, test, vi } from 'vitest';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import type { DrawOptions } from '../contracts/rank.js';
import { Scheduler } from '../scheduler/index.js';
import { KvPolicy } from '../scheduler/kv/kv_policy.js';
import { type EngineSetup, openRunner } from '../testing/open_runner.js';
import { Engine } from './engine.js';
import type { EngineRequest } from './loop/requests.js';

const adapter = (await testAdapters()).at(-1)!;
const VOCAB = 320;
const models: Record<string, RandomModelOptions> = {
  llama: { seed: 41, config: { max_position_embeddings: 1024, intermediate_size: 256 } },
  // A dense layer, then experts with shared ones beside them.
  deepseek: { seed: 42, config: { max_position_embeddings: 1024, model_type: 'deepseek_v3' } },
};

/** Prompts of very different lengths; every third begins like the others of its kind. */
const random = new Random(7);
const common = Array.from({ length: 130 }, () => random.integer(VOCAB));
const prompts = Array.from({ length: 7 }, (_, index) => {
  const own = Array.from({ length: index % 2 === 0 ? 1 + random.integer(12) : 30 + random.integer(30) }, () =>
    random.integer(VOCAB),
  );
  return index % 3 === 0 ? [...common, ...own] : own;
});
const lengths = prompts.map((_, index) => 40 + ((index * 17) % 30));

const sampling = (index: number): DrawOptions => ({
  seed: index,
  ...(index % 2 === 1 && { temperature: 0.9, topP: 0.95, repetitionPenalty: 1.1 }),
  ...(index % 4 === 3 && { topK: 20, topP: 1 }),
  ...(index % 3 === 2 && { frequencyPenalty: 1.2, minTokens: 9, endIds: [7, 8, 9], minP: 0.01, logitBias: { 7: 2 } }),
});

async function open(model: string, options: Partial<Parameters<typeof openRunner>[0]>, engine: EngineSetup = {}) {
  const slots = engine.slots ?? 6;
  const { kvBlocks = 60, ...own } = engine;
  const { group } = await openRunner({
    adapter: adapter.name,
    model: models[model]!,
    contextLength: 512,
    prefillChunk: 64,
    slots,
    kvBlocks,
    ...options,
  });
  return { engine: new Engine(group, { placing, slots, tokensPerIteration: 96, ...own }), group };
}

function ask(engine: Engine, index: number, request: Partial<EngineRequest> = {}) {
  const tokens: number[] = [];
  const handle = engine.submit({
    prompt: prompts[index]!,
    maxTokens: lengths[index]!,
    eosIds: [],
    ...sampling(index),
    onToken: (token) => {
      tokens.push(token);
      return false;
    },
    ...request,
  });
  return { tokens, ended: handle.ended, abort: () => handle.abort() };
}

const expected = new Map<string, Promise<number[][]>>();

/** What each request gives by itself on one rank. */
function alone(model: string): Promise<number[][]> {
  let results = expected.get(model);
  if (!results) {
    results = (async () => {
      const { engine } = await open(model, {}, { slots: 1 });
      const all: number[][] = [];
      for (const index of prompts.keys()) {
        const { tokens, ended } = ask(engine, index);
        expect(await ended).toBe('length');
        all.push(tokens);
      }
      await engine.dispose();
      return all;
    })();
    expected.set(model, results);
  }
  return results;
}

const two = { plan: 'adp', ranks: 2, virtual: true };
const four = { plan: 'adp', ranks: 4, virtual: true };
const waits = { mode: 'trtllm', enable_balance: true, timeout_iters: 6, batching_wait_iters: 2 };

/** By cached tokens, whatever reading them takes: that is noise in models of this size. */
const moving = {
  ...placing,
  contextPolicy: (config: Parameters<typeof placing.contextPolicy>[0]) => {
    const policy = placing.contextPolicy(config);
    const kv = new KvPolicy(true);
    return Object.assign(policy, { move: kv.move.bind(kv) });
  },
};

describe('adp: every request gives what it gives alone on one rank', () => {
  test.each<[string, string, Partial<Parameters<typeof openRunner>[0]>, EngineSetup]>(
    drawn(
      [
        ['MLP segments cut, on two', 'llama', two, {}],
        ['too few blocks: preempted and computed again', 'llama', two, { kvBlocks: 10 }],
        ['prefixes shared on each rank, prompts wait', 'llama', two, { prefixCaching: true, attentionDpConfig: waits }],
        ['experts spread, on four', 'deepseek', four, { slots: 8 }],
        ['fewer slots than ranks', 'deepseek', four, { slots: 3 }],
        ['groups that cut heads', 'llama', { ...four, plan: 'adp x tp' }, { prefixCaching: true }],
        ['groups that split chunks, too few blocks', 'llama', { ...four, plan: 'adp x sp' }, { kvBlocks: 16 }],
        ['groups of a latent, prompts wait', 'deepseek', { ...four, plan: 'adp x tp' }, { attentionDpConfig: waits }],
        ['sequences move', 'llama', two, { placing: moving, kvBlocks: 40 }],
        ['sequences move between groups that cut heads', 'llama', { ...four, plan: 'adp x tp' }, { placing: moving }],
        ['sequences move in two stages', 'deepseek', { ...four, plan: 'pp x adp', batches: 2 }, { placing: moving }],
        ['in two stages', 'llama', { ...four, plan: 'pp x adp', batches: 2 }, { slots: 6 }],
        [
          'our balancer, too few blocks',
          'deepseek',
          two,
          { kvBlocks: 10, attentionDpConfig: { mode: 'cost', enable_balance: true } },
        ],
      ],
      1,
      'adp',
    ),
  )('%s (%s)', { timeout: 300_000 }, async (_name, model, options, engineOptions) => {
    const whole = await alone(model);
    const records: IterationRecord[] = [];
    const { engine } = await open(model, options, { ...engineOptions, onIteration: (record) => records.push(record) });
    const running = prompts.map((_, index) => ask(engine, index));
    for (const [index, { tokens, ended }] of running.entries()) {
      expect(await ended).toBe('length');
      expect(tokens, `request ${index}`).toEqual(whole[index]);
    }
    const { metrics } = engine;
    expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
    if (engineOptions.placing) expect(metrics.movesTotal).toBeGreaterThan(0);
    else if (engineOptions.kvBlocks !== undefined) expect(metrics.preemptionsTotal).toBeGreaterThan(0);
    if (engineOptions.prefixCaching) expect(metrics.cachedTokensTotal).toBeGreaterThan(0);
    checkBalance(metrics.balance!, records, metrics.generatedTokensTotal);
    expect(records).toHaveLength(metrics.iterationsTotal);
    await engine.dispose();
  });
});

/** The sums of the iterations, by the measures' definitions. */
function checkBalance(
  balance: NonNullable<Engine['metrics']['balance']>,
  records: readonly IterationRecord[],
  generated: number,
): void {
  const sum = (of: (record: IterationRecord) => number): number => records.reduce((total, each) => total + of(each), 0);
  const mean = ({ tokens }: IterationRecord): number => tokens.reduce((a, b) => a + b, 0) / tokens.length;
  const most = ({ tokens }: IterationRecord): number => Math.max(...tokens);
  const sol = sum((record) => (record.seconds * mean(record)) / most(record));
  expect(balance.last).toEqual(records.at(-1));
  expect(balance.balance).toBeCloseTo(sum((record) => mean(record) / most(record)) / records.length, 12);
  expect(balance.weighedBalance).toBeCloseTo(sum(mean) / sum(most), 12);
  expect(balance.tokensTotal.reduce((a, b) => a + b, 0)).toBe(sum((record) => mean(record) * record.tokens.length));
  expect(balance.solSecondsTotal).toBeCloseTo(sol, 9);
  expect(balance.tps).toBeCloseTo(generated / sum(({ seconds }) => seconds), 6);
  expect(balance.solTps).toBeCloseTo(generated / sol, 6);
}

test('requests come, leave and are aborted at random', { timeout: 300_000 }, async () => {
  const whole = await alone('deepseek');
  const { engine } = await open('deepseek', two, { kvBlocks: 30, prefixCaching: true });
  const outcomes: Promise<void>[] = [];
  for (let round = 0; round < 12; round++) {
    const index = random.integer(prompts.length);
    const leaves = random.integer(3) === 0;
    const request = ask(engine, index);
    if (leaves) setTimeout(request.abort, random.integer(150));
    outcomes.push(
      request.ended.then((end) => {
        expect(leaves ? ['aborted', 'length'] : ['length']).toContain(end);
        expect(request.tokens).toEqual(whole[index]!.slice(0, request.tokens.length));
        if (end === 'length') expect(request.tokens).toHaveLength(lengths[index]!);
      }),
    );
    if (round % 4 === 0) await new Promise((resolve) => setTimeout(resolve, random.integer(40)));
  }
  await Promise.all(outcomes);
  expect(engine.metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: engine.metrics.kvBlocks });
  await engine.dispose();
});

test('a lost device: all requests are computed again and give the same', { timeout: 300_000 }, async () => {
  const whole = await alone('llama');
  const { engine, group } = await open('llama', { plan: 'adp', ranks: 2 });
  const running = prompts.map((_, index) => ask(engine, index));
  await new Promise<void>((resolve) => {
    const wait = (): void => void (engine.metrics.generatedTokensTotal > 12 ? resolve() : setTimeout(wait, 5));
    wait();
  });
  group.devices[1]!.gpu.destroy();
  for (const [index, { tokens, ended }] of running.entries()) {
    expect(await ended).toBe('length');
    expect(tokens, `request ${index}`).toEqual(whole[index]);
  }
  expect(engine.metrics.recoveriesTotal).toBe(1);
  await engine.dispose();
});

test(
  'each rank keeps its own sequences, and logits come from the rank that has the row',
  { timeout: 120_000 },
  async () => {
    const { engine, group } = await open('llama', { ...four, kvBlocks: 40 }, { slots: 6, kvBlocks: 40 });
    // Of 6 slots the later ranks have two.
    const slots = [1, 1, 2, 2];
    const [one] = group.ranks.map(({ facts }) => facts.kvBytes);
    expect(group.ranks.map(({ facts }) => facts.kvBytes / one!)).toEqual(slots.map((n) => Math.ceil((40 * n) / 6) / 7));
    expect(group.runner.kv.bytesPerToken).toBe(group.ranks[0]!.facts.kvBytesPerToken);
    const rows: Float32Array[] = [];
    const tokens: number[] = [];
    const request: Partial<EngineRequest> = {
      logits: true,
      maxTokens: 4,
      temperature: 0,
      repetitionPenalty: 1,
      onToken: (token, logits) => {
        rows.push(logits!);
        tokens.push(token);
        return false;
      },
    };
    const submit = vi.spyOn(Scheduler.prototype, 'submit');
    const before = performance.now() / 1000;
    const deadline = (index: number): Partial<EngineRequest> => (index === 3 ? { firstTokenSeconds: 600 } : {});
    await Promise.all([0, 1, 2, 3, 4].map((index) => ask(engine, index, { ...request, ...deadline(index) }).ended));
    const deadlines = submit.mock.calls.map(([{ firstTokenDeadline = 0 }]) => firstTokenDeadline - before);
    expect(deadlines.map((seconds) => seconds >= 600 && seconds < 660)).toEqual([false, false, false, true, false]);
    submit.mockRestore();
    expect(rows.map((row) => row.indexOf(Math.max(...row)))).toEqual(tokens);
    await engine.dispose();
  },
);

test('its options need a plan that chooses ranks', { timeout: 60_000 }, async () => {
  const { group } = await openRunner({ adapter: adapter.name, model: models['llama']!, slots: 2, kvBlocks: 8 });
  const options = { slots: 2, tokensPerIteration: 64 };
  expect(() => new Engine(group, { placing, ...options, attentionDpConfig: waits })).toThrow(
    'there is no rank to choose for a request; use plan adp or token',
  );
  group.dispose();
});
