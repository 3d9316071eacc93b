/**
 * The run that NVIDIA published ("ADP Balance Strategy", TensorRT-LLM tech blog 10, and its draft for the settings): DeepSeek-V3
 * on 8 GB200, attention data parallel over 8 ranks, experts over 8 ranks.
 */
export const PUBLISHED_SETTINGS = {
  requests: 16000,
  ranks: 8,
  meanInput: 803.1,
  meanOutput: 3653.8,
  maxBatch: 512,
  maxTokensPerIteration: 4678,
  concurrency: 5120,
  timeoutIters: 50,
  batchingWaitIters: 10,
} as const;

/** The same in small, for a run on a real model: its ratios of slots, prompts and clients, and shorter waits for shorter answers. */
export const SMALL_SETTINGS = {
  requests: 300,
  ranks: 4,
  meanInput: 24,
  meanOutput: 32,
  maxBatch: 8,
  timeoutIters: 12,
  batchingWaitIters: 3,
} as const;

export interface PublishedRow {
  readonly name: 'baseline' | 'context_wait' | 'full';
  readonly tps: number;
  /**
   * What the publication calls the average balance ratio. The baseline's, 54.11%, is what its SOL TPS is above its TPS to the last
   * digit (39,552 / 25,664 - 1 = 0.5411), so it may be that and no balance; the others' are not.
   */
  readonly balance: number;
  readonly sol_tps: number;
  readonly speedup: number;
}

export const PUBLISHED_ROWS: readonly PublishedRow[] = [
  { name: 'baseline', tps: 25664, balance: 0.5411, sol_tps: 39552, speedup: 1 },
  { name: 'context_wait', tps: 33499, balance: 0.8433, sol_tps: 38312, speedup: 1.31 },
  { name: 'full', tps: 34140, balance: 0.877, sol_tps: 37912, speedup: 1.33 },
];

/** Seconds of an iteration: base + perToken * (tokens of the rank that has most). Fitted on the published baseline's TPS and SOL TPS. */
export const PUBLISHED_TIME = { baseSeconds: 0.0263, secondsPerToken: 99e-6 } as const;

/** What else is published of the baseline. */
export const PUBLISHED_FACTS = {
  /** In the draft. */
  iterations: 30_235,
  /** About: "beyond 12,000 iterations all requests have passed to generation". */
  lastContext: 12_000,
  /** SOL TPS above TPS between the iterations 100 and 12,000. */
  windowHeadroom: 0.7023,
} as const;
