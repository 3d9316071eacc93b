import { describe, expect, test } from 'vitest';
import { parseModelConfig } from '../../model/families/registry.js';
import { modelShape } from '../../model/shape.js';
import { makePlan, Owners, POLICIES } from '../../placement/index.js';
import { exactWeights } from '../planning/budgets.js';
import type { ModelFacts } from './describe_model.js';
import { kvBlocksOf } from './kv_pool.js';

const llama = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  vocab_size: 320,
  max_position_embeddings: 1024,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
};

function facts(plan: string, ranks: number, config: Record<string, unknown> = {}): ModelFacts {
  const parsed = parseModelConfig({ ...llama, ...config });
  return {
    config: parsed,
    type: 'f32',
    kvType: 'f32',
    plan: makePlan(plan, ranks, modelShape(parsed)),
    contextLength: 1024,
  };
}

/** 2 layers, K and V, 2 heads of 16, 4 bytes. */
const TOKEN = 2 * 2 * 2 * 16 * 4;
const one = facts('single', 1);

describe('KV blocks', () => {
  test('a small model gets whole contexts for every slot', () => {
    expect(kvBlocksOf(one, 4, {})).toBe(4 * 16);
  });

  test('as many as the memory holds, on each rank', () => {
    expect(kvBlocksOf(one, 16, { kvMemory: 64 * TOKEN * 10 })).toBe(10);
    expect(kvBlocksOf(one, 16, { kvMemory: 64 * TOKEN * 10 - 1 })).toBe(9);
    // Two ranks hold a kv head each.
    expect(kvBlocksOf(facts('tp', 2), 16, { kvMemory: 64 * TOKEN * 10 })).toBe(20);
    // Two ranks hold every second chunk.
    expect(kvBlocksOf(facts('sp', 2), 4, { kvMemory: 64 * TOKEN * 22 })).toBe(20 * 2);
    expect(kvBlocksOf(facts('pp', 2), 16, { kvMemory: 64 * TOKEN * 10 })).toBe(20);
  });

  test('ranks that keep whole sequences have a pool each, and each holds a whole context', () => {
    const token = facts('token', 3);
    const shares = new Owners(token.plan, 8).ranges(0).map(([first, end]) => end - first);
    expect(Math.min(...shares)).toBeLessThan(Math.max(...shares));
    const blocks = kvBlocksOf(token, 8, { kvMemory: 64 * TOKEN * 20 });
    expect(Math.ceil((blocks * Math.max(...shares)) / 8)).toBe(20);
    const least = kvBlocksOf(token, 8, {}, [1, 1, 1]);
    expect(Math.floor((least * Math.max(...shares)) / 8)).toBeGreaterThanOrEqual(16);
  });

  test('ranks that run their own rows hold whole sequences, each its slots', () => {
    expect(kvBlocksOf(facts('adp', 2), 4, { kvMemory: 64 * TOKEN * 10 })).toBe(20);
    // Of 5 slots one rank has 3, and the memory is what it may take.
    expect(kvBlocksOf(facts('adp', 2), 5, { kvMemory: 64 * TOKEN * 12 })).toBe(20);
    // In each of two stages, of a layer.
    expect(kvBlocksOf(facts('pp x adp', 4), 4, { kvMemory: 32 * TOKEN * 10 })).toBe(20);
    expect(kvBlocksOf(facts('pp x adp', 4), 4, {})).toBe(4 * 16);
  });

  test.each(POLICIES)('%s: each pool has room for a whole context, and a small model for all', (policy) => {
    const type = { model_type: 'mixtral', architectures: ['MixtralForCausalLM'] };
    const experts = policy.includes('ep') && { ...type, num_local_experts: 8, num_experts_per_tok: 2 };
    const ranks = { single: 1, pp: 2 }[policy] ?? 8;
    const heads = { num_attention_heads: 16, num_key_value_heads: 8, intermediate_size: 512 };
    const own = facts(policy, ranks, { ...heads, ...experts });
    expect(16 % new Owners(own.plan, 16).split).toBe(0);
    expect(kvBlocksOf(own, 16, {})).toBe(16 * 16);
  });

  test('the default ends at 1 GiB, but holds a whole context', () => {
    const large = { num_hidden_layers: 32, num_key_value_heads: 4, head_dim: 128, max_position_embeddings: 131072 };
    const token = 32 * 2 * 4 * 128 * 4;
    const of = (contextLength: number): number =>
      kvBlocksOf({ ...facts('single', 1, large), contextLength }, 16, {}) * 64 * token;
    expect(of(8192)).toBe(2 ** 30);
    expect(of(131072)).toBe(131072 * token);
  });

  test('with a memory budget the default is most of what the weights leave', () => {
    const [weights] = exactWeights(one)(one.plan) as [number];
    expect(kvBlocksOf(one, 16, {}, [weights + 64 * TOKEN * 100])).toBe(80);
    expect(kvBlocksOf(one, 16, {}, [weights - 1])).toBe(16);
  });

  test('numbers given are taken, up to what the slots can use', () => {
    expect(kvBlocksOf(one, 4, { kvBlocks: 7 })).toBe(7);
    expect(kvBlocksOf(one, 4, { kvBlocks: 1000 })).toBe(64);
    expect(() => kvBlocksOf(one, 4, { kvBlocks: 0 })).toThrow('kvBlocks 0: expected an integer of at least 1');
    expect(() => kvBlocksOf(one, 4, { kvBlocks: 1, kvMemory: 1 })).toThrow('say the same');
    expect(() => kvBlocksOf(one, 4, { kvMemory: Number.NaN })).toThrow('kvMemory NaN: expected bytes above 0');
    expect(() => kvBlocksOf(one, 4, { kvMemory: 1000 })).toThrow(/kvMemory 1000 B: a context of 1024 tokens takes/);
  });
});
