import type { GenerateOptions, Model, RunStats } from '../../../src/index.js';
import { measuredOf, type MeasuredPlan, medianRun } from './measured_plans.js';

/** Odd, so that one is in the middle. */
export const ROUNDS = 3;
/** A run answers no longer: many enough for a speed, few enough to be waited for. */
const RUN_TOKENS = 24;

/**
 * Asks both models the same in turns, after a run each that nobody counts, and takes the median of each.
 * @param onRound told before each round, from 0 (which isn't counted) to ROUNDS
 * @throws SplitkvError `aborted`, and as `generate`
 */
export async function compareModels(
  models: readonly Model[],
  prompt: Parameters<Model['generate']>[0],
  signal: AbortSignal,
  onRound: (round: number) => void,
): Promise<MeasuredPlan[]> {
  const runs: RunStats[][] = models.map(() => []);
  const options: GenerateOptions = {
    maxTokens: RUN_TOKENS,
    temperature: 0,
    ignoreEos: true,
    cachePrompt: false,
    // What plans need for a token is compared, and what was predicted of them.
    speculate: 'off',
    signal,
  };
  for (let round = 0; round <= ROUNDS; round++) {
    onRound(round);
    for (const [at, model] of models.entries()) {
      const { stats, finish_reason: reason } = await model.generate(prompt, options).result;
      if (reason === 'abort') return [];
      if (round > 0) runs[at]!.push(stats);
    }
  }
  return models.map(({ info }, at) => measuredOf(info.plan.policy, medianRun(runs[at]!), ROUNDS));
}
