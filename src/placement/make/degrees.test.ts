import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { SplitkvError } from '../../base/errors.js';
import { checkPlan } from '../check/check_plan.js';
import type { ModelShape } from '../plan.js';
import { anyShape, gqaShape, mlaShape } from '../testing/shapes.js';
import { planTopology } from '../topology.js';
import { type Degrees, planOfDegrees } from './degrees.js';
import { makePlan } from './make_plan.js';

test.each([
  [{ tensor: 2 }, 'tp', 2],
  [{ tensor: 2, token: 3 }, 'tp x token', 6],
  [{ pipeline: 2, tensor: 2, token: 1 }, 'pp x tp', 4],
  [{ pipeline: 2, tensor: 2, token: 2, sequence: 2 }, 'pp x tp x token x sp', 16],
  [{ tensor: 2, sequence: 2 }, 'tp+sp', 4],
  [{ sequence: 4 }, 'sp', 4],
  [{ token: 3 }, 'token', 3],
  [{ token: 2, sequence: 2 }, 'token x sp', 4],
  [{ pipeline: 3 }, 'pp', 3],
  [{ tensor: 1 }, 'single', 1],
  [{ data: 4 }, 'adp', 4],
  [{ data: 2, tensor: 2 }, 'adp x tp', 4],
  [{ data: 2, tensor: 2, sequence: 2 }, 'adp x tp+sp', 8],
  [{ pipeline: 2, data: 2, sequence: 2 }, 'pp x adp x sp', 8],
] as const)('%o name %s on %i ranks', (degrees, policy, worldSize) => {
  expect(planOfDegrees(degrees)).toEqual({ policy, worldSize });
  expect(planOfDegrees(degrees, undefined, worldSize)).toEqual({ policy, worldSize });
  if (policy !== 'single') expect(planOfDegrees(degrees, policy)).toEqual({ policy, worldSize });
});

describe('what contradicts itself is refused', () => {
  test.each([
    [
      { tensor: 2, token: 3 },
      undefined,
      4,
      "tensor 2 x token 3: that is plan 'tp x token' on 6 ranks, and ranks asks for 4",
    ],
    [{ tensor: 2 }, 'auto', undefined, "plan 'auto' is the planner's choice"],
    [{ token: 2 }, 'tp', 4, "it has no 'token' in it; leave token out, or name the plan 'tp x token'"],
    [{ sequence: 2 }, 'adp', 4, "it has no 'sp' in it"],
    [{ tensor: 2 }, 'pp', 4, "name the plan 'pp x tp'"],
    [{ token: 3 }, 'tp x token', undefined, 'say how many ranks there are, by ranks or by tensor'],
    [{ tensor: 2 }, 'adp x tp', undefined, 'say how many ranks there are, by ranks'],
  ] as const)('%o, plan %s, ranks %s', (degrees, plan, ranks, message) => {
    expect(() => planOfDegrees(degrees, plan, ranks)).toThrow(message);
  });

  test('degrees that a policy has, and ranks that they do not make', () => {
    const shape = gqaShape(4);
    expect(() => makePlan('tp', 4, shape, { tensor: 2 })).toThrow('has tensor 4');
    expect(() => makePlan('tp', 2, shape, { token: 2 })).toThrow('no KV-only ranks');
    expect(() => makePlan('tp x token', 6, shape, { tensor: 2, token: 2 })).toThrow('tensor 2 x token 2 are 4');
    expect(() => makePlan('tp x token', 8, gqaShape(2), { tensor: 4, token: 2 })).toThrow('over 2 ranks at most');
  });
});

test('a degree that is left open beside a plan follows from the ranks', () => {
  const shape = gqaShape(4);
  const groups = (plan: string, ranks: number, degrees: Degrees): number =>
    planTopology(makePlan(plan, ranks, shape, degrees)).stages[0]!.groups.length;
  expect(groups('tp x token', 8, { token: 4 })).toBe(2);
  expect(groups('tp x token', 8, { tensor: 2 })).toBe(2);
  expect(groups('adp x tp', 8, { tensor: 2 })).toBe(2);
  expect(groups('tp x token x sp', 8, { token: 2, sequence: 2 })).toBe(2);
  expect(planTopology(makePlan('token x sp', 4, shape, { token: 2 })).stages[0]!.split).toBe(2);
});

