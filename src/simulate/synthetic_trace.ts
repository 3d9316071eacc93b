import { usageError } from '../base/errors.js';
import { Random } from '../base/random.js';
import type { Trace } from './trace.js';
import { sum } from '../base/lists.js';

/**
 * The length distributions of the run that NVIDIA published (docs/adp.md), whose means are known and whose shapes are not: lognormal
 * with these sigmas, cut at these multiples of the mean. Outputs are fitted on two facts of the published baseline, its iterations and
 * when its last context runs; inputs have the same sigma, as nothing published depends on it.
 */
export const LENGTHS = {
  input: { sigma: 0.5, cut: 5.1 },
  output: { sigma: 0.5, cut: 5.8 },
} as const;

export interface SyntheticTraceOptions {
  readonly requests: number;
  readonly meanInput: number;
  readonly meanOutput: number;
  readonly seed: number;
  /** No prompt is longer. */
  readonly maxInput: number;
}

/**
 * A seeded trace: lengths are lognormal, cut at a multiple of their mean, and scaled so that the means come out as asked; all
 * requests are there from the start.
 * @throws SplitkvError `usage` when `maxInput` leaves no room for the mean
 */
export function syntheticTrace(options: SyntheticTraceOptions): Trace {
  const { requests, seed, maxInput } = options;
  if (options.meanInput > 0.9 * maxInput) {
    throw usageError(
      `--mean-in ${options.meanInput}: prompts may have ${maxInput} tokens (the budget of an iteration less a full batch's ` +
        'decode rows): raise --max-tokens-per-iteration or lower --mean-in',
    );
  }
  const random = new Random(seed);
  const cutInput = Math.min(maxInput, Math.round(options.meanInput * LENGTHS.input.cut));
  const inputs = lengths(random, requests, options.meanInput, LENGTHS.input.sigma, cutInput);
  const cutOutput = Math.round(options.meanOutput * LENGTHS.output.cut);
  const outputs = lengths(random, requests, options.meanOutput, LENGTHS.output.sigma, cutOutput);
  return inputs.map((inputTokens, index) => ({
    inputTokens,
    outputTokens: outputs[index]!,
    arrivalSeconds: 0,
    priority: 0,
    ttftDeadlineSeconds: undefined,
  }));
}

function lengths(random: Random, count: number, mean: number, sigma: number, cut: number): number[] {
  const shape = Array.from({ length: count }, () => Math.exp(sigma * random.normal()));
  const scaled = (scale: number): number[] =>
    shape.map((value) => Math.max(1, Math.min(cut, Math.round(value * scale))));
  // The mean grows with the scale: halving finds it to rounding.
  let low = 0;
  let high = mean;
  while (sum(scaled(high)) < mean * count && high < 1e9) high *= 2;
  for (let step = 0; step < 50; step++) {
    const middle = (low + high) / 2;
    if (sum(scaled(middle)) < mean * count) low = middle;
    else high = middle;
  }
  return scaled(high);
}
