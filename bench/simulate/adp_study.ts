/**
 * Room: studies of attention data parallelism on the clock of simulate.ts: policies side by side, and beside the run that
 * NVIDIA published (published_run.ts). docs/adp.md explains.
 */

import { checkTrace, isPublishedRun, parametersOf } from './adp_parameters.js';
import { type AdpRow, makeRow, type RowName } from './adp_row.js';
import { type PublishedCheck, publishedChecks } from './published_checks.js';
import {
  type LinearTime,
  type LoggedIteration,
  type Room,
  type SimulationResult,
  schedulerOf,
  simulate,
} from './simulate.js';
import { PUBLISHED_ROWS, type PublishedRow } from './published_run.js';
import { BalanceRoute, StaggeredBatches } from './related_policies.js';
import type { ContextPolicy } from '../../src/engine/scheduler/routing.js';

export interface AdpStudyOptions extends Room {
  /** Requests that clients have open at once. */
  readonly concurrency: number;
  readonly timeoutIters: number;
  readonly batchingWaitIters: number;
  readonly time: LinearTime;
  /** Policies of papers, too (related_policies.ts). */
  readonly related?: boolean;
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
  /** What else is published of the baseline, where the study is of that run. */
  readonly checks?: readonly PublishedCheck[];
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly logs: Readonly<Partial<Record<RowName, readonly LoggedIteration[]>>>;
  /** Of the trace's requests. */
  readonly lengths: Readonly<Record<'prompts' | 'answers', readonly number[]>>;
}

/** Runs the published policies and our own on one trace. `onRun` is called before each. */
export async function studyAdp(
  options: AdpStudyOptions,
  onRun: (name: string) => void | Promise<void> = () => {},
): Promise<AdpStudy> {
  checkTrace(options);
  const rows: AdpRow[] = [];
  const logs: Partial<Record<RowName, readonly LoggedIteration[]>> = {};
  const policies: (readonly [RowName, Policy | ContextPolicy])[] = [...policiesOf(options)];
  if (options.related) policies.push(['balance_route', new BalanceRoute()], ['staggered', new StaggeredBatches()]);
  for (const [name, policy] of policies) {
    await onRun(name);
    const result = runPolicy(options, policy);
    rows.push(makeRow(name, result, rows[0]?.tps));
    logs[name] = result.log;
  }
  return {
    rows,
    published: PUBLISHED_ROWS,
    ...(isPublishedRun(options) && { checks: publishedChecks(logs.baseline!) }),
    parameters: parametersOf(options),
    logs,
    lengths: {
      prompts: options.trace.map(({ inputTokens }) => inputTokens),
      answers: options.trace.map(({ outputTokens }) => outputTokens),
    },
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

/** A run of the study's trace under one policy. */
export function runPolicy(options: AdpStudyOptions, policy: Policy | ContextPolicy): SimulationResult {
  const { trace, concurrency, time } = options;
  const scheduler = schedulerOf(options);
  const own = 'mode' in policy ? { scheduler: { ...scheduler, attentionDpConfig: policy } } : { scheduler, policy };
  return simulate(trace, { concurrency, time, ...own });
}
