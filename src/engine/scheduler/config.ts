import { contextFullError, SplitkvError, usageError } from '../../base/errors.js';
import { checkOptions as checkGiven, defined, type OptionsSchema, wholeNumber } from '../../base/options.js';
import { CHUNK_TOKENS } from '../../base/kv_units.js';
import { sum } from '../../base/lists.js';
import { grouped } from '../../base/math.js';
import type { PromptEviction } from '../../model/compression/budgets.js';
import { chunkOwner } from '../../placement/owner.js';
import { type AttentionDpConfig, parseAttentionDpConfig } from './adp/config.js';
import type { RequestSpec } from './sequence.js';

/** Layers with windows that keep blocks of their own (`CachePools`). */
export interface WindowLimits {
  /** Blocks of their pool, of all its lanes together. */
  readonly numBlocks: number;
  /** Blocks of a lane that a sequence has at most, however long it is. */
  readonly most: number;
  /** Keys that a row sees, its own included. */
  readonly tokens: number;
  /** Tokens of a sequence that iterations in flight write, at most. */
  readonly step: number;
}

export interface RankLimits {
  readonly numBlocks: number;
  /**
   * Where several ranks split every sequence, chunk c of one with offset o is of lane (c + o) mod `lanes`, and block b of the pool of lane
   * floor(b * lanes / numBlocks): lanes have as many blocks each. Default 1.
   */
  readonly lanes?: number;
  readonly windows?: WindowLimits | undefined;
  /** Offsets that sequences may have; default: as many as lanes. */
  readonly rotations?: number;
  /** Sequences that may be running: rows of a decode step. */
  readonly slots: number;
  /** Of those, the slots of each micro-batch, which follow one another; as many micro-batches on every rank. Default: one. */
  readonly microBatches?: readonly number[];
}

export interface SchedulerOptions {
  /**
   * One entry: one rank, or a tensor- or sequence-parallel plan, whose ranks hold shares of the same blocks. Several: attention
   * data parallel, each request on one of them, iterations in lockstep; or with `sharedRows` token parallel.
   */
  readonly ranks: readonly RankLimits[];
  /** Tokens a KV block; default 64. */
  readonly blockTokens?: number;
  /** Tokens that go to a lane (`RankLimits.lanes`) together; default 256. */
  readonly chunkTokens?: number;
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /** Rows of one iteration on one rank, decode rows included: more than any rank's slots. */
  readonly maxTokensPerIteration: number;
  /** Rows of one sequence in one iteration; default: only the budget above limits them. */
  readonly maxChunkTokens?: number;
  /**
   * Where a chunk of prompt rows from `start` on must end at the latest, for a sequence with this offset and these ids: at most at `end`,
   * but for rows that can't be cut.
   */
  readonly chunkEnd?:
    | ((offset: number, start: number, end: number, idAt: (position: number) => number) => number)
    | undefined;
  /** Sequences with prompt rows in one iteration, for each rank; default: any number. */
  readonly maxPrefillSequences?: number;
  /** Prompts are cut to the budget; otherwise each must fit whole. Default true. */
  readonly chunkedPrefill?: boolean;
  /** Default false: it needs prompts' ids, not only their lengths. */
  readonly prefixCaching?: boolean;
  /**
   * Of models with recurrent layers: copies of states that each rank has room for. A sequence then begins at a prefix of the cache only
   * where its state was kept. Default: sequences have no state.
   */
  readonly keptStates?: number | undefined;
  /** Of these models, with drafts: copies besides, each of a sequence before its drafts; with the numbers behind those. */
  readonly draftStates?: number | undefined;
  /**
   * Where prompts are compressed: blocks that each rank has for whole prompts, from which others that begin alike are copied. Default 0:
   * then prompts share nothing, whatever `prefixCaching` says.
   */
  readonly keptBlocks?: number | undefined;
  /** Part of a rank's blocks that a new sequence must leave free for the running ones to grow into; default 0.01. */
  readonly watermark?: number;
  /** Iterations that a point of priority is worth; default 50. */
  readonly agingIterations?: number;
  /**
   * Token parallelism: pools only keep caches, and the same ranks compute the rows of all, so the row budget is one for all. Sequences
   * are placed and moved so that attention is balanced. Default false.
   */
  readonly sharedRows?: boolean;
  /** Micro-batches are opened one by one, another for every so many sequences; default 1. */
  readonly rowsPerMicroBatch?: number;
  /** Sequences may go from slot to slot while they run, of their rank or (with `sharedRows`) of another; default true. */
  readonly shiftsSlots?: boolean;
  /** Prompts are computed elsewhere: a sequence runs once `Scheduler.hand` has said that its prompt is there. Default false. */
  readonly handover?: boolean;
  /** Default: nothing is evicted. */
  readonly eviction?: PromptEviction;
  /** As `attention_dp_config` in JSON: see adp/config.ts. Read only with several ranks. */
  readonly attentionDpConfig?: unknown;
}

