import { expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../model/testing/random_model.js';
import type { KvType } from './api.js';
import { firstDifference, runAlone } from './testing/run_bits.js';

const adapter = (await testAdapters()).at(-1)!.name;
const long = { max_position_embeddings: 2304, num_hidden_layers: 2 };

const models: Record<string, RandomModelOptions> = {
  // Norms of queries and keys, whose weights a root alone holds.
  qwen3: {
    seed: 25,
    config: {
      ...long,
      model_type: 'qwen3',
      hidden_size: 72,
      num_attention_heads: 6,
      num_key_value_heads: 2,
      head_dim: 40,
    },
  },
};

test.each<[model: string, kv: KvType, lengths: readonly number[], plans: readonly (readonly [string, number])[]]>([
  [
    'qwen3',
    'f16',
    [1, 300],
    [
      ['token', 2],
      ['tp x token', 4],
    ],
  ],
])('%s, kv %s: the bits of one rank', { timeout: 300_000 }, async (model, kv, lengths, plans) => {
  const given = { adapter, model: models[model]!, kv };
  const one = await runAlone(lengths, given);
  for (const [plan, ranks] of plans) {
    const many = await runAlone(lengths, { ...given, plan, ranks, virtual: true });
    expect(firstDifference(one, many), `${plan} on ${ranks} ranks`).toBe(-1);
  }
});
