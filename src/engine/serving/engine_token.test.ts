import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { openRunner, type OpenRunnerOptions } from '../testing/open_runner.js';
import { Engine, type EngineMetrics, type EngineOptions } from './engine.js';

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

async function answers(
  options: Partial<OpenRunnerOptions>,
  engineOptions: Partial<EngineOptions>,
): Promise<{ tokens: number[][]; metrics: EngineMetrics }> {
  const slots = engineOptions.slots ?? 1;
  const kvBlocks = engineOptions.kvBlocks ?? 64;
  const { group } = await openRunner({
    adapter,
    model: { seed: 61, config: { num_attention_heads: 6, num_key_value_heads: 3 } },
    contextLength: 320,
    prefillChunk: 64,
    slots,
    kvBlocks,
    virtual: true,
    ...options,
  });
  const engine = new Engine(group, { slots, kvBlocks, tokensPerIteration: 96, ...engineOptions });
  const tokens = await Promise.all(
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
  const { metrics } = engine;
  expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
  await engine.dispose();
  return { tokens, metrics };
}

describe('token parallelism in the serving engine', () => {
  test.each<[string, Partial<OpenRunnerOptions>, Partial<EngineOptions>]>([
    ['token', { plan: 'token', ranks: 3, virtual: false }, { slots: 5, kvBlocks: 25 }],
    ['token, prefixes shared', { plan: 'token', ranks: 3 }, { slots: 5, kvBlocks: 25, prefixCaching: true }],
    ['tp x token', { plan: 'tp x token', ranks: 6 }, { slots: 5, kvBlocks: 25 }],
    ['pp x token', { plan: 'pp x token', ranks: 4 }, { slots: 6, kvBlocks: 30 }],
  ])(
    '%s: sequences move between ranks and give what they give alone',
    { timeout: 300_000 },
    async (_name, options, engineOptions) => {
      const alone = await answers({}, {});
      const { tokens, metrics } = await answers(options, engineOptions);
      expect(tokens).toEqual(alone.tokens);
      expect(metrics.movesTotal).toBeGreaterThan(0);
    },
  );
});
