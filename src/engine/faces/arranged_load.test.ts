import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { lognormalLoads } from '../../arrangement/testing/loads.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn, isTurn } from '../../gpu/testing/draw.js';
import { pipelineDepth } from '../../placement/index.js';
import type { GenerateResult, LoadOptions, Model } from '../contracts/api.js';
import { load } from './load.js';
import { randomFiles } from '../testing/random_source.js';
import { storyQuestion } from '../measure/story.js';

const adapter = (await testAdapters()).at(-1)!.name;
const scratch = mkdtempSync(join(tmpdir(), 'splitkv-arranged-'));
beforeAll(() => void vi.stubEnv('SPLITKV_CACHE_DIR', scratch));
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(scratch, { recursive: true, force: true });
});

type Where = Parameters<typeof load>[0];

async function withModel<T>(where: Where, options: LoadOptions, use: (model: Model) => Promise<T>): Promise<T> {
  const model = await load(where, { adapter, virtualRanks: true, ...options });
  try {
    return await use(model);
  } finally {
    await model.dispose();
  }
}

type Prompts = readonly (string | readonly number[])[];

async function answers(model: Model, prompts: Prompts): Promise<GenerateResult[]> {
  const results: GenerateResult[] = [];
  for await (const { index, ...result } of model.generateMany(prompts, { maxTokens: 6, ignoreEos: true })) {
    results[index] = result;
  }
  return results;
}

const sum = (list: readonly number[]): number => list.reduce((total, each) => total + each, 0);

/** Of the moment when most ran. */
function busiestMoment(results: readonly GenerateResult[]): NonNullable<GenerateResult['stats']['attention']> {
  const moments = results.map(({ stats }) => stats.attention!);
  return moments.reduce((best, next) => (sum(next.kv_tokens_per_step) > sum(best.kv_tokens_per_step) ? next : best));
}

