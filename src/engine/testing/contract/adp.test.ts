import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { modelShape } from '../../../model/shape.js';
import { makePlan, type Plan, type RankShare } from '../../../placement/index.js';
import { load } from '../../load.js';
import { randomFiles } from '../random_source.js';

const adapter = (await testAdapters()).at(-1)!.name;
const prompts = [5, 170, 64].map((length, seed) => Array.from({ length }, (_, i) => (i * 37 + seed * 11) % 320));

test.each(['llama', 'deepseek_v3'])(
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

  test.each<[string, Plan]>([
    ['MLP segments cut beside experts', withShares(shares.map((share, rank) => ({ ...share, mlp: segments[rank]! })))],
    [
      'experts everywhere, MLP segments cut',
      withShares(shares.map((share, rank) => ({ ...share, mlp: segments[rank]!, experts: all }))),
    ],
    ['nothing shared out', withShares(shares.map((share) => ({ ...share, experts: all })))],
    [
      'all sequences on the first rank, in another order',
      withShares(shares.map((share) => ({ ...share, sequences: share.rank === 0 ? 1 : 0 })).toReversed()),
    ],
  ])('%s: the same bits', { timeout: 120_000 }, async (_name, plan) => {
    expect(await run({ plan, virtualRanks: true })).toEqual(await expected);
  });
});