/** Checked options, defaults filled in. */
export interface SchedulerConfig
  extends Omit<SchedulerOptions, 'attentionDpConfig' | Defaulted>, Required<Pick<SchedulerOptions, Defaulted>> {
  readonly attentionDp: AttentionDpConfig;
}

type Defaulted = keyof typeof DEFAULTS | 'maxChunkTokens';

const COUNT = wholeNumber(1);
const schema: OptionsSchema<SchedulerOptions> = {
  ranks: true,
  blockTokens: COUNT,
  chunkTokens: COUNT,
  contextLength: COUNT,
  maxTokensPerIteration: COUNT,
  maxChunkTokens: COUNT,
  chunkEnd: true,
  maxPrefillSequences: COUNT,
  chunkedPrefill: true,
  prefixCaching: true,
  keptStates: true,
  draftStates: true,
  keptBlocks: true,
  watermark: true,
  agingIterations: COUNT,
  sharedRows: true,
  rowsPerMicroBatch: COUNT,
  shiftsSlots: true,
  handover: true,
  eviction: true,
  attentionDpConfig: true,
};

const DEFAULTS = {
  blockTokens: 64,
  chunkTokens: CHUNK_TOKENS,
  maxPrefillSequences: Number.MAX_SAFE_INTEGER,
  chunkedPrefill: true,
  prefixCaching: false,
  watermark: 0.01,
  agingIterations: 50,
  sharedRows: false,
  rowsPerMicroBatch: 1,
  shiftsSlots: true,
  handover: false,
} as const satisfies Partial<SchedulerOptions>;

/** @throws SplitkvError `usage` naming the option, its value and what was expected. */
export function checkOptions(options: SchedulerOptions): SchedulerConfig {
  checkGiven('scheduler', options, schema);
  const { attentionDpConfig, ...given } = options;
  const { ranks, maxTokensPerIteration } = given;
  if (!Array.isArray(ranks) || ranks.length === 0) throw usageError('scheduler: ranks is empty: give at least one');
  const config = {
    ...DEFAULTS,
    maxChunkTokens: maxTokensPerIteration,
    ...(defined(given) as SchedulerOptions),
    attentionDp: parseAttentionDpConfig(attentionDpConfig ?? {}),
  } as SchedulerConfig;
  checkRanks(config);
  const { watermark } = config;
  if (!(watermark >= 0 && watermark < 1)) {
    throw usageError(`scheduler: watermark ${watermark}: expected a number from 0 to below 1`);
  }
  return config;
}

