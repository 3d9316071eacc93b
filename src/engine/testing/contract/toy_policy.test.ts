import { beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { modelShape } from '../../../model/shape.js';
import {
  checkPlan,
  makePlan,
  parsePlan,
  parsePolicy,
  POLICIES,
  predictPlans,
  registerPolicy,
} from '../../../placement/index.js';
import { capabilityPage } from '../../../placement/testing/capability_page.js';
import { machineOf, workOf } from '../../../placement/testing/machine.js';
import { gqaShape, mlaShape } from '../../../placement/testing/shapes.js';
import { lopsided } from '../../../placement/testing/toy_policy.js';
import type { LoadOptions } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { randomFiles } from '../random_source.js';

const model = { num_key_value_heads: 4, num_attention_heads: 8, head_dim: 16, intermediate_size: 256 };

describe('a plan policy of one file and one row', async () => {
  const adapter = (await testAdapters()).at(-1)!;
  const known = [...POLICIES];
  beforeAll(() => registerPolicy(lopsided));

  test('makes plans that pass the checks, alone and in a pipeline', () => {
    const shape = gqaShape(4);
    const plan = makePlan('lopsided', 3, shape);
    expect(plan.stages[0]!.shares.map(({ heads }) => heads)).toEqual([[0], [1], [2, 3]]);
    const stages = makePlan('Lopsided, pp', 4, shape);
    expect(stages).toMatchObject({ policy: 'pp x lopsided', worldSize: 4 });
    for (const made of [plan, stages]) {
      checkPlan(made, shape);
      expect(parsePlan(JSON.stringify(made))).toEqual(made);
    }
  });

  test('is known wherever policies are', async () => {
    expect(POLICIES.filter((name) => !known.includes(name))).toEqual(['lopsided', 'pp x lopsided']);
    expect(() => parsePolicy('lopside')).toThrow(/lopsided.*Did you mean 'lopsided'/);
    expect(() => makePlan('lopsided', 2, mlaShape(16))).toThrow(/a latent has no heads to cut/);
    expect(() => parsePolicy('lopsided x adp')).toThrow(/use single/);
    expect(await capabilityPage()).toContain('`pp x lopsided`');
    const predicted = predictPlans(workOf(gqaShape(4)), machineOf(3), {
      promptLength: 100,
      contextLength: 512,
      block: 64,
    });
    expect(predicted.filter(({ plan }) => plan?.policy === 'lopsided').length).toBeGreaterThan(0);
  });

  test('runs with the bits of one rank', { timeout: 120_000 }, async () => {
    const { files, model: made } = randomFiles({ config: model });
    expect(modelShape(made.config).kvHeads).toBe(4);
    const prompt = Array.from({ length: 40 }, (_, i) => (i * 53 + 7) % 320);
    const run = async (options: LoadOptions): Promise<unknown> => {
      const loaded = await load(files, { contextLength: 256, prefillChunk: 16, adapter: adapter.name, ...options });
      try {
        expect(loaded.info.plan.policy).toBe(options.plan ?? 'single');
        const { rows } = await loaded.logits(prompt, { all: true });
        const generation = loaded.generate(prompt, { maxTokens: 8, ignoreEos: true });
        return { rows, tokens: (await generation.result).tokens };
      } finally {
        await loaded.dispose();
      }
    };
    const alone = await run({});
    expect(await run({ ranks: 3, plan: 'lopsided', virtualRanks: true })).toEqual(alone);
    expect(await run({ ranks: 4, plan: 'pp x lopsided', virtualRanks: true })).toEqual(alone);
  });
});
