/**
 * Room: what the engine's loop (../engine.ts) is made of. Requests, options and counts are here, as its callers see them;
 * running.ts is what it knows of a request under way, iteration_runner.ts runs an iteration, recovery.ts goes on after a loss.
 */

import type { SpeculationStats } from '../../contracts/api.js';
import type { PrefillWorker } from '../../contracts/prefill_worker.js';
import type { AllowedTokens, DrawOptions } from '../../contracts/rank.js';
import type { EndReason, RequestSpec, SchedulerOptions } from '../../scheduler/index.js';
import type { Adapters } from '../adapters.js';
import type { HistogramCounts } from '../histogram.js';
import type { KeptPrefixes } from '../kept_prefixes.js';
import type { Pictures } from '../pictures.js';
import type { Speculation } from '../speculation/speculation.js';
import type { WantedRows } from './iteration_runner.js';
import type { IterationRecord, Placing, RankBalance } from './rank_balance.js';
import type { RecoveryOptions } from './recovery.js';

/** What tokens may follow those of one answer so far (`FormConstraint`). */
export interface Constraint {
  /** Of the first token. */
  readonly first: NextTokens;
  /** No token has come yet. */
  reset(): void;
  /** Takes the answer's next token. @throws SplitkvError `internal` for one that isn't allowed */
  accept(token: number): void;
  /** What may come next; undefined: nothing, the answer is whole. */
  next(): NextTokens | undefined | Promise<NextTokens | undefined>;
  /** What may follow each of the tokens that may come next, as far as they are allowed and it is known. Takes none of them. */
  ahead(tokens: readonly number[]): readonly AllowedTokens[];
  /** The answer has ended. */
  dispose(): void;
}

export interface NextTokens {
  readonly allowed: AllowedTokens;
  /** Where it is one alone. */
  readonly only?: number;
}

/** A request as tokens. */
export interface EngineRequest
  extends Omit<DrawOptions, 'allowed'>, Pick<RequestSpec, 'generatedSpans' | 'continuation' | 'client'> {
  readonly prompt: readonly number[];
  /** 0: only the prompt is computed, and its continuation. */
  readonly maxTokens: number;
  /** Nothing is taken from the prefix cache: all is computed. */
  readonly fresh?: boolean;
  /** Its beginning is looked for among what is kept, where that isn't done for all. */
  readonly kept?: boolean | undefined;
  /** Ids that end the text, as `stopTokenIds` do; they aren't handed on. */
  readonly eosIds: readonly number[];
  /**
   * Only tokens that it allows are sampled. Where it allows one alone, that isn't sampled but taken, unless logits are wanted. The request's
   * own, with no other.
   */
  readonly constraint?: Constraint | undefined;
  /** False: nothing is drafted for it. */
  readonly speculate?: boolean;
  /** Name of the low-rank adapter that it is computed with. */
  readonly adapter?: string | undefined;
  /** From -100 to 100, higher is sooner. */
  readonly priority?: number;
  /** Seconds within which the first token should be there; what runs when may heed it (docs/adp.md). */
  readonly firstTokenSeconds?: number;
  /** The logits that each token is drawn from are wanted, or those of the first one. */
  readonly logits?: boolean | 'first';
  /** What is wanted of the prompt's own positions. */
  readonly promptRows?: WantedRows;
  /** Called once its prompt is computed, and its continuation, while it has its slot. */
  readonly onPrompt?: (slot: number) => Promise<void>;
  /** Told of its prompt's tokens that are in the cache, before others are computed, and of all that are there after each step. */
  readonly onProgress?: (there: number) => void;
  /** Takes each token; true ends the request there (a stop text was found). */
  onToken(token: number, logits: Float32Array | undefined): boolean;
}

export type EngineEnd = EndReason | 'eos' | 'stop_token';

