import { describe, expect, test } from 'vitest';
import { drawn } from '../../gpu/testing/draw.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import type { LoadOptions } from '../contracts/api.js';
import { load } from '../faces/load.js';
import { serve } from '../faces/serving_model.js';
import { randomFiles } from '../testing/random_source.js';
import { namedByDegrees } from './degrees.js';
import { planModel } from '../faces/plan_model.js';

test('degrees are the plan and ranks that they name, a token that is a text is the Hub’s', async () => {
  expect(await namedByDegrees({ tensor: 2, token: 3 })).toMatchObject({ plan: 'tp x token', ranks: 6 });
  expect(await namedByDegrees({ pipeline: 2, ranks: ['a', 'b'] })).toMatchObject({ plan: 'pp', ranks: ['a', 'b'] });
  await expect(namedByDegrees({ tensor: 2, ranks: ['a', 'b', 'c'] })).rejects.toThrow('ranks asks for 3');
});

const gqa = { config: { num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 3 } };
const mla = { config: { model_type: 'deepseek_v3' } };
const adapter = (await testAdapters()).at(-1)!.name;

test.each([
  [{ tensor: 0 }, 'tensor 0: expected an integer from 1 to 64'],
  [{ token: 1.5 }, 'token 1.5: expected an integer'],
  [{ tensor: 2, plan: 'auto', ranks: 2 }, "plan 'auto' is the planner's choice"],
  [{ tensor: 5, virtualRanks: true }, 'can be cut over 4 ranks at most'],
] satisfies [LoadOptions, string][])('%o is refused by load, serve and planModel', async (options, message) => {
  const { files } = randomFiles(gqa);
  for (const open of [load, serve, planModel]) {
    await expect(open(files, { adapter, ...options })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining(message) as string,
    });
  }
});

describe('sequences are shared out to every rank that keeps caches', () => {
  const cases: [string, LoadOptions, RandomModelOptions, number[]][] = [
    ['gqa', { tensor: 2, token: 2 }, gqa, [0, 1, 2, 3]],
    ['gqa', { token: 3, requests: 4 }, gqa, [0, 1, 2]],
    ['gqa', { pipeline: 2, token: 2 }, gqa, [0, 1, 2, 3]],
    ['gqa', { token: 2, sequence: 2 }, gqa, [0, 2]],
    ['mla', { tensor: 2, token: 2 }, mla, [0, 1, 2, 3]],
  ];
  test.each(drawn(cases, 1, 'shared out by load'))(
    '%s, %o',
    { timeout: 120_000 },
    async (_model, more, options, busy) => {
      const { files } = randomFiles(options);
      const prompts = Array.from({ length: 6 }, (_, at) => Array.from({ length: 20 + at }, (_token, i) => 3 + i + at));
      const one = await load(files, { adapter, contextLength: 256 });
      const model = await load(files, { adapter, contextLength: 256, virtualRanks: true, ...more });
      const { worldSize } = model.info.plan;
      expect(worldSize).toBe(busy.length === 2 ? 4 : busy.length);
      const answers = (of: typeof model) =>
        Promise.all(prompts.map((prompt) => of.generate(prompt, { maxTokens: 8, ignoreEos: true }).result));
      const [expected, given] = [await answers(one), await answers(model)];
      expect(given.map(({ tokens }) => tokens)).toEqual(expected.map(({ tokens }) => tokens));
      const read = given.map(({ stats }) => stats.attention!.kv_tokens_per_step);
      for (const rank of busy)
        expect(Math.max(...read.map((ranks) => ranks[rank]!)), `rank ${rank}`).toBeGreaterThan(0);
      await Promise.all([one.dispose(), model.dispose()]);
    },
  );
});
