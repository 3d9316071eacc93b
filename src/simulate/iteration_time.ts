import type { Iteration } from '../engine/scheduler/index.js';

/** How long an iteration takes. */
export interface IterationTime {
  seconds(iteration: Iteration): number;
}

export interface LinearTime {
  readonly baseSeconds: number;
  readonly secondsPerToken: number;
}

/** base + perToken * (tokens of the rank that has most): ranks wait for the slowest, and a token costs the same in any phase. */
export const linearTime = ({ baseSeconds, secondsPerToken }: LinearTime): IterationTime => ({
  seconds({ ranks }) {
    let most = 1;
    for (const { tokens } of ranks) if (tokens > most) most = tokens;
    return baseSeconds + secondsPerToken * most;
  },
});
