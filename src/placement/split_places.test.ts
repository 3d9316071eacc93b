import { describe, expect, test } from 'vitest';
import { checkPlan } from './check/check_plan.js';
import { describePlan } from './plan/describe_plan.js';
import { makePlan } from './make/make_plan.js';
import { planMemory } from './memory.js';
import { Owners } from './owners.js';
import type { Plan, RankShare } from './plan.js';
import { sequencePlaces, sequenceRanges } from './sequences/sequence_ranges.js';
import { roomByPlace } from './sequences/sequence_weights.js';
import { gqaShape } from './testing/shapes.js';

const shape = gqaShape(2);
const sharesOf = ({ stages }: Plan): readonly RankShare[] => stages[0]!.shares;
/** Of each rank: its lanes and its weight. */
const placed = (plan: Plan): (readonly [string, number])[] =>
  sharesOf(plan).map(({ lanes, sequences }) => [lanes.join(''), sequences!]);

describe('token x sp', () => {
  test('an even number of ranks all split sequences; of an odd one the root keeps none', () => {
    expect(placed(makePlan('token x sp', 2, shape))).toEqual([
      ['0246', 1],
      ['1357', 1],
    ]);
    expect(placed(makePlan('token x sp', 3, shape))).toEqual([
      ['01234567', 0],
      ['0246', 1],
      ['1357', 1],
    ]);
    const four = ['04', '15', '26', '37'].map((lanes) => [lanes, 1]);
    expect(placed(makePlan('token x sp', 4, shape))).toEqual(four);
    expect(placed(makePlan('token x sp', 5, shape))).toEqual([['01234567', 0], ...four]);
    const [root, ...others] = sharesOf(makePlan('token x sp', 9, shape));
    expect(root).toMatchObject({ sequences: 0, heads: [0, 1] });
    expect(others.map(({ lanes, heads }) => [lanes, heads])).toEqual(
      [0, 1, 2, 3, 4, 5, 6, 7].map((lane) => [[lane], []]),
    );
  });

  test('groups of as many ranks as asked for, each with its weight', () => {
    const plan = makePlan('sp x token', 7, shape, { sequence: 2, sequenceWeights: [0, 1, 0.5, 0.5] });
    expect(plan.policy).toBe('token x sp');
    expect(placed(plan).map(([, weight]) => weight)).toEqual([0, 1, 1, 0.5, 0.5, 0.5, 0.5]);
    expect(placed(makePlan('token x sp', 4, shape, { sequence: 2 })).map(([, weight]) => weight)).toEqual([
      0.5, 0.5, 1, 1,
    ]);
    checkPlan(plan, shape);
    const shares = sharesOf(plan);
    expect(sequencePlaces(shares[3]!, shares).map((place) => place.map(({ rank }) => rank))).toEqual([
      [0],
      [1, 2],
      [3, 4],
      [5, 6],
    ]);
    // Ranks of a group keep the same slots.
    const owners = new Owners(plan, 8);
    expect(shares.map(({ rank }) => owners.slotsOf(rank, 0).join('-'))).toEqual([
      '0-0',
      '0-4',
      '0-4',
      '4-6',
      '4-6',
      '6-8',
      '6-8',
    ]);
    expect(sequenceRanges([0, 1, 0.5, 0.5], 8).map(([first, end]) => end - first)).toEqual([0, 4, 2, 2]);
  });

  test('several roots and stages split alike', () => {
    const both = makePlan('tp x token x sp', 6, shape);
    expect(placed(both)).toEqual([0, 1].flatMap(() => placed(makePlan('token x sp', 3, shape))));
    checkPlan(both, shape);
    const stages = makePlan('pp x token x sp', 6, shape, { pipeline: 2 });
    expect(stages.policy).toBe('pp x token x sp');
    checkPlan(stages, shape);
    const changed = structuredClone(stages) as Plan & { stages: { shares: { lanes: number[] }[] }[] };
    for (const share of changed.stages[1]!.shares) share.lanes = [0, 1, 2, 3, 4, 5, 6, 7];
    expect(() => checkPlan(changed, shape)).toThrow(
      'a sequence has its place in every stage, so give them the same lanes',
    );
  });

  test('degrees and weights that are none say what would be', () => {
    expect(() => makePlan('token x sp', 1, shape)).toThrow(
      "plan 'token x sp' on 1 rank: a root needs a rank that keeps sequences; use 2, 3,",
    );
    expect(() => makePlan('token x sp', 7, shape, { sequence: 4 })).toThrow(
      '4 ranks that split a sequence, 2 to 8 of them, make no 7 ranks, with or without the root; use 4, 5, 8, 9,',
    );
    expect(() => makePlan('token x sp', 3, shape, { sequenceWeights: [1, 1] })).toThrow('keeps none; begin with 0');
    expect(() => makePlan('token x ep', 4, { ...shape, numExperts: 4 })).toThrow('KV-only ranks hold no experts');
  });

  test('a rank needs room for its part of the sequences of its group', () => {
    const layer = {
      attentionShared: 1,
      attentionSegments: [8, 8],
      mlpShared: 0,
      mlpSegments: new Array<number>(8).fill(1),
      expert: 0,
      kvToken: 1,
    };
    const sizes = {
      layers: [layer, layer, layer, layer],
      embeddingRow: 1,
      headRow: 1,
      tied: false,
      finalNorm: 1,
    };
    const of = (ranks: number, contextLength: number) =>
      planMemory(makePlan('token x sp', ranks, shape), sizes, { contextLength, slots: 3, block: 64 });
    // 5 chunks are 3 on a rank, of 2 heads in 4 layers.
    expect(of(3, 1200).map(({ kvBytes }) => kvBytes)).toEqual([0, 8, 8].map((heads) => heads * 3 * 768));
    expect(of(2, 1200).map(({ weightBytes }) => weightBytes > 0)).toEqual([true, false]);
  });

  test('a group has the room of its ranks together, a root beside groups none', () => {
    const plan = makePlan('token x sp', 3, shape);
    expect(
      roomByPlace(plan, [
        { bytes: 10, speed: 1 },
        { bytes: 50, speed: 2 },
        { bytes: 40, speed: 3 },
      ]),
    ).toEqual([
      { root: true, bytes: 0, speed: 1 },
      { root: false, bytes: 80, speed: 4 },
    ]);
  });

  test('for people', () => {
    expect(describePlan(makePlan('token x sp', 3, shape), shape).slice(2, 5)).toEqual([
      '  rank 0: query heads all 4 (kv heads 0-1), MLP columns all 512, no cache',
      '  rank 1: no weights, cache in lanes 0 2 4 6 of sequences of its own and of the ranks with its other lanes (weight 1)',
      '  rank 2: no weights, cache in lanes 1 3 5 7 of sequences of its own and of the ranks with its other lanes (weight 1)',
    ]);
  });
});

