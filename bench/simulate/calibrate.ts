import type { LinearTime, LoggedIteration } from './simulate.js';

export interface CalibrationTarget {
  readonly tps: number;
  readonly sol_tps: number;
}

/**
 * The base and the seconds a token for which a run's iterations give a target's throughput and speed-of-light throughput. Their ratio
 * follows from sol_tps / tps: the larger the base, the less the unbalanced iterations weigh. Their size follows from tps.
 *
 * Iterations must not depend on the clock: everybody sends at once, and the policy is TensorRT-LLM's.
 * @param log of a run under any times
 */
export function calibrate(
  log: readonly LoggedIteration[],
  outputTokens: number,
  target: CalibrationTarget,
): LinearTime {
  const wanted = target.tps / target.sol_tps;
  /** Balance weighed by time, for a base worth so many tokens. */
  const weighed = (base: number): number => {
    let time = 0;
    let balanced = 0;
    for (const { tokens } of log) {
      const { most, average } = extremes(tokens);
      time += base + most;
      balanced += ((base + most) * average) / most;
    }
    return balanced / time;
  };
  let low = 0;
  let high = 1e6;
  for (let step = 0; step < 60; step++) {
    const middle = (low + high) / 2;
    if (weighed(middle) < wanted) low = middle;
    else high = middle;
  }
  const units = log.reduce((sum, { tokens }) => sum + high + extremes(tokens).most, 0);
  const secondsPerToken = outputTokens / target.tps / units;
  return { baseSeconds: high * secondsPerToken, secondsPerToken };
}

function extremes(tokens: Uint32Array): { readonly most: number; readonly average: number } {
  let most = 0;
  let sum = 0;
  for (const count of tokens) {
    most = Math.max(most, count);
    sum += count;
  }
  return { most, average: sum / tokens.length };
}
