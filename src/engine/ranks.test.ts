import { describe, expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../model/testing/random_model.js';
import type { PlanOptions } from '../placement/index.js';
import type { KvType, WeightType } from './api.js';
import { runAlone } from './testing/run_bits.js';

const long = { max_position_embeddings: 2304 };
const models: Record<string, RandomModelOptions> = {
  // Odd widths, three kv heads: no even cut.
  llama: {
    seed: 21,
    config: {
      ...long,
      hidden_size: 72,
      num_attention_heads: 6,
      num_key_value_heads: 3,
      head_dim: 24,
      intermediate_size: 300,
    },
  },
  // Biases, tied embedding, a segment for each of 8 ranks.
  qwen2: {
    seed: 22,
    config: {
      ...long,
      model_type: 'qwen2',
      num_attention_heads: 8,
      num_key_value_heads: 8,
      head_dim: 8,
      intermediate_size: 300,
      vocab_size: 500,
      tie_word_embeddings: true,
    },
  },
  deepseek: { seed: 23, config: { ...long, model_type: 'deepseek_v3' } },
  minicpm3: { seed: 24, config: { ...long, model_type: 'minicpm3', num_attention_heads: 8 } },
};

type Case = readonly [plan: string, ranks: number, options?: PlanOptions & { readonly devices?: boolean }];

/** Which plans, on which model, over which lengths. */
const contracts: readonly {
  readonly model: string;
  readonly weights: WeightType;
  readonly kv: KvType;
  readonly lengths: readonly number[];
  readonly cases: readonly Case[];
}[] = [
  {
    model: 'llama',
    weights: 'f32',
    kv: 'f32',
    lengths: [1, 255, 256, 257, 700],
    cases: [
      ['tp', 2],
      ['sp', 2],
      ['tp', 3],
      ['sp', 4, { devices: true }],
      ['sp', 8],
      ['tp+sp', 2, { devices: true }],
      ['pp', 2],
      ['token', 2, { devices: true }],
      ['adp', 2, { devices: true }],
      ['adp', 3],
    ],
  },
  {
    model: 'qwen2',
    weights: 'q4',
    kv: 'f16',
    lengths: [257, 2100],
    cases: [
      ['tp', 8],
      ['tp', 4],
      ['sp', 2],
      ['tp x sp', 4],
      ['tp+sp', 8],
      ['pp x tp', 4, { devices: true }],
      ['pp x sp', 4],
      ['tp x token', 4],
      ['pp x token', 4],
      ['adp', 4],
    ],
  },
  {
    model: 'deepseek',
    weights: 'q8',
    kv: 'f32',
    lengths: [1, 300],
    cases: [
      ['tp', 2],
      ['sp', 2, { devices: true }],
      ['ep', 4],
      ['adp', 2, { devices: true }],
      ['adp', 4],
      ['tp+sp', 4],
      ['pp', 3],
    ],
  },
  {
    model: 'minicpm3',
    weights: 'f16',
    kv: 'f16',
    lengths: [256, 700],
    cases: [
      ['tp+sp', 8],
      ['tp+sp', 2, { devices: true }],
      ['sp', 4],
      ['pp x tp', 4],
      ['adp', 3],
    ],
  },
];

const ON_ALL_ADAPTERS = ['llama', 'deepseek'];

describe('the same bits as on one rank', async () => {
  const adapters = await testAdapters();
  for (const adapter of adapters) {
    // The slower adapter, which compiles for seconds: a model of each family, a plan of each kind, the shorter prompts.
    const all = adapter === adapters.at(-1);
    for (const { model, weights, kv, lengths, cases } of all
      ? contracts
      : contracts.filter(({ model: name }) => ON_ALL_ADAPTERS.includes(name))) {
      test(`${model}, ${weights}, kv ${kv}, on ${adapter.name}`, { timeout: 600_000 }, async () => {
        const spans = all ? lengths : lengths.filter((length) => length < 500);
        const given = { adapter: adapter.name, model: models[model]!, weights, kv };
        const one = await runAlone(spans, given);
        for (const [plan, ranks, { devices = false, ...planOptions } = {}] of all ? cases : cases.slice(0, 2)) {
          const many = await runAlone(spans, { ...given, plan, ranks, planOptions, virtual: !devices });
          expect(many).toHaveLength(one.length);
          const different = many.findIndex((row, index) => !row.equals(one[index]!));
          expect(different, `${plan} on ${ranks} ranks: first row that differs`).toBe(-1);
        }
      });
    }
  }
});
