import { describe, expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import { listsOf, randomScores, strideOf } from './score_fixture.js';
import { adaBudgets, bestPositions, headShares, keptEntries, poolScores, roundHalfEven } from './selection.js';

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

/** Scores of random shapes, with and without ties. */
function* samples(): Generator<{ lists: ArrayLike<number>[]; base: number; keys: number; random: Random }> {
  const random = new Random(77);
  for (let i = 0; i < 60; i++) {
    const keys = 1 + random.integer(200);
    const shape = { heads: 1 + random.integer(9), length: keys + 32, window: 32, scoreStride: strideOf(keys + 32) };
    const levels = i % 3 === 0 ? 1 + random.integer(5) : undefined;
    const problem = { ...shape, ...(levels && { levels }) };
    yield { lists: listsOf(problem, randomScores(problem, random)), base: random.integer(keys + 1), keys, random };
  }
}

describe('selection', () => {
  test('pooling takes the largest of the neighbours that exist', () => {
    expect([...poolScores([1, 0, 0, 5, 0, 2], 3)]).toEqual([1, 1, 5, 5, 5, 2]);
    expect([...poolScores([1, 2], 7)]).toEqual([2, 2]);
    expect([...poolScores([3, 1, 2], 1)]).toEqual([3, 1, 2]);
  });

  test('of equal scores the lower position is better, then the lower head', () => {
    expect(bestPositions([2, 3, 2, 3, 2], 3)).toEqual([0, 1, 3]);
    expect(
      headShares(
        [
          [1, 1, 1],
          [1, 1, 1],
        ],
        1,
      ),
    ).toEqual([1, 1]);
    expect(
      headShares(
        [
          [1, 1],
          [1, 1],
          [1, 1],
        ],
        1,
      ),
    ).toEqual([1, 1, 1]);
    expect(
      headShares(
        [
          [1, 1, 9],
          [1, 1, 1],
          [0, 0, 0],
        ],
        1,
      ),
    ).toEqual([2, 1, 0]);
  });

  test('rounding is that of Python', () => {
    expect([0.5, 1.5, 2.5, 2.4999, 2.51, 7].map(roundHalfEven)).toEqual([0, 2, 2, 2, 3, 7]);
  });

  test('a worked example: the floor moves shares towards the average', () => {
    const scores = [
      [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
      [5.5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    // The best 8 of 20: seven of head 0 (9 to 3) and 5.5 of head 1. 7 * 0.8 + 4 * 0.2 = 6.4; 1 * 0.8 + 0.8 = 1.6.
    expect(headShares(scores, 4)).toEqual([7, 1]);
    expect(adaBudgets(scores, 4, 0.2)).toEqual([6, 2]);
    expect(adaBudgets(scores, 4, 0)).toEqual([7, 1]);
    expect(adaBudgets(scores, 4, 1)).toEqual([4, 4]);
  });

  test('shares are of the best scores and add up; budgets keep to floor and length', () => {
    for (const { lists, base, keys } of samples()) {
      const shares = headShares(lists, base);
      expect(sum(shares)).toBe(lists.length * base);
      const taken = lists.map((scores, head) => bestPositions(scores, shares[head]!));
      const worst = Math.min(...taken.flatMap((own, head) => own.map((t) => lists[head]![t]!)));
      for (const [head, scores] of lists.entries()) {
        const left = Array.from(scores).filter((_, t) => !taken[head]!.includes(t));
        expect(Math.max(-Infinity, ...left)).toBeLessThanOrEqual(worst);
      }
      for (const floor of [0, 0.2, 0.5, 1]) {
        const caps = adaBudgets(lists, base, floor);
        expect(Math.abs(sum(caps) - lists.length * base)).toBeLessThanOrEqual(lists.length / 2);
        for (const cap of caps) {
          expect(cap).toBeGreaterThanOrEqual(Math.floor(base * floor));
          expect(cap).toBeLessThanOrEqual(keys);
        }
      }
    }
  });

  test('what is kept ascends, is the best, and ends in the window', () => {
    for (const { lists, random, keys } of samples()) {
      const cap = random.integer(keys + 1);
      const kept = keptEntries(lists[0]!, cap, 32);
      expect(kept).toHaveLength(cap + 32);
      expect(kept.every((entry, i) => i === 0 || entry > kept[i - 1]!)).toBe(true);
      expect(kept.slice(cap)).toEqual(Array.from({ length: 32 }, (_, i) => keys + i));
    }
  });
});
