import { describe, expect, it } from 'vitest';
import type { WeightType } from '../../../shaders/linear/pack.js';
import type { Plan } from '../../placement/plan.js';
import type { ModelConfig } from '../config/model_config.js';
import { BLOCK_TYPES, blockOf, type BlockType } from '../../loader/dtype.js';
import type { TensorEntry } from '../../loader/index.js';
import { parseModelConfig } from '../families/registry.js';
import { rankSlice } from '../shape.js';
import { handPlan, range } from '../testing/plans.js';
import { PUBLISHED } from '../testing/published_configs.js';
import { makeRandomModel } from '../testing/random_model.js';
import { weightBytes, weightSpecs } from './model_map.js';
import { storedTypes } from './stored_types.js';
import { expectedTensors } from './weight_map.js';

const configOf = (config: Record<string, unknown>): ModelConfig => makeRandomModel({ config }).config;
const rankBytes = (plan: Plan, config: ModelConfig, type: WeightType): number[] =>
  range(0, plan.worldSize).map((rank) => weightBytes(config, type, rankSlice(plan, rank, config)).bytes);
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
/** Bytes of a weight whose rows and columns are multiples of 32. */
const BYTES = { f32: 4, f16: 2, q8: 34 / 32, q4: 18 / 32 };
const types = Object.keys(BYTES) as WeightType[];

// Every cut of these two lies at multiples of 32, so that no tile is padded.
const even = configOf({
  hidden_size: 64,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 32,
  intermediate_size: 256,
  vocab_size: 256,
});
const evenLatent = configOf({
  model_type: 'deepseek_v3',
  hidden_size: 64,
  intermediate_size: 256,
  num_attention_heads: 8,
  q_lora_rank: 64,
  kv_lora_rank: 32,
  qk_nope_head_dim: 32,
  qk_rope_head_dim: 32,
  v_head_dim: 32,
  moe_intermediate_size: 32,
  n_shared_experts: 8,
  vocab_size: 512,
});
/** Layer norms and the final one, f32. */
const norms = ({ layers, hiddenSize }: ModelConfig): number => (2 * layers.length + 1) * hiddenSize * 4;

