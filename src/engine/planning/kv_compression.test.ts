import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { modelShape } from '../../model/shape.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import { checkPlan, makePlan, misfit } from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { kvCompression } from './kv_compression.js';
import { load } from '../faces/load.js';
import { randomFiles } from '../testing/random_source.js';

const { config } = makeRandomModel({ config: { num_attention_heads: 8, num_key_value_heads: 4 } });
const experts = { model_type: 'qwen3_moe', num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24 };
const profile = { model: 'm', kv_budget: 0.2, layers: [1, 2].map(() => [10, 20, 30, 40]) };

describe('how prompts are compressed', () => {
  test('a budget alone is Ada-KV with the defaults of the papers', async () => {
    expect(await kvCompression({ kvBudget: 0.2 }, config)).toEqual({
      policy: 'ada',
      budget: 0.2,
      window: 32,
      poolWidth: 7,
      floor: 0.2,
    });
    expect(
      await kvCompression({ kvBudget: 1, kvPolicy: 'snap', kvWindow: 8, kvKernel: 1, kvAlpha: 0 }, config),
    ).toMatchObject({ policy: 'snap', window: 8, poolWidth: 1, floor: 0 });
    expect((await kvCompression({ kvBudget: 0.1, kvPolicy: 'static', kvProfile: profile }, config))?.loads).toEqual(
      profile.layers,
    );
  });

  test("without a budget, or with 'none', nothing is compressed", async () => {
    expect(await kvCompression({}, config)).toBeUndefined();
    expect(await kvCompression({ kvPolicy: 'none' }, config)).toBeUndefined();
    expect(await kvCompression({ kvPolicy: 'none', kvBudget: 0.2, kvWindow: 8 }, config)).toBeUndefined();
  });

  test.each<[LoadOptions, RegExp]>([
    [{ kvBudget: 0 }, /kvBudget 0: expected a part of the prompt, above 0 and at most 1/],
    [{ kvBudget: 1.5 }, /kvBudget 1.5/],
    [{ kvBudget: Number.NaN }, /kvBudget NaN/],
    [{ kvPolicy: 'snap' }, /kvPolicy 'snap' needs kvBudget/],
    [{ kvWindow: 8 }, /kvWindow is for a compressed cache: give kvBudget too/],
    [{ kvBudget: 0.2, kvPolicy: 'sanp' as 'snap' }, /kvPolicy 'sanp': use .*Did you mean 'snap'/],
    [{ kvBudget: 0.2, kvWindow: 0 }, /kvWindow 0: expected an integer from 1 to 256/],
    [{ kvBudget: 0.2, kvKernel: 4 }, /kvKernel 4: expected an odd number/],
    [{ kvBudget: 0.2, kvAlpha: 1.2 }, /kvAlpha 1.2: expected 0 to 1/],
    [{ kvBudget: 0.2, kvPolicy: 'static' }, /'static' needs the heads' loads/],
    [
      { kvBudget: 0.2, kvProfile: profile },
      /kvProfile is what kvPolicy 'static' keeps by, and plan 'arranged' arranges by, not kvPolicy 'ada'/,
    ],
    [
      { kvBudget: 0.2, kvPolicy: 'static', kvProfile: { ...profile, layers: [[1, 2]] } },
      /1 layers of 2 kv heads; this model has 2 of 4/,
    ],
    [
      { kvBudget: 0.2, kvPolicy: 'static', kvProfile: { ...profile, layers: 3 as unknown as number[][] } },
      /kvProfile.layers/,
    ],
  ])('%o is refused', async (options, message) => {
    await expect(kvCompression(options, config)).rejects.toThrow(message);
  });

  test('latent attention has no heads to compress', async () => {
    const { config: latent } = makeRandomModel({ config: { model_type: 'deepseek_v3' } });
    await expect(kvCompression({ kvBudget: 0.2 }, latent)).rejects.toThrow(/all heads read one latent/);
    expect(await kvCompression({ kvPolicy: 'none' }, latent)).toBeUndefined();
  });

  test('KV-only ranks that split a sequence are refused, other plans are not', () => {
    const shape = modelShape(config);
    for (const [policy, ranks] of [
      ['single', 1],
      ['tp', 4],
      ['pp', 2],
      ['token', 3],
      ['tp x token', 4],
      ['adp', 2],
      ['sp', 2],
      ['tp x sp', 4],
    ] as const) {
      expect(misfit(['compression'], makePlan(policy, ranks, shape)), policy).toBeUndefined();
    }
    for (const [policy, ranks] of [
      ['token x sp', 2],
      ['tp x token x sp', 4],
    ] as const) {
      expect(misfit(['compression'], makePlan(policy, ranks, shape)), policy).toMatch(
        /places of several ranks that split sequences/,
      );
    }
    const uneven = makePlan('tp x token', 4, shape);
    const [stage] = uneven.stages;
    const shares = stage!.shares.map((share, i) => ({ ...share, sequences: i === 0 ? 2 : 1 }));
    const plan = { ...uneven, stages: [{ ...stage!, shares }] };
    // Budgets are a layer's: all of its heads keep a sequence on ranks of the same place.
    expect(() => checkPlan(plan, shape)).toThrow(/so give them the same weights/);
  });

  test('loading checks the plan before a device is opened', async () => {
    const { files } = randomFiles({});
    const options = { kvBudget: 0.5, adapter: 'no such adapter' };
    await expect(load(files, { ...options, plan: 'token x sp', ranks: 2 })).rejects.toThrow(
      /plan 'token x sp': a compressed cache \(kvBudget\) can't be had with places of several ranks that split sequences .* use sp, tp\+sp or ep/,
    );
  });
});

describe('plans that split chunks, with prompts compressed: the answers and bits of one rank', async () => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const prompt = Array.from({ length: 700 }, (_, i) => (i * 37 + 11 + ((i * i) % 53)) % 320);
  const cases: [string, number, 'ada' | 'snap', Record<string, unknown>][] = [
    ['sp', 2, 'ada', {}],
    ['sp', 8, 'snap', {}],
    ['tp+sp', 2, 'ada', {}],
    ['tp', 3, 'snap', {}],
    ['tp x sp', 4, 'ada', {}],
    ['pp x sp', 4, 'ada', {}],
    ['ep', 4, 'ada', experts],
  ];
  test.each(drawn(cases, 1, 'split chunks'))(
    '%s on %i, %s',
    { timeout: 120_000 },
    async (plan, ranks, kvPolicy, more) => {
      const { files } = randomFiles({ seed: 71, config: { num_key_value_heads: 2, ...more } });
      const shared = {
        adapter,
        contextLength: 800,
        kvBudget: 0.8,
        kvPolicy,
        prefillChunk: 256,
        weights: 'f32',
      } as const;
      const runs: { tokens: readonly number[]; kept: object; rows: readonly Float32Array[] }[] = [];
      for (const on of [{}, { plan, ranks, virtualRanks: true }]) {
        const model = await load(files, { ...shared, ...on });
        const { tokens, stats } = await model.generate(prompt, { maxTokens: 12, ignoreEos: true }).result;
        const { rows } = await model.logits([...prompt, ...tokens], { promptLength: prompt.length, all: true });
        runs.push({ tokens, kept: stats.kv_compression!.kept_tokens, rows });
        // Some 560 entries of a head are 3 chunks.
        const readers = stats.attention?.kv_tokens_per_step.filter((count) => count > 0) ?? [];
        expect(readers.length).toBeGreaterThanOrEqual(Math.min(stats.ranks.length > 1 ? ranks : 0, 3));
        await model.dispose();
      }
      expect(runs[1]!.kept).toEqual(runs[0]!.kept);
      expect(runs[1]!.tokens).toEqual(runs[0]!.tokens);
      expect(runs[1]!.rows.length).toBe(712);
      const differing = runs[0]!.rows.findIndex((row, at) => row.some((value, id) => value !== runs[1]!.rows[at]![id]));
      expect(differing).toBe(-1);
    },
  );
});