describe('what people may write by hand', () => {
  const changed = (ranks: number, change: (shares: { lanes: number[]; sequences: number }[]) => void) => {
    const plan = structuredClone(makePlan('token x sp', ranks, shape, { sequence: 2 }));
    change(plan.stages[0]!.shares as unknown as { lanes: number[]; sequences: number }[]);
    return () => checkPlan(plan, shape);
  };

  test.each<[string, number, Parameters<typeof changed>[1], string]>([
    [
      'lanes of another order',
      3,
      (shares) => (shares[1]!.lanes = [1, 3, 5, 7]),
      'rank 1: lanes 1, 3, 5, 7; write 0, 2, 4, 6',
    ],
    [
      'weights of a group',
      3,
      (shares) => (shares[2]!.sequences = 0.5),
      'ranks 1 and 2 split the same sequences, but their weights are 1 and 0.5',
    ],
    [
      'a root that keeps some beside a group',
      3,
      (shares) => (shares[0]!.sequences = 1),
      'give a root beside them weight 0',
    ],
    [
      'whole sequences beside split ones',
      4,
      (shares) => (shares[3]!.lanes = shares[2]!.lanes = [0, 1, 2, 3, 4, 5, 6, 7]),
      'rank 2 keeps whole sequences, others split theirs over 2',
    ],
    ['no sequences at all', 3, (shares) => (shares[1]!.sequences = shares[2]!.sequences = 0), 'keep no sequences'],
  ])('%s', (_name, ranks, change, message) => {
    expect(changed(ranks, change)).toThrow(message);
  });
});
