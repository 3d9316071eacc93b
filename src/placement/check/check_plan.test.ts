import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { sweepsAll } from '../../gpu/testing/draw.js';
import { checkPlan } from './check_plan.js';
import { makePlan } from '../make/make_plan.js';
import type { ModelShape, Plan } from '../plan.js';
import { POLICIES } from '../make/policy.js';
import { anyShape, gqaShape, mlaShape } from '../testing/shapes.js';

type Mutable<T> = T extends readonly (infer E)[]
  ? T extends readonly [unknown, unknown]
    ? [number, number]
    : Mutable<E>[]
  : T extends object
    ? { -readonly [K in keyof T]: Mutable<T[K]> }
    : T;

/** A change that makes a legal plan wrong; false where this plan has nothing to change. */
type Mutation = (plan: Mutable<Plan>, pick: (n: number) => number, shape: ModelShape) => boolean | void;

const pickShare = (plan: Mutable<Plan>, pick: (n: number) => number) => {
  const { shares } = plan.stages[pick(plan.stages.length)]!;
  return { shares, share: shares[pick(shares.length)]! };
};
const remove = (list: number[], pick: (n: number) => number): boolean => list.splice(pick(list.length), 1).length > 0;
const repeat = (list: number[], pick: (n: number) => number): boolean => {
  if (list.length === 0) return false;
  const at = pick(list.length);
  list.splice(at, 0, list[at]!);
  return true;
};

const mutations: Record<string, Mutation> = {
  'a dropped head': (plan, pick) => remove(pickShare(plan, pick).share.heads, pick),
  'a dropped MLP segment': (plan, pick) => remove(pickShare(plan, pick).share.mlp, pick),
  'a dropped expert': (plan, pick) => remove(pickShare(plan, pick).share.experts, pick),
  'a dropped kv head': (plan, pick) => remove(pickShare(plan, pick).share.kvHeads, pick),
  'a dropped lane': (plan, pick) => remove(pickShare(plan, pick).share.lanes, pick),
  'a repeated head': (plan, pick) => repeat(pickShare(plan, pick).share.heads, pick),
  'a repeated MLP segment': (plan, pick) => repeat(pickShare(plan, pick).share.mlp, pick),
  'a repeated expert': (plan, pick) => repeat(pickShare(plan, pick).share.experts, pick),
  'a repeated lane': (plan, pick) => repeat(pickShare(plan, pick).share.lanes, pick),
  'a head of another rank': (plan, pick, shape) => {
    const { heads } = pickShare(plan, pick).share;
    if (heads.length === shape.segmentHeads.length) return false;
    const extra = heads[0]! > 0 ? heads[0]! - 1 : heads.at(-1)! + 1;
    heads.push(extra);
    heads.sort((a, b) => a - b);
  },
  'an expert of another rank': (plan, pick, shape) => {
    const { experts } = pickShare(plan, pick).share;
    const others = shape.numExperts - experts.length;
    if (others === 0) return false;
    const missing = Array.from({ length: shape.numExperts }, (_, i) => i).filter((i) => !experts.includes(i));
    experts.push(missing[pick(others)]!);
    experts.sort((a, b) => a - b);
  },
  "another rank's lanes": (plan, pick) => {
    const { shares, share } = pickShare(plan, pick);
    const other = shares.find(({ lanes }) => lanes[0] !== share.lanes[0]);
    if (!other) return false;
    share.lanes = [...other.lanes];
  },
  'a lane swapped': (plan, pick) => {
    const { shares, share } = pickShare(plan, pick);
    const other = shares.find(({ lanes }) => lanes[0] !== share.lanes[0]);
    if (!other || share.lanes.length === 1) return false;
    [share.lanes[0], other.lanes[0]] = [other.lanes[0]!, share.lanes[0]!];
    for (const { lanes } of [share, other]) lanes.sort((a, b) => a - b);
  },
  'a lane out of range': (plan, pick) => {
    const { lanes } = pickShare(plan, pick).share;
    lanes[lanes.length - 1]! += 8;
  },
  'overlapping rows': (plan) => {
    if (plan.head.length < 2) return false;
    plan.head[1]!.rows[0] -= 64;
  },
  'a gap in the rows': (plan) => {
    plan.embedding[0]!.rows[0] += 64;
  },
  'a missing row': (plan) => {
    plan.head.at(-1)!.rows[1]--;
  },
  'rows past the vocabulary': (plan) => {
    plan.embedding.at(-1)!.rows[1]++;
  },
  'an odd cut': (plan) => {
    if (plan.head.length < 2) return false;
    plan.head[0]!.rows[1]--;
    plan.head[1]!.rows[0]--;
  },
  'a share less': (plan, pick) => {
    const { shares } = pickShare(plan, pick);
    shares.splice(pick(shares.length), 1);
  },
  'a rank twice': (plan, pick) => {
    const { shares, share } = pickShare(plan, pick);
    shares.push(structuredClone(share));
  },
  'a rank out of range': (plan, pick) => {
    pickShare(plan, pick).share.rank = plan.worldSize;
  },
  'an idle rank': (plan) => {
    plan.worldSize++;
  },
  'a layer twice': (plan) => {
    if (plan.stages.length < 2) return false;
    plan.stages[1]!.layers[0]--;
  },
  'a layer less': (plan) => {
    plan.stages.at(-1)!.layers[1]--;
  },
  'a layer more': (plan) => {
    plan.stages.at(-1)!.layers[1]++;
  },
  'no stages': (plan) => {
    plan.stages = [];
  },
  'no head': (plan) => {
    plan.head = [];
  },
  'no embedding': (plan) => {
    plan.embedding = [];
  },
};

