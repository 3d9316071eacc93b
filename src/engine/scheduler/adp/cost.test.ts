import { describe, expect, test } from 'vitest';
import { Random } from '../../../base/random.js';
import { simulate } from '../../../../bench/simulate/simulate.js';
import type { Trace } from '../../../../bench/simulate/trace.js';
import { contextPolicy, Scheduler, type SchedulerOptions } from '../index.js';
import { ArrivalRate, LinearFit, SecondSlope } from './fits.js';

describe('fits', () => {
  test('a line is found, and follows a change', () => {
    const fit = new LinearFit(20, 'constant');
    for (let x = 0; x < 40; x++) fit.add(x % 7, 3 + 2 * (x % 7));
    expect(fit.line.slope).toBeCloseTo(2, 9);
    expect(fit.line.intercept).toBeCloseTo(3, 9);
    for (let x = 0; x < 400; x++) fit.add(x % 7, 5 + 4 * (x % 7));
    expect(fit.line.slope).toBeCloseTo(4, 3);
  });

  test('one x only: a constant, or a line through the origin; never negative', () => {
    const constant = new LinearFit(20, 'constant');
    const proportional = new LinearFit(20, 'proportional');
    for (let i = 0; i < 5; i++) {
      constant.add(4, 8);
      proportional.add(4, 8);
    }
    expect(constant.line).toEqual({ intercept: 8, slope: 0 });
    expect(proportional.line).toEqual({ intercept: 0, slope: 2 });
    const falling = new LinearFit(20, 'constant');
    for (let x = 0; x < 5; x++) falling.add(x, 10 - x);
    expect(falling.line.slope).toBe(0);
    expect(falling.line.intercept).toBeGreaterThan(0);
  });

  test('arrivals an iteration; a long gap lowers the rate', () => {
    const rate = new ArrivalRate();
    for (let i = 0; i < 2000; i++) rate.add(i % 4 === 0 ? 2 : 0);
    expect(rate.perIteration).toBeCloseTo(0.5, 1);
    for (let i = 0; i < 100; i++) rate.add(0);
    expect(rate.perIteration).toBeLessThan(0.05);
  });
});

const options: SchedulerOptions = {
  ranks: Array.from({ length: 2 }, () => ({ numBlocks: 1000, slots: 8 })),
  blockTokens: 64,
  contextLength: 30_000,
  maxTokensPerIteration: 2000,
  chunkedPrefill: false,
  attentionDpConfig: { mode: 'cost', enable_balance: true, timeout_iters: 40, batching_wait_iters: 0 },
};

/** A scheduler on a clock: an iteration takes 10 ms and 1 ms for each row of the rank with most. */
class Clock {
  now = 0;
  #id = 0;
  readonly scheduler: Scheduler;

  constructor(overrides: Partial<SchedulerOptions> = {}) {
    this.scheduler = new Scheduler({ ...options, ...overrides }, contextPolicy);
  }

