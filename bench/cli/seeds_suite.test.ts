import { expect, test } from 'vitest';
import type { ArrangedResult } from '../suites/arranged.js';
import { type SeedResult, seedFigures, seedsTable } from './seeds_suite.js';

const terminal = { progress: () => {}, signal: new AbortController().signal };

/** All that isn't measured; of what is, a result of each suite. */
async function figures(measured: Partial<Record<string, readonly unknown[]>> = {}): Promise<readonly SeedResult[]> {
  const measure = <Result>({ suite }: { readonly suite: string }): Promise<readonly Result[]> =>
    Promise.resolve((measured[suite] ?? []) as readonly Result[]);
  return seedFigures({ adapter: undefined, ranks: 2, runs: 1, seeds: [1] }, measure, terminal);
}

test('what is counted and simulated is what the documents say, in their order', { timeout: 300_000 }, async () => {
  const dp: Partial<ArrangedResult> = {
    model: 'wide',
    arrangement: 'DP',
    utilisation: 0.9,
    step_ms: 10,
    samples: [8, 10, 12],
    speedup: { value: 1.2, low: 1.1, high: 1.3 },
  };
  const results = await figures({ arranged: [dp] });
  const ours = (figure: RegExp): number => results.find((result) => figure.test(result.figure))!.ours.value;
  expect(new Set(results.map(({ system }) => system)).size).toBe(4);

  const busy = [/heads on 4: in order/, /heads on 4: by load/, /heads on 4: copied/].map(ours);
  expect(busy[1]).toBeGreaterThan(1.2 * busy[0]!);
  expect(busy[2]).toBeGreaterThan(busy[1]!);

  expect(ours(/weights of other ranks/)).toBe(0);
  expect(ours(/^sequences, 2 ranks/)).toBeGreaterThan(2);

  // Published: 1.31 and 1.33.
  expect(ours(/speedup: context_wait/)).toBeCloseTo(1.31, 1);
  expect(ours(/speedup: full/)).toBeCloseTo(1.33, 1);
  const fitted = results.filter(({ kind }) => kind === 'fitted');
  expect(fitted.map(({ figure }) => figure)).toEqual(['tokens a second: baseline']);
  expect(fitted[0]!.ours.value / fitted[0]!.published!).toBeCloseTo(1, 1);

  expect(ours(/fullest cache over the mean, in order/)).toBeCloseTo(1.5, 5);
  expect(ours(/fullest cache over the mean, chunks/)).toBeLessThan(1.05);

  const told = results.find(({ kind }) => kind === 'measured')!;
  expect(told).toMatchObject({ published: 1.66, ours: dp.speedup });
  expect(told.samples).toEqual([1.5, 1.2, 1]);
  expect(seedsTable(results)).toMatch(/speed over heads in order, 2 ranks +measured +1\.66 +1\.20 +1\.10 to 1\.30/);
});
