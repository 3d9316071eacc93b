import { describe, expect, it } from 'vitest';
import { WEIGHT_TYPES, type WeightType } from '../../shaders/linear/pack.js';
import { alignUp } from '../base/math.js';
import { makePlan, planMemory } from '../placement/index.js';
import { attentionOf, type ModelConfig } from './config/model_config.js';
import { modelSizes } from './model_sizes.js';
import { modelShape, rankSlice } from './shape.js';
import { makeRandomModel } from './testing/random_model.js';
import { weightBytes, weightSpecs } from './weights/model_map.js';
import { isMatrixSpec, specRows } from './weights/weight_map.js';

const configOf = (config: Record<string, unknown>): ModelConfig => makeRandomModel({ config }).config;
const models: Record<string, Record<string, unknown>> = {
  llama: { attention_bias: true, mlp_bias: true, num_attention_heads: 12, num_key_value_heads: 4, head_dim: 32 },
  qwen3: { model_type: 'qwen3', num_key_value_heads: 4, head_dim: 32, tie_word_embeddings: true },
  deepseek_v2: { model_type: 'deepseek_v2' },
  deepseek_v3: { model_type: 'deepseek_v3', attention_bias: true },
  minicpm3: { model_type: 'minicpm3' },
};
/** Every cut lies at a multiple of 32. */
const aligned = { hidden_size: 64, intermediate_size: 256, vocab_size: 512 };
const alignedLatent = {
  ...aligned,
  num_attention_heads: 8,
  qk_nope_head_dim: 32,
  qk_rope_head_dim: 32,
  v_head_dim: 32,
  moe_intermediate_size: 64,
  n_shared_experts: 4,
};
const memory = { contextLength: 256, slots: 1 };

/** Weights of each rank: as placement adds them up, and exactly. */
function bothOf(config: ModelConfig, type: WeightType, policy: string, ranks: number): [number[], number[]] {
  const plan = makePlan(policy, ranks, modelShape(config));
  const planned = planMemory(plan, modelSizes(config, type, 'f16'), memory).map((rank) => rank.weightBytes);
  return [planned, planned.map((_, rank) => weightBytes(config, type, rankSlice(plan, rank, config)).bytes)];
}

describe('modelSizes', () => {
  it.each(Object.keys(models))('%s: exact on one rank', (name) => {
    const config = configOf(models[name]!);
    for (const type of WEIGHT_TYPES) {
      const [planned, exact] = bothOf(config, type, 'single', 1);
      expect(planned).toEqual(exact);
    }
  });

  it.each(Object.keys(models))('%s: exact for every rank whose cuts lie on tiles and blocks', (name) => {
    const latent = 'model_type' in models[name]! && name !== 'qwen3';
    const config = configOf({ ...models[name], ...(latent ? alignedLatent : aligned) });
    for (const type of WEIGHT_TYPES) {
      for (const [policy, ranks] of [
        ['tp', 2],
        ['tp', 4],
        ['tp+sp', 4],
        ['sp', 2],
        ['pp', 2],
        ['pp x tp', 4],
      ] as const) {
        const [planned, exact] = bothOf(config, type, policy, ranks);
        expect(planned, `${policy} on ${ranks}, ${type}`).toEqual(exact);
      }
    }
  });

  it.each(Object.keys(models))('%s: within a tile and a block of every matrix for odd cuts', (name) => {
    const config = configOf({ ...models[name], hidden_size: 72, intermediate_size: 172, vocab_size: 330 });
    for (const [policy, ranks] of [
      ['tp', 2],
      ['sp', 2],
      ['pp', 2],
    ] as const) {
      const plan = makePlan(policy, ranks, modelShape(config));
      const [planned, exact] = bothOf(config, 'f32', policy, ranks);
      exact.forEach((bytes, rank) => {
        const most = weightSpecs(config, rankSlice(plan, rank, config))
          .filter(isMatrixSpec)
          .reduce((sum, spec) => sum + 4 * 32 * (alignUp(specRows(spec), 32) + alignUp(spec.inFeatures, 32)), 0);
        expect(Math.abs(planned[rank]! - bytes), `${policy}, rank ${rank}`).toBeLessThan(most);
      });
    }
  });

  it('counts an expert and a token of the cache', () => {
    const deepseek = configOf({ model_type: 'deepseek_v3' });
    const sizes = modelSizes(deepseek, 'f16', 'f32');
    // Gate and up: 40 rows in 2 tiles each, of 72 columns in 3 blocks; down: 72 rows in 3 tiles of 40 columns in 2 blocks.
    const expert = (2 * 64 * 96 + 96 * 64) * 2;
    expect(sizes.layers.map((layer) => layer.expert)).toEqual([0, expert, expert]);
    const { kvLoraRank, qkRopeHeadDim } = attentionOf(deepseek, 'mla');
    expect(sizes.layers[0]!.kvToken).toBe((kvLoraRank + qkRopeHeadDim) * 4);
    const llama = configOf({});
    for (const kv of ['f32', 'f16'] as const) {
      // A key and a value.
      const { headDim } = attentionOf(llama, 'gqa');
      expect(modelSizes(llama, 'q4', kv).layers[0]!.kvToken).toBe(2 * headDim * (kv === 'f32' ? 4 : 2));
    }
    // Bytes, and a word of scales for each 64 of them; a latent's rotary part is f16.
    expect(modelSizes(configOf({ head_dim: 80 }), 'q4', 'q8').layers[0]!.kvToken).toBe(2 * (80 + 2 * 4));
    expect(modelSizes(deepseek, 'f16', 'q8').layers[0]!.kvToken).toBe(kvLoraRank + 4 + 2 * qkRopeHeadDim);
  });
});
