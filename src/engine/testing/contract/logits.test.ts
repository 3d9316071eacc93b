import { drawn, isTurn } from '../../../gpu/testing/draw.js';
import { describe, expect, test } from 'vitest';
import { roundWeights } from '../../../../shaders/linear/round_weights.js';
import { adaptersInTurn, testAdapters } from '../../../gpu/testing/adapters.js';
import type { ModelConfig } from '../../../model/config/model_config.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import { referenceLogits, type WeightMap } from '../../../model/testing/reference/reference.js';
import type { LoadOptions, WeightType } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { randomFiles } from '../random_source.js';

/** Matrices rounded as the runtime keeps them; norms and biases stay f32. */
function rounded(weights: WeightMap, type: WeightType): WeightMap {
  return new Map(
    [...weights].map(([name, tensor]) => [
      name,
      tensor.shape.length === 2
        ? { ...tensor, data: roundWeights(type, tensor.data as Float32Array, tensor.shape[0]!, tensor.shape[1]!) }
        : tensor,
    ]),
  );
}

const models: {
  name: string;
  options: RandomModelOptions;
  tokens: number;
  types: readonly WeightType[];
  everywhere?: true;
}[] = [
  { name: 'llama 4/2 heads', options: { seed: 1 }, tokens: 20, types: ['f32', 'f16', 'q8', 'q4'], everywhere: true },
  {
    name: 'odd sizes, head_dim 24, 9/3 heads, tied',
    options: {
      seed: 2,
      config: {
        hidden_size: 100,
        intermediate_size: 172,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        head_dim: 24,
        vocab_size: 333,
        tie_word_embeddings: true,
      },
    },
    tokens: 40,
    types: ['f32', 'q8', 'q4'],
    everywhere: true,
  },
  {
    name: 'qwen2 with biases, head_dim 8, 7/1 heads',
    options: {
      seed: 3,
      config: {
        model_type: 'qwen2',
        hidden_size: 56,
        num_attention_heads: 7,
        num_key_value_heads: 1,
        head_dim: 8,
        intermediate_size: 40,
      },
    },
    tokens: 300,
    types: ['f32', 'q4'],
  },
  {
    name: 'qwen3 with q/k norm, head_dim 40',
    options: {
      seed: 4,
      config: { model_type: 'qwen3', hidden_size: 72, num_attention_heads: 6, num_key_value_heads: 2, head_dim: 40 },
    },
    tokens: 30,
    types: ['f32', 'q8'],
  },
  {
    name: 'llama 3 rope scaling, all biases, head_dim 256',
    options: {
      seed: 5,
      config: {
        head_dim: 256,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        num_hidden_layers: 1,
        attention_bias: true,
        mlp_bias: true,
        rope_theta: 500000,
        rope_scaling: {
          rope_type: 'llama3',
          factor: 8,
          low_freq_factor: 1,
          high_freq_factor: 4,
          original_max_position_embeddings: 64,
        },
      },
    },
    tokens: 150,
    types: ['f32', 'f16'],
  },
  {
    name: 'bf16, sharded, mistral',
    options: { seed: 6, dtype: 'BF16', shards: 3, config: { model_type: 'mistral' } },
    tokens: 17,
    types: ['f32'],
  },
];

const promptOf = (config: ModelConfig, length: number, seed: number): number[] =>
  Array.from({ length }, (_, i) => (i * 7919 + seed * 131 + ((i * i) % 97)) % config.vocabSize);

describe('logits agree with a float64 reference', async () => {
  const quickest = (await testAdapters()).at(-1)!.name;
  const everywhere = models.filter((model) => model.everywhere);
  const runs = (await adaptersInTurn('logits')).flatMap(({ name }) => {
    // The slower adapter compiles for seconds: few models there. A GPU's variants run on the quicker one.
    if (name !== quickest) return [{ adapter: name, variants: 'auto', drawn: drawn(everywhere, 1, name) }];
    return [
      { adapter: name, variants: 'auto', drawn: drawn(models, 1, name) },
      {
        adapter: name,
        variants: 'hardware',
        drawn: isTurn(2, 'hardware logits') ? drawn(models, 1, `${name} hardware`) : [],
      },
    ];
  }) satisfies { variants: LoadOptions['variants'] }[];
  for (const { adapter, variants, drawn: chosen } of runs) {
    for (const { name, options, tokens, types } of chosen) {
      test(`${name} on ${adapter}, variants ${variants}`, { timeout: 180_000 }, async () => {
        const { model, files } = randomFiles(options);
        const prompt = promptOf(model.config, tokens, options.seed!);
        for (const weights of types) {
          const expected = referenceLogits(model.config, rounded(model.weights, weights), prompt);
          const loaded = await load(files, {
            weights,
            kv: 'f32',
            prefillChunk: 64,
            adapter,
            variants,
            contextLength: 512,
          });
          try {
            const { positions, rows } = await loaded.logits(prompt, { all: true });
            expect(positions).toEqual(prompt.map((_, i) => i));
            let largest = 0;
            let worst = 0;
            for (const [position, row] of rows.entries()) {
              for (const [id, value] of row.entries()) {
                const want = expected[position]![id]!;
                largest = Math.max(largest, Math.abs(want));
                const error = Math.abs(value - want);
                if (!(error <= worst)) worst = error; // NaN counts as worst
              }
            }
            expect(worst / largest, `${weights}: worst ${worst}, largest logit ${largest}`).toBeLessThan(1e-4);
          } finally {
            await loaded.dispose();
          }
        }
      });
    }
  }
});
