import { describe, expect, test } from 'vitest';
import { checkPlan } from './check/check_plan.js';
import { describePlan } from './plan/describe_plan.js';
import { makePlan } from './make/make_plan.js';
import { planMemory } from './memory.js';
import { parsePlan } from './plan/parse_plan.js';
import { type ModelShape, type Plan, type RankShare } from './plan.js';
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

  test('no other axis goes with it, but the experts that it spreads anyway', () => {
    expect(makePlan('adp x ep', 2, moe)).toEqual(makePlan('adp', 2, moe));
    expect(() => makePlan('adp x ep', 2, dense)).toThrow('no experts to spread');
    for (const policy of ['pp x adp', 'adp x tp', 'adp x token', 'sp+adp']) {
      expect(() => makePlan(policy, 4, dense), policy).toThrow(/plan adp\) can't be had with .*adp alone/);
    }
    expect(() => makePlan('adp', 2, dense, { tensor: 2 })).toThrow('use adp alone');
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
    ).toThrow('give each rank all 8 merge lanes');
    refusal(
      changed(plan, ({ rank }) => (rank === 3 ? { heads: [], mlp: [], experts: [] } : {})),
      moe,
    ).toThrow("rank 3 holds heads none, rank 0 0-7; with kind 'adp' every rank holds all");
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
      'head: rank 1 has no rows; where every rank runs its own rows, give each all of them: [0, 1000]',
    );
    refusal({ ...plan, embedding: makePlan('tp', 4, moe).embedding }, moe).toThrow(
      'embedding: rank 0 has rows [0, 256]',
    );
    const sp = makePlan('sp', 2, moe);
    refusal({ ...sp, head: sp.embedding }, moe).toThrow('head: rank 1 has rows [0, 1000]: expected them to start at');
  });

  test('are refused in several stages', () => {
    const [stage] = plan.stages;
    const halves = [
      { ...stage!, layers: [0, 2] as const },
      { ...stage!, layers: [2, 4] as const },
    ];
    refusal({ ...plan, stages: halves }, moe).toThrow('make it one stage (adp alone)');
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
