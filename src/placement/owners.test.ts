import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import { arrangedPlan } from './make/arranged_plan.js';
import { range, sum } from '../base/lists.js';
import { makePlan } from './make/make_plan.js';
import { planMemory } from './memory.js';
import { CHUNK_TOKENS, MERGE_LANES } from './owner.js';
import { Owners } from './owners.js';
import type { ModelShape, Plan } from './plan.js';
import { POLICIES } from './make/policy.js';
import { randomArrangement } from './testing/arrangements.js';
import { gqaShape, mlaShape } from './testing/shapes.js';
import { sizesOf } from './testing/sizes.js';

const shapes: readonly ModelShape[] = [gqaShape(4), gqaShape(8), mlaShape(16), { ...mlaShape(16), numExperts: 8 }];

/** A plan of any policy that fits, or an arrangement with copies. */
const plans: fc.Arbitrary<{ readonly plan: Plan; readonly shape: ModelShape }> = fc
  .record({
    shape: fc.constantFrom(...shapes),
    policy: fc.constantFrom(...POLICIES, 'arranged, lanes', 'arranged, sequences'),
    ranks: fc.integer({ min: 1, max: 9 }),
    seed: fc.integer({ min: 1, max: 1000 }),
  })
  .map(({ shape, policy, ranks, seed }) => {
    try {
      if (!policy.startsWith('arranged')) return { plan: makePlan(policy, ranks, shape), shape };
      if (shape.latent) return undefined;
      const sharing = policy.endsWith('lanes') ? 'lanes' : 'sequences';
      return {
        plan: arrangedPlan(randomArrangement(shape, ranks, { seed, copies: 3, sharing }), shape, sharing),
        shape,
      };
    } catch (error) {
      if (error instanceof SplitkvError) return undefined;
      throw error;
    }
  })
  .filter((plan) => plan !== undefined);

/** As many sequences as slots, each with an offset of its own. */
function admitted(plan: Plan, slots: number, batches: number, offsets: readonly number[]): Owners {
  const owners = new Owners(plan, slots, batches);
  for (const slot of range(0, owners.total)) owners.admit(slot, 3000, offsets[slot % offsets.length]!);
  return owners;
}

const cases = fc.record({
  planned: plans,
  slots: fc.integer({ min: 1, max: 9 }),
  batches: fc.integer({ min: 1, max: 3 }),
  offsets: fc.array(fc.integer({ min: 0, max: MERGE_LANES - 1 }), { minLength: 1, maxLength: 5 }),
});

const kvHeadsOf = (plan: Plan, stage: number): number[] => [
  ...new Set(plan.stages[stage]!.shares.flatMap(({ kvHeads }) => kvHeads)),
];

