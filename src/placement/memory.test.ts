import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import { makePlan } from './make/make_plan.js';
import { MERGE_LANES } from './owner.js';
import { planTopology } from './topology.js';
import { type ModelSizes, checkMemory, planMemory } from './memory.js';
import type { ModelShape, Plan } from './plan.js';
import { POLICIES } from './make/policy.js';
import { anyShape, gqaShape, mlaShape } from './testing/shapes.js';
import { sizesOf } from './testing/sizes.js';

const total = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);
const options = { contextLength: 4096, slots: 2 };

/** Two layers of two segments, in round numbers. */
const shape: ModelShape = gqaShape(2, { numLayers: 2, vocabSize: 128, mlpSegments: [1, 1, 1, 1, 1, 1, 1, 1] });
const sizes: ModelSizes = {
  layers: [
    {
      attentionSegments: [100, 200],
      attentionShared: 10,
      mlpSegments: [1, 2, 3, 4, 5, 6, 7, 8],
      mlpShared: 3,
      expert: 0,
      kvToken: 4,
    },
    {
      attentionSegments: [100, 200],
      attentionShared: 10,
      mlpSegments: [1, 2, 3, 4, 5, 6, 7, 8],
      mlpShared: 3,
      expert: 7,
      kvToken: 4,
    },
  ],
  embeddingRow: 2,
  headRow: 2,
  tied: false,
  finalNorm: 5,
};
const weights = (policy: string, ranks: number, of = sizes, model = shape) =>
  planMemory(makePlan(policy, ranks, model), of, options).map(({ weightBytes }) => weightBytes);
const cache = (policy: string, ranks: number, tokens: number, model = shape, block = 64) => {
  const layers = sizes.layers.map((layer) => ({ ...layer, attentionSegments: model.segmentHeads.map(() => 1) }));
  return planMemory(
    makePlan(policy, ranks, model),
    { ...sizes, layers },
    { contextLength: tokens, slots: 1, block },
  ).map(({ kvBytes }) => kvBytes / 4 / model.numLayers / model.kvHeads);
};

