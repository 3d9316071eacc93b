import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { checkPlan, makePlan, type ModelShape, type Plan, roomByPlace, sequenceWeights } from '../index.js';

const shape: ModelShape = {
  numLayers: 4,
  hiddenSize: 64,
  vocabSize: 512,
  segmentHeads: [2, 2],
  kvHeads: 2,
  latent: false,
  mlpSegments: [32, 32, 32, 32, 32, 32, 32, 32],
  numExperts: 0,
};
const weightsOf = ({ stages }: Plan): number[] => stages[0]!.shares.map(({ sequences }) => sequences!);

describe('shares of the sequences', () => {
  test.each<[string, Parameters<typeof sequenceWeights>[0], number, number[]]>([
    ['nothing known: a root keeps half as many', [{ root: true }, { root: false }, { root: false }], 1, [0.5, 1, 1]],
    [
      'by speed',
      [
        { root: true, speed: 4 },
        { root: false, speed: 4 },
        { root: false, speed: 1 },
      ],
      1,
      [0.5, 1, 0.25],
    ],
    ['one speed unknown: none counts', [{ root: true, speed: 9 }, { root: false }], 1, [0.5, 1]],
    [
      'too little memory for its speed: the others keep the rest',
      [
        { root: true, bytes: 100 },
        { root: false, bytes: 1000 },
        { root: false, bytes: 1000 },
      ],
      1100,
      [0.2, 1, 1],
    ],
    [
      'all memory is needed: it alone counts',
      [
        { root: true, bytes: 200, speed: 1 },
        { root: false, bytes: 800, speed: 9 },
        { root: false, bytes: 400, speed: 9 },
      ],
      5000,
      [0.25, 1, 0.5],
    ],
    [
      'a root whose weights fill its memory keeps none',
      [
        { root: true, bytes: -5 },
        { root: false, bytes: 10 },
      ],
      8,
      [0, 1],
    ],
  ])('%s', (_name, ranks, wanted, expected) => {
    expect(sequenceWeights(ranks, wanted)).toEqual(expected);
  });

  test('what fits in all memory fits as it is shared out', () => {
    const rank = fc.record({
      root: fc.boolean(),
      bytes: fc.integer({ min: 0, max: 1000 }),
      speed: fc.integer({ min: 1, max: 9 }),
    });
    fc.assert(
      fc.property(
        fc.array(rank, { minLength: 2, maxLength: 6 }),
        fc.integer({ min: 1, max: 3000 }),
        (ranks, wanted) => {
          const weights = sequenceWeights(ranks, wanted);
          const room = ranks.reduce((sum, { bytes }) => sum + bytes, 0);
          expect(Math.max(...weights)).toBe(1);
          if (room === 0) return;
          const total = weights.reduce((sum, weight) => sum + weight, 0);
          for (const [index, weight] of weights.entries()) {
            // Rounded to thousandths of the largest.
            expect((Math.min(wanted, room) * weight) / total).toBeLessThanOrEqual(ranks[index]!.bytes * 1.01 + 6);
          }
        },
      ),
      { numRuns: 500, seed: 5 },
    );
  });

  test('plans take them, alike for every root and stage', () => {
    expect(weightsOf(makePlan('token', 3, shape))).toEqual([0.5, 1, 1]);
    const weights = [0.2, 1, 0.6];
    expect(weightsOf(makePlan('token', 3, shape, { sequenceWeights: weights }))).toEqual(weights);
    expect(weightsOf(makePlan('tp x token', 6, shape, { sequenceWeights: weights }))).toEqual([...weights, ...weights]);
    const stages = makePlan('pp x token', 6, shape, { sequenceWeights: weights, pipeline: 2 });
    expect(weightsOf(stages)).toEqual(weights);
    checkPlan(stages, shape);
    const changed = structuredClone(stages) as unknown as { stages: { shares: { sequences: number }[] }[] } & Plan;
    changed.stages[1]!.shares[2]!.sequences = 0.5;
    expect(() => checkPlan(changed, shape)).toThrow('a sequence has its place in every stage');
    expect(() => makePlan('token', 3, shape, { sequenceWeights: [1, 1] })).toThrow('expected 3');
    expect(() => makePlan('token', 2, shape, { sequenceWeights: [0, 0] })).toThrow('one of them above 0');
    expect(() => makePlan('token', 2, shape, { sequenceWeights: [1, -1] })).toThrow('sequenceWeights has -1');
  });

  test('ranks of one place have the room of the tightest', () => {
    const plan = makePlan('pp x token', 4, shape);
    const rooms = [{ bytes: 10 }, { bytes: 50, speed: 2 }, { bytes: 5, speed: 3 }, { bytes: 90, speed: 1 }];
    expect(roomByPlace(plan, rooms)).toEqual([
      { root: true, bytes: 5, speed: undefined },
      { root: false, bytes: 50, speed: 1 },
    ]);
  });
});