const product = ({ tensor = 1, token = 1, sequence = 1, pipeline = 1, data = 1 }: Degrees): number =>
  tensor * token * sequence * pipeline * data;
const filled = (sizes: readonly number[]): number => sizes.filter((size) => size > 0).length;
const most = ({ segmentHeads, mlpSegments }: ModelShape): number =>
  Math.min(filled(segmentHeads), filled(mlpSegments) || Infinity);

/** What messages say, and when it is so. */
const REASONS: readonly (readonly [RegExp, (degrees: Record<keyof Degrees, number>, shape: ModelShape) => boolean])[] =
  [
    [
      /can be cut over \d+ ranks? at most/,
      ({ tensor, data }, shape) => tensor > most(shape) || data > filled(shape.mlpSegments),
    ],
    [/can't make \d+ stages/, ({ pipeline }, { numLayers }) => pipeline > numLayers],
    [/can't share 8 merge lanes/, ({ data, tensor, sequence }) => data > 1 && sequence * tensor > 8],
    [
      /doesn't fit \d+ ranks?/,
      ({ tensor, sequence }, shape) => tensor > most(shape) || 8 % (shape.latent ? tensor * sequence : sequence) > 0,
    ],
    [/ranks that split a sequence, /, ({ sequence }) => ![1, 2, 4, 8].includes(sequence)],
  ];

test('degrees give the plan that they name, or the true reason', () => {
  const degree = fc.option(fc.constantFrom(1, 2, 3, 4, 5, 8, 9), { nil: undefined });
  const degrees = fc.record({ tensor: degree, token: degree, sequence: degree, pipeline: degree, data: degree });
  let plans = 0;
  fc.assert(
    fc.property(anyShape, degrees, (shape, given) => {
      // KV-only ranks have no rows of their own.
      fc.pre((given.data ?? 1) === 1 || (given.token ?? 1) === 1);
      const { policy, worldSize } = planOfDegrees(given);
      const full = { tensor: 1, token: 1, sequence: 1, pipeline: 1, data: 1 };
      for (const [name, value] of Object.entries(given)) if (value !== undefined) full[name as keyof Degrees] = value;
      expect(worldSize).toBe(product(given));
      let plan;
      try {
        plan = makePlan(policy, worldSize, shape, given);
      } catch (error) {
        const { code, message } = error as SplitkvError;
        expect(code).toBe('usage');
        const said = REASONS.filter(([pattern]) => pattern.test(message));
        expect(said.length, message).toBe(1);
        expect(said[0]![1](full, shape), message).toBe(true);
        return;
      }
      plans++;
      checkPlan(plan, shape);
      const { stages } = planTopology(plan);
      expect(plan.worldSize).toBe(product(given));
      expect(stages).toHaveLength(full.pipeline);
      for (const { groups, places, split, holders, cutsColumns, placeRanks } of stages) {
        // Columns may be cut further than heads.
        const alike = cutsColumns ? placeRanks[0]!.length / groups.length : 1;
        expect(groups.length * alike).toBe(full.tensor);
        // A latent is kept once, by all ranks; heads by those of their group.
        const own = shape.latent ? full.tensor : alike;
        expect(split).toBe(full.token > 1 ? full.sequence : full.sequence * own);
        if (full.token > 1) expect(places[0]).toHaveLength(full.token * own);
        expect(holders).toHaveLength(full.tensor * (full.token > 1 ? 1 : full.sequence) * full.data);
      }
    }),
    { numRuns: 600 },
  );
  expect(plans).toBeGreaterThan(50);
});

test("of a latent, several roots share every rank's cache", () => {
  const { stages, ranks } = planTopology(makePlan('tp x token', 5, mlaShape(16), { tensor: 2 }));
  expect(stages[0]!.attendsForAll).toBe(true);
  expect(stages[0]!.weights).toEqual([0.5, 0.5, 1, 1, 1]);
  expect(ranks.map(({ stages: [own] }) => own!.apart)).toEqual([false, true, false, false, false]);
});
