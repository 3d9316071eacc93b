import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { checkPlan } from '../check/check_plan.js';
import { makePlan, type PlanOptions } from './make_plan.js';
import { planTopology } from '../topology.js';
import { parsePlan } from '../plan/parse_plan.js';
import type { ModelShape, Plan } from '../plan.js';
import { POLICIES } from './policy.js';
import { anyShape, gqaShape, mlaShape } from '../testing/shapes.js';

/** The plan, or undefined where the policy refuses; any other error fails the test. */
function tryPlan(policy: string, ranks: number, shape: ModelShape, options?: PlanOptions): Plan | undefined {
  try {
    return makePlan(policy, ranks, shape, options);
  } catch (error) {
    expect(error).toBeInstanceOf(SplitkvError);
    expect((error as SplitkvError).code).toBe('usage');
    return undefined;
  }
}

const share = (plan: Plan, rank: number) => plan.stages.flatMap((stage) => stage.shares).find((s) => s.rank === rank)!;
const lanes = (plan: Plan) => plan.stages.flatMap((stage) => stage.shares.map((s) => s.lanes.join('')));
const layers = (plan: Plan) => plan.stages.map((stage) => stage.layers);

test('every policy on any number of ranks gives a legal plan or a usage error', () => {
  fc.assert(
    fc.property(anyShape, fc.constantFrom(...POLICIES), fc.integer({ min: 1, max: 8 }), (shape, policy, ranks) => {
      const plan = tryPlan(policy, ranks, shape);
      if (!plan) return;
      expect(plan.worldSize).toBe(ranks);
      checkPlan(plan, shape);
      expect(parsePlan(JSON.stringify(plan))).toEqual(plan);
    }),
    { numRuns: 400 },
  );
});

test('every policy fits 1, 2, 4 or 8 ranks of a model that can be cut', () => {
  const shape = { ...gqaShape(8), numExperts: 8 };
  for (const policy of POLICIES) {
    const smallest =
      policy === 'single' ? 1 : policy.startsWith('pp x tp x token') ? 8 : policy.includes(' x ') ? 4 : 2;
    checkPlan(makePlan(policy, smallest, shape), shape);
  }
});

test('explicit degrees give that plan or a usage error', () => {
  const degree = fc.option(fc.constantFrom(1, 2, 3, 4, 8), { nil: undefined });
  fc.assert(
    fc.property(
      anyShape,
      fc.constantFrom(...POLICIES),
      fc.integer({ min: 1, max: 8 }),
      fc.record({ tensor: degree, sequence: degree, pipeline: degree }),
      (shape, policy, ranks, degrees) => {
        const plan = tryPlan(policy, ranks, shape, degrees);
        if (!plan) return;
        checkPlan(plan, shape);
        if (degrees.pipeline !== undefined) expect(plan.stages.length).toBe(degrees.pipeline);
        for (const [at, { shares }] of plan.stages.entries()) {
          // Ranks that keep sequences and no weights are in no group.
          const holders = shares.filter(({ heads }) => heads.length > 0);
          const ways = (key: 'heads' | 'mlp'): number => new Set(holders.map((own) => own[key].join())).size;
          // MLP segments may be cut further than heads.
          const groups = policy.endsWith('adp') ? ways('heads') : Math.max(ways('heads'), ways('mlp'));
          if (degrees.tensor !== undefined) expect(groups).toBe(degrees.tensor);
          // Weight groups may share a cache: then it is of the ranks of each.
          const { split } = planTopology(plan).stages[at]!;
          if (degrees.sequence !== undefined) expect([degrees.sequence, degrees.sequence * groups]).toContain(split);
        }
      },
    ),
    { numRuns: 400 },
  );
});

