import { quantile } from '../../../src/base/stats.js';
import { balanceRatio } from '../../../src/engine/scheduler/index.js';
import type { LoggedIteration } from '../simulate.js';

/** A stretch of iterations, as a chart draws it. */
export interface Bin {
  /** Its middle. */
  readonly iteration: number;
  /** Means over its iterations of the least, the average and the most tokens of a rank. */
  readonly least: number;
  readonly average: number;
  readonly most: number;
  readonly balance: number;
  /** Tenth of its iterations that are balanced worst are below, and the tenth balanced best above. */
  readonly balanceLow: number;
  readonly balanceHigh: number;
}

/** Cuts a log into at most `count` bins of equal length. */
export function binned(log: readonly LoggedIteration[], count: number): Bin[] {
  const length = Math.max(1, Math.ceil(log.length / count));
  const bins: Bin[] = [];
  for (let start = 0; start < log.length; start += length) {
    const part = log.slice(start, start + length);
    const mean = (of: (iteration: LoggedIteration) => number): number =>
      part.reduce((sum, iteration) => sum + of(iteration), 0) / part.length;
    const balances = part.map(({ tokens }) => balanceRatio(tokens));
    bins.push({
      iteration: start + part.length / 2,
      least: mean(({ tokens }) => Math.min(...tokens)),
      average: mean(({ tokens }) => tokens.reduce((sum, value) => sum + value, 0) / tokens.length),
      most: mean(({ tokens }) => Math.max(...tokens)),
      balance: balances.reduce((sum, value) => sum + value, 0) / balances.length,
      balanceLow: quantile(balances, 0.1),
      balanceHigh: quantile(balances, 0.9),
    });
  }
  return bins;
}
