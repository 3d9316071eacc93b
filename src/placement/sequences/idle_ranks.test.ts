import { expect, test } from 'vitest';
import { makePlan } from '../make/make_plan.js';
import { gqaShape, mlaShape } from '../testing/shapes.js';
import { idleOfSplit } from '../plan/describe_plan.js';

test('ranks that have nothing of any one sequence are told', () => {
  const sp = (ranks: number) => makePlan('sp', ranks, gqaShape(4));
  expect(idleOfSplit(sp(4), 4 * 256)).toBeUndefined();
  expect(idleOfSplit(sp(4), 3 * 256 + 1)).toBeUndefined();
  expect(idleOfSplit(makePlan('tp', 4, gqaShape(4)), 100)).toBeUndefined();
  expect(idleOfSplit(sp(4), 3 * 256)).toBe(
    "plan 'sp': 4 ranks split each sequence by chunks of 256 tokens, and a context of 768 tokens, shorter than 4 x 256, has 3 chunks: " +
      '1 rank of them has nothing of one. Several sequences at once begin on different ranks; for one use 3 ranks',
  );
  expect(idleOfSplit(makePlan('tp', 2, mlaShape(16)), 200)).toContain('for one use another plan');
  expect(idleOfSplit(sp(11), 8192)).toContain('a sequence has 8 merge lanes: 3 ranks of them have nothing of one');
  expect(idleOfSplit(sp(11), 1000)).toContain('has 4 chunks: 7 ranks of them have');
});
