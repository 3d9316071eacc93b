import { Random } from '../src/base/random.js';
import { median, quantile } from '../src/base/stats.js';

/** A value, and the interval that holds the true one in 95 of 100 cases. */
export interface Estimate {
  readonly value: number;
  readonly low: number;
  readonly high: number;
}

export const largestOf = (values: Float32Array): number =>
  values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

/** The largest difference from what is expected, over its largest number; NaN where all of both are 0. */
export const largestError = (found: ArrayLike<number>, expected: Float32Array): number =>
  expected.reduce((most, value, at) => Math.max(most, Math.abs(value - found[at]!)), 0) / largestOf(expected);

const RESAMPLES = 2000;
const SEED = 1;

/** The median of samples. */
export const medianEstimate = (samples: readonly number[]): Estimate =>
  bootstrap(samples.length, (draw) => median(draw.map((i) => samples[i]!)));

/**
 * By how much `a` is larger than `b`, where sample i of both was taken side by side: the median of the ratios, pair by pair, so that
 * what slows both at once doesn't count.
 */
export function pairedRatio(a: readonly number[], b: readonly number[]): Estimate {
  const ratios = a.map((value, i) => value / b[i]!);
  return medianEstimate(ratios);
}

/** The ratio of the medians of samples that have nothing to do with each other (another day's run). */
export function ratioOfMedians(a: readonly number[], b: readonly number[]): Estimate {
  const random = new Random(SEED);
  const resampled = (samples: readonly number[]): number =>
    median(drawFrom(random, samples.length).map((i) => samples[i]!));
  const ratios = Array.from({ length: RESAMPLES }, () => resampled(a) / resampled(b));
  return interval(median(a) / median(b), ratios);
}

/** Percentile bootstrap of a statistic over `count` observations; always the same for the same samples. */
function bootstrap(count: number, statistic: (indices: readonly number[]) => number): Estimate {
  const random = new Random(SEED);
  const values = Array.from({ length: RESAMPLES }, () => statistic(drawFrom(random, count)));
  return interval(statistic(Array.from({ length: count }, (_, i) => i)), values);
}

const drawFrom = (random: Random, count: number): number[] =>
  Array.from({ length: count }, () => random.integer(count));

const interval = (value: number, resampled: readonly number[]): Estimate => ({
  value,
  low: quantile(resampled, 0.025),
  high: quantile(resampled, 0.975),
});
