import { type AdpStudy, studyAdp } from '../../bench/simulate/adp_study.js';
import { defaultLoads, type Pareto, paretoOfLoads } from '../../bench/simulate/pareto.js';
import { PUBLISHED_TIME } from '../../bench/simulate/published_run.js';
import { syntheticTrace } from '../../bench/simulate/trace.js';
import { usageError } from '../../src/base/errors.js';
import { serveJob } from '../shared/worker_job.js';

export interface SimulateRequest {
  readonly requests: number;
  readonly ranks: number;
  readonly meanInput: number;
  readonly meanOutput: number;
  readonly maxBatch: number;
  readonly maxTokensPerIteration: number;
  readonly concurrency: number;
  readonly timeoutIters: number;
  readonly batchingWaitIters: number;
  readonly seed: number;
  readonly pareto: boolean;
}

export interface SimulateResult {
  readonly study: AdpStudy;
  readonly pareto?: Pareto;
}

serveJob<SimulateRequest, SimulateResult>(async (request, onProgress) => {
  const { requests, meanInput, meanOutput, seed, pareto, ...rest } = request;
  const { maxBatch, maxTokensPerIteration: budget } = rest;
  if (budget <= maxBatch) {
    throw usageError(
      `${budget} tokens an iteration: expected more than the ${maxBatch} requests a rank may run, else a full batch leaves no room for prompts`,
    );
  }
  const study = {
    ...rest,
    trace: syntheticTrace({ requests, meanInput, meanOutput, seed, maxInput: budget - maxBatch }),
    chunkedPrefill: false,
    kvTokens: undefined,
    time: PUBLISHED_TIME,
  };
  const progress = (name: string): void => onProgress(`Simulating ${name}…`);
  const result = await studyAdp(study, progress);
  return {
    study: result,
    ...(pareto && { pareto: await paretoOfLoads(study, defaultLoads(study.concurrency), progress, result.rows) }),
  };
});
