import fc from 'fast-check';
import { Random } from '../base/random.js';
import { describe, expect, test } from 'vitest';
import { arrange } from './arrange.js';
import { promptDeviations, promptUtilisation } from './prompts.js';
import { makespan, rankCopies, staticPlacement } from './task.js';
import { lognormalLoads } from './testing/loads.js';
import { type Arrangement, type ArrangementProblem, MODES } from './types.js';

const load = fc.oneof(fc.integer({ min: 0, max: 20 }), fc.double({ min: 0.001, max: 1000, noNaN: true }));
const loads = (layers: number, heads: number): fc.Arbitrary<number[][]> =>
  fc
    .tuple(fc.integer({ min: 1, max: layers }), fc.integer({ min: 1, max: heads }))
    .chain(([l, h]) => fc.array(fc.array(load, { minLength: h, maxLength: h }), { minLength: l, maxLength: l }));

/** Few: what holds for an answer must hold wherever the search stopped. */
const STEPS = 20_000;

/** Problems of every mode with any limits; memory, where limited, between just enough and plenty. */
const problems: fc.Arbitrary<ArrangementProblem> = fc
  .record({
    loads: loads(4, 6),
    ranks: fc.integer({ min: 1, max: 5 }),
    mode: fc.constantFrom(...MODES, undefined),
    deviations: fc.option(fc.double({ min: 0, max: 2, noNaN: true }), { nil: undefined }),
    copies: fc.option(fc.integer({ min: 0, max: 4 }), { nil: undefined }),
    extra: fc.option(fc.integer({ min: 0, max: 6 }), { nil: undefined }),
    batch: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
  })
  .map(({ extra, copies, batch, mode, deviations, ...rest }) => {
    const problem = { ...rest, ...(mode && { mode }) };
    const heads = problem.loads.flat().length;
    // The static arrangement holds most: its fullest rank must fit, too.
    const fullest = problem.loads.length * Math.ceil(problem.loads[0]!.length / problem.ranks);
    const least = mode === 'static' ? fullest : Math.ceil(heads / problem.ranks);
    return {
      ...problem,
      ...(copies === undefined ? {} : { copies }),
      ...(extra === undefined ? {} : { memory: least + extra }),
      ...(batch === undefined ? {} : { batch }),
      ...(deviations === undefined ? {} : { deviations: rest.loads.map((heads) => heads.map(() => deviations)) }),
    };
  });

const copiesOfLayer = (found: Arrangement, layer: number): number =>
  found.placement[layer]!.flat().length - found.placement[layer]!.length;

describe('every mode, every limit', () => {
  test('every head is placed, shares add up to 1, and the limits are kept', () => {
    fc.assert(
      fc.property(problems, (problem) => {
        const found = arrange(problem, STEPS);
        expect(found.placement.map((layer) => layer.length)).toEqual(problem.loads.map((layer) => layer.length));
        for (const [layer, heads] of found.placement.entries()) {
          for (const copies of heads) {
            const ranks = copies.map(({ rank }) => rank);
            expect(ranks).toEqual([...new Set(ranks)].sort((a, b) => a - b));
            expect(ranks.every((rank) => Number.isInteger(rank) && rank >= 0 && rank < problem.ranks)).toBe(true);
            expect(copies.every(({ share }) => share > 0 && share <= 1)).toBe(true);
            expect(copies.reduce((total, { share }) => total + share, 0)).toBeCloseTo(1, 12);
            for (const { share } of problem.batch === undefined ? [] : copies) {
              expect(share * problem.batch!).toBeCloseTo(Math.round(share * problem.batch!), 9);
            }
          }
          if (problem.copies !== undefined) expect(copiesOfLayer(found, layer)).toBeLessThanOrEqual(problem.copies);
          if (problem.mode === 'wrap') expect(copiesOfLayer(found, layer)).toBeLessThan(problem.ranks);
          if (problem.mode === 'static' || problem.mode === 'greedy') expect(copiesOfLayer(found, layer)).toBe(0);
        }
        const held = rankCopies(found.placement.flat(), problem.ranks);
        expect(Math.max(...held)).toBeLessThanOrEqual(problem.memory ?? Infinity);
      }),
      { numRuns: 400 },
    );
  });

  test('the figures are those of the placement, and the lower bound holds', () => {
    fc.assert(
      fc.property(problems, (problem) => {
        const found = arrange(problem, STEPS);
        const all = problem.loads.flat().reduce((total, value) => total + value, 0);
        expect(found.makespan).toBeCloseTo(makespan(problem.loads, found.placement, problem.ranks), 9);
        expect(found.copies).toBe(found.placement.flat(2).length - problem.loads.flat().length);
        expect(found.lowerBound).toBeLessThanOrEqual(found.makespan);
        expect(found.lowerBound * problem.ranks).toBeGreaterThanOrEqual(all * (1 - 1e-9));
        expect(found.optimal).toBe(found.gap === 0);
        expect(found.gap).toBeCloseTo(found.makespan === 0 ? 0 : found.makespan / found.lowerBound - 1, 9);
        expect(found.utilisation).toBeCloseTo(found.makespan === 0 ? 1 : all / (problem.ranks * found.makespan), 9);
      }),
      { numRuns: 300 },
    );
  });

  test('never worse than static, where memory allows static', () => {
    fc.assert(
      fc.property(problems, (problem) => {
        const before = problem.loads.map((layer) => staticPlacement(layer.length, problem.ranks));
        fc.pre(Math.max(...rankCopies(before.flat(), problem.ranks)) <= (problem.memory ?? Infinity));
        const after = makespan(problem.loads, arrange(problem, STEPS).placement, problem.ranks);
        expect(after).toBeLessThanOrEqual(makespan(problem.loads, before, problem.ranks) * (1 + 1e-9));
      }),
      { numRuns: 300 },
    );
  });

  test('loads beyond exact whole numbers, beside small ones, come to an end', () => {
    for (const mode of MODES) {
      const loads = [[0, 1e18, 1e300, 1, 1e-9]];
      const { makespan, lowerBound } = arrange({ loads, ranks: 4, mode, copies: mode === 'static' ? 0 : 3 });
      expect(makespan).toBeLessThanOrEqual(1e300);
      expect(lowerBound).toBeLessThanOrEqual(makespan);
    }
  });

  test('the same problem gives the same arrangement', () => {
    fc.assert(
      fc.property(problems, (problem) => {
        expect(arrange(structuredClone(problem), STEPS)).toEqual(arrange(problem, STEPS));
      }),
      { numRuns: 60 },
    );
  });
});

