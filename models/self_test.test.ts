import { readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { load } from '../src/engine/faces/load.js';
import { openModelFiles, openTokenizer } from '../src/engine/files/model_files.js';
import { promptTokens } from '../src/engine/serving/prompt_tokens.js';
import type { SelfTestCase } from '../src/engine/faces/self_test.js';
import { testAdapters } from '../src/gpu/testing/adapters.js';
import { drawn } from '../src/gpu/testing/draw.js';
import { openSource } from '../src/loader/index.js';
import { type ReferenceTensor, referenceLogits, type WeightMap } from '../src/model/testing/reference/reference.js';

/** A rounding error that quantised weights make is well below this, in logits. */
const CLEAR = 1.5;

const STORY =
  'it was a sunny day . lena hid the red needle in the workshop bag . the rain came in the night . ' +
  'ivy hid the brown drum in the porch basket . the code of mia is 5 8 2 . noah left the green shoe in the bedroom drawer .';
const QUESTIONS = ['where is the brown drum ?', 'what is the code of mia ?'];

async function weightsOf(folder: string): Promise<WeightMap> {
  const reader = await (await openModelFiles(await openSource(folder))).reader();
  const weights = new Map<string, ReferenceTensor>();
  for (const [name, { shape }] of reader.index.tensors) {
    weights.set(name, { shape: [...shape], data: await reader.readVector(name) });
  }
  return weights;
}

// All of them where they are written.
const names = ['tiny-gqa', 'tiny-mla'];
describe.each(process.env['SPLITKV_SELF_TEST'] ? names : drawn(names, 1, 'self tests'))('%s/self_test.json', (name) => {
  const folder = `models/${name}`;
  const file = `${folder}/self_test.json`;

  // SPLITKV_SELF_TEST=1 writes the files, by the reference alone.
  if (process.env['SPLITKV_SELF_TEST']) {
    test('is written', async () => {
      const files = await openModelFiles(await openSource(folder));
      const reader = { ...(await openTokenizer(files)), contextLength: files.config.maxPositions };
      const weights = await weightsOf(folder);
      const cases = QUESTIONS.map((question) => {
        const prompt = [...promptTokens({ messages: [{ role: 'user', content: `${STORY} ${question}` }] }, reader)];
        const tokens: number[] = [];
        while (tokens.length < 6) {
          const row = referenceLogits(files.config, weights, [...prompt, ...tokens]).at(-1)!;
          tokens.push(row.indexOf(Math.max(...row)));
        }
        return { prompt, tokens };
      });
      writeFileSync(file, `${JSON.stringify({ cases })}\n`);
    });
  }

  test('is what a float64 reference answers, clearly', async () => {
    const { cases } = JSON.parse(readFileSync(file, 'utf8')) as { cases: readonly SelfTestCase[] };
    const { config } = await openModelFiles(await openSource(folder));
    const weights = await weightsOf(folder);
    expect(cases.length).toBeGreaterThan(0);
    for (const { prompt, tokens } of cases) {
      const rows = referenceLogits(config, weights, [...prompt, ...tokens.slice(0, -1)]).slice(prompt.length - 1);
      for (const [i, token] of tokens.entries()) {
        const [first, second] = [...rows[i]!.entries()].sort((a, b) => b[1] - a[1]);
        expect(first![0]).toBe(token);
        expect(first![1] - second![1]).toBeGreaterThan(CLEAR);
      }
    }
  });

  test('the runtime passes', async () => {
    const adapter = (await testAdapters()).at(-1)!;
    for (const weights of ['f16', 'q4'] as const) {
      const model = await load(folder, { adapter: adapter.name, weights, contextLength: 256 });
      expect(await model.selfTest(), weights).toEqual({ passed: true, stored: true });
      await model.dispose();
    }
  });
});
