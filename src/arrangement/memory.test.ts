import fc from 'fast-check';
import { expect, test } from 'vitest';
import { chooseCopies, evenNames } from './memory.js';

test('copies go where they save most', () => {
  const choices = fc.array(
    fc.array(fc.record({ copies: fc.integer({ min: 0, max: 3 }), cost: fc.integer({ min: 0, max: 20 }) }), {
      maxLength: 3,
    }),
    { minLength: 1, maxLength: 4 },
  );
  fc.assert(
    fc.property(choices, fc.integer({ min: 0, max: 8 }), (lists, copies) => {
      const layers = lists.map((list) => [{ copies: 0, cost: 21 }, ...list]);
      const every = layers.reduce<{ copies: number; cost: number }[]>(
        (all, list) => all.flatMap((a) => list.map((b) => ({ copies: a.copies + b.copies, cost: a.cost + b.cost }))),
        [{ copies: 0, cost: 0 }],
      );
      const least = Math.min(...every.filter((sum) => sum.copies <= copies).map(({ cost }) => cost));
      const { chosen, cost } = chooseCopies(layers, copies);
      const taken = chosen.map((i, layer) => layers[layer]![i]!);
      expect(cost).toBe(least);
      expect(taken.reduce((total, choice) => total + choice.cost, 0)).toBe(least);
      expect(taken.reduce((total, choice) => total + choice.copies, 0)).toBeLessThanOrEqual(copies);
    }),
  );
});

test('new names of ranks are as many, and even out what the ranks hold', () => {
  // One rank has two heads too many in each layer: named in turn, all hold the same.
  const layers = Array.from({ length: 4 }, () => [4, 2, 1, 1]);
  const names = evenNames(layers, 8);
  const held = [0, 0, 0, 0];
  for (const [layer, row] of names.entries()) {
    expect([...row].sort((a, b) => a - b)).toEqual([0, 1, 2, 3]);
    for (const [rank, name] of row.entries()) held[name]! += layers[layer]![rank]!;
  }
  expect(held).toEqual([8, 8, 8, 8]);
});
