import { expect, test } from 'vitest';
import { type AdpStudyOptions, studyAdp } from '../adp_study.js';
import { paretoOfLoads } from '../pareto.js';
import { PUBLISHED_TIME } from '../published_run.js';
import { syntheticTrace } from '../trace.js';
import { adpReport } from './adp_report.js';
import { binned } from './bins.js';
import { ticks } from './chart.js';
import { countsOf } from './lengths.js';

const options: AdpStudyOptions = {
  trace: syntheticTrace({ requests: 60, meanInput: 100, meanOutput: 50, seed: 1, maxInput: 1000 }),
  ranks: 2,
  maxBatch: 8,
  maxTokensPerIteration: 1024,
  concurrency: 20,
  timeoutIters: 50,
  batchingWaitIters: 10,
  chunkedPrefill: false,
  kvTokens: undefined,
  time: PUBLISHED_TIME,
};

test('a page that needs nothing but itself', async () => {
  const study = await studyAdp(options);
  const pareto = await paretoOfLoads(options, [5, 20]);
  const html = adpReport({ study, pareto });
  expect(html).not.toMatch(/<script|<link|<img|url\(|https?:/);
  expect(html).not.toMatch(/NaN|Infinity|undefined/);
  // Lengths, three charts for each run, and a front for each load.
  expect(html.match(/<svg /g)).toHaveLength(16);
  expect(html).toContain('prefers-color-scheme: dark');
  expect(html).not.toContain('Published');
  const checks = [
    { name: 'window_headroom', title: 'window', unit: 'share', published: 0.7023, simulated: 0.7, kind: 'predicted' },
  ] as const;
  const published = adpReport({ study: { ...study, checks } });
  for (const text of ['34,140', '70.23%', '70.00%']) expect(published).toContain(text);
  expect(published.match(/<svg /g)).toHaveLength(14);
});

test('a run of one iteration still draws', async () => {
  const one = {
    ...options,
    trace: syntheticTrace({ requests: 1, meanInput: 5, meanOutput: 1, seed: 1, maxInput: 100 }),
  };
  const study = await studyAdp(one);
  const html = adpReport({ study, pareto: await paretoOfLoads(one) });
  expect(html).not.toMatch(/NaN|Infinity|undefined/);
});

test('lengths are counted in equal stretches, the longest in the last', () => {
  expect(countsOf([1, 2, 2, 4])).toEqual([1, 2, 0, 1]);
  const counts = countsOf([1, 50, 51, 100, 2000, 2000]);
  expect(counts).toHaveLength(40);
  expect([counts[0], counts[1], counts[39]]).toEqual([2, 2, 2]);
});

test('bins cover the log; ticks are round', () => {
  const log = Array.from({ length: 10 }, (_, i) => ({
    tokens: Uint32Array.of(i, 2 * i),
    seconds: 1,
    contextTokens: 0,
  }));
  const bins = binned(log, 4);
  expect(bins.map(({ iteration }) => iteration)).toEqual([1.5, 4.5, 7.5, 9.5]);
  expect(bins[0]).toMatchObject({ least: 1, average: 1.5, most: 2 });
  expect(ticks([0, 1], 4)).toEqual([0, 0.25, 0.5, 0.75, 1]);
  expect(ticks([55, 109], 6)).toEqual([60, 70, 80, 90, 100]);
});
