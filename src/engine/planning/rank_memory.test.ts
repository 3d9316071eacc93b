import { describe, expect, test } from 'vitest';
import { drawn } from '../../gpu/testing/draw.js';
import { keptStates } from '../../model/layers/recurrent/segments.js';
import { modelSizes } from '../../model/model_sizes.js';
import { modelShape } from '../../model/shape.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { makePlan, planMemory } from '../../placement/index.js';
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
};

describe('what recurrent layers keep is counted beforehand', () => {
  const plans = ['single 1', 'tp 2', 'pp 2', 'token 3', 'adp 2', 'pp x tp 4'];
  const cases = (Object.keys(models) as (keyof typeof models)[]).flatMap((model) =>
    plans.map((plan) => [model, plan] as const),
  );
  test.each(drawn(cases, 3, 'states'))('%s, plan %s', async (model, name) => {
    const [, policy, ranks] = /^(.+) (\d)$/.exec(name)!;
    const { config } = makeRandomModel({ config: { model_type: model, ...models[model] } });
    const plan = makePlan(policy!, Number(ranks), modelShape(config));
    const batches = plan.stages.length > 1 ? 2 : 1;
    const common = { contextLength: 600, prefillChunk: 48, kvType: 'f16' } as const;
    const runner = { ...common, slots: 6, batches, keptStates: keptStates(config) };
    const held = await memoryOnPaper(plan, { config, type: 'f32' }, runner);
    const planned = planMemory(plan, modelSizes(config, 'f32', 'f16'), {
      slots: 6 * batches,
      contextLength: 600,
      block: 64,
    });
    const counted = ({ kvBytes, stateBytes }: (typeof held)[number]) => ({ kvBytes, stateBytes });
    expect(held.map(counted)).toEqual(planned.map(counted));
    expect(held.some(({ stateBytes }) => stateBytes > 0)).toBe(true);
  });
});
