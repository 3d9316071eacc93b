import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { compressionOptions } from '../../model/compression/options.js';
import { modelSizes } from '../../model/model_sizes.js';
import { modelShape } from '../../model/shape.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { STATE_SPACE } from '../../model/testing/small_configs.js';
import { makePlan, planMemory, type RankMemory } from '../../placement/index.js';
import { checkBudgets, roomOf } from '../planning/budgets.js';
import { keptOf, runnerOf } from '../planning/plan_subject.js';
import { load } from '../faces/load.js';
import { randomFiles } from '../testing/random_source.js';
import { memoryOnPaper } from './rank_memory.js';

const models = {
  lfm2: {
    num_hidden_layers: 5,
    hidden_size: 72,
    head_dim: undefined,
    num_attention_heads: 9,
    num_key_value_heads: 3,
    full_attn_idxs: [1, 3],
  },
  qwen3_5_text: {
    num_hidden_layers: 4,
    head_dim: 32,
    linear_num_key_heads: 3,
    linear_num_value_heads: 6,
    linear_key_head_dim: 16,
    linear_value_head_dim: 24,
  },
  granitemoehybrid: {
    ...STATE_SPACE,
    num_attention_heads: 9,
    num_key_value_heads: 3,
    hidden_size: 72,
    mamba_n_heads: 2,
  },
};

describe('what recurrent layers keep is counted beforehand', () => {
  const plans = ['single 1', 'tp 2', 'pp 2', 'token 3', 'adp 2', 'pp x tp 4'];
  const cases = (Object.keys(models) as (keyof typeof models)[]).flatMap((model) =>
    plans.map((plan) => [model, plan] as const),
  );
  test.each(drawn(cases, 1, 'states'))('%s, plan %s', async (model, name) => {
    const [, policy, ranks] = /^(.+) (\d)$/.exec(name)!;
    const { config } = makeRandomModel({ config: { model_type: model, ...models[model] } });
    const plan = makePlan(policy!, Number(ranks), modelShape(config));
    const batches = plan.stages.length > 1 ? 2 : 1;
    const common = { config, type: 'f32', kvType: 'f16', contextLength: 600, prefillChunk: 48 } as const;
    const sizes = modelSizes(config, 'f32', 'f16');
    const counted = ({ kvBytes, stateBytes }: RankMemory) => ({ kvBytes, stateBytes });
    for (const seats of [
      { slots: 6, batches },
      // Short of whole contexts, which states don't care about.
      { slots: 5, batches, kvBlocks: 23 },
    ]) {
      const states: number[] = [];
      for (const prefixCaching of [undefined, false]) {
        const subject = { ...common, prefixCaching, seatsOf: () => seats };
        const runner = { ...runnerOf(subject, plan), memory: [] };
        const held = await memoryOnPaper(plan, common, runner);
        const kept = { ...sizes, ...(prefixCaching === false && { keptStates: 0 }) };
        const planned = planMemory(plan, kept, { ...roomOf(runner), contextLength: 600, block: 64 });
        expect(held.map(counted)).toEqual(planned.map(counted));
        states.push(held.reduce((sum, { stateBytes }) => sum + stateBytes, 0));
        // What is refused beforehand is what doesn't fit.
        const budgets = held.map(({ totalBytes }) => totalBytes);
        await checkBudgets(plan, common, runner, budgets);
        await expect(checkBudgets(plan, common, runner, [budgets[0]! - 1, ...budgets.slice(1)])).rejects.toThrow();
      }
      expect(states[0]).toBeGreaterThan(states[1]!);
      expect(states[1]).toBeGreaterThan(0);
    }
  });
});

