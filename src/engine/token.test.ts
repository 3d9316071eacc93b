import { describe, expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../model/testing/random_model.js';
import type { PlanOptions } from '../placement/index.js';
import type { KvType } from './api.js';
import { openRunner } from './testing/open_runner.js';
import { firstDifference, runAlone, runTogether, somePrompt } from './testing/run_bits.js';

const adapter = (await testAdapters()).at(-1)!.name;
const long = { max_position_embeddings: 2304, num_hidden_layers: 2 };

const models: Record<string, RandomModelOptions> = {
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
  qwen2: {
    seed: 22,
    config: {
      ...long,
      model_type: 'qwen2',
      num_attention_heads: 8,
      num_key_value_heads: 8,
      head_dim: 8,
      tie_word_embeddings: true,
    },
  },
  deepseek: { seed: 23, config: { ...long, model_type: 'deepseek_v3' } },
  minicpm3: { seed: 24, config: { ...long, model_type: 'minicpm3', num_attention_heads: 8 } },
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

/** With SPLITKV_EVAL=1 every case, else the last of each model. */
const all = process.env['SPLITKV_EVAL'] === '1';

type Case = readonly [plan: string, ranks: number, options?: PlanOptions & { readonly devices?: boolean }];

describe('the bits of one rank', () => {
  test.each<[model: string, kv: KvType, lengths: readonly number[], cases: readonly Case[]]>([
    [
      'qwen3',
      'f16',
      [1, 300],
      [
        ['token', 2],
        ['tp x token', 4],
      ],
    ],
    [
      'llama',
      'f32',
      [1, 257, 700],
      [
        ['token x sp', 2],
        ['token x sp', 4],
        ['token x sp', 5, { sequence: 2 }],
        ['pp x token x sp', 4],
        ['token x sp', 3, { devices: true }],
      ],
    ],
    [
      'qwen2',
      'f16',
      all ? [2100] : [700],
      [
        ['token x sp', 3],
        ['token x sp', 8],
        ['tp x token x sp', 4],
      ],
    ],
    [
      'deepseek',
      'f32',
      [1, 300],
      [
        ['pp x token', 4],
        ['token x sp', 3],
        ['token', 3, { devices: true }],
      ],
    ],
    [
      'minicpm3',
      'f16',
      [700],
      [
        ['token', 2],
        ['token x sp', 4],
      ],
    ],
  ])('%s, kv %s', { timeout: 300_000 }, async (model, kv, lengths, cases) => {
    const given = { adapter, model: models[model]!, kv };
    const one = await runAlone(lengths, given);
    for (const [plan, ranks, { devices = false, ...planOptions } = {}] of all ? cases : cases.slice(-1)) {
      // Prompt steps that end within chunks and blocks.
      const many = await runAlone(lengths, {
        ...given,
        plan,
        ranks,
        planOptions,
        virtual: !devices,
        prefillChunk: 208,
      });
      expect(firstDifference(one, many), `${plan} on ${ranks} ranks`).toBe(-1);
    }
  });
});

test('sequences of a batch, over two pairs of ranks and a root that keeps none', { timeout: 300_000 }, async () => {
  const given = { adapter, model: models['llama']! };
  const lengths = [300, 20, 700, 257, 511];
  const one = await runTogether(lengths, 4, given);
  const plan = { plan: 'token x sp', ranks: 5, planOptions: { sequence: 2 }, virtual: true };
  expect(firstDifference(one, await runTogether(lengths, 4, { ...given, ...plan }))).toBe(-1);
});

test('a long prompt spreads over ranks without weights', { timeout: 300_000 }, async () => {
  const { runner, group } = await openRunner({
    adapter,
    model: models['llama']!,
    plan: 'token x sp',
    ranks: 3,
    virtual: true,
    contextLength: 1100,
  });
  const [root, first, second] = group.ranks.map(({ facts }) => facts);
  expect([first!.weightBytes, second!.weightBytes]).toEqual([0, 0]);
  // 5 chunks: room for 3 each, and a block at the root, which binds a cache.
  expect([root, first, second].map((facts) => facts!.kvBytes / facts!.kvBytesPerToken)).toEqual([64, 768, 768]);
  expect(runner.kv.bytesPerToken).toBe(first!.kvBytesPerToken);
  await runner.prefill(somePrompt(1050), 8, { seed: 0 });
  const held = (await runner.kvTokens()).map((layers) => layers[0]! / 3);
  expect(held[0]).toBe(0);
  expect(held[1]! + held[2]!).toBe(1051);
  expect(Math.abs(held[1]! - held[2]!)).toBeLessThanOrEqual(256);
  group.dispose();
});