describe('whole prompts kept beside compressed ones: what another begins with has the same bits as when it is computed', async () => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const stem = Array.from({ length: 330 }, (_, i) => (i * 29 + 5 + ((i * i) % 41)) % 320);
  /** Tokens in common with the stem, and behind them. */
  const lengths: [common: number, own: number][] = [
    [330, 70],
    [330, 100],
    [300, 9],
    [330, 100],
    [100, 220],
    [330, 0],
  ];
  const prompts = lengths.map(([common, own], at) => [
    ...stem.slice(0, common),
    ...Array.from({ length: own }, (_, i) => (i * 7 + at * (i % 3)) % 320),
  ]);
  const asked = { maxTokens: 14, ignoreEos: true, temperature: 0.8, seed: 3 };
  const cases: [string, LoadOptions, Record<string, unknown>][] = [
    ['one rank, q8', { kv: 'q8' }, {}],
    ['one rank, chunks of 512', { prefillChunk: 512, kvPolicy: 'snap' }, {}],
    ['tp', { plan: 'tp', ranks: 2 }, {}],
    ['pp', { plan: 'pp', ranks: 2, kv: 'f16' }, {}],
    ['token', { plan: 'token', ranks: 3, requests: 3 }, {}],
    ['adp', { plan: 'adp', ranks: 2, requests: 4 }, experts],
    ['tp x token', { plan: 'tp x token', ranks: 4, requests: 2 }, {}],
    ['arranged', { plan: 'arranged', ranks: 2, copies: 0 }, {}],
    ['sp', { plan: 'sp', ranks: 2 }, {}],
    ['ep', { plan: 'ep', ranks: 2 }, experts],
    ['a prefill worker', { prefill: { kind: 'splitkv' } }, {}],
    ['a prefill worker, adp', { prefill: { kind: 'splitkv' }, plan: 'adp', ranks: 2, requests: 2 }, {}],
  ];
  test.each(drawn(cases, 1, 'kept prompts'))('%s', { timeout: 240_000 }, async (_name, options, config) => {
    const { files } = randomFiles({ seed: 73, config: { num_key_value_heads: 2, ...config } });
    const shared: LoadOptions = {
      adapter,
      contextLength: 480,
      kvBudget: 0.3,
      kvWindow: 16,
      prefillChunk: 128,
      weights: 'f32',
      ...options,
      ...(options.ranks && { virtualRanks: true }),
    };
    const plain = await load(files, shared);
    const expected = [];
    for (const prompt of prompts) expected.push(await plain.generate(prompt, asked).result);
    await plain.dispose();

    const model = await load(files, { ...shared, prefixCaching: true });
    for (const [at, prompt] of prompts.entries()) {
      const { tokens, stats } = await model.generate(prompt, asked).result;
      expect(tokens, `prompt ${at}`).toEqual(expected[at]!.tokens);
      expect(stats.kv_compression).toEqual(expected[at]!.stats.kv_compression);
      // A prefill worker's ranks keep nothing themselves.
      if (at > 0 && !options.prefill)
        expect(stats.cached_tokens, `prompt ${at}`).toBeGreaterThanOrEqual(Math.min(256, lengths[at]![0]));
    }
    const together = await Promise.all(prompts.map((prompt) => model.generate(prompt, asked).result));
    expect(together.map(({ tokens }) => tokens)).toEqual(expected.map(({ tokens }) => tokens));
    await model.dispose();
  });
});
