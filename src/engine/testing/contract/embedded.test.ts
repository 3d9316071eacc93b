import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn } from '../../../gpu/testing/draw.js';
import { KV_TYPES } from '../../../model/layers/attention/cache.js';
import type { LoadOptions, Model } from '../../contracts/api.js';
import { load } from '../../faces/load.js';

interface Question {
  readonly context: number;
  readonly prompt: string;
  readonly answer: string;
}

const questions = readFileSync('models/eval.jsonl', 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Question);
const contexts = [256, 512, 1024, 2048];

// SPLITKV_EVAL=1 asks every held-out question with every weight type and cache type and prints the table of the model cards; 0.5 asks half.
const share = Number(process.env['SPLITKV_EVAL'] ?? 0);
const full = share > 0;
/** In `npm test`: of 256 tokens, and of one larger context. */
const fewQuestions: Record<number, number> = { 256: 4, 512: 2, 1024: 1, 2048: 1 };

async function exactMatch(model: Model, context: number): Promise<{ right: number; asked: number }> {
  const all = questions.filter((question) => question.context === context);
  const asked = all.slice(0, full ? Math.ceil(all.length * share) : fewQuestions[context]);
  let right = 0;
  for (const { prompt, answer } of asked) {
    // Answers end with the first full stop.
    const { text, finish_detail } = await model.generate(prompt, { maxTokens: 16, stop: ' .' }).result;
    if (finish_detail === 'stop_string' && `${text} .` === answer) right++;
  }
  return { right, asked: asked.length };
}

describe('embedded models answer questions about their stories', async () => {
  // The fastest adapter present: what is asked here is what the model knows, not which adapter runs it.
  const adapter = (await testAdapters()).at(-1)!;
  const all = [
    ...(['f32', 'f16', 'q8', 'q4'] as const).map((weights) => ({ weights, kv: 'f32' as const })),
    ...(['f16', 'q8'] as const).map((kv) => ({ weights: 'f16' as const, kv })),
  ];
  /** As GPUs multiply prompts: f16 by f16, the others by bytes. */
  const precisions = (['f16', 'q8', 'q4'] as const).flatMap((weights) =>
    (['exact', 'fast'] as const).map((precision) => ({ weights, kv: 'f16' as const, precision })),
  );
  const names = ['tiny-gqa', 'tiny-mla'];
  for (const name of full ? names : drawn(names, 1, 'embedded models')) {
    const few = drawn(KV_TYPES, 1, `answers of ${name}`).map((kv) => ({ weights: 'f32' as const, kv }));
    const asked: readonly Pick<LoadOptions, 'weights' | 'kv' | 'precision'>[] = full ? [...all, ...precisions] : few;
    for (const { weights, kv, precision } of asked) {
      const what = `${name}, ${weights}, kv ${kv}${precision ? `, ${precision}` : ''}`;
      test(what, { timeout: full ? 3_600_000 : 300_000 }, async () => {
        const variants = precision ? ('hardware' as const) : ('auto' as const);
        const model = await load(`models/${name}`, { weights, kv, precision, variants, adapter: adapter.name });
        let right = 0;
        let asked = 0;
        const cells: string[] = [];
        for (const context of full ? contexts : [256, ...drawn(contexts.slice(1), 1, 'long contexts')]) {
          const result = await exactMatch(model, context);
          right += result.right;
          asked += result.asked;
          cells.push(`${((100 * result.right) / result.asked).toFixed(1)}% (${result.right}/${result.asked})`);
        }
        await model.dispose();
        console.log(`${what} | ${cells.join(' | ')}`);
        if (weights === 'f32') expect(right / asked).toBeGreaterThanOrEqual(0.95);
      });
    }
  }
});
