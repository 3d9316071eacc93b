import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { range, sum } from '../base/lists.js';
import { makePlan } from './make/make_plan.js';
import { embeddingRoutes, subtrees } from './routes.js';
import { gqaShape } from './testing/shapes.js';
import { planTopology } from './topology.js';

/** The tree of shaders/lib/tree_sum.wgsl, in f32: `values` by first segment, of segments [first, first + size) of `total`. */
function treeSum(values: ReadonlyMap<string, number>, total: number, first: number, size: number): number | undefined {
  const end = Math.min(first + size, total);
  if (first >= end) return undefined;
  const known = values.get(`${first} ${end}`);
  if (known !== undefined) return known;
  const [left, right] = [treeSum(values, total, first, size / 2), treeSum(values, total, first + size / 2, size / 2)];
  return left === undefined || right === undefined ? (left ?? right) : Math.fround(left + right);
}

const heightOf = (total: number): number => 2 ** Math.ceil(Math.log2(total));

describe('sums of a contraction that ranks share out', () => {
  test('a rank sends as few as a binary tree allows', () => {
    const sent = (total: number, counts: readonly number[]): number[] => {
      const starts = counts.map((_, rank) => sum(counts.slice(0, rank)));
      return counts.map((count, rank) => subtrees(range(starts[rank]!, starts[rank]! + count), total).length);
    };
    expect(sent(8, [4, 4])).toEqual([1, 1]);
    expect(sent(8, [2, 2, 2, 2])).toEqual([1, 1, 1, 1]);
    expect(
      sent(
        8,
        range(0, 8).map(() => 1),
      ),
    ).toEqual(range(0, 8).map(() => 1));
    expect(sent(8, [3, 3, 2])).toEqual([2, 2, 1]);
    expect(sent(8, [5, 3])).toEqual([2, 2]);
    // The last subtree is as small as what is left.
    expect(subtrees([4, 5, 6], 7)).toEqual([[4, 7]]);
    expect(subtrees([0, 2, 3], 5)).toEqual([
      [0, 1],
      [2, 4],
    ]);
    expect(subtrees([], 8)).toEqual([]);
    expect(subtrees([0], 1)).toEqual([[0, 1]]);
  });

  test('any shares give the bits of one rank', () => {
    const shares = fc
      .integer({ min: 1, max: 40 })
      .chain((total) =>
        fc.tuple(
          fc.array(fc.integer({ min: 0, max: 4 }), { minLength: total, maxLength: total }),
          fc.array(fc.float({ noNaN: true, min: -1e3, max: 1e3 }), { minLength: total, maxLength: total }),
        ),
      );
    fc.assert(
      fc.property(shares, ([ranks, numbers]) => {
        const total = numbers.length;
        const alone = new Map(numbers.map((value, at) => [`${at} ${at + 1}`, value]));
        const sums = range(0, 5).flatMap((rank) =>
          subtrees(
            range(0, total).filter((segment) => ranks[segment] === rank),
            total,
          ),
        );
        expect(sums.flatMap(([first, end]) => range(first, end)).toSorted((a, b) => a - b)).toEqual(range(0, total));
        // A rank's own tree of a subtree's segments begins anew at 0.
        const sent = sums.map(([first, end]): [string, number] => {
          const own = new Map(numbers.slice(first, end).map((value, at) => [`${at} ${at + 1}`, value]));
          return [`${first} ${end}`, treeSum(own, end - first, 0, heightOf(end - first))!];
        });
        const one = treeSum(alone, total, 0, heightOf(total));
        expect(treeSum(new Map(sent), total, 0, heightOf(total))).toBe(one);
      }),
    );
  });
});

test('a vocabulary that only one rank has rows of is sent to the others', () => {
  const shape = gqaShape(4, { vocabSize: 60 });
  const plan = makePlan('tp', 2, shape);
  expect(plan.embedding).toEqual([{ rank: 0, rows: [0, 60] }]);
  expect(embeddingRoutes(planTopology(plan), plan, 60, 'generated').map(({ from, to }) => [from, to])).toEqual([
    [0, 0],
    [0, 1],
  ]);
  const whole = makePlan('sp', 2, shape);
  expect(embeddingRoutes(planTopology(whole), whole, 60, 'generated')).toEqual([]);
});
