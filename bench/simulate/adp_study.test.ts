import { describe, expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import { balanceRatio } from '../../src/engine/scheduler/index.js';
import { drawn, sweepsAll } from '../../src/gpu/testing/draw.js';
import { isPublishedRun } from './adp_parameters.js';
import { type AdpStudyOptions, runPolicy, studyAdp } from './adp_study.js';
import { calibrate } from './calibrate.js';
import { defaultLoads, paretoFront, paretoOfLoads } from './pareto.js';
import { PUBLISHED_ROWS, PUBLISHED_SETTINGS, PUBLISHED_TIME } from './published_run.js';
import { BalanceRoute, StaggeredBatches } from './related_policies.js';
import { simulate } from './simulate.js';
import { LENGTHS, type Trace, syntheticTrace } from './trace.js';
import { isTurn } from '../../src/gpu/testing/draw.js';

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
    time: { baseSeconds: 0.01, secondsPerToken: 0.001 },
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
    time: PUBLISHED_TIME,
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

  test.runIf(isTurn(4, 'the published run'))(
    'the baseline is near, the other rows are predicted, and cost beats full',
    async () => {
      expect(isPublishedRun(published)).toBe(true);
      const { rows, checks } = await studyAdp(published);
      expect(rows.map(({ name }) => name)).toEqual(['baseline', 'context_wait', 'full', 'cost']);
      for (const [index, known] of PUBLISHED_ROWS.entries()) {
        const row = rows[index]!;
        // The published baseline's is no balance: 39,552 / 25,664 - 1.
        if (row.name === 'baseline') expect(known.balance).toBeCloseTo(known.sol_tps / known.tps - 1, 4);
        else expect(Math.abs(row.balance - known.balance)).toBeLessThan(0.06);
        expect(Math.abs(row.speedup - known.speedup)).toBeLessThan(0.05);
        expect(Math.abs(row.sol_tps / known.sol_tps - 1)).toBeLessThan(0.05);
      }
      for (const { published: known, simulated } of checks!) expect(Math.abs(simulated / known - 1)).toBeLessThan(0.1);
      const [baseline, , full, cost] = rows;
      expect(baseline!.tps / PUBLISHED_ROWS[0]!.tps).toBeCloseTo(1, 1);
      expect(baseline!.sol_tps / PUBLISHED_ROWS[0]!.sol_tps).toBeCloseTo(1, 1);
      expect(cost!.tps).toBeGreaterThan(full!.tps);
      expect(cost!.mean_ttft_s).toBeLessThanOrEqual(full!.mean_ttft_s);
      for (const { tps, sol_tps, balance } of rows) {
        expect(sol_tps).toBeGreaterThanOrEqual(tps);
        expect(balance).toBeLessThanOrEqual(1);
      }
    },
  );
});

const shapes = [
  [study({ maxBatch: 128, concurrency: 1280 }, { requests: 3000, seed: 2 })],
  [
    study(
      { ranks: 4, maxBatch: 128, concurrency: 400 },
      { requests: 1500, seed: 3, meanInput: 1500, meanOutput: 1000 },
    ),
  ],
  [study({ ranks: 16, maxBatch: 64, concurrency: 1024 }, { requests: 2500, seed: 4, meanInput: 400, meanOutput: 500 })],
  [study({ ranks: 2, maxBatch: 256, maxTokensPerIteration: 8192 }, { requests: 1500, seed: 5, meanOutput: 300 })],
];
test.each(drawn(shapes, 2, 'seeds and shapes'))(
  'cost beats full on other seeds and shapes, at no later first token',
  (options) => {
    const waits = { timeout_iters: 50, batching_wait_iters: 10, enable_balance: true };
    const [full, cost] = (['trtllm', 'cost'] as const).map((mode) => runPolicy(options, { mode, ...waits }));
    const mean = (values: Float64Array): number => values.reduce((sum, value) => sum + value, 0) / values.length;
    expect(cost!.seconds).toBeLessThan(full!.seconds);
    expect(mean(cost!.ttftSeconds)).toBeLessThanOrEqual(mean(full!.ttftSeconds));
  },
);

/** 2 to 16 ranks, batches of 16 to 256, mean prompts of 100 to 3000 and outputs of 100 to 3654 tokens, a tenth to twice as many clients as slots. */
function randomShape(seed: number): AdpStudyOptions {
  const random = new Random(seed);
  const between = (low: number, high: number): number => Math.round(low * (high / low) ** random.next());
  const [ranks, maxBatch] = [between(2, 16), between(16, 256)];
  const concurrency = Math.max(1, Math.round((ranks * maxBatch * between(10, 200)) / 100));
  const [meanInput, meanOutput] = [between(100, 3000), between(100, 3654)];
  const maxTokensPerIteration = Math.ceil(meanInput * LENGTHS.input.cut) + maxBatch;
  return study(
    { ranks, maxBatch, concurrency, maxTokensPerIteration },
    { requests: Math.min(4000, 4 * concurrency + 200), meanInput, meanOutput, seed },
  );
}