function refusal(plan: Plan, shape: ModelShape): string | undefined {
  try {
    checkPlan(plan, shape);
    return undefined;
  } catch (error) {
    if (!(error instanceof SplitkvError)) throw error;
    expect(error.code).toBe('usage');
    return error.message;
  }
}

describe('a legal plan with one fault is refused', () => {
  test.each(Object.entries(mutations))('%s', (_name, mutate) => {
    fc.assert(
      fc.property(
        anyShape,
        fc.constantFrom(...POLICIES),
        fc.integer({ min: 1, max: 8 }),
        fc.infiniteStream(fc.nat()),
        (shape, policy, ranks, numbers) => {
          let plan: Plan;
          try {
            plan = makePlan(policy, ranks, shape);
          } catch {
            return fc.pre(false);
          }
          const mutant = structuredClone(plan) as Mutable<Plan>;
          const pick = (n: number): number => (numbers.next().value as number) % Math.max(n, 1);
          // Each counted run has a fault: cases without one are drawn again.
          fc.pre(mutate(mutant, pick, shape) !== false);
          expect(refusal(plan, shape)).toBeUndefined();
          expect(refusal(mutant as Plan, shape), JSON.stringify(mutant)).toContain(`plan '${plan.policy}'`);
        },
      ),
      { numRuns: sweepsAll ? 200 : 40 },
    );
  });
});

