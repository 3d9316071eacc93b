import { describe, expect, test } from 'vitest';
import { checkPlan } from './check/check_plan.js';
import { range, spreadEvenly } from '../base/lists.js';
import { describePlan } from './plan/describe_plan.js';
import { makePlan } from './make/make_plan.js';
import { planMemory } from './memory.js';
import { parsePlan } from './plan/parse_plan.js';
import type { ModelShape, Plan, RankShare, Stage, StageKind } from './plan.js';
import { gqaShape, mlaShape } from './testing/shapes.js';

const dense = gqaShape(2);
const moe = { ...mlaShape(16), numExperts: 6 };
const all = [0, 1, 2, 3, 4, 5, 6, 7];
const shares = (plan: Plan): readonly RankShare[] => plan.stages[0]!.shares;

/** A plan with some shares changed. */
const changed = (plan: Plan, change: (share: RankShare) => Partial<RankShare>): Plan => ({
  ...plan,
  stages: plan.stages.map((stage) => ({ ...stage, shares: stage.shares.map((one) => ({ ...one, ...change(one) })) })),
});
const refusal = (plan: Plan, shape: ModelShape) => expect(() => checkPlan(plan, shape));

describe('adp', () => {
  test('attention, cache and vocabulary on every rank; MLP segments cut', () => {
    const plan = makePlan('adp', 3, dense);
    checkPlan(plan, dense);
    expect(parsePlan(JSON.stringify(plan))).toEqual(plan);
    for (const share of shares(plan)) {
      expect(share).toMatchObject({ heads: [0, 1], kvHeads: [0, 1], lanes: all, sequences: 1 });
    }
    expect(shares(plan).flatMap(({ mlp }) => mlp)).toEqual(all);
    expect(
      shares(plan)
        .map(({ mlp }) => mlp.length)
        .toSorted((a, b) => a - b),
    ).toEqual([2, 3, 3]);
    expect(plan.head).toEqual([0, 1, 2].map((rank) => ({ rank, rows: [0, 1000] })));
    expect(plan.embedding).toEqual(plan.head);
    expect(plan.stages[0]!.kind).toBe('adp');
  });

  test('with experts these are spread, and the MLP segments of dense layers and shared experts are everywhere', () => {
    const plan = makePlan('adp', 4, moe);
    checkPlan(plan, moe);
    expect(shares(plan).map(({ experts }) => experts)).toEqual([[0, 1], [2, 3], [4], [5]]);
    for (const { mlp } of shares(plan)) expect(mlp).toEqual(all);
    // More ranks than experts: the last ones have none.
    checkPlan(makePlan('adp', 8, moe), moe);
  });

  test('on one rank is that rank', () => {
    const [share] = shares(makePlan('adp', 1, dense));
    expect(share).toEqual(shares(makePlan('single', 1, dense))[0]);
  });

  test('experts are spread anyway; KV-only ranks have no weights for rows of their own', () => {
    expect(makePlan('adp x ep', 2, moe)).toEqual(makePlan('adp', 2, moe));
    expect(() => makePlan('adp x ep', 2, dense)).toThrow('no experts to spread');
    expect(() => makePlan('adp x token', 4, dense)).toThrow(/plan adp\) can't be had with .*adp alone/);
    expect(() => makePlan('adp', 2, dense, { tensor: 2 })).toThrow(
      'tensor 2: on 2 ranks a stage of this policy has tensor 1',
    );
    expect(() => makePlan('adp', 9, dense)).toThrow('cut over 8 ranks at most; use 1, 2, 3, 4, 5, 6, 7 or 8 ranks');
  });

  test('in words', () => {
    expect(describePlan(makePlan('adp', 2, moe), moe).slice(1)).toEqual([
      'layers 0-3:',
      '  rank 0: query heads all 16, MLP columns all 512, experts 0-2, cache of the latent of sequences of its own (weight 1)',
      '  rank 1: query heads all 16, MLP columns all 512, experts 3-5, cache of the latent of sequences of its own (weight 1)',
      'embedding: all 1,000 rows on ranks 0-1',
      'head: all 1,000 rows on ranks 0-1',
    ]);
  });
});