// Whole in a sweep, which prints what docs/adp.md says.
test('cost against full on random shapes', { timeout: 1_800_000 }, () => {
  const ratios = drawn(
    Array.from({ length: 100 }, (_, i) => i),
    2,
    'shapes',
  ).map((seed) => {
    const options = randomShape(seed);
    const waits = { timeout_iters: 50, batching_wait_iters: 10, enable_balance: true };
    const [full, cost] = (['trtllm', 'cost'] as const).map((mode) => runPolicy(options, { mode, ...waits }));
    const mean = (values: Float64Array): number => values.reduce((sum, value) => sum + value, 0) / values.length;
    return { seed, tps: full!.seconds / cost!.seconds, ttft: mean(cost!.ttftSeconds) / mean(full!.ttftSeconds) };
  });
  if (sweepsAll) {
    const average = (of: (one: (typeof ratios)[number]) => number): number =>
      ratios.reduce((sum, one) => sum + of(one), 0) / ratios.length;
    const better = ratios.filter(({ tps, ttft }) => tps > 1 && ttft < 1).length;
    const worst = ratios.toSorted((a, b) => a.tps - b.tps)[0]!;
    console.log(
      `cost over full: better in both ${better} of ${ratios.length}; throughput ${average(({ tps }) => tps).toFixed(3)}, ` +
        `time to first token ${average(({ ttft }) => ttft).toFixed(3)} on average; worst throughput ${worst.tps.toFixed(4)} (seed ${worst.seed})`,
    );
  }
  for (const { seed, tps } of ratios) expect(tps, `shape ${seed}`).toBeGreaterThan(0.98);
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
  const target = { tps: 5000, sol_tps: 6000 };
  const again = runPolicy({ ...options, time: calibrate(log, outputTokens, target) }, baseline);
  const tps = again.outputTokens / again.seconds;
  expect(tps).toBeCloseTo(5000, 3);
  expect((tps * again.balance.secondsTotal) / again.balance.solSecondsTotal).toBeCloseTo(6000, 2);
});

test('the Pareto front leaves out what another beats in both', () => {
  const point = (tps: number, ttft_mean_s: number): { tps: number; ttft_mean_s: number } => ({ tps, ttft_mean_s });
  const points = [point(5, 5), point(10, 9), point(4, 6), point(10, 10), point(7, 7)];
  expect(paretoFront(points)).toEqual([point(5, 5), point(7, 7), point(10, 9)]);
});

test('points under each load, each load with its front', async () => {
  const options = study(
    { ranks: 4, maxBatch: 16, concurrency: 80 },
    { requests: 2000, meanInput: 400, meanOutput: 60 },
  );
  expect(defaultLoads(5120)).toEqual([256, 1024, 5120]);
  expect(defaultLoads(3)).toEqual([1, 3]);
  const { points, fronts } = await paretoOfLoads(options, [8, 80]);
  expect(points).toHaveLength(2 * 11);
  expect(fronts.map(({ concurrency }) => concurrency)).toEqual([8, 80]);
  for (const { concurrency, points: front } of fronts) {
    const own = points.filter((point) => point.concurrency === concurrency);
    expect(own.map(({ policy }) => policy)).toEqual([
      'baseline',
      ...Array.from({ length: 9 }, () => 'balance'),
      'cost',
    ]);
    for (const point of own) {
      expect(point.tps_per_rank).toBe(point.tps / 4);
      expect(point.ttft_p95_s).toBeGreaterThan(point.ttft_mean_s / 2);
      const beaten = own.some((other) => other.tps > point.tps && other.ttft_mean_s < point.ttft_mean_s);
      if (beaten) expect(front).not.toContain(point);
    }
  }
  // The whole trace under the study's own load: the study's own rows.
  const { rows } = await studyAdp({ ...options, timeoutIters: 50, batchingWaitIters: 10 });
  const ran: string[] = [];
  const again = await paretoOfLoads(options, [8, 80], (name) => void ran.push(name), rows);
  expect(again).toEqual({ points, fronts });
  // Four of the larger load's are the study's.
  expect(ran).toHaveLength(11 + 7);
  const full = points.find(
    (one) => one.concurrency === 80 && one.timeout_iters === 50 && one.batching_wait_iters === 10,
  );
  expect(full!.tps).toBe(rows[2]!.tps);
  expect(full!.ttft_mean_s).toBe(rows[2]!.mean_ttft_s);
});

/**
 * The publication's worked example: N ranks with M requests each; one request of each rank ends, one rank after another, and one with a
 * long context takes its place.
 */
