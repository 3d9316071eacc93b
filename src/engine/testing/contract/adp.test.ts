import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import { drawn } from '../../../gpu/testing/draw.js';
import { modelShape } from '../../../model/shape.js';
import { makePlan, type Plan, type RankShare } from '../../../placement/index.js';
import type { LoadOptions } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { randomFiles } from '../random_source.js';

const adapter = (await testAdapters()).at(-1)!.name;
const prompts = [5, 170, 64].map((length, seed) => Array.from({ length }, (_, i) => (i * 37 + seed * 11) % 320));

test.each(drawn(['llama', 'deepseek_v3'], 1, 'adp'))(
  'adp, %s: generations side by side, each on a rank of its own, give what one rank gives',
  { timeout: 300_000 },
  async (type) => {
    const { files } = randomFiles({ seed: 9, config: { model_type: type, intermediate_size: 256 } });
    const shared = { adapter, contextLength: 256, prefillChunk: 64 };
    const options = { maxTokens: 10, ignoreEos: true, temperature: 0.7, seed: 4 };
    const one = await load(files, shared);
    const expected: (readonly number[])[] = [];
    for (const prompt of prompts) expected.push((await one.generate(prompt, options).result).tokens);
    const row = (await one.logits(prompts[1]!)).rows[0]!;
    await one.dispose();

    const many = await load(files, { ...shared, plan: 'adp', ranks: 2, virtualRanks: true, requests: 3 });
    // Three contexts of four blocks, of which each rank has room for half.
    const [first, second] = many.info.ranks.map(({ kvBytes }) => kvBytes);
    expect(first).toBe(second);
    expect(first! + second!).toBe(3 * 256 * many.info.kvBytesPerToken);
    for (let round = 0; round < 2; round++) {
      const results = await Promise.all(prompts.map((prompt) => many.generate(prompt, options).result));
      expect(results.map(({ tokens }) => tokens)).toEqual(expected);
    }
    const abort = new AbortController();
    const left = many.generate(prompts[1]!, { ...options, maxTokens: 60, signal: abort.signal }).result;
    const beside = many.generate(prompts[2]!, options).result;
    setTimeout(() => abort.abort(), 20);
    expect((await left).finish_reason).toBe('abort');
    expect((await beside).tokens).toEqual(expected[2]);
    expect(Buffer.from((await many.logits(prompts[1]!)).rows[0]!.buffer).equals(Buffer.from(row.buffer))).toBe(true);
    await many.dispose();
  },
);

test('attentionDpConfig of load: what waits for whom changes no token', { timeout: 300_000 }, async () => {
  const { files } = randomFiles({ seed: 9, config: { intermediate_size: 256 } });
  const shared = { adapter, contextLength: 256, prefillChunk: 64 };
  const options = { maxTokens: 10, ignoreEos: true, temperature: 0.7, seed: 4 };
  const many = { ...shared, plan: 'adp', ranks: 2, virtualRanks: true, requests: 4 };
  const waits = { mode: 'trtllm', enable_balance: true, timeout_iters: 4, batching_wait_iters: 1 } as const;
  const configs: readonly LoadOptions['attentionDpConfig'][] = [undefined, waits, { enable_balance: false }];
  const answers: unknown[] = [];
  for (const attentionDpConfig of configs) {
    const model = await load(files, { ...many, ...(attentionDpConfig && { attentionDpConfig }) });
    const results = await Promise.all([...prompts, ...prompts].map((prompt) => model.generate(prompt, options).result));
    answers.push(results.map(({ tokens }) => tokens));
    await model.dispose();
  }
  expect(answers[1]).toEqual(answers[0]);
  expect(answers[2]).toEqual(answers[0]);
  const wrong = { ...many, attentionDpConfig: { mode: 'fair' } } as unknown as LoadOptions;
  await expect(load(files, wrong)).rejects.toThrow('attention_dp_config: mode "fair": expected "trtllm" or "cost"');
  await expect(load(files, { ...shared, plan: 'single', attentionDpConfig: waits })).rejects.toThrow(
    'there is no rank to choose for a request; use plan adp or token, or leave attentionDpConfig out',
  );
});