describe('bytes over all ranks are those of one rank and what the plan repeats', () => {
  it.each(types)('heads, columns and vocabulary cut: the norms, %s', (type) => {
    const rows = range(0, 4).map((rank) => ({ rank, rows: [64 * rank, 64 * (rank + 1)] as const }));
    const plan = handPlan(
      even,
      [{ layers: [0, 2], heads: [[0], [1], [2], [3]], mlp: range(0, 4).map((i) => [2 * i, 2 * i + 1]) }],
      { embedding: rows, head: rows },
    );
    const ranks = rankBytes(plan, even, type);
    expect(new Set(ranks).size).toBe(1);
    expect(sum(ranks)).toBe(weightBytes(even, type).bytes + 3 * norms(even));
  });

  it.each(types)('heads anywhere: the norms, and the slices of every copy, %s', (type) => {
    const rows = range(0, 3).map((rank) => ({ rank, rows: [64 * rank, rank === 2 ? 256 : 64 * (rank + 1)] as const }));
    const mlp = [range(0, 3), range(3, 6), range(6, 8)];
    const plan = handPlan(
      even,
      [
        {
          layers: [0, 1],
          heads: [
            [0, 2],
            [1, 3],
            [2, 3],
          ],
          mlp,
        },
        { layers: [1, 2], heads: [[], [0, 1, 3], [1, 2]], mlp },
      ],
      { embedding: rows, head: rows },
    );
    const ranks = rankBytes(plan, even, type);
    // q, k, v and o of a kv head with its two query heads.
    const head = even.hiddenSize * 32 * (2 + 1 + 1 + 2) * BYTES[type];
    expect(sum(ranks)).toBe(weightBytes(even, type).bytes + 2 * norms(even) + 3 * head);
    // MLP segments of 32 columns: gate, up and down; rows of the embedding and the head.
    const column = 3 * even.hiddenSize * 32 * BYTES[type];
    const row = 2 * even.hiddenSize * BYTES[type];
    expect(ranks).toEqual([
      norms(even) + 2 * head + 6 * column + 64 * row,
      norms(even) + 5 * head + 6 * column + 64 * row,
      norms(even) + 4 * head + 4 * column + 128 * row,
    ]);
  });

  it.each(types)('replicas of weight groups and a whole embedding: all of that, %s', (type) => {
    const heads = [
      [0, 1],
      [0, 1],
      [2, 3],
      [2, 3],
    ];
    const mlp = [range(0, 4), range(0, 4), range(4, 8), range(4, 8)];
    const plan = handPlan(even, [{ layers: [0, 2], heads, mlp }]);
    const { hiddenSize, vocabSize } = even;
    const matrices = weightBytes(even, type).bytes - norms(even) - 2 * vocabSize * hiddenSize * BYTES[type];
    // Only rank 0 has the head and the final norm.
    const each = norms(even) - hiddenSize * 4 + vocabSize * hiddenSize * BYTES[type];
    expect(sum(rankBytes(plan, even, type))).toBe(
      2 * matrices + 4 * each + hiddenSize * 4 + vocabSize * hiddenSize * BYTES[type],
    );
  });

  it.each(types)('latent attention: the bottleneck, the latent, the router and the norms, %s', (type) => {
    const rows = range(0, 8).map((rank) => ({ rank, rows: [64 * rank, 64 * (rank + 1)] as const }));
    const lists = range(0, 8).map((i) => [i]);
    const plan = handPlan(evenLatent, [{ layers: [0, 3], heads: lists, mlp: lists, experts: lists }], {
      embedding: rows,
      head: rows,
    });
    // A layer: q_a and kv_a, 64 rows each, and their norms; of the two expert layers the router (8 rows of a tile) and its bias.
    const layer = (64 + 64) * 64 * BYTES[type] + (64 + 32) * 4;
    const router = 32 * 64 * 4 + 32 * 4;
    expect(sum(rankBytes(plan, evenLatent, type))).toBe(
      weightBytes(evenLatent, type).bytes + 7 * (3 * layer + 2 * router + norms(evenLatent)),
    );
  });

  it('layers cut: nothing', () => {
    const plan = handPlan(
      even,
      [
        { layers: [0, 1], heads: [range(0, 4)], mlp: [range(0, 8)] },
        { layers: [1, 2], heads: [range(0, 4)], mlp: [range(0, 8)], firstRank: 1 },
      ],
      { head: [{ rank: 1, rows: [0, 256] }] },
    );
    for (const type of types) expect(sum(rankBytes(plan, even, type))).toBe(weightBytes(even, type).bytes);
  });

  it.each(types)('odd widths: tiles begun twice and blocks that ranks share, %s', (type) => {
    const odd = configOf({
      model_type: 'qwen2',
      hidden_size: 72,
      num_attention_heads: 3,
      num_key_value_heads: 3,
      head_dim: 24,
      intermediate_size: 172,
      vocab_size: 330,
    });
    const plan = handPlan(odd, [{ layers: [0, 2], heads: [[0, 1], [2]], mlp: [range(0, 5), range(5, 8)] }], {
      head: [
        { rank: 0, rows: [0, 128] },
        { rank: 1, rows: [128, 330] },
      ],
    });
    const bytes = BYTES[type];
    // 72 columns are stored as 96. q, k and v: 216 rows in 7 tiles, or 144 in 5 and 72 in 3.
    const qkv = 32 * 96 * bytes + 32 * 4;
    // o: 72 rows in 3 tiles; 72 columns in 3 blocks, or 0 to 48 in 2 and 48 to 72 in 2.
    const o = 96 * 32 * bytes;
    // Gate, up and down are cut at 96, a multiple of 32; the head at 128.
    const repeated = 2 * (qkv + o + 2 * 96 * 4) + 96 * 4 + 352 * 96 * bytes;
    expect(sum(rankBytes(plan, odd, type))).toBe(weightBytes(odd, type).bytes + repeated);
  });

  it('a tied table is there once where a rank holds the same rows of both, else twice', () => {
    const tied = configOf({ tie_word_embeddings: true, vocab_size: 320 });
    const layers = [{ layers: [0, 2] as const, heads: [[0], [1]], mlp: [range(0, 4), range(4, 8)] }];
    const cut = [
      { rank: 0, rows: [0, 192] as const },
      { rank: 1, rows: [192, 320] as const },
    ];
    const same = rankBytes(handPlan(tied, layers, { embedding: cut, head: cut }), tied, 'f16');
    const whole = rankBytes(handPlan(tied, layers, { head: cut }), tied, 'f16');
    expect(whole[0]! - same[0]!).toBe(320 * 64 * 2);
    expect(whole[1]! - same[1]!).toBe(320 * 64 * 2);
  });
});

it('counts the numbers of a model', () => {
  for (const config of [{}, { model_type: 'qwen2' }, { model_type: 'deepseek_v3' }, { model_type: 'minicpm3' }]) {
    const model = makeRandomModel({ config });
    const numbers = sum([...model.weights.values()].map(({ data }) => data.length));
    expect(weightBytes(model.config, 'q4').parameters).toBe(numbers);
  }
});

describe("at most 1.05 times a file's bytes", () => {
  it.each(Object.keys(BLOCK_TYPES) as BlockType[])('%s', (type) => {
    for (const name of ['llama-3.2-1b-instruct', 'qwen3.5-2b']) {
      const config = parseModelConfig(PUBLISHED[name]!.config);
      const specs = weightSpecs(config);
      let end = 0;
      const entries = [...expectedTensors(specs)].map(([tensor, { shape }]): [string, TensorEntry] => {
        const dtype = shape.length === 2 ? type : 'F32';
        const { elements, bytes } = blockOf(dtype);
        const start = end;
        end += (shape.reduce((a, b) => a * b) / elements) * bytes;
        return [tensor, { name: tensor, file: 'm.gguf', dtype, shape, start, end }];
      });
      const types = storedTypes({ tensors: new Map(entries), totalBytes: end, files: [] }, config);
      expect(weightBytes(config, types).bytes / end, name).toBeLessThan(1.05);
    }
  });
});
