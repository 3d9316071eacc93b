import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { arrangedPlan } from '../make/arranged_plan.js';
import { checkPlan } from '../check/check_plan.js';
import { makePlan } from '../make/make_plan.js';
import { parsePlan } from './parse_plan.js';
import type { ModelShape, Plan, RankShare, StageKind } from '../plan.js';
import { parsePolicy, POLICIES } from '../make/policy.js';
import { randomArrangement } from '../testing/arrangements.js';
import { anyShape, gqaShape } from '../testing/shapes.js';

const shape = gqaShape(4, { numLayers: 2, vocabSize: 256, numExperts: 4 });
const on = (rank: number) => [{ rank, share: 1 }];
const copied = [
  { rank: 0, share: 0.25 },
  { rank: 1, share: 0.75 },
];
const arrangement = {
  version: 1,
  policy: 'arranged',
  model: 'm',
  ranks: 2,
  mode: 'wrap',
  placement: [
    [on(1), on(0), copied, on(0)],
    [on(0), on(0), on(1), on(1)],
  ],
} as const;

const kindOfPolicy = (policy: string): StageKind => {
  const { features } = parsePolicy(policy);
  return features.includes('adp') ? 'adp' : features.includes('token') ? 'token' : 'tensor';
};
const withoutKinds = (plan: Plan): unknown => ({
  ...plan,
  stages: plan.stages.map(({ kind: _, ...stage }) => stage),
});

/** Written before stages said their kind: a line for each policy that there was, and an arrangement. */
const old = readFileSync(new URL('../testing/plans_without_kind.jsonl', import.meta.url), 'utf8')
  .trim()
  .split('\n');

describe('files without kinds', () => {
  test('are of policies that there still are', () => {
    const policies = old.map((line) => (JSON.parse(line) as Plan).policy);
    expect([...POLICIES, 'arranged']).toEqual(expect.arrayContaining(policies));
    expect(new Set(policies).size).toBe(policies.length);
  });

  test.each(old.map((line) => [(JSON.parse(line) as Plan).policy, line] as const))('%s', (policy, line) => {
    expect(line).not.toContain('kind');
    const { worldSize } = JSON.parse(line) as Plan;
    const made =
      policy === 'arranged'
        ? arrangedPlan(arrangement, { ...shape, numExperts: 0 }, 'lanes')
        : makePlan(policy, worldSize, shape);
    expect(parsePlan(line)).toEqual(made);
    const wanted = policy === 'arranged' ? ['arranged', 'tensor'] : made.stages.map(() => kindOfPolicy(policy));
    expect(made.stages.map(({ kind }) => kind)).toEqual(wanted);
  });

  test('of any model and ranks come to what the makers write', () => {
    let plans = 0;
    fc.assert(
      fc.property(anyShape, fc.constantFrom(...POLICIES), fc.integer({ min: 1, max: 8 }), (model, policy, ranks) => {
        let plan: Plan;
        try {
          plan = makePlan(policy, ranks, model);
        } catch {
          return;
        }
        plans++;
        expect(parsePlan(withoutKinds(plan))).toEqual(plan);
        // On one rank attention data parallelism has nothing to share.
        if (ranks > 1) expect(new Set(plan.stages.map(({ kind }) => kind))).toEqual(new Set([kindOfPolicy(policy)]));
      }),
      { numRuns: 300 },
    );
    expect(plans).toBeGreaterThan(50);
    for (const seed of [1, 2, 3, 4]) {
      const four = gqaShape(4, { numLayers: 6 });
      const plan = arrangedPlan(randomArrangement(four, 3, { seed, copies: 2 }), four, 'sequences');
      expect(parsePlan(withoutKinds(plan))).toEqual(plan);
    }
  });
});

describe('a stage is what its kind says', () => {
  const dense = gqaShape(4, { numLayers: 2 });
  const refusal = (plan: Plan, kind: string, change: (share: RankShare) => Partial<RankShare> = () => ({})): string => {
    const stages = plan.stages.map(({ layers, shares }) => ({
      layers,
      kind: kind as StageKind,
      shares: shares.map((share) => ({ ...share, ...change(share) })),
    }));
    try {
      checkPlan({ ...plan, stages }, dense as ModelShape);
    } catch (error) {
      return (error as Error).message;
    }
    return 'nothing refused';
  };
  const make = (policy: string, ranks: number): Plan => makePlan(policy, ranks, dense);

  test('tensor', () => {
    expect(refusal(make('token', 2), 'tensor')).toBe(
      "plan 'token': layers 0-1: rank 0 has sequences, which kind 'tensor' doesn't shard: leave them out, or write " +
        '"kind": "token"',
    );
    expect(refusal(make('adp', 2), 'tensor')).toContain('write "kind": "adp"');
    expect(
      refusal(make('sp', 2), 'tensor', ({ rank }) => (rank === 1 ? { heads: [], mlp: [], experts: [] } : {})),
    ).toContain('rank 1 holds no weights: give it some, or write "kind": "token" and sequences');
    expect(refusal(make('tp', 2), 'tensor', ({ rank }) => ({ copies: [{ head: rank, share: 0.5 }] }))).toContain(
      'rank 0 has copies of heads: write "kind": "arranged"',
    );
    expect(refusal(make('tp', 2), 'tensor', ({ rank }) => ({ heads: [rank, rank + 2] }))).toContain(
      'rank 0: heads 0, 2 have a gap: hold neighbours, or write "kind": "arranged"',
    );
  });

  test('token and adp', () => {
    for (const kind of ['token', 'adp']) {
      expect(refusal(make('tp', 2), kind)).toContain(
        `kind '${kind}' shards sequences, and no rank has any: give every rank a weight in sequences`,
      );
    }
    expect(refusal(make('adp', 2), 'token')).toContain(
      'kind \'token\', but ranks 0-1 all hold weights, and all heads more than once: write "kind": "adp"',
    );
    expect(refusal(make('token', 2), 'adp')).toContain(
      'rank 1 holds no heads; with kind \'adp\' every rank has weights: give it some, or write "kind": "token"',
    );
    expect(refusal(make('tp', 2), 'adp', () => ({ sequences: 1 }))).toContain(
      'kind \'adp\', but only together do ranks 0-1 hold all heads and lanes, so there is one group of ranks: write "kind": "tensor"',
    );
    expect(refusal(make('single', 1), 'adp', () => ({ sequences: 1 }))).toContain(
      'kind \'adp\' on one rank: write "kind": "tensor", and leave sequences out',
    );
  });

  test('arranged', () => {
    expect(refusal(make('token', 2), 'arranged')).toContain("which kind 'arranged' doesn't shard");
    expect(refusal(make('sp', 2), 'arranged')).toContain('with arranged heads a rank has all 8');
    // A plain cut is an arrangement too.
    expect(refusal(make('tp', 2), 'arranged')).toBe('nothing refused');
    expect(refusal(make('tp', 2), 'ring')).toContain("kind is 'ring'; use tensor, token, adp, arranged");
  });
});

test('files may say a kind, and only one that there is', () => {
  const plan = makePlan('tp', 2, gqaShape(4));
  const called = (kind: unknown): unknown => ({ ...plan, stages: plan.stages.map((stage) => ({ ...stage, kind })) });
  expect(parsePlan(JSON.stringify(called('arranged'))).stages[0]!.kind).toBe('arranged');
  expect(() => parsePlan(called('ring'))).toThrow(
    'plan.stages[0].kind is "ring"; write one of "tensor", "token", "adp", "arranged"',
  );
});
