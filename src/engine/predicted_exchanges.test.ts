import { afterEach, describe, expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import { modelWork } from '../model/model_work.js';
import { modelShape } from '../model/shape.js';
import { makePlan, predictPlan } from '../placement/index.js';
import { machineOf } from '../placement/testing/machine.js';
import { openRunner } from './testing/open_runner.js';

const { name: adapter } = (await testAdapters()).at(-1)!;
const contextLength = 600;
const models = {
  llama: { model_type: 'llama', num_key_value_heads: 4, num_attention_heads: 4, intermediate_size: 256 },
  deepseek_v3: { model_type: 'deepseek_v3', num_attention_heads: 8 },
};

let close: (() => void) | undefined;
afterEach(() => close?.());

/** The planner's exchanges of a token, and the engine's; both sides write down the same forward program. */
async function exchanges(model: keyof typeof models, policy: string, ranks: number) {
  const { group, runner } = await openRunner({
    adapter,
    model: { config: models[model] },
    plan: policy,
    ranks,
    virtual: true,
    contextLength,
    prefillChunk: 256,
  });
  close = () => group.dispose();
  const { config } = group.options;
  const work = modelWork(config, 'f32', 'f32');
  const workload = { contextLength, promptLength: 300, newTokens: 1, promptChunk: 256 };
  const plan = makePlan(policy, ranks, modelShape(config));
  const { decode, prompt } = predictPlan(plan, work, machineOf(ranks), workload);
  return { group, runner, decode, prompt };
}

describe('the planner counts the exchanges that the engine makes', () => {
  test.each([
    ['llama', 'tp', 2],
    ['llama', 'sp', 2],
    ['llama', 'tp+sp', 2],
    ['llama', 'tp+sp', 4],
    ['llama', 'pp', 2],
    ['llama', 'token', 3],
    ['llama', 'tp x token', 4],
    ['llama', 'token x sp', 3],
    ['llama', 'token x sp', 4],
    ['llama', 'adp', 2],
    ['deepseek_v3', 'tp', 2],
    ['deepseek_v3', 'sp', 2],
    ['deepseek_v3', 'ep', 2],
    ['deepseek_v3', 'pp', 2],
    ['deepseek_v3', 'adp', 2],
    ['deepseek_v3', 'token', 3],
  ] as const)('%s, %s on %i', async (model, policy, ranks) => {
    const { group, runner, decode, prompt } = await exchanges(model, policy, ranks);
    // A rank that keeps caches only also copies its row numbers, to itself.
    const counted = policy.includes('token') ? [0] : group.runner.ranks.map((_, rank) => rank);
    expect(decode.exchanges).toBe(Math.max(...counted.map((rank) => group.runner.ranks[rank]!.facts.exchangesPerStep)));
    const before = await runner.counts();
    await runner.prefill(
      Array.from({ length: 300 }, (_, i) => i),
      1,
      { seed: 0 },
    );
    await runner.sampleFirst();
    const after = await runner.counts();
    const made = counted.map((rank) => after[rank]!.exchanges - before[rank]!.exchanges);
    // The first token's id goes out with the next step, and its row need not travel where it was run.
    expect(prompt.exchanges).toBeLessThanOrEqual(Math.max(...made) + 2);
    expect(prompt.exchanges).toBeGreaterThanOrEqual(Math.max(...made));
  });
});
