import { beforeAll, describe, expect, test } from 'vitest';
import type { ModelConfig } from '../../model/config/model_config.js';
import { loadFamilies, parseModelConfig } from '../../model/families/registry.js';
import { modelSizes } from '../../model/model_sizes.js';
import { modelShape } from '../../model/shape.js';
import { PUBLISHED } from '../../model/testing/published_configs.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { load } from '../faces/load.js';
import { randomFiles } from '../testing/random_source.js';
import { contextOf } from './context_length.js';

const configOf = (name: string, changes: object = {}): ModelConfig =>
  parseModelConfig({ ...PUBLISHED[name]!.config, ...changes });
const of = (config: ModelConfig, kvType: 'f32' | 'f16' | 'q8' = 'f16', memory?: number | number[]): number =>
  contextOf(undefined, { config, type: 'f16', kvType, memory });
/** Bytes of a sequence's cache, of layers without windows. */
function cacheBytes(config: ModelConfig, kvType: 'f32' | 'f16', tokens: number): number {
  const heads = modelShape(config).segmentHeads.length;
  return modelSizes(config, 'f16', kvType).layers.reduce((sum, { kvToken }) => sum + kvToken * heads * tokens, 0);
}

describe("a context's length", () => {
  beforeAll(loadFamilies);

  test('as asked, up to the positions that the model has', () => {
    const config = configOf('qwen3-0.6b');
    expect(contextOf(100, { config, type: 'f16', kvType: 'f16' })).toBe(100);
    expect(contextOf(40960, { config, type: 'f16', kvType: 'f16' })).toBe(40960);
    expect(() => contextOf(40961, { config, type: 'f16', kvType: 'f16' })).toThrow(/at most 40960 positions/);
  });

  test('where nothing is said, what the model has and 1 GiB of cache holds, at most 32768', () => {
    expect(of(configOf('smollm2-135m-instruct'))).toBe(8192);
    expect(of(configOf('qwen2.5-0.5b-instruct'))).toBe(32768);
    for (const kvType of ['f16', 'f32'] as const) {
      const config = configOf('llama-3.2-1b-instruct');
      const tokens = of(config, kvType);
      expect(tokens % 1024).toBe(0);
      expect(tokens).toBeGreaterThan(4096);
      expect(cacheBytes(config, kvType, tokens)).toBeLessThanOrEqual(2 ** 30);
      expect(cacheBytes(config, kvType, tokens + 1024)).toBeGreaterThan(2 ** 30);
    }
    const { config: short } = makeRandomModel({ config: { max_position_embeddings: 512 } });
    expect(of(short)).toBe(512);
    const { config: long } = makeRandomModel({ config: { max_position_embeddings: 2 ** 20 } });
    expect(of(long)).toBe(32768);
  });

  test('windows count as far as they go', () => {
    expect(of(configOf('gemma-3-1b-it'), 'f32')).toBe(32768);
    expect(of(configOf('gemma-3-1b-it', { sliding_window: 32768 }), 'f32')).toBeLessThan(32768);
  });

  test('4096 tokens in any case, and with budgets no more than half of what they leave', () => {
    const wide = configOf('qwen3-0.6b', { num_key_value_heads: 16, num_hidden_layers: 200 });
    expect(of(wide, 'f32')).toBe(4096);
    const config = configOf('qwen3-0.6b');
    const weights = 2 ** 30 * 1.2;
    expect(of(config, 'f16', 2 ** 40)).toBe(of(config));
    expect(of(config, 'f16', weights * 2)).toBeLessThan(of(config));
    expect(of(config, 'f16', [weights, weights])).toBe(of(config, 'f16', weights * 2));
    expect(of(config, 'f16', 1000)).toBe(4096);
  });

  test("LongRoPE's short factors stay", () => {
    const factors = Array.from({ length: 8 }, () => 1.5);
    const { config } = makeRandomModel({
      config: {
        model_type: 'phi3',
        max_position_embeddings: 131072,
        original_max_position_embeddings: 4096,
        rope_scaling: { type: 'longrope', short_factor: factors, long_factor: factors },
      },
    });
    expect(of(config)).toBe(4096);
  });

  test('a default that there is no room for gives way to 4096 tokens, and says so; what was asked for does not', async () => {
    const { model, files } = randomFiles({ config: { max_position_embeddings: 32768 } });
    const token = cacheBytes(model.config, 'f32', 1);
    // Half of what is left holds 16 K tokens: room for one such sequence, not for 6.
    const options = { kv: 'f32', memory: 2 ** 24 + 32768 * token, requests: 6, tune: false } as const;
    const warnings: string[] = [];
    const loaded = await load(files, { ...options, onWarning: (text) => warnings.push(text) });
    expect(loaded.info.contextLength).toBe(4096);
    expect(warnings.join()).toMatch(/no room for a context of \d+ tokens .*: it is of 4096/);
    await loaded.dispose();
    await expect(load(files, { ...options, contextLength: 16384 })).rejects.toMatchObject({ code: 'limit' });
  });
});
