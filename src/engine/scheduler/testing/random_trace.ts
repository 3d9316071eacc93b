import fc from 'fast-check';
import type { WindowLimits } from '../config.js';
import type { SchedulerOptions } from '../index.js';

/** A request of a random trace. */
export interface RandomRequest {
  /** Iterations after the one before it. */
  readonly delay: number;
  /** Which of a few common beginnings its prompt has, and how much of it. */
  readonly stem: number;
  readonly stemTokens: number;
  readonly ownTokens: number;
  readonly maxTokens: number;
  readonly priority: number;
  readonly client: string;
  /** It ends by itself after so many tokens, if it gets there. */
  readonly endsAfter: number;
  /** It is aborted so many iterations after it came, unless it has finished; -1: never. */
  readonly abortedAfter: number;
  readonly deadline: number | undefined;
  /** Part of the prompt that was generated before, from the end of the stem on. */
  readonly generatedTokens: number;
  /** Only its prompt is computed. */
  readonly prefillOnly: boolean;
  /** Where prompts aren't computed elsewhere: blocks of its beginning that are kept elsewhere, from the first that isn't cached on; -1: it waits for none. */
  readonly keptBlocks: number;
}

export interface RandomRun {
  readonly options: SchedulerOptions;
  readonly requests: readonly RandomRequest[];
  /** Iterations scheduled before the oldest is completed. */
  readonly depth: number;
}

const BLOCK = 4;

const request: fc.Arbitrary<RandomRequest> = fc.record({
  delay: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat(6) }),
  stem: fc.nat(2),
  stemTokens: fc.oneof(fc.nat(14), fc.constant(12)),
  ownTokens: fc.integer({ min: 1, max: 9 }),
  maxTokens: fc.integer({ min: 1, max: 24 }),
  priority: fc.integer({ min: -2, max: 2 }),
  client: fc.constantFrom('a', 'a', 'a', 'b', 'c'),
  endsAfter: fc.integer({ min: 1, max: 40 }),
  abortedAfter: fc.oneof({ weight: 4, arbitrary: fc.constant(-1) }, { weight: 1, arbitrary: fc.nat(20) }),
  generatedTokens: fc.nat(6),
  prefillOnly: fc.oneof({ weight: 7, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
  keptBlocks: fc.integer({ min: -1, max: 5 }),
  deadline: fc.option(fc.double({ min: 0, max: 5, noNaN: true }), { nil: undefined }),
});

const attentionDpConfig = fc.record({
  mode: fc.constantFrom('trtllm', 'cost'),
  enable_balance: fc.boolean(),
  timeout_iters: fc.nat(8),
  batching_wait_iters: fc.nat(4),
});

/** Some of the parts are empty where there are few. */
const cut = (slots: number, parts: number): number[] =>
  Array.from({ length: parts }, (_, part) => Math.floor((slots + part) / parts));

/** As `CachePools` has them, in blocks of this size. */
function windowsOf(
  { tokens, step, sequences }: { readonly tokens: number; readonly step: number; readonly sequences: number },
  lanes: number,
  slots: number,
): WindowLimits {
  const touched = (unit: number): number => Math.floor((tokens + step - 3) / unit) + 2;
  const most = Math.min(touched(BLOCK), Math.ceil(touched(2 * BLOCK) / lanes) * 2);
  return { tokens, step, most, numBlocks: lanes * most * Math.min(slots, sequences) };
}

const options: fc.Arbitrary<SchedulerOptions> = fc
  .record({
    // Blocks for the longest request (23 + 24 tokens), and little more: preemption is the rule.
    ranks: fc.array(fc.record({ blocks: fc.integer({ min: 12, max: 15 }), slots: fc.integer({ min: 1, max: 8 }) }), {
      minLength: 1,
      maxLength: 4,
    }),
    lanes: fc.oneof({ weight: 2, arbitrary: fc.constant(1) }, { weight: 1, arbitrary: fc.integer({ min: 2, max: 3 }) }),
    chunkedPrefill: fc.boolean(),
    prefixCaching: fc.boolean(),
    maxChunkTokens: fc.integer({ min: 1, max: 12 }),
    maxPrefillSequences: fc.integer({ min: 1, max: 3 }),
    watermark: fc.constantFrom(0, 0.1),
    sharedRows: fc.boolean(),
    microBatches: fc.integer({ min: 1, max: 3 }),
    rowsPerMicroBatch: fc.integer({ min: 1, max: 4 }),
    handover: fc.boolean(),
    keptStates: fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fc.nat(16) }),
    compressed: fc.oneof(
      { weight: 4, arbitrary: fc.constant(undefined) },
      {
        weight: 1,
        arbitrary: fc.record({ keptBlocks: fc.integer({ min: 2, max: 12 }), window: fc.integer({ min: 1, max: 4 }) }),
      },
    ),
    agingIterations: fc.integer({ min: 1, max: 20 }),
    budget: fc.integer({ min: 1, max: 16 }),
    window: fc.option(
      fc.record({
        tokens: fc.integer({ min: 1, max: 20 }),
        step: fc.integer({ min: 4, max: 16 }),
        sequences: fc.integer({ min: 1, max: 8 }),
      }),
    ),
    attentionDpConfig,
  })
  .map(({ budget, microBatches, ranks, lanes, window: given, keptStates: kept, compressed, ...rest }) => {
    const [window, keptStates] = compressed ? [null, undefined] : [given, kept];
    return {
      ...rest,
      chunkedPrefill: rest.chunkedPrefill || window !== null,
      // States stay in their slots, and no prefill worker hands one over.
      ...(keptStates !== undefined && { keptStates, shiftsSlots: false, handover: false }),
      // Nothing is evicted here, so that all can be checked; what sequences are cut into is as if there were.
      ...(compressed && {
        eviction: {
          windowOf: (length: number) => (length > 2 * compressed.window ? compressed.window : 0),
          evictedOf: () => 0,
        },
        prefixCaching: true,
        keptBlocks: compressed.keptBlocks,
        // A prompt's last chunk has its whole window.
        maxChunkTokens: Math.max(rest.maxChunkTokens, compressed.window),
        shiftsSlots: false,
      }),
      ranks: ranks.map(({ blocks, slots }) => ({
        // With lanes, a chunk more in each: the longest request may begin at any.
        numBlocks: lanes === 1 ? blocks : lanes * (Math.ceil(blocks / lanes) + 1),
        lanes,
        ...(window && { windows: windowsOf(window, lanes, slots) }),
        slots,
        microBatches: cut(slots, microBatches),
      })),
      blockTokens: BLOCK,
      chunkTokens: 2 * BLOCK,
      contextLength: 60,
      // Room for the longest prompt beside no decode row, at least.
      maxTokensPerIteration:
        Math.max(
          24,
          ranks.reduce((sum, { slots }) => sum + slots, 1),
        ) + budget,
    };
  });

export const randomRun: fc.Arbitrary<RandomRun> = fc.record({
  options,
  requests: fc.array(request, { minLength: 1, maxLength: 30 }),
  depth: fc.integer({ min: 1, max: 4 }),
});
