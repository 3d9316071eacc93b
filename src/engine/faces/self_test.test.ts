import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { openSource } from '../../loader/index.js';
import type { Model } from '../contracts/api.js';
import { load } from './load.js';
import { readSelfTest, runSelfTest, type SelfTestCase } from './self_test.js';
import { randomFiles } from '../testing/random_source.js';

const adapter = (await testAdapters()).at(-1)!.name;
const withFile = (files: readonly File[], text: string): File[] => [...files, new File([text], 'self_test.json')];

describe('a model that is computed rightly', () => {
  const { files } = randomFiles({ seed: 1 });

  test('passes with and without stored ids, and fails against wrong ones', async () => {
    const bare = await load(files, { adapter, contextLength: 64 });
    expect(await bare.selfTest()).toEqual({ passed: true, stored: false });
    const { tokens } = await bare.generate([1, 2, 3], { maxTokens: 4, ignoreEos: true }).result;
    await bare.dispose();
    const answers = async (expected: readonly number[]) => {
      const model = await load(withFile(files, JSON.stringify({ cases: [{ prompt: [1, 2, 3], tokens: expected }] })), {
        adapter,
        contextLength: 64,
      });
      const result = await model.selfTest();
      await model.dispose();
      return result;
    };
    expect(await answers(tokens)).toEqual({ passed: true, stored: true });
    const wrong = await answers([...tokens.slice(0, 3), (tokens[3]! + 1) % 100]);
    expect(wrong).toMatchObject({ passed: false, stored: true });
    expect(wrong.problem).toMatch(/computes this model wrongly.*instead of.*GPU driver/);
  });
});

test.each(['hardware', 'software'] as const)('variants that are asked for: %s', async (variants) => {
  const { files } = randomFiles({ seed: 1 });
  const model = await load(files, { adapter, contextLength: 64, variants, workers: variants === 'hardware' });
  expect(await model.selfTest()).toEqual({ passed: true, stored: false });
  expect(model.info.adapter).toMatchObject({ variants });
  const ran = model.stats().variants;
  expect(Object.keys(ran)).toContain('linear');
  expect(new Set(Object.values(ran))).toEqual(new Set([variants]));
  await model.dispose();
});

/** A model whose GPU gives these logits for every position, and generates token 1. */
const model = (
  row: readonly number[],
  precision: 'exact' | 'fast' = 'exact',
): Pick<Model, 'generate' | 'logits' | 'info' | 'stats'> =>
  ({
    stats: () => ({ precision }),
    info: { vocabSize: row.length, contextLength: 64, adapter: { name: 'a GPU' } },
    generate: (_prompt: unknown, { maxTokens }: { maxTokens: number }) => ({
      result: Promise.resolve({ tokens: Array.from({ length: maxTokens }, () => 1) }),
    }),
    logits: (tokens: readonly number[]) => Promise.resolve({ rows: tokens.map(() => Float32Array.from(row)) }),
  }) as unknown as Model;

test.each<[string, number[], string | undefined]>([
  ['agreement', [0, 3, 1], undefined],
  ['a near tie', [3.01, 3, 1], undefined],
  ['another token', [4, 3, 1], 'prompts give token 0 where generating gives 1'],
  ['NaN', [0, NaN, 1], 'its logits are not numbers'],
  ['infinity', [0, Infinity, 1], 'its logits are not numbers'],
  ['nothing written', [0, 0, 0], 'its logits are all zero'],
])('without stored ids: %s', async (_what, row, problem) => {
  const result = await runSelfTest(model(row), []);
  expect(result.passed).toBe(problem === undefined);
  if (problem !== undefined) expect(result.problem).toContain(`a GPU computes this model wrongly: ${problem}`);
});

test.each<[number[], passes: boolean]>([
  [[0.2, 3, 3.2], true],
  [[0.2, 3, 4], false],
])('rounded prompts may say another token by a hair: %j', async (row, passed) => {
  expect(await runSelfTest(model(row, 'fast'), [{ prompt: [1], tokens: [1] }])).toMatchObject({ passed });
  expect(await runSelfTest(model(row, 'fast'), [{ prompt: [1], tokens: [2] }])).toMatchObject({ passed });
  expect(await runSelfTest(model(row), [{ prompt: [1], tokens: [2] }])).toMatchObject({ passed: false });
});

test('an aborted test rejects', async () => {
  await expect(runSelfTest(model([0, 1]), [], AbortSignal.abort())).rejects.toMatchObject({ code: 'aborted' });
});

test.each([
  ['no JSON', '{'],
  ['no cases', '{}'],
  ['an empty list', '{"cases": []}'],
  ['a case without tokens', '{"cases": [{"prompt": [1]}]}'],
  ['null', '{"cases": [null]}'],
  ['text for ids', '{"cases": [{"prompt": ["a"], "tokens": [1]}]}'],
  ['negative ids', '{"cases": [{"prompt": [1], "tokens": [-1]}]}'],
])('self_test.json with %s is refused', async (_what, text) => {
  const source = await openSource(withFile(randomFiles({ seed: 1 }).files, text));
  await expect(readSelfTest(source)).rejects.toMatchObject({
    code: 'format',
    message: expect.stringContaining('self_test.json') as string,
  });
});

test('a case longer than the context is left out', async () => {
  const long: SelfTestCase = { prompt: Array.from({ length: 64 }, () => 1), tokens: [0] };
  expect(await runSelfTest(model([0, 3, 1]), [long])).toMatchObject({ passed: true });
});