export interface EngineHandle {
  readonly id: string;
  /** Tokens of its prompt that were in the cache; known from its first token on. */
  readonly cachedTokens: number;
  /** So far. */
  readonly speculation: SpeculationStats;
  /** Why it ended; rejects when the ranks failed for good. */
  readonly ended: Promise<EngineEnd>;
  /** Frees what it holds at once; `ended` then resolves with 'aborted'. */
  abort(): void;
}

/** One that only computes a prompt. */
export type PromptRequest = Pick<
  EngineRequest,
  'prompt' | 'continuation' | 'promptRows' | 'onPrompt' | 'client' | 'adapter'
>;

/** Why a request ended; the signal aborts it. */
export async function endOf({ ended, abort }: EngineHandle, signal: AbortSignal | undefined): Promise<EngineEnd> {
  signal?.addEventListener('abort', abort, { once: true });
  try {
    return await ended;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

export interface EngineOptions extends Pick<
  SchedulerOptions,
  'prefixCaching' | 'watermark' | 'agingIterations' | 'chunkedPrefill' | 'attentionDpConfig' | 'rowsPerMicroBatch'
> {
  /** Requests decoded side by side: the slots of all batches of the ranks. */
  readonly slots: number;
  /** Rows of an iteration, decode rows included: how much prompt runs beside the decode rows. */
  readonly tokensPerIteration: number;
  /** Iterations submitted ahead of reading the ids; default 2. 'auto': 4, and 8 where they are so short that reading takes longer. */
  readonly iterationsInFlight?: number | 'auto';
  /** Computes prompts on a device of its own; the ranks take over what it gives. */
  readonly prefiller?: PrefillWorker | undefined;
  /** Of a model that takes them: those of its prompts. */
  readonly pictures?: Pictures | undefined;
  /** Where keys and values outlive the ranks. */
  readonly kept?: KeptPrefixes | undefined;
  /** Those that requests may name; default: none. */
  readonly adapters?: Pick<Adapters, 'hold' | 'restore'> | undefined;
  /** After a rank was lost: rebuild it and compute its requests again; default true. Otherwise they fail. */
  readonly recover?: boolean;
  /** For tests: how that is done. */
  readonly recovery?: RecoveryOptions;
  /** Drafts tokens of requests, and says which are tried; default: none are. */
  readonly speculation?: Speculation | undefined;
  /** Needed where sequences are dealt out to several places (`optionsOfPlan`). */
  readonly placing?: Placing | undefined;
  /** What of these options is another once the ranks have another plan (`ModelRanks.recover`). */
  readonly forPlan?: () => Promise<Partial<EngineOptions>>;
  /** Hears what ended it for good, once. */
  readonly onFailure?: ((error: unknown) => void) | undefined;
  /** Told of each iteration as it completes, with `placing`. */
  readonly onIteration?: (record: IterationRecord) => void;
}

export interface EngineMetrics {
  readonly running: number;
  readonly waiting: number;
  readonly requestsTotal: Readonly<Record<EngineEnd | 'failed', number>>;
  readonly promptTokensTotal: number;
  readonly cachedTokensTotal: number;
  readonly generatedTokensTotal: number;
  readonly iterationsTotal: number;
  readonly preemptionsTotal: number;
  /** Sequences whose cache was moved to another rank. */
  readonly movesTotal: number;
  /** Sequences' caches of a head, in some layers, that went from one copy of the head to another. */
  readonly copyMovesTotal: number;
  readonly recoveriesTotal: number;
  /** Ranks were lost, and a try to rebuild them has failed: it is tried again. */
  readonly recovering: boolean;
  /** Seconds that requests waited for a slot and for KV blocks. */
  readonly queued: HistogramCounts;
  readonly kvBlocks: number;
  readonly kvBlocksFree: number;
  /** Of all requests; undefined where nothing is drafted. */
  readonly speculation?: SpeculationStats;
  /** Where each request is on one of several ranks. */
  readonly balance?: RankBalance;
}

/** A sequence in a slot, in tokens: of its prompt, of that what was in the cache and what is there, and those that it has got. */
export type SlotState = Readonly<Record<'prompt' | 'cached' | 'there' | 'generated', number>>;
