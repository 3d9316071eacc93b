import type { AttentionDpConfig } from './config.js';

/**
 * Iterations that a request which could run is made to wait for company at most.
 *
 * While others queue for slots, `timeout_iters + batching_wait_iters`: their first tokens come the sooner the more is generated,
 * and the wait of a few is little beside the queue. Otherwise the wait is all there is between a request and its first token,
 * and waiting for each rank to get one takes `ranks * (1 + 1/2 + ... + 1/ranks) / arrivals` iterations on average (collecting
 * coupons): that, if less than `timeout_iters`, and `batching_wait_iters` more.
 */
export function patience(config: AttentionDpConfig, ranks: number, arrivals: number, queueing: boolean): number {
  const { timeoutIters, batchingWaitIters } = config;
  if (queueing) return timeoutIters + batchingWaitIters;
  let draws = 0;
  for (let rank = 1; rank <= ranks; rank++) draws += ranks / rank;
  return Math.min(timeoutIters, draws / arrivals) + batchingWaitIters;
}
