import { describe, expect, test } from 'vitest';
import { Random } from '../../../base/random.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { contractModels, contracts, type PlanCase } from './cases.js';
import { firstDifference, runAlone } from '../run_bits.js';

/** Which plans are drawn; SPLITKV_SEED repeats a run. `npm run contract` runs all of them. */
const seed = Number(process.env['SPLITKV_SEED'] ?? Date.now() % 100_000);
const DRAWN = 3;
const SHORT = 500;

function draw(plans: readonly PlanCase[], count: number, random: Random): PlanCase[] {
  const left = [...plans];
  return Array.from({ length: Math.min(count, plans.length) }, () => left.splice(random.integer(left.length), 1)[0]!);
}

describe(`the same bits as on one rank, plans drawn by SPLITKV_SEED=${seed}`, async () => {
  const adapters = await testAdapters();
  const random = new Random(seed);
  for (const adapter of adapters) {
    // The slower adapter, which compiles for seconds: one model of each family, two plans, the shorter prompts.
    const all = adapter === adapters.at(-1);
    const firsts = (['llama', 'deepseek'] as const).map((name) => contracts.find(({ model }) => model === name)!);
    for (const { model, weights, kv, lengths, prefillChunk, plans } of all ? contracts : firsts) {
      const drawn = draw(plans, all ? DRAWN : 2, random);
      const names = drawn.map(({ name }) => name).join('; ');
      test(`${model}, ${weights}, kv ${kv}, on ${adapter.name}: ${names}`, { timeout: 600_000 }, async () => {
        const spans = all ? lengths : lengths.filter((length) => length < SHORT);
        const given = { adapter: adapter.name, model: contractModels[model], weights, kv, prefillChunk };
        const one = await runAlone(spans, given);
        for (const { name, make, devices } of drawn) {
          const many = await runAlone(spans, { ...given, plan: make(model), virtual: !devices });
          expect(firstDifference(one, many), `${name}: first row that differs`).toBe(-1);
        }
      });
    }
  }
});
