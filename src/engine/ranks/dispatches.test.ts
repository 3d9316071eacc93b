import { describe, expect, test } from 'vitest';
import { KV_BLOCK } from '../../base/kv_units.js';
import { openPaperDevice } from '../../gpu/index.js';
import { loadWeights } from '../../model/device_model.js';
import { World } from '../../model/layers/world.js';
import { modelShape, rankSlice } from '../../model/shape.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { STATE_SPACE } from '../../model/testing/small_configs.js';
import { makePlan } from '../../placement/index.js';
import { blankWeights } from '../measure/synthetic_weights.js';
import { RankRunner } from './rank_runner.js';

/** Dispatches of a decode step on the first rank of a plan, on a device that only plans. */
async function dispatches(
  config: Record<string, unknown>,
  {
    variants,
    plan = 'single',
    ranks = 1,
  }: { readonly variants: 'hardware' | 'software'; plan?: string; ranks?: number },
): Promise<number> {
  const model = makeRandomModel({ config: { max_position_embeddings: 4096, ...config } }).config;
  const paper = await openPaperDevice();
  const device = await openPaperDevice({ traits: paper.traits, adapter: { ...paper.adapter, variants } });
  const placed = makePlan(plan, ranks, modelShape(model));
  const world = new World(placed, 0);
  const weights = await loadWeights(device, model, blankWeights(model, rankSlice(placed, 0, model)), 'f16', world);
  const options = {
    slots: 4,
    contextLength: 4096,
    prefillChunk: 64,
    kvType: 'f16',
    kvBlocks: 4096 / KV_BLOCK,
  } as const;
  return (await RankRunner.create(device, world, model, weights, options)).facts.dispatchesPerStep;
}

/** What a layer more takes. */
async function perLayer(config: Record<string, unknown>, how: Parameters<typeof dispatches>[1]): Promise<number> {
  const [three, five] = [
    await dispatches({ ...config, num_hidden_layers: 3 }, how),
    await dispatches({ ...config, num_hidden_layers: 5 }, how),
  ];
  return (five - three) / 2;
}

describe('dispatches of a layer for one token', () => {
  test.each([
    ['llama', 5],
    ['qwen2', 5],
    ['qwen3', 5],
    ['mistral', 5],
    ['granite', 5],
    ['smollm3', 5],
    // A bottleneck of q.
    ['minicpm3', 7],
    ['deepseek_v2', 8],
    ['deepseek_v3', 8],
  ])('on a GPU: %s takes %i', async (type, most) => {
    expect(await perLayer({ model_type: type }, { variants: 'hardware' })).toBe(most);
    // A rank of a tensor-parallel plan adds up two sums besides; with latents it shares the sequences, too.
    if (most > 5) return;
    expect(await perLayer({ model_type: type }, { variants: 'hardware', plan: 'tp', ranks: 2 })).toBe(most + 2);
  });

  test('on a GPU: linear attention by the gated delta rule is one between its projections', async () => {
    const heads = { linear_num_key_heads: 2, linear_key_head_dim: 16, linear_value_head_dim: 16 };
    const linear = { model_type: 'qwen3_5_text', head_dim: 32, ...heads };
    const taken = async (ratio: number, variants: 'hardware' | 'software'): Promise<number> => {
      const [three, five] = await Promise.all(
        [3, 5].map((layers) => {
          const types = Array.from({ length: layers }, (_, layer) =>
            layer === 0 ? 'full_attention' : 'linear_attention',
          );
          const config = { ...linear, linear_num_value_heads: 2 * ratio, num_hidden_layers: layers };
          return dispatches({ ...config, layer_types: types }, { variants });
        }),
      );
      return (five! - three!) / 2;
    };
    for (const ratio of [1, 3]) {
      expect(await taken(ratio, 'hardware')).toBe(5);
      // A convolution, heads, the rule and a norm, where the other has two.
      expect(await taken(ratio, 'software')).toBe(
        (await perLayer({ model_type: 'llama' }, { variants: 'software' })) + 2,
      );
    }
  });

  test('on a GPU: seven of Mamba-2, one of its two sums with another rank, and the MLP', async () => {
    const taken = async (how: Parameters<typeof dispatches>[1]): Promise<number> => {
      const [three, five] = await Promise.all(
        [3, 5].map((layers) => {
          const types = Array.from({ length: layers }, (_, layer) => (layer === 0 ? 'attention' : 'mamba'));
          return dispatches(
            { ...STATE_SPACE, shared_intermediate_size: 128, num_hidden_layers: layers, layer_types: types },
            how,
          );
        }),
      );
      return (five! - three!) / 2;
    };
    expect(await taken({ variants: 'hardware' })).toBe(9);
    expect(await taken({ variants: 'hardware', plan: 'tp', ranks: 2 })).toBe(11);
  });

  test('on a GPU: a gated short convolution is in the projection before it, where channels stand in whole tiles', async () => {
    const config = { model_type: 'lfm2', head_dim: undefined, num_attention_heads: 3, num_key_value_heads: 3 };
    const taken = (width: number): Promise<number> =>
      perLayer({ ...config, hidden_size: width, full_attn_idxs: [0] }, { variants: 'hardware' });
    expect(await taken(96)).toBe(4);
    expect(await taken(72)).toBe(5);
  });

  test('on a GPU: a mixture of experts on one rank, and spread over two', async () => {
    const experts = { model_type: 'qwen3_moe', num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 32 };
    expect(await perLayer(experts, { variants: 'hardware' })).toBe(6);
    // Each adds up two sums: of its heads' outputs, and of all experts.
    expect(await perLayer(experts, { variants: 'hardware', plan: 'tp', ranks: 2 })).toBe(8);
  });

  test.each([
    ['gemma3_text', 5, { hidden_act: undefined, rope_theta: undefined }],
    ['gemma2', 5, { hidden_act: undefined }],
    ['glm4', 5, {}],
    // Without norms before halves, and with those of q and k over all heads.
    ['olmo2', 7, {}],
  ])('on a GPU: norms behind halves are done by who reads their sums, %s takes %i', async (type, most, config) => {
    expect(await perLayer({ model_type: type, ...config }, { variants: 'hardware' })).toBe(most);
    // The sums of a tensor-parallel plan are added up first.
    if (most > 5) return;
    expect(await perLayer({ model_type: type, ...config }, { variants: 'hardware', plan: 'tp', ranks: 2 })).toBe(
      most + 2,
    );
  });

  test('on a GPU: a layer that may see less than the context takes no more', async () => {
    const windowed = { model_type: 'phi3', head_dim: undefined, sliding_window: 300 };
    expect(await perLayer(windowed, { variants: 'hardware' })).toBe(5);
  });

  // In steps of one chunk, which need no merge.
  test.each([
    ['llama', 6],
    ['deepseek_v3', 15],
  ])('on a software adapter: %s takes %i', async (type, most) => {
    expect(await perLayer({ model_type: type }, { variants: 'software' })).toBe(most);
  });
});