test.each([
  { N: 4, M: 8, context: 4000 },
  { N: 8, M: 3, context: 900 },
  { N: 2, M: 20, context: 2500 },
])(
  'closed forms of the worked example: $N ranks, $M requests each, contexts of $context tokens',
  ({ N, M, context }) => {
    const first = 6;
    const running = Array.from({ length: N * M }, (_, i) => request(1, i < N ? first + i : 200));
    const trace = [...running, ...Array.from({ length: N }, () => request(context, 100))];
    const time = { baseSeconds: 0.01, secondsPerToken: 1e-4 };
    const run = (enableBalance: boolean) =>
      simulate(trace, {
        concurrency: N * M,
        time: time,
        scheduler: {
          ranks: Array.from({ length: N }, () => ({ numBlocks: 4 * M + context, slots: M })),
          contextLength: context + 400,
          maxTokensPerIteration: context + M,
          chunkedPrefill: false,
          attentionDpConfig: {
            mode: 'trtllm',
            enable_balance: enableBalance,
            timeout_iters: 50,
            batching_wait_iters: 0,
          },
        },
      }).log;
    const seconds = (most: number): number => time.baseSeconds + time.secondsPerToken * most;
    const timeOfContext = seconds(context + M - 1);
    const timeOfGeneration = seconds(M);
    const stretch = (log: ReturnType<typeof run>, from: number) => {
      const part = log.slice(from, from + N);
      return { part, total: part.reduce((sum, each) => sum + each.seconds, 0) };
    };

    // One context an iteration: each takes as long as a context, and is as unbalanced as the form says, whose M - 1 rows beside the
    // context are left out of the divisor.
    const log = run(false);
    const from = log.findIndex(({ contextTokens }, index) => index > 0 && contextTokens > 0);
    const baseline = stretch(log, from);
    const form = (context + (M - 1) + M * (N - 1)) / (N * context);
    for (const { tokens, contextTokens } of baseline.part) {
      expect(contextTokens).toBe(context);
      expect(balanceRatio(tokens)).toBeCloseTo((form * context) / (context + M - 1), 12);
    }
    expect(baseline.total).toBeCloseTo(timeOfContext * N, 9);

    // All in one iteration, after N - 1 that only generate.
    const waited = run(true);
    const balanced = stretch(waited, from);
    expect(balanced.part.map(({ contextTokens }) => contextTokens)).toEqual([
      ...Array.from({ length: N - 1 }, () => 0),
      N * context,
    ]);
    expect(balanceRatio(balanced.part.at(-1)!.tokens)).toBe(1);
    expect(balanced.total).toBeCloseTo(timeOfGeneration * (N - 1) + timeOfContext, 9);
    expect(baseline.total - balanced.total).toBeCloseTo((timeOfContext - timeOfGeneration) * (N - 1), 9);
  },
);

describe('policies of papers', () => {
  const time = { baseSeconds: 0.01, secondsPerToken: 0.001 };
  const scheduler = {
    ranks: Array.from({ length: 2 }, () => ({ numBlocks: 64, slots: 4 })),
    contextLength: 1024,
    maxTokensPerIteration: 512,
  };

  test('BalanceRoute fills the margin below the largest load, and exceeds it where that costs least', () => {
    const trace = [request(100, 2), request(60, 2), request(30, 2), request(20, 2), request(25, 2)];
    const { log } = simulate(trace, { concurrency: 8, time, scheduler, policy: new BalanceRoute() });
    // 100; then 60, 30 and 20 on the other, the last beyond the margin of 10 by 10; then 25 on the first, over 110 by 15, not by 25.
    expect([...log[0]!.tokens]).toEqual([125, 110]);
  });

  test('staggered batches hold requests for the time of an iteration with contexts', () => {
    const trace = [request(40, 40), request(10, 40, 0.04), request(10, 4, 0.06), request(12, 4, 0.065)];
    const { ttftSeconds, log } = simulate(trace, {
      concurrency: 8,
      time,
      scheduler,
      policy: new StaggeredBatches(),
    });
    expect(ttftSeconds[0]).toBeCloseTo(0.05, 9);
    // Clients send between iterations. At 0.05 the first 50 ms are over: 10 rows beside one on the other rank.
    expect(ttftSeconds[1]).toBeCloseTo(0.07 - 0.05, 9);
    // Held beyond 0.05 + 0.048, steps of 11 ms; then together, the longest first and to the rank with fewer cached tokens.
    expect(ttftSeconds[2]).toBeCloseTo(0.103 + 0.023 - 0.07, 9);
    expect(ttftSeconds[3]).toBeCloseTo(0.103 + 0.023 - 0.07, 9);
    expect([...log.find(({ contextTokens }) => contextTokens === 22)!.tokens]).toEqual([11, 13]);
  });

  test('every request of a trace ends under them, and the study has their rows', async () => {
    const options = study(
      { ranks: 4, maxBatch: 8, concurrency: 40 },
      { requests: 200, meanInput: 300, meanOutput: 60 },
    );
    const { rows, logs } = await studyAdp({ ...options, related: true });
    expect(rows.map(({ name }) => name).slice(4)).toEqual(['balance_route', 'staggered']);
    for (const { name, tps, mean_ttft_s: ttft } of rows) {
      expect(tps, name).toBeGreaterThan(0);
      expect(ttft, name).toBeGreaterThan(0);
      expect(logs[name]!.length, name).toBeGreaterThan(60);
    }
  });
});