describe('plan arranged, by name', () => {
  test.runIf(isTurn(4, 'as many ranks as heads'))(
    'tiny-gqa on as many ranks as heads: measured once, answers of one rank, ranks busier than by heads in order',
    async () => {
      const where = 'models/tiny-gqa';
      const common = { contextLength: 1024, requests: 2, kvBudget: 0.2 };
      const prompts = Array.from({ length: 4 }, (_, seed) => storyQuestion(200 + 40 * seed, 1000 + seed));
      const last = prompts.slice(-1);
      const one = await withModel(where, common, (model) => answers(model, prompts));
      const inOrder = await withModel(where, { ...common, ranks: 4, plan: 'tp' }, async (model) => ({
        alone: await answers(model, last),
        together: await answers(model, prompts),
      }));
      const told: string[] = [];
      const options = {
        ...common,
        ranks: 4,
        plan: 'arranged',
        onProgress: ({ phase, what }) => void (phase === 'profile' && told.push(what!)),
      } satisfies LoadOptions;
      const many = await withModel(where, options, async (model) => {
        expect(model.info.plan).toMatchObject({ policy: 'arranged', worldSize: 4, sharing: 'sequences' });
        expect(model.info.planReason).toMatch(
          /^heads arranged by what they keep of sample prompts: ranks should be busy .* \d+% of the time \(heads in order: \d+%\), \d+ copies sharing sequences$/,
        );
        return answers(model, prompts);
      });
      expect(told).toContain('profile: sample 1 of 4');
      expect(many.map(({ tokens }) => tokens)).toEqual(one.map(({ tokens }) => tokens));
      const [before, after] = [busiestMoment(inOrder.together), busiestMoment(many)];
      expect(after.kv_tokens_per_step).toHaveLength(4);
      expect(after.kv_tokens_per_step.every((tokens) => tokens > 0)).toBe(true);
      expect(after.utilisation).toBeGreaterThan(before.utilisation);
      expect(after.predicted_utilisation).toBeGreaterThan(before.utilisation);

      // The next load finds what was measured.
      told.length = 0;
      expect(readdirSync(join(scratch, 'measures')).filter((name) => name.startsWith('profile-'))).toHaveLength(1);
      await withModel(where, options, async (model) => {
        const alone = await answers(model, last);
        expect(alone[0]!.tokens).toEqual(one[3]!.tokens);
        // One by itself has its heads on the ranks with least to read.
        expect(busiestMoment(alone).utilisation).toBeGreaterThanOrEqual(busiestMoment(inOrder.alone).utilisation);
      });
      expect(told).toEqual([]);
    },
  );

  const shapes = [
    { heads: 8, queries: 8, ranks: 8, stages: 1, budget: 0.3 },
    { heads: 2, queries: 4, ranks: 4, stages: 1, budget: 0.3 },
    { heads: 4, queries: 8, ranks: 3, stages: 1, budget: 0.3 },
    { heads: 2, queries: 4, ranks: 3, stages: 1, budget: undefined },
    { heads: 2, queries: 4, ranks: 6, stages: 2, budget: 0.3 },
  ] as const;
  test.each(drawn(shapes, 1, 'arranged shapes'))(
    '$heads kv heads on $ranks ranks, $stages stages, budget $budget, by a profile that is given: the bits of one rank',
    async ({ heads, queries, ranks: all, stages, budget }) => {
      const ranks = all / stages;
      const { files } = randomFiles({
        seed: 40 + heads,
        config: {
          max_position_embeddings: 1024,
          num_hidden_layers: 2,
          num_attention_heads: queries,
          num_key_value_heads: heads,
        },
      });
      const layers = lognormalLoads(3, 2, heads);
      const compressed =
        budget === undefined
          ? {}
          : ({ kvBudget: budget, kvPolicy: 'static', kvProfile: { model: 'm', kv_budget: budget, layers } } as const);
      const prompts = Array.from({ length: 5 }, (_, at) =>
        Array.from({ length: 150 + 60 * at }, (_token, i) => (i * 31 + at) % 320),
      );
      const run = async (model: Model) => {
        const { rows } = await model.logits(prompts[4]!, { promptLength: 380 });
        return { logits: rows, results: await answers(model, prompts) };
      };
      const one = await withModel(files, compressed, run);
      const many = await withModel(
        files,
        { ...compressed, ranks: all, plan: stages > 1 ? 'pp x arranged' : 'arranged' },
        async (model) => {
          expect(pipelineDepth(model.info.plan)).toBe(stages);
          const copied = model.info.plan.stages.some(({ shares }) => shares.some(({ copies }) => copies));
          expect(copied).toBe(true);
          return run(model);
        },
      );
      expect(many.logits).toEqual(one.logits);
      expect(many.results.map(({ tokens }) => tokens)).toEqual(one.results.map(({ tokens }) => tokens));
      // Of all moments: a lone sequence has a piece of each head, and can't keep more ranks busy than there are heads.
      const moments = many.results.map(({ stats }) => stats.attention!);
      const read = moments.flatMap(({ kv_tokens_per_step: tokens }) => tokens);
      expect(read).toHaveLength(all * moments.length);
      const longest = sum(moments.map(({ busiest_kv_tokens_per_step: tokens }) => tokens));
      // Whole heads in order can't be busier than this.
      const peak = layers.map((layer) => Math.max(...layer) / layer.reduce((sum, entries) => sum + entries, 0));
      const whole = budget === undefined ? 2 / ranks : peak.length / (ranks * peak.reduce((a, b) => a + b, 0));
      if (ranks >= heads) expect(sum(read) / (ranks * longest)).toBeGreaterThan(whole);
    },
  );

  test("what can't be arranged is refused, with what to do", async () => {
    const { files } = randomFiles({ config: { max_position_embeddings: 256 } });
    const ask = (options: LoadOptions): Promise<Model> =>
      load(files, { adapter: 'no adapter has this name', ...options });
    await expect(ask({ plan: 'tp', ranks: 2, copies: 1 })).rejects.toThrow("copies is for plan 'arranged'");
    const other = { model: 'm', kv_budget: 0.2, layers: [[1]] };
    await expect(ask({ plan: 'arranged', ranks: 2, kvBudget: 0.2, kvProfile: other })).rejects.toThrow(
      /^kvProfile: 1 layers of 1 kv heads; this model has .*: profile this model$/,
    );
    await expect(ask({ plan: 'arranged', ranks: 2, kvProfile: other })).rejects.toThrow('give kvBudget too');
    await expect(ask({ plan: 'arranged', ranks: 2, kvBudget: 0.2, kvProfile: './none.json' })).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining("kvProfile ./none.json: can't be read") as string,
    });
    await expect(ask({ plan: 'arranged', ranks: 2, kvBudget: 0.2 })).rejects.toMatchObject({ code: 'no_webgpu' });
    // Stages have ranks of their own, and the name says that there are some.
    const arranged = { ranks: 4, pipeline: 2, kvBudget: 0.2 };
    await expect(ask({ ...arranged, plan: 'arranged' })).rejects.toThrow(/no 'pp' in it.*'arranged x pp'/);
    await expect(ask({ ...arranged, plan: 'pp x arranged', tensor: 2 })).rejects.toThrow("no 'tp' in it");
    await expect(ask({ ...arranged, plan: 'arranged x pp' })).rejects.toMatchObject({ code: 'no_webgpu' });
    await expect(ask({ plan: 'pp x arranged', ranks: 3 })).rejects.toThrow('they make no 2 stages of 2 ranks or more');
    await expect(ask({ ...arranged, plan: 'pp x arranged', ranks: 5 })).rejects.toThrow('they make no 2 stages');
    await expect(load('models/tiny-mla', { plan: 'arranged', ranks: 2 })).rejects.toThrow(/plan 'arranged'.*latent/);
  });
});
