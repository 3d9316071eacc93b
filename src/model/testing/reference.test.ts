import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Random } from '../../base/random.js';
import { modelToGguf } from './gguf.js';
import { findLlamaCpp, llamaCppLogits } from './llama_cpp.js';
import { makeRandomModel } from './random_model.js';
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
];

describe.skipIf(typeof llama === 'string')('the float64 reference and llama.cpp agree', () => {
  it.each(cases)('%s', async (name, changes) => {
    const { config, weights } = makeRandomModel({ config: changes, seed: name.length });
    const random = new Random(7);
    const tokens = Array.from({ length: 150 }, () => random.integer(config.vocabSize));
    const path = join(folder, `${cases.findIndex(([other]) => other === name)}.gguf`);
    await writeFile(path, modelToGguf(config, weights));
    if (typeof llama === 'string') throw new Error(llama);
    const oracle = await llamaCppLogits(llama, path, tokens);
    const reference = referenceLogits(config, weights, tokens);
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
    expect(worst / largest).toBeLessThan(2e-5);
  });
});
