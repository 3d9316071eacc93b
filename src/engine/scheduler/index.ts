/**
 * Room: what each iteration runs, as a state machine without a GPU and without a clock. docs/scheduler.md explains.
 * Read scheduler.ts next, then rank_state.ts; each policy is a file.
 */

export { contextPolicy } from './adp/policy.js';
export { BalanceMeter, balanceRatio, type BalanceSummary, solTps } from './adp/metrics.js';
export type { RankLimits, SchedulerOptions } from './config.js';
export type { Iteration, PrefillChunk, WorkList } from './iteration.js';
export { Scheduler } from './scheduler.js';
export type { EndReason, RequestSpec, ScheduledSequence } from './sequence.js';
