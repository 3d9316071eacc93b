/**
 * Room: what each iteration runs, as a state machine without a GPU and without a clock. docs/scheduler.md explains.
 * Read scheduler.ts next, then rank_state.ts; each policy is a file.
 */

export { contextPolicy } from './adp/policy.js';
export { type AttentionDpConfig, parseAttentionDpConfig } from './adp/config.js';
export { BalanceMeter, balanceRatio, type BalanceSummary, solTps } from './adp/metrics.js';
export type { RankLimits, SchedulerConfig, SchedulerOptions } from './config.js';
export type {
  BlockCopy,
  Handover,
  Iteration,
  IterationResults,
  PrefillChunk,
  RankWork,
  SequenceMove,
} from './iteration.js';
export { Scheduler } from './scheduler.js';
export type { EndReason, RequestSpec, ScheduledSequence, SequenceStatus } from './sequence.js';
