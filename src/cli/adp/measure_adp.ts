/**
 * Room: `splitkv simulate adp --model`: a trace really run on a model, then simulated with what was measured.
 * replay.ts runs it.
 */

import { throwIfAborted, usageError } from '../../base/errors.js';
import { openModel } from '../../engine/load.js';
import { checkTrace, parametersOf } from '../../simulate/adp_parameters.js';
import { type AdpRow, makeRow } from '../../simulate/adp_row.js';
import { type AdpStudyOptions, policiesOf, runPolicy, schedulerOf } from '../../simulate/adp_study.js';
import { fitTime, type LinearTime } from '../../simulate/iteration_time.js';
import type { Trace } from '../../simulate/trace.js';
import type { ModelRequest } from '../model_options.js';
import { replay } from './replay.js';

export interface MeasuredStudy {
  readonly measured: readonly AdpRow[];
  /** The same policies on a clock. */
  readonly rows: readonly AdpRow[];
  readonly parameters: Readonly<Record<string, unknown>>;
}

/** Requests that are run first and not counted: a first step pays for what drivers compile. */
const WARM_UP = 2;

/**
 * Runs a study's policies on a model by plan adp, and then on a clock. The clock's two constants are fitted on the measured
 * baseline, where none are given.
 * @throws SplitkvError as `load`; `usage` for requests that the model is too short for
 */
export async function measureAdp(
  request: ModelRequest,
  study: Omit<AdpStudyOptions, 'time'> & { readonly time?: LinearTime },
): Promise<MeasuredStudy> {
  const { signal } = request;
  const { trace, ranks, maxBatch } = study;
  const given = { ...study, time: study.time ?? { baseSeconds: 0, secondsPerToken: 0 } };
  checkTrace(given);
  const scheduler = schedulerOf(study);
  const { contextLength, maxTokensPerIteration, chunkedPrefill = true, watermark = 0 } = scheduler;
  const kvBlocks = scheduler.ranks.reduce((sum, { numBlocks }) => sum + numBlocks, 0);
  const slots = ranks * maxBatch;
  const longest = trace.reduce((most, { inputTokens }) => Math.max(most, inputTokens), 0);
  const opened = await openModel(
    request.model,
    { ...request.options, plan: 'adp', contextLength, prefillChunk: longest, signal, onWarning: request.onWarning },
    () => ({ slots, kvBlocks }),
  );
  const { group, config } = opened;
  try {
    const { promptRows } = group.runner;
    if (!chunkedPrefill && promptRows < longest) {
      throw usageError(
        `a prompt has ${longest} tokens; a step of this adapter takes ${promptRows}: give --chunked-prefill`,
      );
    }
    const run = (part: Trace, policy: object) =>
      replay(group, part, {
        concurrency: study.concurrency,
        vocabSize: config.vocabSize,
        signal,
        engine: {
          slots,
          tokensPerIteration: maxTokensPerIteration,
          chunkedPrefill,
          watermark,
          attentionDpConfig: policy,
        },
      });
    const policies = policiesOf(study);
    request.onProgress('warming up');
    await run(trace.slice(0, WARM_UP * ranks), policies[0]![1]);
    const measured: AdpRow[] = [];
    let { time } = study;
    for (const [name, policy] of policies) {
      request.onProgress(`running ${name}`);
      throwIfAborted(signal, 'the measured runs');
      const result = await run(trace, policy);
      measured.push(makeRow(name, result, measured[0]?.tps));
      time ??= fitTime(result.log, request.options.virtualRanks ? 'all' : 'most');
    }
    const simulated = { ...study, time: time! };
    const rows: AdpRow[] = [];
    for (const [name, policy] of policies) {
      rows.push(makeRow(name, runPolicy(simulated, policy), rows[0]?.tps));
    }
    const adapters = group.runner.ranks.map(({ facts }) => facts.adapter);
    return {
      measured,
      rows,
      parameters: {
        ...parametersOf(simulated),
        model: opened.name,
        time: parametersOf(simulated)['model'],
        adapters,
        virtual_ranks: request.options.virtualRanks ?? false,
      },
    };
  } finally {
    await opened.prefiller?.dispose();
    await group.dispose();
  }
}