  submit(length: number, maxTokens: number, deadline?: number): void {
    const firstTokenDeadline = deadline === undefined ? {} : { firstTokenDeadline: this.now + deadline };
    this.scheduler.submit({ id: String(this.#id++), prompt: { length }, maxTokens, ...firstTokenDeadline });
  }

  /** Context rows of each rank. */
  step(): number[] {
    const iteration = this.scheduler.schedule(this.now)!;
    const seconds = 0.01 + 0.001 * Math.max(...iteration.ranks.map(({ tokens }) => tokens));
    this.now += seconds;
    this.scheduler.complete(iteration, { seconds });
    return iteration.ranks.map(({ contextTokens }) => contextTokens);
  }

  /** Steps until contexts run; how many iterations they waited. */
  wait(most: number): number {
    for (let waited = 0; waited <= most; waited++) if (this.step().some((rows) => rows > 0)) return waited;
    return Infinity;
  }

  /** Long generations on both ranks, and times learnt from contexts that came two at a time, every tenth iteration. */
  warmUp(): this {
    for (let i = 0; i < 10; i++) this.submit(100, 3000);
    for (let i = 0; i < 60; i++) {
      if (i % 10 === 0) for (let j = 0; j < 2; j++) this.submit(200 + 10 * j, 5);
      this.step();
    }
    return this;
  }
}

describe('cost policy', () => {
  test('nothing is known at first: contexts run at once, spread over the ranks', () => {
    const clock = new Clock();
    for (const length of [500, 300, 250, 50]) clock.submit(length, 5);
    // Longest first: 500 | 300, 250 | and 50 beside the 500.
    expect(clock.step()).toEqual([550, 550]);
  });

  test('before times are known, contexts that come one after the other run together, or after a few iterations', () => {
    const config = { mode: 'cost', enable_balance: true, timeout_iters: 40, batching_wait_iters: 5 } as const;
    const fresh = (): Clock => {
      const clock = new Clock({ attentionDpConfig: config });
      clock.submit(100, 3000);
      clock.step();
      return clock;
    };
    const clock = fresh();
    clock.submit(600, 5);
    expect(clock.step()).toEqual([0, 0]);
    clock.submit(600, 5);
    expect(clock.step()).toEqual([600, 600]);
    const alone = fresh();
    alone.submit(600, 5);
    expect(alone.wait(20)).toBe(5);
    const urgent = fresh();
    urgent.submit(600, 5, 60);
    expect(urgent.wait(20)).toBe(0);
  });

  test('a lone context waits for company, and runs with it', () => {
    const clock = new Clock().warmUp();
    clock.submit(200, 5);
    expect(clock.wait(3)).toBe(Infinity);
    clock.submit(210, 5);
    expect(clock.wait(0)).toBe(0);
  });

  test('not beyond timeout_iters + batching_wait_iters', () => {
    const clock = new Clock({
      attentionDpConfig: { mode: 'cost', enable_balance: true, timeout_iters: 4, batching_wait_iters: 2 },
    }).warmUp();
    clock.submit(200, 5);
    expect(clock.wait(20)).toBeLessThanOrEqual(6);
  });

  test('not beyond its deadline', () => {
    const patient = new Clock().warmUp();
    patient.submit(200, 5, 60);
    expect(patient.wait(3)).toBe(Infinity);
    const urgent = new Clock().warmUp();
    urgent.submit(200, 5, 0.3);
    const start = urgent.now;
    urgent.wait(20);
    expect(urgent.now - start).toBeLessThanOrEqual(0.3);
  });

  test('not where it is off, and not where nothing generates', () => {
    const off = new Clock({ attentionDpConfig: { mode: 'cost', enable_balance: false } }).warmUp();
    off.submit(200, 5);
    expect(off.wait(0)).toBe(0);
    const idle = new Clock();
    idle.submit(200, 5);
    idle.submit(10, 5);
    while (idle.scheduler.numUnfinished > 0) idle.step();
    idle.submit(200, 5);
    expect(idle.wait(0)).toBe(0);
  });

  test('its quirk-free timer: iterations without a waiting context count for nothing', () => {
    const clock = new Clock().warmUp();
    for (let i = 0; i < 39; i++) clock.step();
    clock.submit(200, 5);
    expect(clock.wait(3)).toBe(Infinity);
  });

  test('a full rank is no company to wait for', () => {
    const ranks = [1, 8].map((slots) => ({ numBlocks: 1000, slots }));
    const clock = new Clock({ ranks });
    for (let i = 0; i < 5; i++) clock.submit(100, 3000);
    clock.step();
    for (let i = 0; i < 60; i++) {
      if (i % 10 === 0) clock.submit(200, 5);
      clock.step();
    }
    expect(clock.scheduler.ranks[0]!.numFreeSlots).toBe(0);
    clock.submit(200, 5);
    expect(clock.wait(0)).toBe(0);
  });

  test('a prompt that full batches leave no room for is not passed over for ever', () => {
    const clock = new Clock({ maxTokensPerIteration: 300 });
    for (let i = 0; i < 6; i++) clock.submit(10, 40);
    clock.step();
    clock.submit(298, 2); // fits beside two decode rows at most
    let waited = 0;
    for (; clock.scheduler.sequence('6')!.sampled === 0 && waited < 2000; waited++) {
      if (waited % 2 === 0) clock.submit(10, 40); // there is always a short one
      clock.step();
    }
    expect(waited).toBeLessThan(200);
  });
});

describe('where reading the cache takes long', () => {
  test('what it takes is told apart from what rows take', () => {
    const random = new Random(4);
    const cached = new SecondSlope(256);
    expect(cached.slope).toBe(0);
    for (let i = 0; i < 200; i++) {
      const [rows, tokens] = [1 + random.integer(8), random.integer(9000)];
      cached.add(rows, tokens, 0.01 + 4e-4 * rows + 3e-6 * tokens + 2e-4 * random.next());
    }
    expect(cached.slope / 3e-6).toBeCloseTo(1, 1);
    const alike = new SecondSlope(256);
    for (let i = 0; i < 20; i++) alike.add(4, 1000, 0.02);
    expect(alike.slope).toBe(0);
    // Both grow together: neither can be told from the other.
    const together = new SecondSlope(256);
    for (let i = 0; i < 20; i++) together.add(i, 100 * i, 0.02 * i);
    expect(together.slope).toBe(0);
  });

  const trace = (seed: number, count: number, [input, output]: readonly [number, number]): Trace => {
    const random = new Random(seed);
    const length = (mean: number): number => Math.max(1, Math.round(mean * Math.exp(3 * (random.next() - 0.6))));
    const rest = { arrivalSeconds: 0, priority: 0, ttftDeadlineSeconds: undefined };
    return Array.from({ length: count }, () => ({ inputTokens: length(input), outputTokens: length(output), ...rest }));
  };
  test.each([
    [4, 8, 32],
    [4, 8, 20],
    [8, 16, 76],
  ])('%i ranks of %i slots, %i requests open: caches are even, and answers come sooner', (ranks, slots, open) => {
    const run = (mode: 'trtllm' | 'cost', secondsPerCachedToken: number) =>
      simulate(trace(1, 4 * open, [1000, 400]), {
        concurrency: open,
        time: { baseSeconds: 0.01, secondsPerToken: 5e-5, secondsPerCachedToken },
        scheduler: {
          ranks: Array.from({ length: ranks }, () => ({ numBlocks: 4096, slots })),
          contextLength: 16_384,
          maxTokensPerIteration: 8192,
          attentionDpConfig: { mode },
        },
      });
    const [ours, theirs] = [run('cost', 2e-6), run('trtllm', 2e-6)];
    expect(ours.kvBalance).toBeGreaterThan(0.85);
    expect(ours.kvBalance).toBeGreaterThan(theirs.kvBalance + 0.05);
    expect(ours.seconds).toBeLessThan(theirs.seconds);
    expect([ours.moves > 0, theirs.moves, run('cost', 0).moves]).toEqual([true, 0, 0]);
  });
});
