import { drawn } from '../../../gpu/testing/draw.js';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { ArrangementFile } from '../../../arrangement/index.js';
import type { LoadOptions, Model } from '../../contracts/api.js';
import { load } from '../../faces/load.js';

const adapters = await testAdapters();
// SPLITKV_EVAL=1 asks fifty questions, otherwise one.
const QUESTIONS = Number(process.env['SPLITKV_EVAL'] ?? 0) > 0 ? 50 : 1;
const questions = readFileSync('models/eval.jsonl', 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as { readonly context: number; readonly prompt: string })
  // Two chunks and more, so that ranks share a sequence.
  .filter(({ context }) => context === 512)
  .slice(0, QUESTIONS);

const on = (rank: number) => [{ rank, share: 1 }];
/** Half of the lanes of the first head on each rank. */
const copied: ArrangementFile = {
  version: 1,
  policy: 'arranged',
  model: 'tiny-gqa',
  ranks: 2,
  mode: 'fair-copy',
  sharing: 'lanes',
  placement: Array.from({ length: 4 }, () => [[0, 1].map((rank) => ({ rank, share: 0.5 })), on(1), on(0), on(1)]),
};

/** Two different adapters in one process: SwiftShader and llvmpipe, say. Skipped where there is only one. */
const cases: [name: string, plan: NonNullable<LoadOptions['plan']>][] = [
  ['tiny-gqa', 'tp'],
  ['tiny-gqa', 'sp'],
  ['tiny-mla', 'tp+sp'],
  ['tiny-gqa', 'token'],
  ['tiny-gqa', 'adp'],
  ['tiny-mla', 'adp'],
  ['tiny-gqa', copied],
];
const named = drawn(cases, 1, 'mixed').map(
  ([name, plan]) => [name, typeof plan === 'string' ? plan : plan.policy, plan] as const,
);
test.runIf(adapters.length > 1).each(named)(
  '%s, %s over two kinds of adapter: within tolerance, the same greedy answers',
  { timeout: 1_800_000 },
  async (name, _policy, plan) => {
    const ranks = adapters.map((adapter) => adapter.name).slice(-2);
    const folder = `models/${name}`;
    const mixed = await load(folder, { plan, ranks, contextLength: 1024 });
    const one = await load(folder, { adapter: adapters.at(-1)!.name, contextLength: 1024 });
    try {
      expect(new Set(mixed.stats().ranks.map(({ adapter }) => adapter)).size).toBe(2);
      const answer = async (model: Model, prompt: string): Promise<readonly number[]> =>
        (await model.generate(prompt, { maxTokens: 16, stop: ' .' }).result).tokens;
      for (const { prompt } of questions) {
        expect(await answer(mixed, prompt), prompt.slice(-60)).toEqual(await answer(one, prompt));
      }
      const tokens = one.tokenize(questions[0]!.prompt);
      const [expected, got] = [await one.logits(tokens), await mixed.logits(tokens)];
      const largest = Math.max(...expected.rows[0]!.map(Math.abs));
      const worst = Math.max(...expected.rows[0]!.map((value, id) => Math.abs(value - got.rows[0]![id]!)));
      expect(worst / largest).toBeLessThan(1e-3);
    } finally {
      await mixed.dispose();
      await one.dispose();
    }
  },
);
