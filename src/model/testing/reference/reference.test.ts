import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Random } from '../../../base/random.js';
import { modelToGguf } from '../gguf/model.js';
import { findLlamaCpp, llamaCppLogits } from '../llama_cpp.js';
import { makeRandomModel } from '../random_model.js';
import { referenceLogits } from './reference.js';

const llama = await findLlamaCpp();
if (typeof llama === 'string') console.warn(`skipped: the reference against llama.cpp (${llama})`);
const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
afterAll(async () => {
  if (typeof llama !== 'string') await llama.dispose();
  await rm(folder, { recursive: true });
});

const llama3 = {
  rope_type: 'llama3',
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 64,
};
/** 32 and 1 turns of the trained context of 128 lie within the 8 frequencies, so that some are blended. */
const yarn = (mscale: number) => ({
  type: 'yarn',
  factor: 40,
  beta_fast: 32,
  beta_slow: 1,
  original_max_position_embeddings: 128,
  mscale,
  mscale_all_dim: mscale,
});
// llama.cpp takes models of 27 layers for V2-Lite, which alone has no q_lora.
const v2Lite = { model_type: 'deepseek_v2', num_hidden_layers: 27, n_routed_experts: 5, num_experts_per_tok: 2 };
const v3 = { model_type: 'deepseek_v3' };
// The scales llama.cpp has in its source.
const minicpm3 = { model_type: 'minicpm3', scale_emb: 12, scale_depth: 1.4, dim_model_base: 256 };
const longrope = (original: number) => ({
  rope_type: 'longrope',
  original_max_position_embeddings: original,
  factor: 1,
  short_factor: [1, 1.1, 1.2, 1.3, 1.5, 1.8, 2, 2.5],
  long_factor: [1, 1.5, 2, 3, 5, 8, 13, 20],
});
const cases: [name: string, config: Record<string, unknown>][] = [
  ['llama', {}],
  ['llama, tied, wide heads, one kv head', { tie_word_embeddings: true, head_dim: 40, num_key_value_heads: 1 }],
  ['llama, every head its own', { num_key_value_heads: 4, num_hidden_layers: 3 }],
  ['llama with biases', { attention_bias: true, mlp_bias: true }],
  ['llama with llama3 rope', { rope_scaling: llama3, rope_theta: 500000 }],
  ['llama with linear rope', { rope_scaling: { type: 'linear', factor: 4 } }],
  ['mistral', { model_type: 'mistral' }],
  ['qwen2', { model_type: 'qwen2', rope_theta: 1e6, rms_norm_eps: 1e-6 }],
  ['qwen2, tied', { model_type: 'qwen2', tie_word_embeddings: true }],
  ['qwen3', { model_type: 'qwen3', head_dim: 32 }],
  ['deepseek_v2 without q_lora', v2Lite],
  ['deepseek_v2 with q_lora, normalised weights', { model_type: 'deepseek_v2', q_lora_rank: 48, norm_topk_prob: true }],
  ['deepseek_v2 with YaRN as in V2-Lite', { ...v2Lite, rope_scaling: yarn(0.707) }],
  ['deepseek_v3 with groups', { model_type: 'deepseek_v3' }],
  ['deepseek_v3 without groups, rotary rows in halves', { ...v3, n_group: 1, topk_group: 1, rope_interleave: false }],
  ['deepseek_v3 with YaRN', { ...v3, rope_scaling: yarn(1) }],
  ['minicpm3', minicpm3],
  ['minicpm3 with longrope within the trained context', { ...minicpm3, rope_scaling: longrope(512) }],
  ['minicpm3 with longrope beyond it', { ...minicpm3, rope_scaling: longrope(64) }],
];

describe.skipIf(typeof llama === 'string')('the float64 reference and llama.cpp agree', () => {
  it.each(cases)('%s', async (name, changes) => {
    const { config, weights } = makeRandomModel({ config: changes, seed: name.length });
    const random = new Random(7);
    const tokens = Array.from({ length: config.layers.length > 3 ? 60 : 150 }, () => random.integer(config.vocabSize));
    const path = join(folder, `${cases.findIndex(([other]) => other === name)}.gguf`);
    await writeFile(path, modelToGguf(config, weights));
    if (typeof llama === 'string') throw new Error(llama);
    const oracle = await llamaCppLogits(llama, path, tokens);
    const reference = referenceLogits(config, weights, tokens, { contextLength: 256 });
    let largest = 0;
    let worst = 0;
    reference.forEach((row, position) => {
      expect(oracle[position]).toHaveLength(row.length);
      row.forEach((logit, id) => {
        largest = Math.max(largest, Math.abs(logit));
        const difference = Math.abs(logit - oracle[position]![id]!);
        // Written so that NaN counts as the worst.
        if (!(difference <= worst)) worst = difference;
      });
    });
    expect(largest).toBeGreaterThan(5);
    // 27 layers of f32 arithmetic add up to more than two.
    expect(worst / largest).toBeLessThan(config.layers.length > 3 ? 1e-4 : 2e-5);
  });
});
