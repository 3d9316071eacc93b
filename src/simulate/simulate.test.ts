import { describe, expect, test } from 'vitest';
import { isPublishedRun } from './adp_parameters.js';
import { type AdpStudyOptions, runPolicy, studyAdp } from './adp_study.js';
import { calibrate } from './calibrate.js';
import { linearTime } from './iteration_time.js';
import { paretoFront } from './pareto.js';
import { PUBLISHED_ROWS, PUBLISHED_SETTINGS, PUBLISHED_TIME } from './published_run.js';
import { simulate } from './simulate.js';
import { syntheticTrace } from './synthetic_trace.js';
import type { Trace } from './trace.js';

const request = (inputTokens: number, outputTokens: number, arrivalSeconds = 0): Trace[number] => ({
  inputTokens,
  outputTokens,
  arrivalSeconds,
  priority: 0,
  ttftDeadlineSeconds: undefined,
});

/** The published run, made smaller or of another shape. */
function study(
  shape: Partial<Pick<AdpStudyOptions, 'ranks' | 'maxBatch' | 'maxTokensPerIteration' | 'concurrency' | 'kvTokens'>>,
  trace: {
    readonly requests: number;
    readonly meanInput?: number;
    readonly meanOutput?: number;
    readonly seed?: number;
  },
): AdpStudyOptions {
  const {
    ranks,
    maxBatch,
    maxTokensPerIteration,
    concurrency,
    meanInput,
    meanOutput,
    timeoutIters,
    batchingWaitIters,
  } = PUBLISHED_SETTINGS;
  const sizes = { ranks, maxBatch, maxTokensPerIteration, concurrency, kvTokens: undefined, ...shape };
  return {
    ...sizes,
    timeoutIters,
    batchingWaitIters,
    chunkedPrefill: false,
    time: PUBLISHED_TIME,
    trace: syntheticTrace({
      meanInput,
      meanOutput,
      seed: 1,
      maxInput: sizes.maxTokensPerIteration - sizes.maxBatch,
      ...trace,
    }),
  };
}

test('a small run on the clock, by hand', () => {
  const result = simulate([request(10, 3), request(4, 1, 0.02), request(5, 2, 1)], {
    concurrency: 8,
    time: linearTime({ baseSeconds: 0.01, secondsPerToken: 0.001 }),
    scheduler: { ranks: [{ numBlocks: 8, slots: 4 }], contextLength: 64, maxTokensPerIteration: 32 },
  });
  // 10 rows; the second has come meanwhile? At 0.02: yes. 1 + 4 rows; 1 row; idle until 1; 5 rows; 1 row.
  expect(result.log.map(({ tokens }) => tokens[0])).toEqual([10, 5, 1, 5, 1]);
  const ends = [0.02, 0.035, 0.046, 1.015, 1.026];
  expect(result.seconds).toBeCloseTo(ends[4]!, 9);
  const ttft = [ends[0]!, ends[1]! - ends[0]!, ends[3]! - 1];
  for (const [index, seconds] of ttft.entries()) expect(result.ttftSeconds[index]).toBeCloseTo(seconds, 9);
  expect(result.outputTokens).toBe(6);
});

test('a rank without work joins in with a padding row', () => {
  const { log } = simulate([request(10, 2)], {
    concurrency: 1,
    time: linearTime(PUBLISHED_TIME),
    scheduler: {
      ranks: Array.from({ length: 2 }, () => ({ numBlocks: 8, slots: 4 })),
      contextLength: 64,
      maxTokensPerIteration: 32,
    },
  });
  expect(log.map(({ tokens }) => [...tokens])).toEqual([
    [10, 1],
    [1, 1],
  ]);
});

