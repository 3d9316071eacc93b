import { usageError } from '../../src/base/errors.js';
import type { AdpStudyOptions } from './adp_study.js';
import { PUBLISHED_SETTINGS } from './published_run.js';
import { BLOCK_TOKENS } from './simulate.js';
import { meanInput, meanOutput } from './trace.js';

/** @throws SplitkvError `usage` for a request that could never run. */
export function checkTrace({ trace, maxTokensPerIteration, chunkedPrefill, kvTokens }: AdpStudyOptions): void {
  for (const [index, { inputTokens, outputTokens }] of trace.entries()) {
    if (!chunkedPrefill && inputTokens > maxTokensPerIteration) {
      throw usageError(
        `request ${index} has a prompt of ${inputTokens} tokens; an iteration takes ${maxTokensPerIteration}: ` +
          'raise --max-tokens-per-iteration or give --chunked-prefill',
      );
    }
    if (
      kvTokens !== undefined &&
      Math.ceil((inputTokens + outputTokens) / BLOCK_TOKENS) > Math.floor(kvTokens / BLOCK_TOKENS)
    ) {
      throw usageError(
        `--kv-tokens ${kvTokens}: request ${index} alone has ${inputTokens + outputTokens} tokens (in blocks of ${BLOCK_TOKENS})`,
      );
    }
  }
}

/** What a study was made of, as its JSON says it. */
export function parametersOf(options: AdpStudyOptions): Record<string, unknown> {
  const { trace, time } = options;
  return {
    requests: trace.length,
    mean_in: meanInput(trace),
    mean_out: meanOutput(trace),
    max_in: trace.reduce((most, { inputTokens }) => Math.max(most, inputTokens), 0),
    max_out: trace.reduce((most, { outputTokens }) => Math.max(most, outputTokens), 0),
    ranks: options.ranks,
    max_batch: options.maxBatch,
    max_tokens_per_iteration: options.maxTokensPerIteration,
    concurrency: options.concurrency,
    timeout_iters: options.timeoutIters,
    batching_wait_iters: options.batchingWaitIters,
    chunked_prefill: options.chunkedPrefill,
    kv_tokens: options.kvTokens ?? null,
    iteration_seconds: time.baseSeconds,
    token_seconds: time.secondsPerToken,
    cached_token_seconds: time.secondsPerCachedToken ?? 0,
    model: `seconds of an iteration = iteration_seconds + token_seconds * tokens + cached_token_seconds * cached tokens (of ${
      time.counts === 'all' ? 'all ranks, which share a device' : 'the rank with most'
    })`,
    balance: 'mean of tokens_avg / tokens_max over iterations; weighed_balance: by the tokens of their largest rank',
  };
}

/** Whether a study is of the run that was published, so that its rows may be read beside the published ones. */
export function isPublishedRun(options: AdpStudyOptions): boolean {
  const { requests, ranks, maxBatch, maxTokensPerIteration, concurrency, timeoutIters, batchingWaitIters } =
    PUBLISHED_SETTINGS;
  return (
    options.trace.length === requests &&
    options.ranks === ranks &&
    options.maxBatch === maxBatch &&
    options.maxTokensPerIteration === maxTokensPerIteration &&
    options.concurrency === concurrency &&
    options.timeoutIters === timeoutIters &&
    options.batchingWaitIters === batchingWaitIters &&
    Math.abs(meanInput(options.trace) - PUBLISHED_SETTINGS.meanInput) < 1 &&
    Math.abs(meanOutput(options.trace) - PUBLISHED_SETTINGS.meanOutput) < 1
  );
}
