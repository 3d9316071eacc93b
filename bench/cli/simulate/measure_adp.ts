import { arch, cpus, loadavg, release, type } from 'node:os';
import { throwIfAborted, usageError } from '../../../src/base/errors.js';
import { openModel } from '../../../src/engine/faces/load.js';
import { checkTrace, parametersOf } from '../../simulate/adp_parameters.js';
import { median } from '../../../src/base/stats.js';
import { type AdpRow, makeRow, type RowName } from '../../simulate/adp_row.js';
import { type AdpStudyOptions, policiesOf, runPolicy } from '../../simulate/adp_study.js';
import { LinearFit } from '../../../src/engine/scheduler/adp/fits.js';
import { type LinearTime, countedTokens, schedulerOf } from '../../simulate/simulate.js';
import type { Trace } from '../../simulate/trace.js';
import type { ModelRequest } from '../../../src/cli/model_options.js';
import { type Replay, replay } from './replay.js';
import { VERSION } from '../../../src/base/version.js';

export interface MeasuredStudy {
  /** Medians over runs; of speedups, those over the baseline of the same turn. */
  readonly measured: readonly AdpRow[];
  /** By turn. */
  readonly runs: readonly (readonly AdpRow[])[];
  /** The same policies on a clock. */
  readonly rows: readonly AdpRow[];
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly environment: Readonly<Record<string, unknown>>;
}

/** Requests that are run first and not counted: a first step pays for what drivers compile. */
const WARM_UP = 2;

/**
 * Runs a study's policies on a model by plan adp, `runs` times in turns, and then on a clock. The clock's two constants
 * are fitted on the measured baseline, where none are given.
 * @throws SplitkvError as `load`; `usage` for requests that the model is too short for
 */
export async function measureAdp(
  request: ModelRequest,
  study: Omit<AdpStudyOptions, 'time'> & { readonly time?: LinearTime },
  runs = 1,
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
    const environment = await environmentOf();
    const turns: AdpRow[][] = [];
    const baselineLog: Replay['log'][number][] = [];
    for (let turn = 0; turn < runs; turn++) {
      const results = new Map<RowName, Replay>();
      // A machine that gets slower, or faster, must not do so for the same policy in each turn.
      for (const [name, policy] of [
        ...policies.slice(turn % policies.length),
        ...policies.slice(0, turn % policies.length),
      ]) {
        request.onProgress(`running ${name}${runs > 1 ? `, turn ${turn + 1} of ${runs}` : ''}`);
        throwIfAborted(signal, 'the measured runs');
        results.set(name, await run(trace, policy));
      }
      const baseline = results.get('baseline')!;
      const tps = baseline.outputTokens / baseline.seconds;
      baselineLog.push(...baseline.log);
      turns.push(policies.map(([name]) => makeRow(name, results.get(name)!, tps)));
    }
    const measured = policies.map((_, at) => medianRow(turns.map((turn) => turn[at]!)));
    const time = study.time ?? fitTime(baselineLog, request.options.virtualRanks ? 'all' : 'most');
    const simulated = { ...study, time };
    const rows: AdpRow[] = [];
    for (const [name, policy] of policies) {
      rows.push(makeRow(name, runPolicy(simulated, policy), rows[0]?.tps));
    }
    const adapters = group.runner.ranks.map(({ facts }) => facts.adapter);
    return {
      measured,
      runs: turns,
      rows,
      parameters: {
        ...parametersOf(simulated),
        model: opened.name,
        time: parametersOf(simulated)['model'],
        adapters,
        virtual_ranks: request.options.virtualRanks ?? false,
      },
      environment,
    };
  } finally {
    await opened.prefiller?.dispose();
    await group.dispose();
  }
}

/** The line through measured iterations. */
function fitTime(log: Replay['log'], counts: 'most' | 'all'): LinearTime {
  const fit = new LinearFit(Infinity, 'proportional');
  for (const { tokens, seconds } of log) fit.add(countedTokens(tokens, counts), seconds);
  const { intercept, slope } = fit.line;
  return { baseSeconds: intercept, secondsPerToken: slope, counts };
}

/** Of each figure, the median. */
function medianRow(rows: readonly AdpRow[]): AdpRow {
  const [first] = rows as [AdpRow];
  const figures = Object.keys(first).filter(
    (key): key is keyof Omit<AdpRow, 'name' | 'kv_balance'> => !['name', 'kv_balance'].includes(key),
  );
  return { ...first, ...Object.fromEntries(figures.map((key) => [key, median(rows.map((row) => row[key]))])) };
}

/** What times depend on, besides the adapters. */
async function environmentOf(): Promise<MeasuredStudy['environment']> {
  const [cpu] = cpus();
  return {
    date: new Date().toISOString(),
    version: VERSION,
    node: process.version,
    os: `${type()} ${release()} ${arch()}`,
    cpu: cpu?.model.trim() ?? 'unknown',
    cpu_threads: cpus().length,
    load_average: loadavg()[0],
    ...(process.env['LP_NUM_THREADS'] !== undefined && { lp_num_threads: process.env['LP_NUM_THREADS'] }),
  };
}