describe('planMemory', () => {
  const layer = 100 + 200 + 10 + 36 + 3;

  test('weights by hand', () => {
    expect(weights('single', 1)).toEqual([2 * layer + 256 + 256 + 5]);
    expect(weights('sp', 2)).toEqual([2 * layer + 256 + 256 + 5, 2 * layer + 256]);
    expect(weights('tp', 2)).toEqual([
      2 * (100 + 10 + 10 + 3) + 128 + 128 + 5,
      2 * (200 + 10 + 26 + 3) + 128 + 128 + 5,
    ]);
    expect(weights('pp', 2)).toEqual([layer + 256, layer + 256 + 5]);
  });

  test('experts', () => {
    const model = { ...shape, numExperts: 3 };
    expect(weights('single', 1, sizes, model)).toEqual([2 * layer + 3 * 7 + 256 + 256 + 5]);
    expect(weights('ep', 2, sizes, model)).toEqual([2 * layer + 2 * 7 + 256 + 256 + 5, 2 * layer + 7 + 256]);
  });

  test('tied rows are held once on a rank, and twice in two places', () => {
    const tied = { ...sizes, tied: true };
    expect(weights('single', 1, tied)).toEqual([2 * layer + 256 + 5]);
    expect(weights('pp', 2, tied)).toEqual([layer + 256, layer + 256 + 5]);
    expect(weights('sp', 2, tied)).toEqual([2 * layer + 256 + 5, 2 * layer + 256]);
    const overlap: Plan = { ...makePlan('tp', 2, shape), head: [{ rank: 1, rows: [0, 128] }] };
    expect(planMemory(overlap, tied, options)[1]!.weightBytes - 2 * (200 + 10 + 26 + 3)).toBe(256 + 5);
  });

  test('cache: room for the chunks that any offset may bring', () => {
    // 1100 tokens are 5 chunks, 18 blocks of 64.
    expect(cache('single', 1, 1100)).toEqual([1152]);
    expect(cache('sp', 2, 1100)).toEqual([768, 768]);
    expect(cache('sp', 4, 1100)).toEqual([512, 512, 512, 512]);
    expect(cache('sp', 8, 1100)).toEqual(Array(8).fill(256));
    // 3 of each turn of 8, and 1 of the other chunk; of the 9th rank too, with the offsets that bring it some.
    expect(cache('sp', 3, 2200)).toEqual([1024, 1024, 1024]);
    expect(cache('sp', 9, 2200)).toEqual(Array(9).fill(512));
    expect(cache('sp', 8, 100)).toEqual(Array(8).fill(128));
    expect(cache('tp', 2, 1100)).toEqual([576, 576]);
    expect(cache('pp', 2, 1100)).toEqual([576, 576]);
    expect(cache('sp', 2, 1100, mlaShape(4, { numLayers: 2 }))).toEqual([768, 768]);
    expect(cache('single', 1, 1100, shape, 256)).toEqual([1280]);
  });

  test('what one rank holds is held by the ranks of any plan, and replicas hold it again', () => {
    fc.assert(
      fc.property(anyShape, fc.constantFrom(...POLICIES), fc.integer({ min: 1, max: 8 }), (model, policy, ranks) => {
        let plan: Plan;
        try {
          plan = makePlan(policy, ranks, model);
        } catch {
          return;
        }
        const of = sizesOf(model);
        const [one] = planMemory(makePlan('single', 1, model), of, options);
        const all = planMemory(plan, of, options);
        expect(total(all.map(({ weightBytes }) => weightBytes))).toBeGreaterThanOrEqual(one!.weightBytes);
        expect(total(all.map(({ kvBytes }) => kvBytes))).toBeGreaterThanOrEqual(one!.kvBytes);
        // 4096 tokens are 16 chunks: no split that divides the lanes rounds up.
        const even = planTopology(plan).stages.every(({ split }) => MERGE_LANES % split === 0);
        if (even) expect(total(all.map(({ kvBytes }) => kvBytes))).toBe(one!.kvBytes);
        for (const rank of all) {
          expect(rank.weightBytes).toBeLessThanOrEqual(one!.weightBytes);
          expect(rank.totalBytes).toBe(rank.weightBytes + rank.kvBytes);
        }
      }),
    );
  });
});

describe('checkMemory', () => {
  const plan = makePlan('sp', 2, shape);
  const memory = planMemory(plan, sizes, options);

  test('passes when every rank has room, or its room is unknown', () => {
    checkMemory(
      plan,
      sizes,
      options,
      memory.map(({ totalBytes }) => totalBytes),
    );
    checkMemory(plan, sizes, options, []);
    checkMemory(plan, sizes, options, [undefined, memory[1]!.totalBytes]);
  });

  test('names the rank, what it needs and what would fit', () => {
    const budgets = [Infinity, memory[1]!.totalBytes - memory[1]!.kvBytes / 2 - 1];
    expect(() => checkMemory(plan, sizes, options, budgets)).toThrow(SplitkvError);
    // 16 chunks, 8 a rank; half of them less a byte is 3.
    expect(() => checkMemory(plan, sizes, options, budgets)).toThrow(
      /^plan 'sp': rank 1 needs 65 KiB \(weights 954 B, cache 64 KiB, activations 0 B\), but has 33 KiB: a context of 1536 tokens fits;/,
    );
    checkMemory(plan, sizes, { ...options, contextLength: 1536 }, budgets);
    expect(() => checkMemory(plan, sizes, { ...options, contextLength: 1537 }, budgets)).toThrow('rank 1');
  });

  test('no context helps when the weights alone are too much', () => {
    expect(() => checkMemory(plan, sizes, options, [100])).toThrow('rank 0');
    expect(() => checkMemory(plan, sizes, options, [100])).toThrow('narrower --weights, or a plan that cuts');
    expect(() => checkMemory(plan, sizes, { ...options, activationBytes: [5000] }, [5000])).toThrow(
      'activations 4.9 KiB',
    );
  });
});