/** Groups of ranks, of shapes by SPLITKV_SEED. */
describe('groups of ranks', () => {
  const latent = { model_type: 'deepseek_v3', num_attention_heads: 4, n_routed_experts: 8 };
  const shapes = [
    { num_attention_heads: 6, num_key_value_heads: 3, hidden_size: 72, head_dim: 24, intermediate_size: 300 },
    { num_attention_heads: 8, num_key_value_heads: 4, head_dim: 16, intermediate_size: 256 },
    { num_attention_heads: 4, num_key_value_heads: 2, head_dim: 40, tie_word_embeddings: true, vocab_size: 500 },
    { model_type: 'qwen3', num_attention_heads: 8, num_key_value_heads: 8, head_dim: 8, vocab_size: 500 },
    latent,
    { ...latent, model_type: 'deepseek_v2', n_routed_experts: 3 },
  ];
  const plans: readonly (readonly [string, number])[] = [
    ['adp x tp', 4],
    ['adp x tp', 6],
    ['adp x sp', 4],
    ['adp x tp+sp', 4],
    ['adp x tp+sp', 8],
    ['pp x adp', 4],
    ['pp x adp x tp', 8],
  ];
  const seeded = shapes.flatMap((config, index) =>
    plans.flatMap(([policy, ranks]) => {
      const options = { seed: 60 + index, config };
      return fits(policy, ranks, options) ? [[JSON.stringify(config), policy, ranks, options] as const] : [];
    }),
  );

  test.each(drawn(seeded, 1, 'groups'))(
    '%s: %s on %i: the tokens and logits of one rank, and work for every rank',
    { timeout: 300_000 },
    async (_name, policy, ranks, options) => {
      const { files, model } = randomFiles(options);
      // Of so many chunks that every rank has some, and at least of two.
      const { shares } = makePlan(policy, ranks, modelShape(model.config)).stages[0]!;
      const lastLane = Math.max(1, ...shares.map(({ lanes }) => lanes[0]!));
      const shared = { adapter, contextLength: lastLane * 256 + 64, prefillChunk: 64 };
      const long = [44, 44, 24, 34].map((beyond, seed) =>
        Array.from({ length: lastLane * 256 + beyond }, (_, i) => (i * 37 + seed * 11) % 320),
      );
      const asked = { maxTokens: 12, ignoreEos: true, temperature: 0.7, topK: 40, seed: 4, repetitionPenalty: 1.1 };
      const one = await load(files, shared);
      const expected: (readonly number[])[] = [];
      for (const prompt of long) expected.push((await one.generate(prompt, asked).result).tokens);
      const rows = (await one.logits(long[2]!, { all: true })).rows.map((row) => Buffer.from(row.buffer));
      await one.dispose();

      const many = await load(files, { ...shared, plan: policy, ranks, virtualRanks: true, requests: 4 });
      const results = await Promise.all(long.map((prompt) => many.generate(prompt, asked).result));
      expect(results.map(({ tokens }) => tokens)).toEqual(expected);
      const read = results.map(({ stats }) => stats.attention!.kv_tokens_per_step);
      for (let rank = 0; rank < ranks; rank++) {
        expect(Math.max(...read.map((tokens) => tokens[rank]!)), `KV tokens of rank ${rank}`).toBeGreaterThan(0);
      }
      const same = (await many.logits(long[2]!, { all: true })).rows.map((row) => Buffer.from(row.buffer));
      expect(same.findIndex((row, at) => !row.equals(rows[at]!))).toBe(-1);
      await many.dispose();
    },
  );
});

function fits(policy: string, ranks: number, options: RandomModelOptions): boolean {
  try {
    makePlan(policy, ranks, modelShape(randomFiles(options).model.config));
    return true;
  } catch {
    return false;
  }
}

describe('plans by hand', async () => {
  const { model, files } = randomFiles({ seed: 10, config: { model_type: 'deepseek_v3', intermediate_size: 256 } });
  const shape = modelShape(model.config);
  const base = makePlan('adp', 3, shape);
  const [stage] = base.stages;
  const all = Array.from({ length: shape.numExperts }, (_, expert) => expert);
  // Only some segments of the shared experts have columns: a rank may have none of those.
  const segments = [[0], [1, 2, 3], [4, 5, 6, 7]];
  const withShares = (shares: readonly RankShare[]): Plan => ({ ...base, stages: [{ ...stage!, shares }] });
  const { shares } = stage!;
  const shared = { adapter, contextLength: 256, prefillChunk: 64 };
  const run = async (options: object): Promise<unknown[]> => {
    const loaded = await load(files, { ...shared, ...options });
    const rows = (await loaded.logits(prompts[2]!, { all: true })).rows.map((row) =>
      Buffer.from(row.buffer).toString('hex'),
    );
    const { tokens } = await loaded.generate(prompts[0]!, { maxTokens: 8, ignoreEos: true, temperature: 0.9, seed: 2 })
      .result;
    await loaded.dispose();
    return [...rows, tokens];
  };
  const expected = run({});

  const byHand: [string, Plan][] = [
    ['MLP segments cut beside experts', withShares(shares.map((share, rank) => ({ ...share, mlp: segments[rank]! })))],
    [
      'experts everywhere, MLP segments cut',
      withShares(shares.map((share, rank) => ({ ...share, mlp: segments[rank]!, experts: all }))),
    ],
    ['nothing shared out', withShares(shares.map((share) => ({ ...share, experts: all })))],
    ['experts spread over each group', inGroups(makePlan('adp x tp', 4, shape), all)],
    ['groups that cut MLP segments over all of them', overAll(makePlan('adp x tp', 4, shape))],
    [
      'all sequences on the first rank, in another order',
      withShares(shares.map((share) => ({ ...share, sequences: share.rank === 0 ? 1 : 0 })).toReversed()),
    ],
  ];
  test.each(drawn(byHand, 2, 'plans by hand'))('%s: the same bits', { timeout: 120_000 }, async (_name, plan) => {
    expect(await run({ plan, virtualRanks: true })).toEqual(await expected);
  });
});

/** Each group has all experts. */
function inGroups(plan: Plan, experts: readonly number[]): Plan {
  const half = Math.ceil(experts.length / 2);
  const own = [experts.slice(0, half), experts.slice(half)];
  return withStage(plan, (share) => ({ ...share, experts: own[share.rank % 2]! }));
}

function overAll(plan: Plan): Plan {
  return withStage(plan, (share) => ({ ...share, mlp: [2 * share.rank, 2 * share.rank + 1] }));
}

function withStage(plan: Plan, change: (share: RankShare) => RankShare): Plan {
  return { ...plan, stages: plan.stages.map((stage) => ({ ...stage, shares: stage.shares.map(change) })) };
}
