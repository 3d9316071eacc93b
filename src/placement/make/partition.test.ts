import fc from 'fast-check';
import { expect, test } from 'vitest';
import { spreadEvenly } from '../../base/lists.js';
import { partition, spreadSegments } from './stage_cut.js';

const total = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);

/** Every way to cut n items into `parts` contiguous parts. */
function* cuts(n: number, parts: number, first = 0): Generator<[number, number][]> {
  if (parts === 1) {
    if (first < n) yield [[first, n]];
    return;
  }
  for (let end = first + 1; end < n; end++) {
    for (const rest of cuts(n, parts - 1, end)) yield [[first, end], ...rest];
  }
}

test('finds the least largest part, and then the most even cut', () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(9), { minLength: 1, maxLength: 9 }),
      fc.integer({ min: 1, max: 5 }),
      fc.nat(9),
      (items, parts, extra) => {
        const cost = (first: number, end: number) =>
          total(items.slice(first, end)) + (end === items.length ? extra : 0);
        const score = (cut: readonly [number, number][]) => {
          const costs = cut.map(([first, end]) => cost(first, end));
          return [Math.max(...costs), total(costs.map((c) => c * c))] as const;
        };
        const best = [...cuts(items.length, parts)]
          .map(score)
          .toSorted((a, b) => a[0] - b[0] || a[1] - b[1])
          .at(0);
        const found = partition(items.length, parts, cost);
        expect(found && score(found)).toEqual(best);
      },
    ),
  );
});

test('segments without anything in them never make a part', () => {
  expect(spreadSegments([0, 1, 0, 1], 2)).toEqual([
    [0, 1],
    [2, 3],
  ]);
  expect(spreadSegments([0, 1, 0, 1], 3)).toBeUndefined();
  expect(spreadSegments([0, 0, 0, 0], 2)).toEqual([
    [0, 1],
    [2, 3],
  ]);
});

test('ranges differ by one at most', () => {
  expect(spreadEvenly(5, 3)).toEqual([
    [0, 2],
    [2, 4],
    [4, 5],
  ]);
  expect(spreadEvenly(1, 3)).toEqual([
    [0, 1],
    [1, 1],
    [1, 1],
  ]);
});
