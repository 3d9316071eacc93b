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

/** Of an iteration, by what each rank has. */
export function countedTokens(tokens: readonly number[], counts: 'most' | 'all'): number {
  return counts === 'all' ? tokens.reduce((sum, own) => sum + own, 0) : Math.max(1, ...tokens);
}
