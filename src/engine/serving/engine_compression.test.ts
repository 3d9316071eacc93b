import { drawn } from '../../gpu/testing/draw.js';
import { placing } from './loop/rank_balance.js';
import { describe, expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { compressionOptions, type KvPolicy } from '../../model/compression/options.js';
import { modelShape } from '../../model/shape.js';
import { arrangedPlan, type CopySharing } from '../../placement/index.js';
import type { RankGroup } from '../ranks/rank_group.js';
import { type EngineSetup, openRunner, type OpenRunnerOptions } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';
import { Engine } from './engine.js';

const adapter = (await testAdapters()).at(-1)!.name;
const SLOTS = 4;
const random = new Random(3);
const prompts = [200, 5, 330, 64, 260, 400, 120, 17].map((length) => Array.from({ length }, () => random.integer(320)));
const maxTokens = 90;

const loads = [
  [9, 1],
  [4, 6],
];
const setup = (policy: KvPolicy | undefined): OpenRunnerOptions => ({
  adapter,
  model: { seed: 31 },
  contextLength: 640,
  prefillChunk: 64,
  slots: SLOTS,
  ...(policy && {
    compression: compressionOptions({ policy, budget: 0.25, window: 16, loads }, { numLayers: 2, numKvHeads: 2 }),
  }),
});

async function open(policy: KvPolicy | undefined, options: Partial<OpenRunnerOptions>, engine: EngineSetup) {
  const { kvBlocks = 40, ...own } = engine;
  const { group } = await openRunner({ ...setup(policy), kvBlocks, ...options });
  return { engine: new Engine(group, { placing, slots: SLOTS, tokensPerIteration: 96, ...own }), group };
}

function ask(engine: Engine, index: number) {
  const tokens: number[] = [];
  const { ended, abort } = engine.submit({
    prompt: prompts[index]!,
    maxTokens,
    eosIds: [],
    seed: index,
    ...(index % 2 === 1 && { temperature: 0.8 }),
    onToken: (token) => {
      tokens.push(token);
      return false;
    },
  });
  return { tokens, ended, abort };
}

/** Greedy tokens of a prompt that no scheduler cuts or pages. */
async function byRunner(policy: KvPolicy, index: number): Promise<number[]> {
  const { group, runner } = await openRunner({ ...setup(policy), prefillChunk: 512 });
  const tokens: number[] = [];
  await runner.prefill(prompts[index]!, maxTokens, { seed: 0 });
  for (let step = 0; step < maxTokens; step++) {
    tokens.push((await (step === 0 ? runner.sampleFirst() : runner.step()))[0]!);
  }
  group.dispose();
  return tokens;
}

const known = new Map<KvPolicy, Promise<number[][]>>();

/** What each request gives by itself, on one rank with room for everything. */
function alone(policy: KvPolicy): Promise<number[][]> {
  const expected = known.get(policy) ?? computeAlone(policy);
  known.set(policy, expected);
  return expected;
}

async function computeAlone(policy: KvPolicy): Promise<number[][]> {
  const { engine } = await open(policy, {}, {});
  const results: number[][] = [];
  for (const index of prompts.keys()) {
    const { tokens, ended } = ask(engine, index);
    expect(await ended).toBe('length');
    results.push(tokens);
  }
  await engine.dispose();
  expect(results[6], 'as without an engine').toEqual(await byRunner(policy, 6));
  return results;
}

/** Three ranks, and in each layer another head that two of them hold. */
function copied(sharing: CopySharing): Partial<OpenRunnerOptions> {
  const on = (rank: number, share = 1) => ({ rank, share });
  const placement = [
    [[on(0, 0.5), on(1, 0.5)], [on(2)]],
    [[on(1)], [on(0, 0.25), on(2, 0.75)]],
  ];
  const file = { version: 1, policy: 'arranged', model: 'm', ranks: 3, mode: 'wrap', placement } as const;
  return { plan: arrangedPlan(file, modelShape(randomFiles({ seed: 31 }).model.config), sharing), virtual: true };
}

describe('serving with compressed prompts', () => {
  test.each<[string, KvPolicy, Partial<OpenRunnerOptions>, EngineSetup]>(
    drawn(
      [
        ['too few blocks: prompts are compressed again', 'ada', {}, { kvBlocks: 8, watermark: 0 }],
        [
          'too few blocks, whole prompts kept',
          'ada',
          { keptBlocks: 12 },
          { kvBlocks: 8, watermark: 0, prefixCaching: true },
        ],
        ['too few blocks', 'snap', {}, { kvBlocks: 8 }],
        ['two ranks, tp', 'ada', { plan: 'tp', ranks: 2, virtual: true }, { kvBlocks: 14 }],
        ['two ranks, adp', 'ada', { plan: 'adp', ranks: 2, virtual: true }, { kvBlocks: 16 }],
        ['three ranks, token', 'static', { plan: 'token', ranks: 3, virtual: true }, { kvBlocks: 40 }],
        ['copies share sequences', 'ada', copied('sequences'), { kvBlocks: 8, watermark: 0 }],
        ['copies share sequences', 'static', copied('sequences'), { kvBlocks: 20 }],
        ['copies share lanes', 'ada', copied('lanes'), { kvBlocks: 14 }],
      ],
      1,
      'compression',
    ),
  )('%s, %s: every request gives what it gives alone', { timeout: 300_000 }, async (_name, policy, options, sizes) => {
    const expected = await alone(policy);
    const { engine } = await open(policy, options, sizes);
    const dropped = ask(engine, 5);
    setTimeout(dropped.abort, 20);
    // Short ones first: as they grow they fill a small pool that they all fit in as they come.
    for (const { index, tokens, ended } of [1, 3, 7, 0, 2, 4, 5, 6].map((each) => ({
      index: each,
      ...ask(engine, each),
    }))) {
      expect(await ended).toBe('length');
      expect(tokens, `request ${index}`).toEqual(expected[index]);
    }
    await dropped.ended;
    const { metrics } = engine;
    expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
    if (sizes.kvBlocks === 8 && policy === 'ada') expect(metrics.preemptionsTotal).toBeGreaterThan(0);
    if (sizes.prefixCaching) expect(metrics.cachedTokensTotal).toBeGreaterThan(0);
    await engine.dispose();
  });

  test(
    'more requests fit a pool, and blocks are free as soon as a prompt is compressed',
    { timeout: 300_000 },
    async () => {
      const most = async (policy: KvPolicy | undefined) => {
        let running = 0;
        const { engine } = await open(
          policy,
          {},
          { kvBlocks: 14, onIteration: () => (running = Math.max(running, engine.metrics.running)) },
        );
        const asked = [2, 4, 5, 2].map((index) => ask(engine, index));
        for (const { ended } of asked) expect(await ended).toBe('length');
        const { preemptionsTotal } = engine.metrics;
        await engine.dispose();
        return { running, preemptionsTotal };
      };
      const [plain, compressed] = [await most(undefined), await most('snap')];
      expect(compressed.running).toBeGreaterThan(plain.running);
      expect(compressed.preemptionsTotal).toBe(0);
    },
  );

  test(
    'a lost device: requests are computed and compressed again, and give the same',
    { timeout: 300_000 },
    async () => {
      const expected = await alone('ada');
      const { engine, group } = await open('ada', { plan: 'tp', ranks: 2, keptBlocks: 8 }, { prefixCaching: true });
      const running = [...prompts.keys()].map((index) => ask(engine, index));
      await new Promise((resolve) => setTimeout(resolve, 300));
      (group as RankGroup).devices[1]!.gpu.destroy();
      for (const [index, { tokens, ended }] of running.entries()) {
        expect(await ended).toBe('length');
        expect(tokens, `request ${index}`).toEqual(expected[index]);
      }
      expect(engine.metrics.recoveriesTotal).toBe(1);
      await engine.dispose();
    },
  );
});
