import { LinearFit } from '../engine/scheduler/adp/linear_fit.js';
import type { Iteration } from '../engine/scheduler/index.js';

/** How long an iteration takes. */
export interface IterationTime {
  seconds(iteration: Iteration): number;
}

export interface LinearTime {
  readonly baseSeconds: number;
  readonly secondsPerToken: number;
  /** Tokens that count: of the rank that has most (default; ranks wait for the slowest), or of all, where ranks share a device. */
  readonly counts?: 'most' | 'all';
}

/** base + perToken * (tokens that count): a token costs the same in any phase. */
export const linearTime = ({ baseSeconds, secondsPerToken, counts = 'most' }: LinearTime): IterationTime => ({
  seconds: ({ ranks }) =>
    baseSeconds +
    secondsPerToken *
      countedTokens(
        ranks.map(({ tokens }) => tokens),
        counts,
      ),
});

function countedTokens(tokens: readonly number[], counts: 'most' | 'all'): number {
  return counts === 'all' ? tokens.reduce((sum, own) => sum + own, 0) : Math.max(1, ...tokens);
}

/** The line through measured iterations. */
export function fitTime(
  log: readonly { readonly tokens: readonly number[]; readonly seconds: number }[],
  counts: 'most' | 'all',
): LinearTime {
  const fit = new LinearFit(Infinity, 'proportional');
  for (const { tokens, seconds } of log) fit.add(countedTokens(tokens, counts), seconds);
  const { intercept, slope } = fit.line;
  return { baseSeconds: intercept, secondsPerToken: slope, counts };
}
