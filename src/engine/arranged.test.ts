import { describe, expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import { modelShape } from '../model/shape.js';
import type { RandomModelOptions } from '../model/testing/random_model.js';
import { arrangedPlan, type Plan } from '../placement/index.js';
import { randomArrangement } from '../placement/testing/arrangements.js';
import { firstDifference, runAlone, runTogether } from './testing/run_bits.js';
import { randomFiles } from './testing/random_source.js';

const models: Record<string, RandomModelOptions> = {
  // Odd widths: heads of 24 cut quantisation blocks.
  llama: {
    seed: 31,
    config: {
      max_position_embeddings: 2304,
      hidden_size: 72,
      num_hidden_layers: 3,
      num_attention_heads: 10,
      num_key_value_heads: 5,
      head_dim: 24,
      intermediate_size: 300,
      attention_bias: true,
    },
  },
  qwen3: {
    seed: 32,
    config: {
      max_position_embeddings: 2304,
      model_type: 'qwen3',
      num_attention_heads: 8,
      num_key_value_heads: 8,
      head_dim: 8,
      intermediate_size: 300,
      vocab_size: 500,
      tie_word_embeddings: true,
    },
  },
};

function arranged(model: string, ranks: number, options: Parameters<typeof randomArrangement>[2]): Plan {
  const shape = modelShape(randomFiles(models[model]!).model.config);
  return arrangedPlan(randomArrangement(shape, ranks, options), shape, options.sharing ?? 'lanes');
}

describe('heads anywhere, another place in every layer: the bits of one rank', async () => {
  const adapter = (await testAdapters()).at(-1)!.name;

  test.each([
    ['llama', 'f32', 'f32', [1, 255, 256, 257, 700], [2, 4]],
    ['qwen3', 'q4', 'f16', [257, 700], [3, 8]],
    ['llama', 'q8', 'f16', [300], [8]],
  ] as const)(
    '%s, %s, kv %s: prompts of %j, on %j ranks',
    { timeout: 300_000 },
    async (model, weights, kv, lengths, sizes) => {
      const options = { adapter, model: models[model]!, weights, kv };
      const one = await runAlone(lengths, options);
      for (const ranks of sizes) {
        const plan = arranged(model, ranks, { seed: ranks });
        const many = await runAlone(lengths, { ...options, plan, virtual: true });
        expect(firstDifference(many, one), `${ranks} ranks: first row that differs`).toBe(-1);
      }
    },
  );

  test('sequences that come and go in a batch', { timeout: 300_000 }, async () => {
    const options = { adapter, model: models['llama']!, weights: 'f16', kv: 'f32' } as const;
    const lengths = [300, 5, 257, 40, 16];
    const one = await runTogether(lengths, 3, options);
    const many = await runTogether(lengths, 3, { ...options, plan: arranged('llama', 3, { seed: 5 }), virtual: true });
    expect(firstDifference(many, one)).toBe(-1);
  });
});