describe('the sizes that matter', () => {
  test('8 heads on 8 ranks with 4 copies per layer, 32 layers: proved best', () => {
    const found = arrange({
      loads: lognormalLoads(3, 32, 8),
      ranks: 8,
      copies: 4,
      mode: 'exact',
    });
    expect(found).toMatchObject({ optimal: true, gap: 0 });
    expect(found.utilisation).toBeGreaterThan(0.85);
  });

  test('heads that vary from prompt to prompt leave ranks idle, however well their means are arranged', () => {
    const layers = lognormalLoads(3, 16, 8);
    const { placement, utilisation } = arrange({ loads: layers, ranks: 8, copies: 4, mode: 'wrap' });
    const varying = (part: number): number => {
      const deviations = layers.map((heads) => heads.map((load) => part * load));
      return promptUtilisation(
        { model: 'm', kv_budget: 0.2, layers, share: layers, share_std: deviations },
        placement,
        8,
      )!;
    };
    expect(varying(0)).toBeCloseTo(utilisation, 9);
    expect(varying(0.2)).toBeGreaterThan(0.76);
    expect(varying(0.2)).toBeLessThan(0.84);
    expect(varying(0.4)).toBeLessThan(0.72);
    expect(promptUtilisation({ model: 'm', kv_budget: 0.2, layers }, placement, 8)).toBeUndefined();
  });

  test('copies beyond those that means need go where single prompts do, and stay within the limit', () => {
    const layers = lognormalLoads(3, 16, 8);
    const deviations = layers.map((heads) => heads.map(() => 0.2));
    const profile = {
      model: 'm',
      kv_budget: 0.2,
      layers,
      share: layers,
      share_std: layers.map((heads) => heads.map((load) => 0.2 * load)),
    };
    expect(
      promptDeviations(profile)!
        .flat()
        .every((part) => Math.abs(part - 0.2) < 1e-9),
    ).toBe(true);
    const busy = (problem: Pick<ArrangementProblem, 'copies' | 'deviations'>): [number, number] => {
      const found = arrange({ loads: layers, ranks: 8, batch: 8, ...problem });
      for (const layer of layers.keys()) expect(copiesOfLayer(found, layer)).toBeLessThanOrEqual(problem.copies ?? 7);
      return [promptUtilisation(profile, found.placement, 8, true)!, found.copies / layers.length];
    };
    const [before, few] = busy({ deviations });
    expect(before).toBeLessThan(0.88);
    expect(busy({ copies: 7 })[1]).toBe(few);
    const [after, more] = busy({ deviations, copies: 9 });
    expect(after).toBeGreaterThan(0.9);
    expect(more).toBeGreaterThan(few);
    // As many copies, in equal shares by the means alone.
    const equal = arrange({ loads: layers, ranks: 8, batch: 8, mode: 'fair-copy', copies: 9 });
    expect(after).toBeGreaterThan(promptUtilisation(profile, equal.placement, 8, true)!);
  });

  test.each([0, 2])('32 heads on 8 ranks, %i copies per layer: within 1% of the lower bound', (copies) => {
    const found = arrange({
      loads: lognormalLoads(4, 32, 32),
      ranks: 8,
      copies,
      mode: 'exact',
    });
    expect(found.gap).toBeLessThan(0.01);
  });

  test.each([2, 4])('so too where loads are small whole numbers, which tie, with %i copies', (copies) => {
    const random = new Random(3);
    const loads = Array.from({ length: 32 }, () => Array.from({ length: 32 }, () => 1 + random.integer(5)));
    const found = arrange({ loads, ranks: 8, copies, mode: 'exact' });
    expect(found.gap).toBeLessThan(0.01);
  });

  test('memory for 2 copies per layer is spent where it helps most', () => {
    const problem = { loads: lognormalLoads(5, 32, 8), ranks: 8, mode: 'exact' } as const;
    const evenly = arrange({ ...problem, copies: 2 });
    const byMemory = arrange({ ...problem, memory: 40 });
    expect(byMemory.copies).toBeLessThanOrEqual(64);
    expect(byMemory.makespan).toBeLessThan(evenly.makespan);
    expect(byMemory.gap).toBeLessThan(0.01);
  });
});

