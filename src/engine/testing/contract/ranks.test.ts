import { describe, expect, test } from 'vitest';
import { adaptersInTurn, testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn, drawSeed, isTurn } from '../../../gpu/testing/draw.js';
import { contractModels, contracts } from './cases.js';
import { firstDifference, runAlone } from '../run_bits.js';

/** Tables, and plans of a table; `npm run contract` runs all of them. */
const TABLES = 2;
const DRAWN = 1;
const SHORT = 500;
/** Tables that are tried with a GPU's variants, too, which take a CPU several times longer. */
const HARDWARE = 1;

describe(`the same bits as on one rank, plans drawn by SPLITKV_SEED=${drawSeed}`, async () => {
  const quickest = (await testAdapters()).at(-1)!;
  for (const adapter of await adaptersInTurn('plans')) {
    // The slower adapter, which compiles for seconds: one model of each family, the shorter prompts.
    const all = adapter === quickest;
    const firsts = (['llama', 'deepseek'] as const).map((name) => contracts.find(({ model }) => model === name)!);
    for (const { model, weights, kv, lengths, prefillChunk, plans } of drawn(
      all ? contracts : firsts,
      all ? TABLES : 1,
      adapter.name,
    )) {
      const own = drawn(plans, DRAWN, `${model} ${weights} ${kv} ${adapter.name}`);
      const names = own.map(({ name }) => name).join('; ');
      test(`${model}, ${weights}, kv ${kv}, on ${adapter.name}: ${names}`, { timeout: 600_000 }, async () => {
        const spans = all ? lengths : lengths.filter((length) => length < SHORT);
        const given = { adapter: adapter.name, model: contractModels[model], weights, kv, prefillChunk };
        const one = await runAlone(spans, given);
        for (const { name, make, devices } of own) {
          const many = await runAlone(spans, { ...given, plan: make(model), virtual: !devices });
          expect(firstDifference(one, many), `${name}: first row that differs`).toBe(-1);
        }
      });
    }
  }

  const { name: adapter } = quickest;
  for (const contract of isTurn(2, 'hardware plans') ? drawn(contracts, HARDWARE, 'hardware variants') : []) {
    const { model, weights, kv, prefillChunk, lengths } = contract;
    const plans = drawn(contract.plans, DRAWN, `${model} ${weights} ${kv} hardware`);
    const names = plans.map(({ name }) => name).join('; ');
    test(`a GPU's variants: ${model}, ${weights}, kv ${kv}: ${names}`, { timeout: 600_000 }, async () => {
      const spans = lengths.filter((length) => length < SHORT).slice(-2);
      const given = { adapter, model: contractModels[model], weights, kv, prefillChunk, variants: 'hardware' as const };
      const asked = spans.length > 0 ? spans : [SHORT];
      const one = await runAlone(asked, given);
      for (const { name, make, devices } of plans) {
        const many = await runAlone(asked, { ...given, plan: make(model), virtual: !devices });
        expect(firstDifference(one, many), `${name}: first row that differs`).toBe(-1);
      }
    });
  }
});
