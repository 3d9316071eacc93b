import { drawn, isTurn } from '../../gpu/testing/draw.js';
import { placing } from './loop/rank_balance.js';
import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { modelShape } from '../../model/shape.js';
import { makePlan } from '../../placement/index.js';
import { memoryOnPaper } from '../ranks/rank_memory.js';
import { randomFiles } from '../testing/random_source.js';
import type { ServingModel } from './api.js';
import { serve } from '../faces/serving_model.js';
import { type EngineSetup, openRunner, type OpenRunnerOptions } from '../testing/open_runner.js';
import { Engine } from './engine.js';
import type { EngineMetrics } from './loop/requests.js';

const adapter = (await testAdapters()).at(-1)!.name;
const prompt = (length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + seed * 101 + ((i * i) % 53)) % 320);

/** Long and short answers in turns, the long ones drawn. */
const requests = Array.from({ length: 8 }, (_, index) => ({
  prompt: prompt(60 + 20 * index, index),
  maxTokens: index % 2 === 0 ? 90 : 6,
  seed: index,
  temperature: index % 4 === 0 ? 0.8 : 0,
}));

const openGroup = (options: Partial<OpenRunnerOptions>) =>
  openRunner({
    adapter,
    model: { seed: 61, config: { num_attention_heads: 6, num_key_value_heads: 3 } },
    contextLength: 320,
    prefillChunk: 64,
    virtual: true,
    ...options,
  });

/** What every request gets. */
const ask = (engine: Engine): Promise<number[][]> =>
  Promise.all(
    requests.map(async (request) => {
      const own: number[] = [];
      const { ended } = engine.submit({
        ...request,
        eosIds: [],
        onToken: (token) => {
          own.push(token);
          return false;
        },
      });
      expect(await ended).toBe('length');
      return own;
    }),
  );

async function answers(
  options: Partial<OpenRunnerOptions>,
  engineOptions: EngineSetup,
): Promise<{ tokens: number[][]; metrics: EngineMetrics }> {
  const slots = engineOptions.slots ?? 1;
  const { kvBlocks = 64, ...own } = engineOptions;
  const { group } = await openGroup({ slots: slots / (options.batches ?? 1), kvBlocks, ...options });
  const engine = new Engine(group, { placing, slots, tokensPerIteration: 96, ...own });
  const tokens = await ask(engine);
  const { metrics } = engine;
  expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
  await engine.dispose();
  return { tokens, metrics };
}

describe('token parallelism in the serving engine', () => {
  test.each<[string, Partial<OpenRunnerOptions>, EngineSetup]>(
    drawn(
      [
        ['token', { plan: 'token', ranks: 3, virtual: false }, { slots: 5, kvBlocks: 25 }],
        [
          'token, prefixes shared, micro-batches',
          { plan: 'token', ranks: 3, batches: 2 },
          { slots: 6, kvBlocks: 30, prefixCaching: true },
        ],
        ['tp x token', { plan: 'tp x token', ranks: 6 }, { slots: 5, kvBlocks: 25 }],
        ['pp x token, micro-batches', { plan: 'pp x token', ranks: 4, batches: 2 }, { slots: 6, kvBlocks: 30 }],
      ],
      1,
      'token',
    ),
  )(
    '%s: sequences move between ranks and give what they give alone',
    { timeout: 300_000 },
    async (_name, options, engineOptions) => {
      const alone = await answers({}, {});
      const { tokens, metrics } = await answers(options, engineOptions);
      expect(tokens).toEqual(alone.tokens);
      expect(metrics.movesTotal).toBeGreaterThan(0);
    },
  );

  const spread: [string, Partial<OpenRunnerOptions>, EngineSetup][] = [
    ['two ranks beside the root', { ranks: 3, virtual: false }, { slots: 5, kvBlocks: 12 }],
    ['two pairs, micro-batches', { ranks: 4, planOptions: { sequence: 2 }, batches: 2 }, { slots: 6, kvBlocks: 8 }],
  ];
  test.each(drawn(spread, 1, 'token x sp'))(
    'token x sp, %s: chunks of a sequence on several ranks, preemption, and the same tokens',
    { timeout: 300_000 },
    async (_name, options, engineOptions) => {
      const alone = await answers({}, {});
      const { tokens, metrics } = await answers({ plan: 'token x sp', ...options }, engineOptions);
      expect(tokens).toEqual(alone.tokens);
      expect(metrics.preemptionsTotal).toBeGreaterThan(0);
      expect(metrics.movesTotal).toBe(0);
    },
  );

  test(
    'a rank that only keeps caches is lost: the others keep their weights, and every request finishes',
    { timeout: 300_000 },
    async () => {
      const alone = await answers({}, {});
      const { group } = await openGroup({
        plan: 'token',
        ranks: 3,
        virtual: false,
        slots: 3,
        batches: 2,
        kvBlocks: 30,
      });
      const [root, lost, other] = group.ranks;
      expect(lost!.facts.weightBytes).toBe(0);
      const engine = new Engine(group, { placing, slots: 6, tokensPerIteration: 96 });
      const running = ask(engine);
      await expect.poll(() => engine.metrics.generatedTokensTotal, { timeout: 60_000 }).toBeGreaterThan(20);
      lost!.device.gpu.destroy();
      expect(await running).toEqual(alone.tokens);
      expect(engine.metrics.recoveriesTotal).toBe(1);
      // The very ranks that were there, with what they had loaded.
      expect(group.ranks[0]).toBe(root);
      expect(group.ranks[2]).toBe(other);
      expect(group.ranks[1]).not.toBe(lost);
      await engine.dispose();
    },
  );

  test.runIf(isTurn(4, 'budgets of token plans'))(
    'memory budgets: a token plan holds what its ranks have room for, and serves it at once',
    { timeout: 300_000 },
    async () => {
      const { model, files } = randomFiles({
        seed: 62,
        config: { num_hidden_layers: 8, hidden_size: 128, intermediate_size: 512 },
      });
      const contextLength = 256;
      const shared = { adapter, contextLength, prefillChunk: 32, slots: 24, virtualRanks: true } as const;
      const [root] = await memoryOnPaper(
        makePlan('token', 3, modelShape(model.config)),
        { config: model.config, type: 'f32' },
        { ...shared, kvType: 'f32', kvBlocks: 1 },
      );
      // Room for a few contexts beside whole weights.
      const context = 8 * 2 * 2 * 16 * 4 * contextLength;
      const memory = root!.totalBytes + 4 * context;
      const token = await serve(files, { ...shared, ranks: 3, plan: 'token', memory });
      const single = await serve(files, { ...shared, memory });
      const weights = token.info.plan.stages[0]!.shares.map(({ sequences }) => sequences!);
      expect(weights[0]).toBeLessThan(weights[1]! / 2);
      expect(weights[1]).toBe(1);
      // Three ranks with whole weights each would hold three times what one does.
      expect(token.info.kvBlocks).toBeGreaterThan(3 * single.info.kvBlocks);
      for (const { weightBytes, kvBytes } of token.info.ranks) expect(weightBytes + kvBytes).toBeLessThan(memory);
      const most = async (served: ServingModel): Promise<number> => {
        const completions = Array.from({ length: 16 }, (_, index) =>
          served.complete(prompt(220, index), { maxTokens: 6, ignoreEos: true }),
        );
        let running = 0;
        await Promise.all(
          completions.map(async (completion) => {
            for await (const _event of completion) running = Math.max(running, served.metrics.running);
          }),
        );
        return running;
      };
      expect(await most(token)).toBeGreaterThan(3 * (await most(single)));
      await token.dispose();
      await single.dispose();
    },
  );
});
