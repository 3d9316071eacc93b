import { expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { contractModels } from './cases.js';
import { openRunner } from '../open_runner.js';
import { firstDifference, runBatched, somePrompt } from '../run_bits.js';

const adapter = (await testAdapters()).at(-1)!.name;
const model = contractModels.llama;

test('sequences of a batch, over two pairs of ranks and a root that keeps none', { timeout: 300_000 }, async () => {
  const given = { adapter, model };
  const lengths = [300, 20, 700, 257, 511];
  const one = await runBatched(lengths, 4, given);
  const plan = { plan: 'token x sp', ranks: 5, planOptions: { sequence: 2 }, virtual: true };
  expect(firstDifference(one, await runBatched(lengths, 4, { ...given, ...plan }))).toBe(-1);
});

test('a long prompt spreads over ranks without weights', { timeout: 300_000 }, async () => {
  const { runner, group } = await openRunner({
    adapter,
    model,
    plan: 'token x sp',
    ranks: 3,
    virtual: true,
    contextLength: 1100,
  });
  const [root, first, second] = group.ranks.map(({ facts }) => facts);
  expect([first!.weightBytes, second!.weightBytes]).toEqual([0, 0]);
  // 5 chunks: room for 3 each, and a block at the root, which binds a cache.
  expect([root, first, second].map((facts) => facts!.kvBytes / facts!.kvBytesPerToken)).toEqual([64, 768, 768]);
  expect(runner.kv.bytesPerToken).toBe(first!.kvBytesPerToken);
  await runner.prefill(somePrompt(1050), 8, { seed: 0 });
  const held = (await runner.kvTokens()).map((layers) => layers[0]! / 3);
  expect(held[0]).toBe(0);
  expect(held[1]! + held[2]!).toBe(1051);
  expect(Math.abs(held[1]! - held[2]!)).toBeLessThanOrEqual(256);
  group.dispose();
});
