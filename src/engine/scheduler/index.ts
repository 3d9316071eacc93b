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
