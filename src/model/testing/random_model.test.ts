import { describe, expect, it } from 'vitest';
import { loadTokenizer } from '../../tokenizer/testing/load_tokenizer.js';
import { attentionOf } from '../config/model_config.js';
import { parseModelConfig } from '../families/registry.js';
import { makeRandomModel } from './random_model.js';
import { clearlyRoutedTokens, referenceLogits, smallestRoutingMargin } from './reference/reference.js';

const text = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes);

/** The header of a safetensors file. */
function header(file: Uint8Array): Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }> {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const { __metadata__: _, ...tensors } = JSON.parse(text(file.subarray(8, 8 + length)));
  return tensors;
}

describe('makeRandomModel', () => {
  it('makes a folder whose files say the same as its config', () => {
    const { config, files } = makeRandomModel({
      config: { model_type: 'qwen3', head_dim: 24, tie_word_embeddings: true },
    });
    expect(config).toMatchObject({
      architecture: 'qwen3',
      tieWordEmbeddings: true,
    });
    expect(attentionOf(config, 'gqa').headDim).toBe(24);
    expect(parseModelConfig(text(files.get('config.json')), text(files.get('generation_config.json')))).toEqual(config);
    const tokenizer = loadTokenizer({
      tokenizerJson: text(files.get('tokenizer.json')),
      tokenizerConfig: text(files.get('tokenizer_config.json')),
    });
    expect(tokenizer.vocabSize).toBeLessThanOrEqual(config.vocabSize);
    expect(tokenizer.eosIds).toEqual(config.eosTokenIds);
    expect(tokenizer.decode(tokenizer.encode('the cat'))).toBe('the cat');
    const tensors = header(files.get('model.safetensors')!);
    expect(Object.keys(tensors)).not.toContain('lm_head.weight');
    expect(tensors['model.layers.1.self_attn.k_norm.weight']!.shape).toEqual([24]);
  });

  it.each([
    ['F32', 4, 0],
    ['F16', 2, 2 ** -11],
    ['BF16', 2, 2 ** -8],
  ] as const)('stores %s and gives the values as stored', (dtype, bytes, relativeError) => {
    const exact = makeRandomModel({ seed: 5 });
    const { files, weights } = makeRandomModel({ seed: 5, dtype });
    const file = files.get('model.safetensors')!;
    const entry = header(file)['model.norm.weight']!;
    expect(entry).toMatchObject({ dtype, shape: [64] });
    expect(entry.data_offsets[1] - entry.data_offsets[0]).toBe(64 * bytes);
    const stored = weights.get('model.layers.0.mlp.up_proj.weight')!.data;
    const wanted = exact.weights.get('model.layers.0.mlp.up_proj.weight')!.data;
    let changed = 0;
    stored.forEach((value, i) => {
      if (value !== wanted[i]) changed++;
      // 2^-25: half the spacing of f16's smallest numbers.
      expect(Math.abs(value - wanted[i]!)).toBeLessThanOrEqual(
        Math.abs(wanted[i]!) * relativeError + (dtype === 'F16' ? 2 ** -25 : 0),
      );
    });
    expect(changed > stored.length / 2).toBe(dtype !== 'F32');
  });

  it('spreads the tensors over shards with an index', () => {
    const { files, weights } = makeRandomModel({ shards: 3 });
    const index = JSON.parse(text(files.get('model.safetensors.index.json')));
    expect(Object.keys(index.weight_map).sort()).toEqual([...weights.keys()].sort());
    const shards = [...files.keys()].filter((name) => name.endsWith('.safetensors'));
    expect(shards).toEqual([1, 2, 3].map((i) => `model-0000${i}-of-00003.safetensors`));
    for (const shard of shards) {
      for (const name of Object.keys(header(files.get(shard)!))) expect(index.weight_map[name]).toBe(shard);
    }
  });

  it('depends on the seed and on nothing else', () => {
    const data = (seed: number) => makeRandomModel({ seed }).files.get('model.safetensors')!;
    expect(Buffer.compare(data(3), data(3))).toBe(0);
    expect(Buffer.compare(data(3), data(4))).not.toBe(0);
  });

  it('makes logits of a useful size that depend on the order of the context', () => {
    const { config, weights } = makeRandomModel({ seed: 11 });
    const tokens = [5, 70, 9, 200, 31, 70, 12, 260];
    const last = (ids: number[]) => referenceLogits(config, weights, ids).at(-1)!;
    const logits = last(tokens);
    const deviation = Math.sqrt(logits.reduce((sum, x) => sum + x * x, 0) / logits.length);
    expect(deviation).toBeGreaterThan(1);
    expect(deviation).toBeLessThan(10);
    const swapped = last([5, 9, 70, 200, 31, 70, 12, 260]);
    expect(Math.max(...logits.map((x, i) => Math.abs(x - swapped[i]!)))).toBeGreaterThan(0.1);
  });

  it.each(['deepseek_v2', 'deepseek_v3', 'minicpm3'] as const)('makes a %s with every tensor once', (model_type) => {
    const { config, files, weights } = makeRandomModel({ config: { model_type }, dtype: 'BF16' });
    expect(parseModelConfig(text(files.get('config.json')))).toEqual(config);
    const tensors = header(files.get('model.safetensors')!);
    expect(Object.keys(tensors).sort()).toEqual([...weights.keys()].sort());
    const layer = (name: string) => tensors[`model.layers.1.${name}`];
    expect(layer('self_attn.kv_a_proj_with_mqa.weight')!.shape).toEqual([32 + 16, 72]);
    expect(layer('self_attn.kv_b_proj.weight')!.shape).toEqual([3 * (24 + 40), 32]);
    expect(layer('self_attn.q_proj.weight') === undefined).toBe(model_type !== 'deepseek_v2');
    expect(layer('mlp.experts.7.down_proj.weight')?.shape).toEqual(model_type === 'minicpm3' ? undefined : [72, 40]);
    expect(layer('mlp.gate.e_score_correction_bias')?.dtype).toBe(model_type === 'deepseek_v3' ? 'F32' : undefined);
    expect(tensors['lm_head.weight'] === undefined).toBe(model_type === 'minicpm3');
  });

  it('gives attention_bias to the first projections and the last, where it counts', () => {
    const { config, weights } = makeRandomModel({
      config: { model_type: 'deepseek_v3', attention_bias: true, num_hidden_layers: 1 },
    });
    const biases = [...weights.keys()].filter((name) => name.endsWith('.bias')).map((name) => name.split('.').at(-2));
    expect(biases).toEqual(['q_a_proj', 'kv_a_proj_with_mqa', 'o_proj']);
    const biased = referenceLogits(config, weights, [3, 4])[1]!;
    const unbiased = { ...config.layers[0]!, attention: { ...attentionOf(config, 'mla'), bias: false } };
    const without = referenceLogits({ ...config, layers: [unbiased] }, weights, [3, 4])[1]!;
    expect(Math.max(...biased.map((x, i) => Math.abs(x - without[i]!)))).toBeGreaterThan(0.1);
  });

  it.each(['deepseek_v2', 'deepseek_v3'])('lets the routers of a %s choose clearly and differently', (model_type) => {
    const { config, weights } = makeRandomModel({ config: { model_type } });
    const tokens = clearlyRoutedTokens(config, weights, 48, 3);
    expect(new Set(tokens).size).toBeGreaterThan(40);
    expect(smallestRoutingMargin(config, weights, tokens)).toBeGreaterThanOrEqual(2e-4);
    const used = new Set<string>();
    const logits = referenceLogits(config, weights, tokens, {
      onRouting: ({ experts }, layer) => experts.forEach((expert) => used.add(`${layer}.${expert}`)),
    });
    expect(used.size).toBe(2 * 8);
    const squares = logits.map((row) => row.reduce((sum, x) => sum + x * x, 0) / row.length);
    expect(Math.sqrt(Math.max(...squares))).toBeLessThan(10);
    expect(Math.sqrt(Math.min(...squares))).toBeGreaterThan(1);
  });
});
