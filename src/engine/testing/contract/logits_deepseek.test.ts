import { drawn } from '../../../gpu/testing/draw.js';
import { describe, expect, test } from 'vitest';
import { roundWeights } from '../../../../shaders/linear/round_weights.js';
import { adaptersInTurn, testAdapters } from '../../../gpu/testing/adapters.js';
import { attentionOf } from '../../../model/config/model_config.js';
import { makeRandomModel, type RandomModelOptions } from '../../../model/testing/random_model.js';
import { clearlyRoutedTokens, referenceLogits, type WeightMap } from '../../../model/testing/reference/reference.js';
import type { WeightType } from '../../contracts/api.js';
import { load } from '../../faces/load.js';

/** Weights rounded as the runtime keeps them: the router in f32, kv_b_proj at least in f16, the rest as asked. */
function rounded(weights: WeightMap, type: WeightType): WeightMap {
  return new Map(
    [...weights].map(([name, tensor]) => {
      if (tensor.shape.length !== 2 || name.endsWith('mlp.gate.weight')) return [name, tensor];
      const kept = name.endsWith('kv_b_proj.weight') && type !== 'f32' ? 'f16' : type;
      return [
        name,
        { ...tensor, data: roundWeights(kept, tensor.data as Float32Array, tensor.shape[0]!, tensor.shape[1]!) },
      ];
    }),
  );
}

const models: { name: string; options: RandomModelOptions; tokens: number; types: WeightType[]; everywhere?: true }[] =
  [
    {
      name: 'v3: sigmoid, bias, groups',
      options: { seed: 1, config: { model_type: 'deepseek_v3' } },
      tokens: 40,
      types: ['f32', 'q8'],
      everywhere: true,
    },
    {
      name: 'v3 without q_lora, one dense layer first',
      options: {
        seed: 2,
        config: { model_type: 'deepseek_v3', q_lora_rank: null, num_hidden_layers: 3, first_k_dense_replace: 2 },
      },
      tokens: 300,
      types: ['f32'],
    },
    {
      name: 'v2: softmax, greedy',
      options: { seed: 3, config: { model_type: 'deepseek_v2' } },
      tokens: 30,
      types: ['f32', 'f16', 'q4'],
      everywhere: true,
    },
    {
      name: 'v2 with the attention shapes of V2-Lite',
      options: {
        seed: 5,
        config: {
          model_type: 'deepseek_v2',
          hidden_size: 2048,
          num_hidden_layers: 1,
          first_k_dense_replace: 0,
          num_attention_heads: 16,
          num_key_value_heads: 16,
          q_lora_rank: null,
          kv_lora_rank: 512,
          qk_nope_head_dim: 128,
          qk_rope_head_dim: 64,
          v_head_dim: 128,
          n_routed_experts: null,
          intermediate_size: 1408,
        },
      },
      tokens: 10,
      types: ['f16'],
    },
    {
      name: 'minicpm3: scales, no experts',
      options: { seed: 4, config: { model_type: 'minicpm3' } },
      tokens: 30,
      types: ['f32', 'q8'],
    },
  ];

describe('latent attention with absorb agrees with a float64 reference without', async () => {
  const quickest = (await testAdapters()).at(-1)!;
  for (const adapter of await adaptersInTurn('latent logits')) {
    // The slower adapter compiles for seconds: few models there, in one type.
    const all = adapter === quickest;
    for (const { name, options, tokens, types } of all
      ? drawn(models, 1, adapter.name)
      : drawn(
          models.filter(({ everywhere }) => everywhere),
          1,
          adapter.name,
        )) {
      test(`${name} on ${adapter.name}`, { timeout: 300_000 }, async () => {
        const model = makeRandomModel(options);
        const files = [...model.files].map(([file, bytes]) => new File([bytes], file));
        for (const weights of all ? types : types.slice(0, 1)) {
          const map = rounded(model.weights, weights);
          // Routing near a tie could go either way in f32.
          const prompt = clearlyRoutedTokens(model.config, map, tokens);
          const expected = referenceLogits(model.config, map, prompt);
          const loaded = await load(files, {
            weights,
            kv: 'f32',
            prefillChunk: 64,
            adapter: adapter.name,
            contextLength: 512,
          });
          try {
            const { kvLoraRank, qkRopeHeadDim } = attentionOf(model.config, 'mla');
            expect(loaded.info.kvBytesPerToken).toBe((kvLoraRank + qkRopeHeadDim) * 4 * model.config.layers.length);
            const { rows } = await loaded.logits(prompt, { all: true });
            let largest = 0;
            let worst = 0;
            for (const [position, row] of rows.entries()) {
              for (const [id, value] of row.entries()) {
                largest = Math.max(largest, Math.abs(expected[position]![id]!));
                const error = Math.abs(value - expected[position]![id]!);
                if (!(error <= worst)) worst = error;
              }
            }
            expect(worst / largest, `${weights}: worst ${worst}, largest logit ${largest}`).toBeLessThan(1e-4);
            // Generated rows run other kernels: they must pick what the reference's logits say, step after step.
            const { tokens: generated } = await loaded.generate(prompt.slice(0, 8), { maxTokens: 6, ignoreEos: true })
              .result;
            const context = [...prompt.slice(0, 8), ...generated];
            const check = referenceLogits(model.config, map, context);
            for (const [step, id] of generated.entries()) {
              const row = check[7 + step]!;
              expect(row[id]!, `${weights}: step ${step}`).toBeGreaterThan(Math.max(...row) - 1e-3);
            }
          } finally {
            await loaded.dispose();
          }
        }
      });
    }
  }
});
