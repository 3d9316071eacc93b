import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { range, sum } from '../base/lists.js';
import { arrange } from './arrange.js';
import { piecesBound, wholeLoadsBound } from './solvers/pieces.js';
import { backtrack } from './testing/backtrack.js';
import { leastPeak, leastPeakOfAnyShares, leastWithinMemory } from './testing/brute_force.js';
import { lognormalLoads } from './testing/loads.js';
import type { Answer } from './task.js';

/** Whole numbers tie often, real numbers never. */
const load = fc.oneof(fc.integer({ min: 0, max: 9 }), fc.double({ min: 0.01, max: 10, noNaN: true }));
const layer = (heads: number): fc.Arbitrary<number[]> => fc.array(load, { minLength: 1, maxLength: heads });
const whole = (min: number, max: number): fc.Arbitrary<number> => fc.integer({ min, max });
const near = (found: number, expected: number): void =>
  expect(Math.abs(found - expected)).toBeLessThanOrEqual(1e-8 * Math.max(1, expected));

interface Layer {
  readonly loads: readonly number[];
  readonly ranks: number;
  readonly copies: number;
  readonly batch?: number;
}
const backtrackIn = ({ loads, ranks, copies, batch = Infinity }: Layer): Answer =>
  backtrack({ loads, copies, room: range(0, ranks).map(() => Infinity), batch }, { left: Infinity });

describe('against every placement there is', () => {
  test('exact and FairKV’s backtracking find the least makespan and prove it', () => {
    fc.assert(
      fc.property(layer(4), whole(1, 3), whole(0, 3), (loads, ranks, copies) => {
        const found = arrange({ loads: [loads], ranks, copies, mode: 'exact' });
        const least = leastPeak(loads, ranks, copies);
        near(found.makespan, least);
        expect(found.optimal).toBe(true);
        const { peak, bound } = backtrackIn({ loads, ranks, copies });
        near(peak, least);
        expect(bound).toBe(peak);
      }),
      { numRuns: 150 },
    );
  });

  test('loads of whole numbers: the bound from few cuts holds', () => {
    const wholes = fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(wholes, whole(1, 4), whole(0, 3), fc.constantFrom(1, 2, 12), (counts, ranks, copies, parts) => {
        const loads = counts.map((count) => count / parts);
        const bound = wholeLoadsBound(loads, ranks, copies, Infinity);
        expect(bound).toBeLessThanOrEqual(leastPeak(loads, ranks, copies) * (1 + 1e-9));
        expect(bound).toBeGreaterThanOrEqual((loads.reduce((a, b) => a + b) / ranks) * (1 - 1e-9));
      }),
      { numRuns: 150 },
    );
    // By hand: 95 on 8 ranks. With two copies four ranks have whole numbers: 11 of those, and the others would need 12.75.
    const loads = Array.from({ length: 32 }, (_, i) => (i === 0 ? 2 : 3));
    expect(wholeLoadsBound(loads, 8, 2, Infinity)).toBe(12);
    // One copy, two ranks: halves of an odd load.
    expect(wholeLoadsBound([3, 4], 2, 1, Infinity)).toBe(3.5);
    expect(wholeLoadsBound([3, 4], 2, 1, 8)).toBe(3.5);
  });

  test('wrap finds the least makespan of any shares', () => {
    fc.assert(
      fc.property(layer(4), whole(1, 4), whole(0, 3), (loads, ranks, copies) => {
        const found = arrange({ loads: [loads], ranks, copies, mode: 'wrap' });
        near(found.makespan, leastPeakOfAnyShares(loads, ranks, Math.min(copies, ranks - 1)));
        expect(found.optimal).toBe(true);
      }),
      { numRuns: 150 },
    );
  });

  test('within memory the bound holds, and what is called optimal is', () => {
    const cases = fc
      .tuple(whole(1, 3), whole(1, 3), whole(1, 3), whole(0, 2), whole(0, 3))
      .chain(([layers, heads, ranks, copies, extra]) =>
        fc.record({
          loads: fc.array(fc.array(load, { minLength: heads, maxLength: heads }), {
            minLength: layers,
            maxLength: layers,
          }),
          ranks: fc.constant(ranks),
          copies: fc.constant(copies),
          memory: fc.constant(Math.ceil((layers * heads) / ranks) + extra),
        }),
      );
    fc.assert(
      fc.property(cases, (problem) => {
        const least = leastWithinMemory(problem.loads, problem.ranks, problem.copies, problem.memory);
        const found = arrange({ ...problem, mode: 'exact' });
        expect(found.makespan).toBeGreaterThanOrEqual(least * (1 - 1e-8));
        expect(found.lowerBound).toBeLessThanOrEqual(least * (1 + 1e-8));
        if (found.optimal) near(found.makespan, least);
      }),
      { numRuns: 150 },
    );
  });

  test('no pieces do better than their bound', () => {
    fc.assert(
      fc.property(layer(6), whole(1, 3), (sizes, ranks) => {
        expect(piecesBound(sizes, ranks)).toBeLessThanOrEqual(leastPeak(sizes, ranks, 0) * (1 + 1e-9));
      }),
      { numRuns: 200 },
    );
  });
});

describe('modes against each other', () => {
  test('backtrack and exact agree, by requests too', () => {
    const problems = fc.record({
      loads: fc.array(fc.array(load, { minLength: 5, maxLength: 5 }), { minLength: 1, maxLength: 2 }),
      ranks: whole(2, 4),
      copies: whole(0, 2),
      batch: fc.constantFrom(1, 2, 3, 4, 8, 1000),
    });
    fc.assert(
      fc.property(problems, (problem) => {
        const exact = arrange({ ...problem, mode: 'exact' });
        expect(exact.optimal).toBe(true);
        const layers = problem.loads.map((loads) => backtrackIn({ ...problem, loads }));
        near(exact.makespan, sum(layers.map(({ peak }) => peak)));
      }),
      { numRuns: 60 },
    );
  });

  test('wrap is perfect with as many copies as ranks less one', () => {
    const problems = fc.record({ loads: fc.array(layer(9), { minLength: 1, maxLength: 1 }), ranks: whole(1, 12) });
    fc.assert(
      fc.property(problems, (problem) => {
        const found = arrange({ ...problem, mode: 'wrap' });
        expect(found.utilisation).toBeCloseTo(1, 8);
        expect(found.optimal).toBe(true);
      }),
      { numRuns: 200 },
    );
  });

  test('requests cost wrap little, and the less the more there are', () => {
    const loads = lognormalLoads(8, 16, 8);
    const [coarse, fine] = [8, 64].map((batch) => arrange({ loads, ranks: 8, batch, mode: 'wrap' }));
    expect(coarse!.utilisation).toBeGreaterThan(0.94);
    expect(fine!.utilisation).toBeGreaterThan(0.98);
  });

  test('wrap stays perfect where memory has room for its copies', () => {
    // 16 layers of 8 heads and 3 copies on 4 ranks: 44 each.
    const found = arrange({
      loads: lognormalLoads(9, 16, 8),
      ranks: 4,
      memory: 45,
      mode: 'wrap',
    });
    expect(found.utilisation).toBeCloseTo(1, 8);
  });
});