describe('groups of ranks', () => {
  const four = gqaShape(4);

  test('cut heads and vocabulary each for itself, as many groups as ranks in each, or more ranks', () => {
    const plan = makePlan('adp x tp', 8, four);
    checkPlan(plan, four);
    expect(parsePlan(JSON.stringify(plan))).toEqual(plan);
    const { kind: _, ...untold } = plan.stages[0]!;
    expect(parsePlan(JSON.stringify({ ...plan, stages: [untold] }))).toEqual(plan);
    const within = shares(makePlan('tp', 4, four));
    const expected = [0, 1].flatMap((group) =>
      within.map((share) => ({ ...share, rank: 4 * group + share.rank, sequences: 1 })),
    );
    expect(shares(plan)).toEqual(expected);
    expect(plan.head.map(({ rows }) => rows[0])).toEqual([0, 256, 512, 768, 0, 256, 512, 768]);
    expect(shares(makePlan('adp x tp', 8, four, { data: 4 }))[2]).toMatchObject({ heads: [0, 1], sequences: 1 });
    expect(shares(makePlan('adp x tp', 6, gqaShape(3)))[4]).toMatchObject({ heads: [1] });
    // Lanes in a group: every rank has all weights, but for the head.
    const lanes = makePlan('adp x sp', 4, four);
    expect(shares(lanes).map((share) => share.lanes[0])).toEqual([0, 1, 0, 1]);
    expect(lanes.head.map(({ rank }) => rank)).toEqual([0, 2]);
    const grid = makePlan('adp x tp+sp', 8, four);
    expect(shares(grid).map((share) => `${share.heads.join('')} ${share.lanes.length}`)).toEqual([
      '01 4',
      '01 4',
      '23 4',
      '23 4',
      '01 4',
      '01 4',
      '23 4',
      '23 4',
    ]);
    for (const one of [lanes, grid]) checkPlan(one, four);
  });

  test('of a latent cache share lanes; experts are spread over all ranks', () => {
    const plan = makePlan('adp x tp', 8, moe);
    checkPlan(plan, moe);
    expect(plan).toEqual({ ...makePlan('adp x tp+sp', 8, moe), policy: 'adp x tp' });
    expect(shares(plan).map(({ experts }) => experts.length)).toEqual([1, 1, 1, 1, 1, 1, 0, 0]);
    expect(shares(plan)[5]).toMatchObject({ heads: [2, 3], kvHeads: [0], lanes: [1, 5] });
    // In each group, where a file says so.
    const inGroups = spreadEvenly(6, 4);
    checkPlan(
      changed(plan, ({ rank }) => ({ experts: range(...inGroups[rank % 4]!) })),
      moe,
    );
  });

  test('are refused where they are none, or not alike', () => {
    expect(() => makePlan('adp x tp', 3, four)).toThrow('they make no 2 groups of 2 ranks or more; use 4, 6, 8');
    expect(() => makePlan('adp x tp', 8, four, { data: 3 })).toThrow('they make no 3 groups of 2 ranks or more');
    expect(() => makePlan('adp x tp', 20, four, { data: 2 })).toThrow('2 groups of 10');
    const plan = makePlan('adp x tp', 4, four);
    refusal(
      changed(plan, ({ rank }) => (rank === 3 ? { sequences: 2 } : {})),
      four,
    ).toThrow('ranks 2 and 3 run the same sequences, but their weights are 1 and 2; give them one');
    refusal(
      changed(plan, ({ rank }) => (rank > 1 ? { mlp: rank === 2 ? [0] : [1, 2, 3, 4, 5, 6, 7] } : {})),
      four,
    ).toThrow('rank 2 holds mlp 0: cut MLP segments alike in each group');
    refusal(
      changed(plan, ({ rank, heads }) => (rank > 1 ? { heads: [[0], [1, 2, 3]][rank - 2]!, kvHeads: heads } : {})),
      four,
    ).toThrow('make all groups alike');
    refusal({ ...plan, head: plan.head.slice(0, 2) }, four).toThrow(
      'head of 2 ranks that run rows of their own (2, 3)',
    );
  });
});