describe('the published run', () => {
  const published = study({}, { requests: PUBLISHED_SETTINGS.requests });

  test('the baseline is near, the other rows are predicted, and cost beats full', async () => {
    expect(isPublishedRun(published)).toBe(true);
    const { rows } = await studyAdp(published);
    expect(rows.map(({ name }) => name)).toEqual(['baseline', 'context_wait', 'full', 'cost']);
    for (const [index, known] of PUBLISHED_ROWS.entries()) {
      const row = rows[index]!;
      expect(Math.abs(row.balance - known.balance)).toBeLessThan(0.05);
      expect(Math.abs(row.speedup - known.speedup)).toBeLessThan(0.07);
    }
    const [baseline, , full, cost] = rows;
    expect(baseline!.tps / PUBLISHED_ROWS[0]!.tps).toBeCloseTo(1, 1);
    expect(baseline!.sol_tps / PUBLISHED_ROWS[0]!.sol_tps).toBeCloseTo(1, 1);
    expect(cost!.tps).toBeGreaterThan(full!.tps);
    expect(cost!.mean_ttft_s).toBeLessThanOrEqual(full!.mean_ttft_s);
    for (const { tps, sol_tps, balance } of rows) {
      expect(sol_tps).toBeGreaterThanOrEqual(tps);
      expect(balance).toBeLessThanOrEqual(1);
    }
  });
});

test.each([
  [study({ maxBatch: 128, concurrency: 1280 }, { requests: 3000, seed: 2 })],
  [
    study(
      { ranks: 4, maxBatch: 128, concurrency: 400 },
      { requests: 1500, seed: 3, meanInput: 1500, meanOutput: 1000 },
    ),
  ],
  [study({ ranks: 16, maxBatch: 64, concurrency: 1024 }, { requests: 2500, seed: 4, meanInput: 400, meanOutput: 500 })],
  [study({ ranks: 2, maxBatch: 256, maxTokensPerIteration: 8192 }, { requests: 1500, seed: 5, meanOutput: 300 })],
])('cost beats full on other seeds and shapes, at no later first token', (options) => {
  const waits = { timeout_iters: 50, batching_wait_iters: 10, enable_balance: true };
  const [full, cost] = (['trtllm', 'cost'] as const).map((mode) => runPolicy(options, { mode, ...waits }));
  const mean = (values: Float64Array): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  expect(cost!.seconds).toBeLessThan(full!.seconds);
  expect(mean(cost!.ttftSeconds)).toBeLessThanOrEqual(mean(full!.ttftSeconds));
});

test.each([
  [study({ ranks: 12, maxBatch: 6, concurrency: 22 }, { requests: 700, seed: 502, meanInput: 23, meanOutput: 41 })],
  [study({ ranks: 8, maxBatch: 1, concurrency: 8 }, { requests: 150, meanOutput: 100 })],
  [study({ ranks: 8, maxBatch: 2, concurrency: 5 }, { requests: 200, seed: 593, meanInput: 673, meanOutput: 33 })],
])('cost loses nothing where few requests run, so that waiting never pays', (options) => {
  const [baseline, cost] = (['trtllm', 'cost'] as const).map((mode) =>
    runPolicy(options, { mode, enable_balance: mode === 'cost' }),
  );
  expect(cost!.seconds).toBeLessThan(baseline!.seconds * 1.01);
});

test('a small KV pool costs preemptions, not requests', async () => {
  const options = study(
    { ranks: 2, maxBatch: 32, concurrency: 80, kvTokens: 20_000 },
    { requests: 200, meanOutput: 900 },
  );
  const { rows } = await studyAdp(options);
  for (const row of rows) {
    expect(row.preemptions).toBeGreaterThan(0);
    expect(row.mean_ttft_s).toBeGreaterThan(0);
  }
});

test('calibration finds times that give the target', () => {
  const options = study({ ranks: 4, maxBatch: 64, concurrency: 320 }, { requests: 800 });
  const baseline = { mode: 'trtllm', enable_balance: false } as const;
  const { log, outputTokens } = runPolicy(options, baseline);
  const target = { tps: 5000, sol_tps: 7000 };
  const again = runPolicy({ ...options, time: calibrate(log, outputTokens, target) }, baseline);
  const tps = again.outputTokens / again.seconds;
  expect(tps).toBeCloseTo(5000, 3);
  expect((tps * again.balance.seconds) / again.balance.solSeconds).toBeCloseTo(7000, 2);
});

test('the Pareto front leaves out what another beats in both', () => {
  const point = (tps: number, mean_ttft_s: number): { tps: number; mean_ttft_s: number } => ({ tps, mean_ttft_s });
  const points = [point(5, 5), point(10, 9), point(4, 6), point(10, 10), point(7, 7)];
  expect(paretoFront(points)).toEqual([point(5, 5), point(7, 7), point(10, 9)]);
});