describe('tp', () => {
  test('cuts heads, MLP, experts and vocabulary; keeps the cache of its heads', () => {
    const plan = makePlan('tp', 2, { ...gqaShape(3), numExperts: 5 });
    expect(plan.stages).toEqual([
      {
        layers: [0, 4],
        kind: 'tensor',
        shares: [
          { rank: 0, heads: [0], mlp: [0, 1, 2, 3], experts: [0, 1, 2], kvHeads: [0], lanes: [0, 1, 2, 3, 4, 5, 6, 7] },
          {
            rank: 1,
            heads: [1, 2],
            mlp: [4, 5, 6, 7],
            experts: [3, 4],
            kvHeads: [1, 2],
            lanes: [0, 1, 2, 3, 4, 5, 6, 7],
          },
        ],
      },
    ]);
    // 1000 rows are 16 granules of 64, the last of them short.
    expect(plan.embedding).toEqual([
      { rank: 0, rows: [0, 512] },
      { rank: 1, rows: [512, 1000] },
    ]);
    expect(plan.head).toEqual(plan.embedding);
  });

  test('is even by query heads and by columns, not by segments', () => {
    // Segments of 5 MLA heads: 0, 1, 0, 1, 1, 0, 1, 1.
    const shape = mlaShape(5, { mlpSegments: [32, 0, 32, 0, 32, 0, 32, 0] });
    const { shares } = makePlan('tp', 4, shape).stages[0]!;
    const sizes = (list: readonly number[], of: readonly number[]) => list.reduce((total, i) => total + of[i]!, 0);
    expect(Math.max(...shares.map(({ heads }) => sizes(heads, shape.segmentHeads)))).toBe(2);
    expect(shares.map(({ mlp }) => sizes(mlp, shape.mlpSegments))).toEqual([32, 32, 32, 32]);
  });

  test('on MLA splits the latent along the sequence, as tp+sp does', () => {
    const shape = mlaShape(16);
    const plan = makePlan('tp', 4, shape);
    expect({ ...plan, policy: 'tp+sp' }).toEqual(makePlan('tp+sp', 4, shape));
    expect(share(plan, 1)).toMatchObject({ heads: [2, 3], kvHeads: [0], lanes: [1, 5] });
  });

  test('on MLA takes any number of ranks', () => {
    const shape = mlaShape(16);
    const groups = (ranks: number): number => planTopology(makePlan('tp', ranks, shape)).stages[0]!.groups.length;
    expect([3, 5, 6, 7, 9, 10, 16].map(groups)).toEqual([3, 5, 6, 7, 3, 5, 8]);
    expect(lanes(makePlan('tp', 3, shape))).toEqual(['036', '147', '25']);
    expect(lanes(makePlan('tp', 9, shape))).toEqual(['0', '1', '2', '3', '4', '5', '6', '7', '8']);
    // Heads can't be cut over 11, or 2 to 8 groups of equal size: whole on every rank.
    expect(groups(11)).toBe(1);
  });

  test('on more ranks than kv heads cuts the cache of each by lanes too, and all else over all ranks', () => {
    const { shares } = makePlan('tp', 4, gqaShape(2)).stages[0]!;
    expect(shares.map(({ kvHeads, lanes: own, mlp }) => [kvHeads.join(), own.join(''), mlp.join('')])).toEqual([
      ['0', '0246', '01'],
      ['0', '1357', '23'],
      ['1', '0246', '45'],
      ['1', '1357', '67'],
    ]);
    // Heads can't be cut over groups of as many ranks: each rank has all of them.
    expect(lanes(makePlan('tp', 3, gqaShape(2)))).toEqual(['036', '147', '25']);
    const latent = makePlan('tp', 4, mlaShape(2));
    expect(lanes(latent)).toEqual(['04', '15', '26', '37']);
    expect(latent.stages[0]!.shares.map(({ heads, mlp }) => [heads.join(''), mlp.join('')])).toEqual([
      ['0123', '01'],
      ['0123', '23'],
      ['4567', '45'],
      ['4567', '67'],
    ]);
    expect(planTopology(makePlan('tp', 4, gqaShape(2))).rowGroups.prompt).toBe(1);
  });

  test('any model on any ranks: each part of the weights but attention on one rank, each lane of a head too', () => {
    fc.assert(
      fc.property(anyShape, fc.integer({ min: 1, max: 8 }), (shape, ranks) => {
        const plan = tryPlan('tp', ranks, shape);
        const columns = shape.mlpSegments.filter((size) => size > 0).length || 8;
        // A latent's ranks may all have all columns.
        expect(plan !== undefined).toBe(shape.latent || ranks <= columns);
        if (!plan || ranks > columns) return;
        checkPlan(plan, shape);
        const { shares } = plan.stages[0]!;
        const once = (held: readonly number[], all: number): void =>
          expect(held.toSorted((a, b) => a - b)).toEqual(Array.from({ length: all }, (_, at) => at));
        once(
          shares.flatMap(({ mlp }) => mlp),
          shape.mlpSegments.length,
        );
        once(
          shares.flatMap(({ experts }) => experts),
          shape.numExperts,
        );
        for (let head = 0; head < shape.kvHeads; head++) {
          once(
            shares.flatMap(({ kvHeads, lanes: own }) => (kvHeads.includes(head) ? own : [])),
            8,
          );
        }
        const filled = ({ mlp }: (typeof shares)[number]) => mlp.some((segment) => shape.mlpSegments[segment]! > 0);
        expect(shares.every(filled) || columns === 8).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  test('leaves ranks without rows where the vocabulary is tiny', () => {
    expect(makePlan('tp', 4, gqaShape(4, { vocabSize: 100 })).head).toEqual([
      { rank: 0, rows: [0, 64] },
      { rank: 1, rows: [64, 100] },
    ]);
  });

  test('refuses to cut a segment, with the number that fits', () => {
    expect(() => makePlan('tp', 9, gqaShape(9))).toThrow('over 8 ranks at most; use 1, 2, 3, 4, 5, 6, 7 or 8 ranks');
    expect(() => makePlan('tp', 4, gqaShape(2, { bothWays: true }))).toThrow('at most; use 1 or 2 ranks');
    expect(() => makePlan('tp', 8, gqaShape(8, { columns: 64 }))).toThrow('over 2 ranks at most');
  });
});

describe('sp', () => {
  test('replicates weights and deals lanes round robin', () => {
    const shape = gqaShape(2);
    const plan = makePlan('sp', 4, shape);
    expect(lanes(plan)).toEqual(['04', '15', '26', '37']);
    expect(share(plan, 3)).toMatchObject({ heads: [0, 1], kvHeads: [0, 1], mlp: [0, 1, 2, 3, 4, 5, 6, 7] });
    expect(plan.embedding).toEqual([0, 1, 2, 3].map((rank) => ({ rank, rows: [0, 1000] })));
    expect(plan.head).toEqual([{ rank: 0, rows: [0, 1000] }]);
  });

  test.each([3, 5, 6, 7, 9, 16])('%i ranks share the lanes unevenly', (ranks) => {
    const plan = makePlan('sp', ranks, gqaShape(8));
    checkPlan(plan, gqaShape(8));
    expect(planTopology(plan).stages[0]!.split).toBe(ranks);
  });
});

describe('tp+sp', () => {
  test('GQA on 4: two head groups, each split along the sequence', () => {
    const plan = makePlan('tp+sp', 4, gqaShape(4));
    expect(plan.stages[0]!.shares.map(({ kvHeads }) => kvHeads)).toEqual([
      [0, 1],
      [0, 1],
      [2, 3],
      [2, 3],
    ]);
    expect(lanes(plan)).toEqual(['0246', '1357', '0246', '1357']);
  });

  test('GQA on 8: as many head groups as use both axes', () => {
    expect(lanes(makePlan('tp+sp', 8, gqaShape(8)))).toEqual(Array(4).fill(['0246', '1357']).flat());
    expect(lanes(makePlan('tp+sp', 8, gqaShape(2)))).toEqual(Array(2).fill(['04', '15', '26', '37']).flat());
  });

  test('GQA on 2: heads cut, all heads’ cache split along the sequence', () => {
    const plan = makePlan('tp+sp', 2, gqaShape(2));
    expect(share(plan, 0)).toMatchObject({ heads: [0], kvHeads: [0, 1], lanes: [0, 2, 4, 6] });
    expect(share(plan, 1)).toMatchObject({ heads: [1], kvHeads: [0, 1], lanes: [1, 3, 5, 7] });
  });

  test('MLA: as many weight groups as there are heads, the latent over all ranks', () => {
    const plan = makePlan('tp+sp', 4, mlaShape(2));
    expect(plan.stages[0]!.shares.map(({ heads }) => heads.join(''))).toEqual(['0123', '0123', '4567', '4567']);
    expect(lanes(plan)).toEqual(['04', '15', '26', '37']);
  });

  test('takes degrees', () => {
    const shape = gqaShape(8);
    expect(lanes(makePlan('tp+sp', 8, shape, { tensor: 2 }))[2]).toBe('26');
    expect(lanes(makePlan('tp+sp', 8, shape, { sequence: 2 }))[2]).toBe('0246');
    expect(share(makePlan('tp+sp', 4, shape, { tensor: 4, sequence: 4 }), 1)).toMatchObject({
      heads: [2, 3],
      kvHeads: [0, 1, 2, 3, 4, 5, 6, 7],
      lanes: [1, 5],
    });
    // Of a latent that weight groups share: the ranks of each.
    const mla = mlaShape(16);
    expect(makePlan('tp+sp', 4, mla, { tensor: 2, sequence: 2 })).toEqual(makePlan('tp+sp', 4, mla, { tensor: 2 }));
    expect(() => makePlan('tp+sp', 4, mla, { tensor: 2, sequence: 3 })).toThrow(
      "tensor 2 x sequence 3 doesn't fit 4 ranks, which can be cut 4 x 4, 2 x 4, 1 x 4",
    );
  });
});

describe('pp', () => {
  test('keeps layers together that share keys and values', () => {
    const shape = { ...gqaShape(1), numLayers: 8, wholeFrom: 3 };
    expect(layers(makePlan('pp', 2, shape))).toEqual([
      [0, 3],
      [3, 8],
    ]);
    expect(layers(makePlan('pp', 2, shape, { layerCosts: [9, 1, 1, 1, 1, 1, 1, 1] }))).toEqual([
      [0, 1],
      [1, 8],
    ]);
    expect(layers(makePlan('pp', 4, shape)).at(-1)).toEqual([3, 8]);
    expect(() => makePlan('pp', 5, shape)).toThrow('those from 3 on share keys and values or inputs');
    const parted = makePlan('pp', 2, { ...shape, wholeFrom: 5 });
    expect(layers(parted)[1]![0]).toBe(4);
    expect(() => checkPlan(parted, shape)).toThrow('stages[1] begins at layer 4; those from 3 on');
  });

  test('balances given costs, the embedding’s and the head’s included', () => {
    const shape = gqaShape(2, { numLayers: 6 });
    const layerCosts = [1, 1, 1, 1, 1, 1];
    expect(layers(makePlan('pp', 2, shape, { layerCosts }))).toEqual([
      [0, 3],
      [3, 6],
    ]);
    expect(layers(makePlan('pp', 2, shape, { layerCosts, headCost: 2 }))).toEqual([
      [0, 4],
      [4, 6],
    ]);
    expect(layers(makePlan('pp', 2, shape, { layerCosts, embeddingCost: 4 }))).toEqual([
      [0, 1],
      [1, 6],
    ]);
    expect(layers(makePlan('pp', 3, shape, { layerCosts: [9, 1, 1, 1, 1, 1] }))).toEqual([
      [0, 1],
      [1, 3],
      [3, 6],
    ]);
  });

  test('counts the head by default', () => {
    // A head as large as two layers: 4 and 2 layers are as even as can be.
    const shape = gqaShape(2, { numLayers: 6, hiddenSize: 256, columns: 512, vocabSize: 2 * (4 * 256 + 3 * 512) });
    expect(layers(makePlan('pp', 2, shape))).toEqual([
      [0, 4],
      [4, 6],
    ]);
  });

  test('embedding on the first stage, head on the last', () => {
    const plan = makePlan('pp', 3, gqaShape(1));
    expect([plan.embedding, plan.head]).toEqual([[{ rank: 0, rows: [0, 1000] }], [{ rank: 2, rows: [0, 1000] }]]);
  });

  test('refuses more stages than layers, and costs that make no sense', () => {
    expect(() => makePlan('pp', 5, gqaShape(1))).toThrow("4 layers can't make 5 stages; use 1, 2, 3 or 4 ranks");
    expect(() => makePlan('pp', 2, gqaShape(1), { layerCosts: [1] })).toThrow('layerCosts has 1 entries');
    expect(() => makePlan('pp', 2, gqaShape(1), { layerCosts: [1, 1, -1, 1] })).toThrow('is -1');
    expect(() => makePlan('pp', 2, gqaShape(1), { headCost: 1 })).toThrow('unit of layerCosts');
  });
});

describe('products', () => {
  test('the most balanced cut that fits', () => {
    expect(layers(makePlan('pp x tp', 4, gqaShape(4)))).toHaveLength(2);
    expect(layers(makePlan('pp x tp', 8, gqaShape(4)))).toHaveLength(2);
    expect(layers(makePlan('pp x tp', 8, gqaShape(2)))).toHaveLength(4);
    // Rather stages whose ranks share lanes evenly.
    expect(layers(makePlan('pp x sp', 6, gqaShape(2)))).toHaveLength(3);
    expect(layers(makePlan('pp x sp', 6, gqaShape(2), { sequence: 3 }))).toHaveLength(2);
    expect(layers(makePlan('pp x tp', 8, gqaShape(8), { tensor: 2 }))).toHaveLength(4);
    expect(() => makePlan('pp x tp', 2, gqaShape(4))).toThrow('use 4, 6, 8, 9, 10, 12, 14, 15 or 16 ranks');
  });

  test('head and embedding lie on the ranks of their stage', () => {
    const plan = makePlan('pp x tp', 4, gqaShape(2));
    expect(plan.embedding.map(({ rank }) => rank)).toEqual([0, 1]);
    expect(plan.head.map(({ rank }) => rank)).toEqual([2, 3]);
  });
});

describe('ep', () => {
  test('spreads experts, and the cache as sp', () => {
    const plan = makePlan('ep', 2, { ...mlaShape(4), numExperts: 3 });
    expect(share(plan, 0)).toMatchObject({ experts: [0, 1], lanes: [0, 2, 4, 6], heads: [0, 1, 2, 3, 4, 5, 6, 7] });
    expect(share(plan, 1)).toMatchObject({ experts: [2], lanes: [1, 3, 5, 7] });
  });

  test('needs experts', () => {
    for (const policy of ['ep', 'tp x ep', 'pp x ep']) {
      expect(() => makePlan(policy, 4, gqaShape(4))).toThrow('no experts');
    }
  });
});

test('names are read liberally; unknown ones get a proposal', () => {
  const shape = { ...gqaShape(4), numExperts: 4 };
  for (const name of ['pp x tp', 'pp*tp', 'pp+tp', 'TP x PP', 'tp,pp', 'ppxtp']) {
    expect(makePlan(name, 4, shape).policy).toBe('pp x tp');
  }
  expect(makePlan('tp x sp', 4, shape)).toEqual(makePlan('tp+sp', 4, shape));
  expect(makePlan('tp x ep', 4, shape)).toEqual(makePlan('tp', 4, shape));
  expect(() => makePlan('tq', 2, shape)).toThrow("Did you mean 'tp'?");
  expect(() => makePlan('tp x tp', 2, shape)).toThrow("plan 'tp x tp': use single, tp,");
  expect(() => makePlan('', 2, shape)).toThrow('use single');
  expect(() => makePlan('single', 2, shape)).toThrow('use 1 rank');
  expect(() => makePlan('tp', 1.5, shape)).toThrow('whole number');
  expect(() => makePlan('tp', 2, shape, { tensr: 2 } as PlanOptions)).toThrow("Did you mean 'tensor'?");
  expect(() => makePlan('tp', 2, shape, { tensor: 0 })).toThrow('tensor 0');
});