describe('plans by hand', () => {
  const plan = makePlan('adp', 4, moe);

  test('may weigh the ranks, cut the MLP of a model with experts, or cut nothing', () => {
    checkPlan(
      changed(plan, ({ rank }) => ({ sequences: rank })),
      moe,
    );
    const cut = makePlan('tp', 4, moe);
    checkPlan(
      changed(plan, ({ rank }) => ({ mlp: shares(cut)[rank]!.mlp })),
      moe,
    );
    checkPlan(
      changed(plan, () => ({ experts: [0, 1, 2, 3, 4, 5] })),
      moe,
    );
  });

  test('are refused where a row would have no rank, or two', () => {
    refusal(
      changed(plan, () => ({ sequences: 0 })),
      moe,
    ).toThrow('the ranks keep no sequences: give one of them a weight above 0');
    refusal(
      changed(plan, ({ rank }) => (rank === 1 ? { sequences: undefined } : {})),
      moe,
    ).toThrow('rank 1 has no sequences, others have');
    refusal(
      changed(plan, ({ rank }) => ({ lanes: all.filter((lane) => lane % 4 === rank) })),
      moe,
    ).toThrow('only together do ranks 0-3 hold all heads and lanes');
    refusal(
      changed(plan, ({ rank }) => (rank === 3 ? { heads: [], mlp: [], experts: [] } : {})),
      moe,
    ).toThrow("rank 3 holds no heads; with kind 'adp' every rank has weights");
    refusal(
      changed(plan, ({ rank }) => (rank === 3 ? { lanes: [0, 1] } : {})),
      moe,
    ).toThrow('rank 3 has lanes 0-1, rank 0 0-7; ranks 3 share a request as ranks 0 do: make all groups alike');
    refusal(
      changed(plan, ({ rank }) => ({ mlp: rank < 2 ? [0, 1, 2, 3] : [4, 5, 6, 7] })),
      moe,
    ).toThrow(
      'ranks 0 and 1 both hold mlp 0-3; where every rank runs its own rows, give each MLP segment to one rank, or all',
    );
    refusal(
      changed(plan, ({ rank }) => (rank === 0 ? { experts: [0] } : {})),
      moe,
    ).toThrow('expert 1 is held by no rank');
  });

  test('are refused without the whole vocabulary on every rank', () => {
    refusal({ ...plan, head: plan.head.slice(0, 1) }, moe).toThrow(
      'head of 1 rank that runs rows of its own (1): rows 0 to 999 are held by no rank',
    );
    refusal({ ...plan, embedding: makePlan('tp', 4, moe).embedding }, moe).toThrow(
      'embedding of 1 rank that runs rows of its own (0): rows 256 to 999 are held by no rank',
    );
    const sp = makePlan('sp', 2, moe);
    refusal({ ...sp, head: sp.embedding }, moe).toThrow('head: rank 1 has rows [0, 1000]: expected them to start at');
  });

  test('in several stages: a sequence has one place in all of them', () => {
    const [stage] = plan.stages as [Stage];
    const halves = (second: readonly RankShare[], kind: StageKind = 'adp'): Plan => ({
      ...plan,
      stages: [
        { ...stage, layers: [0, 2] },
        { layers: [2, 4], kind, shares: second },
      ],
    });
    checkPlan(halves(stage.shares), moe);
    refusal(halves(stage.shares.toReversed()), moe).toThrow(
      'rank 3 keeps other sequences in layers 2-3 than in stages before; list ranks in one order',
    );
    refusal(halves(stage.shares.map((share, rank) => ({ ...share, sequences: rank }))), moe).toThrow(
      'sequences are sharded 1, 1, 1, 1 in layers 0-1, but 0-3 in layers 2-3',
    );
    const tensor = shares(makePlan('tp', 4, moe));
    refusal({ ...halves(tensor, 'tensor') }, moe).toThrow("layers 0-1 are of kind 'adp', layers 2-3 of kind 'tensor'");
  });
});

test('memory: weights of the vocabulary and of attention on every rank, each sequence on one', () => {
  const layer = {
    attentionSegments: all.map(() => 100),
    attentionShared: 10,
    mlpSegments: all.map(() => 20),
    mlpShared: 3,
    expert: 7,
    kvToken: 4,
  };
  const sizes = {
    layers: moe.segmentHeads.slice(0, 4).map(() => layer),
    embeddingRow: 2,
    headRow: 3,
    tied: false,
    finalNorm: 5,
  };
  const memory = planMemory(makePlan('adp', 4, moe), sizes, { contextLength: 256, slots: 6 });
  const whole = 4 * (800 + 10 + 160 + 3) + 1000 * 5 + 5;
  expect(memory.map(({ weightBytes }) => weightBytes)).toEqual([2, 2, 1, 1].map((count) => whole + 4 * count * 7));
  // Of equals the later ones get what is left over.
  expect(memory.map(({ kvBytes }) => kvBytes)).toEqual([1, 1, 2, 2].map((slots) => 4 * slots * 256 * 4));
});