describe('refusals say what to do', () => {
  const good: ArrangementProblem = {
    loads: [
      [1, 2],
      [3, 4],
    ],
    ranks: 2,
    mode: 'exact',
  };
  test.each<[string, Partial<ArrangementProblem>, string]>([
    ['no layers', { loads: [] }, 'expected at least one layer'],
    ['no heads', { loads: [[]] }, 'expected at least one layer with at least one head'],
    ['ragged layers', { loads: [[1, 2], [3]] }, 'layer 1 has 1 head, layer 0 has 2'],
    ['a negative load', { loads: [[1, -2]] }, 'layer 0, head 1 is -2; expected a number of at least 0'],
    ['no number', { loads: [[Number.NaN]] }, 'layer 0, head 0 is NaN'],
    ['no ranks', { ranks: 0 }, 'ranks 0: expected a whole number from 1 to 1024'],
    ['half a copy', { copies: 0.5 }, 'copies 0.5: expected a whole number of at least 0'],
    ['loads beyond numbers', { loads: [[1e308, 1e308]] }, 'loads: they add up to more than a number holds'],
    ['an empty batch', { batch: 0 }, 'batch 0: expected a whole number of at least 1'],
    ['too little memory', { memory: 1 }, '2 ranks of 1 hold 2 heads, but 2 layers of 2 are 4; give at least 2'],
    [
      'memory that static does not fit in',
      {
        loads: [
          [1, 2, 3],
          [4, 5, 6],
        ],
        memory: 3,
        mode: 'static',
      },
      'the static arrangement puts 4 heads on rank 0; give at least 4, or another mode',
    ],
  ])('%s', (_what, change, message) => {
    expect(() => arrange({ ...good, ...change })).toThrow(message);
  });
});

describe('without a mode', () => {
  test.each([
    [8, 8],
    [2, 4],
    [5, 3],
    [8, 4],
  ])(
    '%i heads on %i ranks: copies where whole heads leave ranks idle, as few as come close to what all do',
    (heads, ranks) => {
      const drawn = lognormalLoads(9, 6, heads);
      const problem = { loads: drawn, ranks, batch: 8 };
      const [found, whole, all] = [
        arrange(problem, STEPS),
        arrange({ ...problem, mode: 'exact', copies: 0 }, STEPS),
        arrange({ ...problem, mode: 'wrap' }, STEPS),
      ];
      expect(whole.utilisation).toBeLessThan(0.97);
      expect(found.mode).toBe('wrap');
      expect(found.copies).toBeGreaterThan(0);
      expect(found.copies).toBeLessThanOrEqual(all.copies);
      for (const layer of drawn.keys()) {
        const peak = ({ placement }: Arrangement): number => makespan([drawn[layer]!], [placement[layer]!], ranks);
        expect(peak(found)).toBeLessThanOrEqual(1.03 * peak(all) * (1 + 1e-9));
      }
      // Limits hold, too.
      const one = arrange({ ...problem, copies: 1 }, STEPS);
      expect(Math.max(...drawn.map((_, layer) => copiesOfLayer(one, layer)))).toBeLessThanOrEqual(1);
      expect(arrange({ ...problem, copies: 0 }, STEPS)).toEqual(whole);
    },
  );

  test('whole heads where they keep ranks busy', () => {
    const found = arrange({ loads: [[3, 1, 2, 2]], ranks: 2 });
    expect(found).toMatchObject({ mode: 'exact', copies: 0, utilisation: 1, optimal: true });
  });
});
