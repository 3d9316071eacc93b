import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { SplitkvError } from '../../base/errors.js';
import { checkPlan } from '../check/check_plan.js';
import { Owners } from '../owners.js';
import { parsePlan } from '../plan/parse_plan.js';
import type { ModelShape, Plan } from '../plan.js';
import { holdersOf, laneHolders } from '../sequences/copies.js';
import { anyShape, gqaShape } from '../testing/shapes.js';
import { bySpeed } from './by_speed.js';
import { makePlan } from './make_plan.js';
import { POLICIES } from './policy.js';

const shape = gqaShape(8, { columns: 1024, vocabSize: 64 * 160 });
const madeOf = (policy: string, speeds: readonly number[], of: ModelShape = shape): Plan[] =>
  bySpeed(makePlan(policy, speeds.length, of), of, speeds);
const cutOf = (plan: Plan | undefined) =>
  plan?.stages[0]!.shares.map(({ heads, mlp, copies = [] }) => ({
    heads: heads.length,
    mlp: mlp.length,
    copies: copies.map(({ share }) => share),
  }));

test('whatever policy and speeds, plans are legal and of as many ranks', () => {
  const speeds = fc.array(fc.double({ min: 0.01, max: 100, noNaN: true }), { minLength: 2, maxLength: 8 });
  let made = 0;
  fc.assert(
    fc.property(anyShape, fc.constantFrom(...POLICIES), speeds, (any, policy, all) => {
      let plan: Plan;
      try {
        plan = makePlan(policy, all.length, any);
      } catch (error) {
        expect((error as SplitkvError).code).toBe('usage');
        return;
      }
      for (const own of bySpeed(plan, any, all)) {
        made++;
        expect(own.worldSize).toBe(plan.worldSize);
        checkPlan(own, any);
        expect(parsePlan(JSON.stringify(own))).toEqual(own);
        expect(own).not.toEqual(plan);
      }
    }),
    { numRuns: 600 },
  );
  expect(made).toBeGreaterThan(50);
});

test('tp: heads, MLP segments and vocabulary rows in proportion', () => {
  const [plan, ...others] = madeOf('tp', [10, 6]);
  expect(others).toEqual([]);
  expect(cutOf(plan)).toEqual([
    { heads: 5, mlp: 5, copies: [] },
    { heads: 3, mlp: 3, copies: [] },
  ]);
  expect(plan!.head.map(({ rank, rows }) => [rank, rows[1] - rows[0]])).toEqual([
    [0, 64 * 100],
    [1, 64 * 60],
  ]);
});

test.each(['sp', 'tp+sp'])('%s: five merge lanes and three, for each head', (policy) => {
  const plan = madeOf(policy, [10, 6]).at(-1)!;
  expect(plan.stages[0]!.kind).toBe('arranged');
  expect(cutOf(plan)!.map(({ copies }) => copies)).toEqual([
    shape.segmentHeads.map(() => 0.625),
    shape.segmentHeads.map(() => 0.375),
  ]);
  const holders = laneHolders(holdersOf(plan.stages[0]!, 0));
  expect([0, 1].map((rank) => holders.filter((holder) => holder === rank).length)).toEqual([5, 3]);
});

test('more ranks than heads: those with the same heads share lanes and segments by speed', () => {
  const few = gqaShape(1, { columns: 1024 });
  const plan = madeOf('tp', [5, 1, 1, 1], few).at(-1)!;
  expect(cutOf(plan)).toEqual([
    { heads: 1, mlp: 5, copies: [0.625] },
    ...[1, 2, 3].map(() => ({ heads: 1, mlp: 1, copies: [0.125] })),
  ]);
});

test('adp: slots, and what is spread over all ranks', () => {
  const experts = { ...shape, numExperts: 16 };
  const [plan] = madeOf('adp', [10, 6], experts);
  const { shares } = plan!.stages[0]!;
  expect(shares.map(({ sequences, experts: own }) => [sequences, own.length])).toEqual([
    [1, 10],
    [0.6, 6],
  ]);
  expect([0, 1].map((place) => new Owners(plan!, 16).placeSlots(place))).toEqual([10, 6]);
});

test('ranks that are about as fast, and plans with nothing to share, stay as they are', () => {
  expect(madeOf('tp', [1, 1.1])).toEqual([]);
  expect(madeOf('pp', [3, 1])).toEqual([]);
  expect(madeOf('token', [3, 1])).toEqual([]);
  expect(madeOf('single', [3])).toEqual([]);
});
