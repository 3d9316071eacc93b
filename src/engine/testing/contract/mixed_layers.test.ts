import { beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { GqaConfig } from '../../../model/config/model_config.js';
import { registerFamily } from '../../../model/families/registry.js';
import { mixed } from '../../../model/families/testing/mixed.js';
import { modelSizes } from '../../../model/model_sizes.js';
import { modelShape } from '../../../model/shape.js';
import { clearlyRoutedTokens, referenceLogits } from '../../../model/testing/reference/reference.js';
import { makePlan, misfit, modelFeatures, planMemory } from '../../../placement/index.js';
import { load } from '../../faces/load.js';
import { memoryOnPaper } from '../../ranks/rank_memory.js';
import { randomFiles } from '../random_source.js';
import { firstDifference, runAlone } from '../run_bits.js';
import { drawn } from '../../../gpu/testing/draw.js';

const model = {
  seed: 51,
  config: {
    model_type: 'mixed',
    architectures: ['MixedForCausalLM'],
    num_hidden_layers: 6,
    head_dim: undefined,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    intermediate_size: 104,
    max_position_embeddings: 512,
  },
};

describe('one model with layers of several shapes and kinds', async () => {
  const adapter = (await testAdapters()).at(-1)!;
  beforeAll(() => registerFamily({ family: mixed, models: { mixed: 'MixedForCausalLM' }, gguf: [] }));

  test('has the logits of its definition', { timeout: 120_000 }, async () => {
    const { model: random, files } = randomFiles(model);
    const prompt = clearlyRoutedTokens(random.config, random.weights, 40);
    const expected = referenceLogits(random.config, random.weights, prompt);
    const f32 = { weights: 'f32', kv: 'f32' } as const;
    const loaded = await load(files, { contextLength: 256, prefillChunk: 16, adapter: adapter.name, ...f32 });
    const { rows } = await loaded.logits(prompt, { all: true });
    await loaded.dispose();
    const largest = Math.max(...expected.flatMap((row) => [...row].map(Math.abs)));
    const errors = rows.flatMap((row, at) => [...row].map((value, id) => Math.abs(value - expected[at]![id]!)));
    expect(Math.max(...errors) / largest).toBeLessThan(1e-5);
    // That layers rotate by tables of their own tells.
    const { rope } = random.config.layers[0]!.attention as GqaConfig;
    const layers = random.config.layers.map((layer) => ({
      ...layer,
      attention: { ...(layer.attention as GqaConfig), rope },
    }));
    const other = referenceLogits({ ...random.config, layers }, random.weights, prompt).at(-1)!;
    expect(Math.max(...other.map((value, id) => Math.abs(value - expected.at(-1)![id]!))) / largest).toBeGreaterThan(
      0.05,
    );
  });

  test('takes the memory that its layers say, each for itself', async () => {
    const { config } = randomFiles(model).model;
    const sizes = modelSizes(config, 'f32', 'f16');
    // 4 kv heads of 8 by turns with 2 of 24; plans cut both in 2.
    expect(sizes.layers.map(({ kvToken }) => kvToken)).toEqual([0, 1, 2].flatMap(() => [2 * 2 * 8 * 2, 2 * 24 * 2]));
    const shape = modelShape(config);
    expect(shape).toMatchObject({ kvHeads: 2, segmentHeads: [4, 4], mixedHeads: true });
    for (const [policy, ranks] of [
      ['tp', 2],
      ['sp', 2],
      ['pp', 3],
    ] as const) {
      const plan = makePlan(policy, ranks, shape);
      const runner = { slots: 3, contextLength: 512, prefillChunk: 64, kvType: 'f16' } as const;
      const held = await memoryOnPaper(plan, { config, type: 'f32' }, runner);
      const planned = planMemory(plan, sizes, { slots: 3, contextLength: 512, block: 64 });
      expect(held.map(({ kvBytes }) => kvBytes)).toEqual(planned.map(({ kvBytes }) => kvBytes));
    }
    expect(misfit(['compression', ...modelFeatures(shape)])).toContain('differ in their kv heads');
    expect(misfit(['arranged', 'mixedHeads'])).toContain('use tp or sp');
  });

  test('has the same bits on several ranks', { timeout: 300_000 }, async () => {
    const lengths = [1, 300];
    const given = { adapter: adapter.name, model, weights: 'q8', kv: 'f16', prefillChunk: 208 } as const;
    const one = await runAlone(lengths, given);
    const plans = [
      'tp 2',
      'tp 4',
      'sp 2',
      'ep 4',
      'tp x sp 4',
      'pp 3',
      'pp x tp 4',
      'token 2',
      'token x sp 3',
      'adp 2',
    ];
    for (const name of drawn(plans, 1, 'mixed layers')) {
      const [, plan, ranks] = /^(.+) (\d)$/.exec(name)!;
      const many = await runAlone(lengths, { ...given, plan: plan!, ranks: Number(ranks), virtual: true });
      expect(firstDifference(one, many), name).toBe(-1);
    }
  });
});