test.each(['single 1', 'tp 2', 'pp 2', 'token 3', 'adp 2', 'tp x token 4'])(
  'whole prompts beside compressed ones are counted beforehand: plan %s',
  async (name) => {
    const [, policy, ranks] = /^(.+) (\d)$/.exec(name)!;
    const { config } = makeRandomModel({ config: { num_attention_heads: 4, num_key_value_heads: 2 } });
    const plan = makePlan(policy!, Number(ranks), modelShape(config));
    const compression = compressionOptions({ policy: 'ada', budget: 0.3 }, { numLayers: 2, numKvHeads: 2 });
    const common = { config, type: 'f32', kvType: 'q8', contextLength: 600, prefillChunk: 48, compression } as const;
    const sizes = modelSizes(config, 'f32', 'q8');
    const bytes: number[] = [];
    for (const prefixCaching of [undefined, true]) {
      const subject = { ...common, prefixCaching, seatsOf: () => ({ slots: 4 }) };
      const runner = { ...runnerOf(subject, plan), memory: [] };
      const held = await memoryOnPaper(plan, common, runner);
      const options = { ...roomOf(runner), contextLength: 600, block: 64, compressed: true };
      const planned = planMemory(plan, { ...sizes, ...keptOf(subject, runner) }, options);
      expect(held.map(({ kvBytes }) => kvBytes)).toEqual(planned.map(({ kvBytes }) => kvBytes));
      bytes.push(held.reduce((sum, { kvBytes }) => sum + kvBytes, 0));
    }
    // A context of each head of each layer, in whole blocks, for each place that keeps sequences.
    const places = { token: 3, adp: 2, 'tp x token': 2 }[policy!] ?? 1;
    expect(bytes[1]! - bytes[0]!).toBe(places * 640 * sizes.layers.reduce((sum, { kvToken }) => sum + 2 * kvToken, 0));
  },
);

test.each(['single 1', 'tp 2', 'sp 2', 'token 3', 'adp 2'])(
  'shared keys and values are counted once, rows of inputs for each layer not at all: plan %s',
  async (name) => {
    const [, policy, ranks] = /^(.+) (\d)$/.exec(name)!;
    const { config } = makeRandomModel({
      config: {
        model_type: 'gemma4_text',
        num_hidden_layers: 6,
        layer_types: ['sliding', 'full', 'sliding', 'sliding', 'sliding', 'full'].map((type) => `${type}_attention`),
        num_kv_shared_layers: 4,
        head_dim: 32,
        global_head_dim: 64,
        sliding_window: 40,
        hidden_act: undefined,
        rope_theta: undefined,
        hidden_size_per_layer_input: 64,
        vocab_size_per_layer_input: 320,
      },
    });
    const plan = makePlan(policy!, Number(ranks), modelShape(config));
    const common = { config, type: 'f32', kvType: 'f16', contextLength: 600, prefillChunk: 48 } as const;
    const runner = { ...runnerOf({ ...common, seatsOf: () => ({ slots: 3 }) }, plan), memory: [] };
    const held = await memoryOnPaper(plan, common, runner);
    const options = { ...roomOf(runner), contextLength: 600, prefillChunk: 48, block: 64 };
    const planned = planMemory(plan, modelSizes(config, 'f32', 'f16'), options);
    const counted = ({ kvBytes, weightBytes }: RankMemory) => ({ kvBytes, weightBytes });
    expect(held.map(counted)).toEqual(planned.map(counted));
  },
);

test('no copies of states are kept where prefixes are not', { timeout: 120_000 }, async () => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const { files, model } = randomFiles({ config: { model_type: 'lfm2', ...models.lfm2, num_hidden_layers: 2 } });
  const bytes: number[] = [];
  for (const options of [{}, { prefixCaching: false }]) {
    const loaded = await load(files, { adapter, contextLength: 64, ...options });
    bytes.push(loaded.info.kvBytes);
    await loaded.dispose();
  }
  // A convolution's: 2 rows of f32.
  expect(bytes[0]! - bytes[1]!).toBe(modelSizes(model.config, 'f32', 'f32').keptStates! * 2 * 72 * 4);
});