describe('who holds what', () => {
  test('every piece of the cache has exactly one owner', () => {
    fc.assert(
      fc.property(cases, fc.nat(30), ({ planned: { plan }, slots, batches, offsets }, chunk) => {
        const owners = admitted(plan, slots, batches, offsets);
        for (const stage of plan.stages.keys()) {
          for (const kvHead of kvHeadsOf(plan, stage)) {
            for (const slot of range(0, owners.total)) {
              const piece = { stage, kvHead, slot, chunk };
              const holding = range(0, plan.worldSize).filter((rank) => owners.holds(rank, piece));
              expect(holding, JSON.stringify(piece)).toHaveLength(1);
              expect(plan.stages[stage]!.shares.find(({ rank }) => rank === holding[0])!.kvHeads).toContain(kvHead);
            }
          }
        }
      }),
      { numRuns: 150 },
    );
  });

  test('tokens are the sum of what ranks hold, also when copies were shared out anew', () => {
    fc.assert(
      fc.property(
        cases,
        fc.integer({ min: 1, max: 3000 }),
        ({ planned: { plan }, slots, batches, offsets }, length) => {
          const owners = admitted(plan, slots, batches, offsets);
          owners.release(0);
          owners.balance(
            range(1, owners.total).map((slot) => ({ slot, length: 2000 + slot, entries: 2000 + slot, remaining: 100 })),
          );
          for (const stage of plan.stages.keys()) {
            for (const kvHead of kvHeadsOf(plan, stage)) {
              for (const slot of range(1, owners.total)) {
                const held = range(0, plan.worldSize).map((rank) => owners.tokens(rank, stage, kvHead, slot, length));
                expect(sum(held)).toBe(length);
              }
            }
          }
        },
      ),
      { numRuns: 100 },
    );
  });

  test('every rank has work as soon as there are as many sequences as places', () => {
    fc.assert(
      fc.property(cases, ({ planned: { plan }, batches }) => {
        const places = new Owners(plan, 1).topology.places ?? [1];
        // A copy's share is a part in 11 at least (`randomArrangement`): of as many sequences each has one.
        const slots = Math.max(places.length * 4, 11);
        // More ranks than lanes hold single sequences in turns.
        const owners = admitted(plan, slots, batches, [0, MERGE_LANES]);
        for (const [rank, { stages, runs }] of owners.topology.ranks.entries()) {
          const keeps = range(0, owners.total).some((slot) =>
            stages.some((stage, index) =>
              stage?.share.kvHeads.some((kvHead) =>
                range(0, MERGE_LANES).some((chunk) => owners.holds(rank, { stage: index, kvHead, slot, chunk })),
              ),
            ),
          );
          // A root may keep no sequences, and some arrangements give a rank MLP segments alone.
          expect(keeps || runs.generated.length > 0, `rank ${rank}`).toBe(true);
          const part = stages.find((stage) => stage !== undefined)!;
          if (part.share.kvHeads.length > 0 && part.weights[part.place]! > 0) expect(keeps, `rank ${rank}`).toBe(true);
        }
      }),
      { numRuns: 100 },
    );
  });

  test('rows of every row group are run with every attention segment', () => {
    fc.assert(
      fc.property(cases, ({ planned: { plan, shape }, slots, batches }) => {
        const owners = new Owners(plan, slots, batches);
        for (const role of ['prompt', 'generated'] as const) {
          for (const stage of plan.stages.keys()) {
            for (const group of range(0, owners.topology.rowGroups[role])) {
              const runs = (rank: number): boolean => owners.topology.ranks[rank]!.runs[role].includes(group);
              const heads = plan.stages[stage]!.shares.filter(({ rank }) => runs(rank)).flatMap((share) => share.heads);
              expect(new Set(heads).size).toBe(shape.segmentHeads.length);
            }
          }
        }
        for (const batch of range(0, batches)) {
          expect(sum(owners.decodeRows(batch, slots))).toBe(slots);
          expect(sum(range(0, slots).map((row) => (owners.placeOf(batch * slots + row) >= 0 ? 1 : 0)))).toBe(slots);
        }
      }),
      { numRuns: 100 },
    );
  });

  test('memory is what owners may come to hold, whatever the offsets', () => {
    fc.assert(
      fc.property(cases, fc.integer({ min: 1, max: 20 }), ({ planned: { plan, shape }, slots }, chunks) => {
        // How many sequences a copy may come to keep is a policy's matter.
        fc.pre(plan.sharing !== 'sequences');
        const sizes = sizesOf(shape);
        const planned = planMemory(plan, sizes, { contextLength: chunks * CHUNK_TOKENS, slots });
        for (const [rank, { kvBytes }] of planned.entries()) {
          let tokens = 0;
          for (const [stage, { layers, shares }] of plan.stages.entries()) {
            const share = shares.find((candidate) => candidate.rank === rank);
            for (const kvHead of share?.kvHeads ?? []) {
              const held = (offset: number, slot: number): number => {
                const owners = new Owners(plan, slots);
                owners.admit(slot, 1, offset);
                return range(0, chunks).filter((chunk) => owners.holds(rank, { stage, kvHead, slot, chunk })).length;
              };
              const most = (slot: number): number =>
                Math.max(...range(0, 2 * MERGE_LANES).map((offset) => held(offset, slot)));
              tokens += (layers[1] - layers[0]) * sum(range(0, slots).map(most)) * CHUNK_TOKENS;
            }
          }
          expect(kvBytes).toBe(tokens * sizes.layers[0]!.kvToken);
        }
      }),
      { numRuns: 40 },
    );
  });
});