describe('what people may write by hand', () => {
  const lanes = (split: number, index: number) => [0, 1, 2, 3, 4, 5, 6, 7].filter((lane) => lane % split === index);
  const all = [0, 1, 2, 3, 4, 5, 6, 7];
  const legal = (plan: Plan, shape: ModelShape) => expect(refusal(plan, shape)).toBeUndefined();

  test('ranks in any order, and in more stages than one', () => {
    const shape = gqaShape(2, { vocabSize: 320 });
    const share = (rank: number, half: 0 | 1) => ({
      rank,
      heads: [half],
      mlp: all.slice(half * 4, half * 4 + 4),
      experts: [],
      kvHeads: [half],
      lanes: all,
    });
    legal(
      {
        version: 1,
        policy: 'crossed',
        worldSize: 2,
        stages: [
          { layers: [0, 1], kind: 'tensor', shares: [share(1, 0), share(0, 1)] },
          { layers: [1, 4], kind: 'tensor', shares: [share(0, 0), share(1, 1)] },
        ],
        embedding: [{ rank: 1, rows: [0, 320] }],
        head: [
          { rank: 1, rows: [0, 64] },
          { rank: 0, rows: [64, 320] },
        ],
      },
      shape,
    );
  });

  test('MLA: two weight groups over four latent lanes', () => {
    const shape = { ...mlaShape(16), numExperts: 4 };
    const plan = makePlan('tp+sp', 4, shape, { tensor: 2 });
    legal(plan, shape);
    expect(plan.stages[0]!.shares.map((s) => [s.heads.join(''), s.lanes.join('')])).toEqual([
      ['0123', '04'],
      ['0123', '15'],
      ['4567', '26'],
      ['4567', '37'],
    ]);
  });

  const shape = gqaShape(4);
  const mutant = (policy: string, ranks: number, change: (plan: Mutable<Plan>) => void, of = shape) => {
    const plan = structuredClone(makePlan(policy, ranks, of)) as Mutable<Plan>;
    change(plan);
    return refusal(plan as Plan, of);
  };

  test('messages say what is wrong and what to do', () => {
    const shares = (plan: Mutable<Plan>) => plan.stages[0]!.shares;
    expect(mutant('tp', 2, (plan) => (shares(plan)[0]!.heads = [0]))).toBe(
      "plan 'tp': layers 0-3: attention segment 1 is held by no rank; add it to one rank's heads",
    );
    expect(mutant('tp', 2, (plan) => (shares(plan)[0]!.heads = [0, 1, 2]))).toBe(
      "plan 'tp': layers 0-3: ranks 0 and 1 share attention segment 2, but their heads differ (0-2; 2-3): " +
        'ranks hold the same heads or none in common',
    );
    expect(mutant('tp', 2, (plan) => (shares(plan)[0]!.heads = [0, 2]))).toContain('have a gap');
    expect(mutant('sp', 4, (plan) => (shares(plan)[1]!.lanes = lanes(2, 1)))).toContain(
      'rank 1: lanes 1, 3, 5, 7; it keeps the cache of its heads with ranks 0-3, and each has every 4th lane: write 1, 5',
    );
    expect(mutant('sp', 4, (plan) => (shares(plan)[1]!.lanes = lanes(4, 0)))).toContain('rank 1: lanes 0, 4; ');
    expect(mutant('sp', 3, (plan) => (shares(plan)[1]!.lanes = [1, 4]))).toContain('write 1, 4, 7');
    expect(mutant('sp', 9, (plan) => (shares(plan)[8]!.lanes = [0]))).toContain('each has every 9th lane: write 1');
    expect(mutant('sp', 2, (plan) => (shares(plan)[1]!.lanes = [1, 2, 3, 4]))).toContain('write 1, 3, 5, 7');
    expect(mutant('tp', 2, (plan) => (shares(plan)[1]!.lanes = [0]))).toContain('has all lanes: write 0-7');
    expect(mutant('tp', 2, (plan) => (shares(plan)[1]!.kvHeads = [3]))).toContain("keep the rank's own heads, or all");
    expect(
      mutant('tp+sp', 2, (plan) => {
        shares(plan)[1]!.kvHeads = [2, 3];
      }),
    ).toContain('choose one for the stage');
    expect(mutant('sp', 2, (plan) => plan.embedding.pop())).toBeUndefined();
    expect(mutant('sp', 4, (plan) => plan.embedding.pop())).toContain("3 of the first stage's 4 ranks");
    expect(mutant('pp', 2, (plan) => (plan.head[0]!.rank = 0))).toContain('not in the last stage');
    expect(mutant('pp', 2, (plan) => (plan.stages[1]!.layers = [2, 5]))).toContain('cover 5 layers; this model has 4');
  });

  test('replicas and groups pair up', () => {
    expect(
      mutant('tp', 4, (plan) => {
        const [a, b] = plan.stages[0]!.shares as [Mutable<Plan>['stages'][0]['shares'][0], never];
        (b as typeof a).heads = a.heads = [0, 1];
      }),
    ).toBe("plan 'tp': layers 0-3: heads 0-1 are held by 2 ranks, 2 by 1; every group needs as many");
    expect(
      mutant('tp+sp', 4, (plan) => {
        const { shares } = plan.stages[0]!;
        [shares[0]!.mlp, shares[3]!.mlp] = [shares[3]!.mlp, shares[0]!.mlp];
      }),
    ).toContain('hold the same heads but different mlp');
  });

  test('a degree beyond the segments names how many there are', () => {
    const small = mlaShape(2);
    const plan = structuredClone(makePlan('tp', 8, mlaShape(16))) as Mutable<Plan>;
    expect(refusal(plan as Plan, small)).toBe(
      "plan 'tp': layers 0-3: 8 groups of ranks with different heads; this model has 2 attention segments with query heads, " +
        'so at most 2 ranks can hold different ones',
    );
    const two = structuredClone(makePlan('tp', 2, small)) as Mutable<Plan>;
    // Segments 3 and 7 have the heads.
    two.stages[0]!.shares[0]!.heads = [0, 1, 2];
    two.stages[0]!.shares[1]!.heads = [3, 4, 5, 6, 7];
    expect(refusal(two as Plan, small)).toContain('rank 0: heads 0-2 have no query heads');
  });

  test('the latent has no heads', () => {
    expect(mutant('tp', 2, (plan) => (plan.stages[0]!.shares[0]!.kvHeads = []), mlaShape(8))).toContain('write [0]');
  });
});
