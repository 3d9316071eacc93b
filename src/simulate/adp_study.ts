import type { SchedulerOptions } from '../engine/scheduler/index.js';
import { BLOCK_TOKENS, checkTrace, parametersOf } from './adp_parameters.js';
import { type AdpRow, makeRow, type RowName } from './adp_row.js';
import { type LinearTime, linearTime } from './iteration_time.js';
import { PUBLISHED_ROWS, type PublishedRow } from './published_run.js';
import { type LoggedIteration, simulate, type SimulationResult } from './simulate.js';
import type { Trace } from './trace.js';

export interface AdpStudyOptions {
  readonly trace: Trace;
  readonly ranks: number;
  /** Requests that a rank may run. */
  readonly maxBatch: number;
  readonly maxTokensPerIteration: number;
  /** Requests that clients have open at once. */
  readonly concurrency: number;
  readonly timeoutIters: number;
  readonly batchingWaitIters: number;
  readonly chunkedPrefill: boolean;
  /** KV tokens of a rank; undefined: enough for any batch. */
  readonly kvTokens: number | undefined;
  readonly time: LinearTime;
}

/** A policy as `attention_dp_config` has it. */
export interface Policy {
  readonly mode: 'trtllm' | 'cost';
  readonly enable_balance: boolean;
  readonly timeout_iters?: number;
  readonly batching_wait_iters?: number;
}

export interface AdpStudy {
  readonly rows: readonly AdpRow[];
  readonly published: readonly PublishedRow[];
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly logs: Readonly<Record<RowName, readonly LoggedIteration[]>>;
}

/** Runs the published policies and our own on one trace. `onRun` is called before each. */
export async function studyAdp(
  options: AdpStudyOptions,
  onRun: (name: string) => void | Promise<void> = () => {},
): Promise<AdpStudy> {
  checkTrace(options);
  const rows: AdpRow[] = [];
  const logs: Partial<Record<RowName, readonly LoggedIteration[]>> = {};
  for (const [name, policy] of policiesOf(options)) {
    await onRun(name);
    const result = runPolicy(options, policy);
    rows.push(makeRow(name, result, rows[0]?.tps));
    logs[name] = result.log;
  }
  return {
    rows,
    published: PUBLISHED_ROWS,
    parameters: parametersOf(options),
    logs: logs as AdpStudy['logs'],
  };
}

/** The policies of a study: the published ones, then our own. */
export function policiesOf({
  timeoutIters,
  batchingWaitIters,
}: Pick<AdpStudyOptions, 'timeoutIters' | 'batchingWaitIters'>): readonly (readonly [RowName, Policy])[] {
  const waits = { timeout_iters: timeoutIters, batching_wait_iters: batchingWaitIters };
  return [
    ['baseline', { mode: 'trtllm', enable_balance: false }],
    ['context_wait', { mode: 'trtllm', enable_balance: true, ...waits, batching_wait_iters: 0 }],
    ['full', { mode: 'trtllm', enable_balance: true, ...waits }],
    ['cost', { mode: 'cost', enable_balance: true, ...waits }],
  ];
}

/** What the scheduler is told beside a policy. */
export function schedulerOf(options: Omit<AdpStudyOptions, 'time'>): Omit<SchedulerOptions, 'attentionDpConfig'> {
  const { trace, maxBatch, kvTokens, maxTokensPerIteration, chunkedPrefill } = options;
  const longest = trace.reduce((most, { inputTokens, outputTokens }) => Math.max(most, inputTokens + outputTokens), 0);
  const blocks = Math.ceil(longest / BLOCK_TOKENS);
  const numBlocks = kvTokens === undefined ? maxBatch * blocks : Math.max(1, Math.floor(kvTokens / BLOCK_TOKENS));
  return {
    ranks: Array.from({ length: options.ranks }, () => ({ numBlocks, slots: maxBatch })),
    blockTokens: BLOCK_TOKENS,
    contextLength: longest,
    maxTokensPerIteration,
    chunkedPrefill,
    watermark: kvTokens === undefined ? 0 : 0.01,
  };
}

/** A run of the study's trace under one policy. */
export function runPolicy(options: AdpStudyOptions, policy: Policy): SimulationResult {
  return simulate(options.trace, {
    concurrency: options.concurrency,
    time: linearTime(options.time),
    scheduler: { ...schedulerOf(options), attentionDpConfig: policy },
  });
}
