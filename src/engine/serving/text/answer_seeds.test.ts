import { expect, test } from 'vitest';
import { answerSeed } from './completion.js';

test("the first answer's seed is the request's, the others differ from each other and between requests", () => {
  expect(answerSeed(42, 0)).toBe(42);
  const seeds = new Set<number>();
  for (const seed of [0, 1, 2, 2 ** 32, 2 ** 32 + 1, Number.MAX_SAFE_INTEGER]) {
    for (let index = 1; index < 128; index++) {
      const made = answerSeed(seed, index);
      expect(Number.isSafeInteger(made) && made >= 0).toBe(true);
      seeds.add(made);
    }
  }
  expect(seeds.size).toBe(6 * 127);
});
