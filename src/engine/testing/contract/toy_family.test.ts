import { beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { parseModelConfig, registerFamily } from '../../../model/families/registry.js';
import { toy } from '../../../model/families/testing/toy.js';
import type { ModelConfig } from '../../../model/config/model_config.js';
import { referenceLogits } from '../../../model/testing/reference/reference.js';
import type { LoadOptions } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { randomFiles } from '../random_source.js';

const sizes = { head_dim: undefined, num_key_value_heads: 2, max_position_embeddings: 512 };
const multipliers = {
  embedding_multiplier: 3,
  attention_multiplier: 0.4,
  residual_multiplier: 0.6,
  logits_scaling: 1.5,
};

const toyName = (name: string): string =>
  (
    [
      ['model.embed_tokens', 'transformer.wte'],
      ['model.norm', 'transformer.ln_f'],
      ['lm_head', 'output_layer'],
      ['model.layers.', 'transformer.h.'],
      ['input_layernorm', 'ln_1'],
      ['post_attention_layernorm', 'ln_2'],
      ['self_attn.q_proj', 'attn.query'],
      ['self_attn.k_proj', 'attn.key'],
      ['self_attn.v_proj', 'attn.value'],
      ['self_attn.o_proj', 'attn.dense'],
      ['gate_proj', 'w1'],
      ['up_proj', 'w3'],
      ['down_proj', 'w2'],
    ] as const
  ).reduce((text, [from, to]) => text.replace(from, to), name);

/** What the family should have read, from Llama's own words. */
function expectedConfig(llama: ModelConfig): ModelConfig {
  return {
    ...llama,
    embeddingScale: 3,
    residualScale: 0.6,
    logitScale: 1 / 1.5,
    layers: llama.layers.map(({ attention, mlp }) => ({
      attention: { ...attention, scale: 0.4 } as typeof attention,
      mlp,
    })),
  };
}

describe('a family of one file and one row', async () => {
  const adapter = (await testAdapters()).at(-1)!;
  beforeAll(() => registerFamily({ family: toy, models: { toy: 'ToyForCausalLM' }, gguf: [] }));

  const prompt = Array.from({ length: 40 }, (_, i) => (i * 53 + 7) % 320);
  const logits = async (files: File[], options: LoadOptions): Promise<readonly Float32Array[]> => {
    const loaded = await load(files, {
      kv: 'f32',
      contextLength: 256,
      prefillChunk: 16,
      adapter: adapter.name,
      ...options,
    });
    try {
      expect(loaded.info.architecture).toBe('toy');
      return (await loaded.logits(prompt, { all: true })).rows;
    } finally {
      await loaded.dispose();
    }
  };

  test('is loaded and run, on one rank and on two', { timeout: 120_000 }, async () => {
    const { model, files } = randomFiles({
      config: { ...sizes, ...multipliers, model_type: 'toy', architectures: ['ToyForCausalLM'] },
      rename: toyName,
    });
    const llama = randomFiles({ config: sizes }).model.config;
    const expected = referenceLogits(expectedConfig(llama), model.weights, prompt);
    const plain = referenceLogits(llama, model.weights, prompt);
    const rows = await logits(files, { weights: 'f32' });
    const largest = Math.max(...expected.flatMap((row) => [...row].map(Math.abs)));
    const worst = (reference: readonly Float64Array[]): number =>
      Math.max(...rows.flatMap((row, at) => [...row].map((value, id) => Math.abs(value - reference[at]![id]!))));
    expect(worst(expected) / largest).toBeLessThan(1e-5);
    // The multipliers tell.
    expect(worst(plain) / largest).toBeGreaterThan(0.1);
    expect(await logits(files, { weights: 'f32', ranks: 2, plan: 'tp' })).toEqual(rows);
  });

  test('names the key at fault, and what is known', () => {
    const raw = { model_type: 'toy', vocab_size: 320, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4 };
    expect(() => parseModelConfig({ ...raw, max_position_embeddings: 512 })).toThrow(
      /'num_key_value_heads' is missing/,
    );
    expect(() => parseModelConfig({ model_type: 'tox' })).toThrow(/, toy\. Did you mean 'toy'\?/);
  });
});
