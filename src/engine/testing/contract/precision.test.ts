import { describe, expect, test } from 'vitest';
import type { FastPath } from '../../../gpu/index.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn, isTurn } from '../../../gpu/testing/draw.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import type { LoadOptions, WeightType } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { planModel } from '../../faces/plan_model.js';
import { openRunner } from '../open_runner.js';
import { randomFiles } from '../random_source.js';

interface Case {
  readonly model: RandomModelOptions;
  readonly weights: WeightType;
  readonly path: FastPath;
  readonly plans: readonly (readonly [plan: string, ranks: number])[];
}

/** Heads that ranks share out end within a block of 32 columns. */
const llama = {
  seed: 61,
  config: { num_attention_heads: 6, num_key_value_heads: 2, head_dim: 40, hidden_size: 96, intermediate_size: 200 },
};
const deepseek = { seed: 62, config: { model_type: 'deepseek_v2' } };
const PLANS = [
  ['tp', 2],
  ['sp', 2],
  ['pp', 2],
] as const;
const cases: readonly Case[] = [
  { model: llama, weights: 'q4', path: 'dot4', plans: PLANS },
  { model: llama, weights: 'f16', path: 'f16', plans: PLANS },
  { model: deepseek, weights: 'q8', path: 'dot4', plans: [['ep', 2], ...PLANS] },
  { model: deepseek, weights: 'q8', path: 'f16', plans: [['ep', 2], ...PLANS] },
];
/** Of the logits' length, what prompts in f16 or in bytes may be off by, after 2 or 3 layers of random weights. */
const MOST: Readonly<Record<string, number>> = { f16: 0.005, dot4: 0.06 };

const { name: adapter } = (await testAdapters()).at(-1)!;
const tokens = Array.from({ length: 45 }, (_, i) => (i * 37 + 11 + ((i * i) % 53)) % 320);

/** The logits of all positions, and those of a token generated after them. */
async function bitsOf(
  { model, weights, path, ...more }: Case,
  how: { readonly plan?: string; readonly ranks?: number; readonly prefillChunk?: number; readonly exact?: boolean },
): Promise<{ readonly rows: Float32Array[]; readonly variants: Readonly<Record<string, string>> }> {
  void more;
  const { exact, ...rest } = how;
  const shared = { adapter, variants: 'hardware', model, weights, contextLength: 128, virtual: true, ...rest } as const;
  const { runner, group } = await openRunner({ ...shared, ...(!exact && { fast: [path] }) });
  const rows: Float32Array[] = [];
  await runner.logits(tokens, true, (_position, row) => rows.push(row.slice()));
  await runner.prefill(tokens, 4, { seed: 0 });
  for (const next of [() => runner.sampleFirst(), () => runner.step()]) {
    await next();
    rows.push((await runner.slotLogits(0)).slice());
  }
  const { variants } = group.ranks[0]!.facts;
  group.dispose();
  return { rows, variants };
}

describe("precision 'fast'", () => {
  test.each(drawn(cases, 1, 'precision'))(
    '$path by $weights weights: near exact, and the same bits whatever the chunk and the plan',
    { timeout: 300_000 },
    async (one) => {
      const { rows, variants } = await bitsOf(one, {});
      expect(variants['linear_tiled']).toContain(`hardware, ${one.path}`);
      // Heads that cut blocks are projected exactly.
      expect(variants['linear']).toMatch(one.path === 'dot4' ? /hardware, dot4/ : /^hardware$/);
      if (variants['expert_linear_tiled']) expect(variants['expert_linear_tiled']).toBe(`hardware, ${one.path}`);
      const exact = await bitsOf(one, { exact: true });
      expect(Object.values(exact.variants)).not.toContainEqual(expect.stringContaining(','));
      let [difference, size] = [0, 0];
      // The last row is of a token that another may have been sampled for.
      for (const [position, row] of rows.slice(0, -1).entries()) {
        for (const [id, value] of row.entries()) {
          difference += (value - exact.rows[position]![id]!) ** 2;
          size += value ** 2;
        }
      }
      expect(Math.sqrt(difference / size)).toBeLessThan(MOST[one.path]!);
      expect(difference).toBeGreaterThan(0);
      expect((await bitsOf(one, { prefillChunk: 16 })).rows).toEqual(rows);
      for (const [plan, ranks] of drawn(one.plans, 1, `precision ${one.path}`)) {
        expect((await bitsOf(one, { plan, ranks })).rows, plan).toEqual(rows);
      }
    },
  );

  const { files } = randomFiles(llama);
  const opened = async (options: LoadOptions) => {
    const warnings: string[] = [];
    const shared = { adapter, contextLength: 64, onWarning: (text: string) => void warnings.push(text) };
    const model = await load(files, { ...shared, ...options });
    const result = await model.generate([1, 2, 3, 4, 5], { maxTokens: 3, ignoreEos: true }).result;
    await model.dispose();
    return { ...result, warnings };
  };

  test.runIf(isTurn(2, 'told precision'))(
    'is asked for by an option, told in stats, and the answer the same on several ranks',
    async () => {
      const how = { weights: 'q8', variants: 'hardware', precision: 'fast' } as const;
      const one = await opened(how);
      expect(one.stats.precision).toBe('fast');
      expect(one.stats.variants['linear_tiled']).toContain('hardware, dot4');
      expect(one.warnings).toEqual([]);
      const two = await opened({ ...how, ranks: 2, plan: 'tp' });
      expect(two.stats).toMatchObject({ precision: 'fast', variants: one.stats.variants });
      expect(two.tokens).toEqual(one.tokens);
      const exact = await opened({ weights: 'q8', variants: 'hardware' });
      expect(exact.stats).toMatchObject({ precision: 'exact', variants: { linear_tiled: 'hardware' } });
      await planModel(files, { adapter, contextLength: 64, ranks: 1, ...how });
    },
  );

  test.each<[LoadOptions, RegExp]>([
    [{ weights: 'q8', variants: 'software' }, /exactly all the same: kernels for the CPU have no faster form/],
    [{ weights: 'f32', variants: 'hardware' }, /exactly all the same: f32 weights are never rounded/],
  ])('says where it changes nothing: %o', async (how, warning) => {
    const { stats, warnings, tokens: got } = await opened({ ...how, precision: 'fast' });
    expect(stats.precision).toBe('exact');
    expect(warnings).toEqual([expect.stringMatching(warning)]);
    expect(got).toEqual((await opened(how)).tokens);
  });

  test("'auto' computes exactly on the CPU, and says nothing", async () => {
    const { stats, warnings } = await opened({ weights: 'q8', variants: 'hardware', precision: 'auto' });
    expect(stats).toMatchObject({ precision: 'exact', variants: { linear_tiled: 'hardware' } });
    expect(warnings).toEqual([]);
  });

  test('is refused where it is neither', async () => {
    await expect(load(files, { precision: 'quick' as never })).rejects.toThrow(/precision 'quick': .*exact.*fast/);
  });
});