function checkRanks({ ranks, sharedRows, chunkedPrefill, maxTokensPerIteration }: SchedulerConfig): void {
  const allSlots = sum(ranks.map(({ slots }) => slots));
  if (sharedRows && allSlots >= maxTokensPerIteration) {
    throw usageError(
      `maxTokensPerIteration ${maxTokensPerIteration}: expected more than the ${allSlots} slots of all ranks, which share it`,
    );
  }
  for (const [rank, { numBlocks, slots, lanes = 1, windows, microBatches = [slots] }] of ranks.entries()) {
    for (const [name, value] of Object.entries({ numBlocks, slots })) {
      const wrong = COUNT(value);
      if (wrong !== undefined) throw usageError(`scheduler: ranks[${rank}].${name} ${wrong}`);
    }
    if (numBlocks % lanes !== 0) {
      throw usageError(`scheduler: ranks[${rank}].numBlocks ${numBlocks}: expected a multiple of its ${lanes} lanes`);
    }
    if (windows && !chunkedPrefill) {
      throw usageError(
        'scheduler: a prompt that runs whole needs all tokens in layers with windows: turn chunkedPrefill on',
      );
    }
    if (slots >= maxTokensPerIteration) {
      throw usageError(
        `maxTokensPerIteration ${maxTokensPerIteration}: expected more than rank ${rank}'s ${slots} slots, ` +
          'otherwise a full batch of decode rows leaves no row for prompts',
      );
    }
    const counts = microBatches.every((count) => Number.isSafeInteger(count) && count >= 0);
    if (!counts || sum(microBatches) !== slots || microBatches.length !== (ranks[0]?.microBatches?.length ?? 1)) {
      throw usageError(
        `scheduler: ranks[${rank}].microBatches ${microBatches.join(', ')}: expected counts that add up to its ${slots} slots, ` +
          'and as many on every rank',
      );
    }
  }
}

/**
 * Tokens that a request may generate: what it asks for, cut to the context and to the largest rank's pool, so that whatever is
 * admitted can finish with the rest of the pool free.
 * @throws SplitkvError `context_full` when the prompt alone is too long
 */
export function generationRoom(config: SchedulerConfig, { id, prompt, continuation = [] }: RequestSpec): number {
  const { ranks, contextLength, chunkedPrefill, maxTokensPerIteration } = config;
  const promptLength = prompt.length + continuation.length;
  const pool = Math.max(...ranks.map((limits) => poolTokens(limits, config)));
  const capacity = Math.min(contextLength, pool);
  if (promptLength > capacity) {
    throw contextFullError(promptLength, capacity, capacity === contextLength ? undefined : 'kv-memory');
  }
  if (!chunkedPrefill && promptLength > maxTokensPerIteration) {
    throw new SplitkvError(
      'context_full',
      `request ${id}: the prompt has ${grouped(promptLength)} tokens and isn't cut into chunks; an iteration takes ${grouped(maxTokensPerIteration)}: turn chunkedPrefill on or raise maxTokensPerIteration`,
      { details: { tokens: promptLength, most: maxTokensPerIteration } },
    );
  }
  // The last token generated is never fed back.
  return capacity - promptLength + 1;
}

/** Tokens of the longest sequence that a pool holds, whatever its offset. */
function poolTokens({ numBlocks, lanes = 1 }: RankLimits, { blockTokens, chunkTokens }: SchedulerConfig): number {
  const each = numBlocks / lanes;
  if (lanes === 1) return each * blockTokens;
  const chunkBlocks = chunkTokens / blockTokens;
  const whole = Math.floor(each / chunkBlocks);
  return whole * lanes * chunkTokens + (each - whole * chunkBlocks) * blockTokens;
}

export function laneBlocks(
  [first, end]: readonly [first: number, end: number],
  offset: number,
  lanes: number,
  sizes: Pick<SchedulerConfig, 'blockTokens' | 'chunkTokens'>,
): number[] {
  if (lanes === 1) return [Math.max(0, end - first)];
  const counts = Array.from({ length: lanes }, () => 0);
  for (let block = first; block < end; block++) counts[laneOf(block, offset, lanes, sizes)]! += 1;
  return counts;
}

export const laneOf = (
  block: number,
  offset: number,
  lanes: number,
  { blockTokens, chunkTokens }: Pick<SchedulerConfig, 'blockTokens' | 'chunkTokens'>,
): number => (lanes === 1 ? 0 : chunkOwner(Math.floor((block * blockTokens) / chunkTokens), lanes, offset));
