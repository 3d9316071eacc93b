import type { BlockRun } from '../../placement/pools.js';
import type { Sequence } from './sequence.js';

/**
 * Consecutive tokens [start, start + count) of one sequence to compute into its cache.
 * `prompt` rows are prompt tokens. `generated` rows are tokens that were generated before a preemption: they must run through
 * the kernels of generated rows again, to get the same bits; all of them at once if the runner can.
 */
export interface PrefillChunk {
  readonly sequence: Sequence;
  readonly start: number;
  readonly count: number;
  readonly role: 'prompt' | 'generated';
  /** Whether the last row gives the first generated token. */
  readonly samples: boolean;
}

/**
 * A sequence that moves to this rank's pool: its blocks `from` on the other rank are to be copied to its `blocks`, in order and in
 * every layer, before anything else of the iteration.
 */
export interface SequenceMove {
  readonly sequence: Sequence;
  readonly from: {
    readonly rank: number;
    readonly slot: number;
    readonly blocks: readonly number[];
    readonly windows: BlockRun;
  };
  readonly to: readonly number[];
  /** Instead of `from.windows`. */
  readonly toWindows: BlockRun;
}

/**
 * Tokens [start, end) of a sequence that were computed elsewhere: to be written into its cache, from the block of `start` on. They take
 * no rows.
 */
export interface Handover {
  readonly sequence: Sequence;
  readonly start: number;
  readonly end: number;
  /** Whether the prompt's last row gives the first generated token. */
  readonly samples: boolean;
}

/** The first `tokens` tokens of block `from` are to be copied to block `to`, in every layer, before anything else runs. */
export interface BlockCopy {
  readonly from: number;
  readonly to: number;
  readonly tokens: number;
  /** The same of the pool of layers with windows; left out where nothing of the block is seen there. */
  readonly windows?: { readonly from: number; readonly to: number };
}

export interface StateCopy {
  readonly sequence: Sequence;
  readonly place: number;
}

/** Blocks of a sequence, from its `first` on, and those of the rank that whole prompts are kept in. */
export interface PromptCopy {
  readonly sequence: Sequence;
  readonly first: number;
  readonly blocks: readonly number[];
}

/** One rank's part of an iteration. In order: moves of all ranks, copies, block tables, handovers, prefill chunks and decode rows in any order. */
export class WorkList {
  readonly moves: SequenceMove[] = [];
  /** In this order: a later copy may overwrite what an earlier one reads. */
  readonly copies: BlockCopy[] = [];
  /** Sequences whose `blocks` or `slot` changed: their rows of the block table are to be written. */
  readonly tables: Sequence[] = [];
  readonly handed: Handover[] = [];
  /** Sequences that begin with a kept state: before anything of the iteration is computed. */
  readonly restored: StateCopy[] = [];
  /** States to be kept after the iteration's prefill chunks and decode rows. */
  readonly kept: StateCopy[] = [];
  /** As `restored` and `kept`, of prompts that are compressed when they end. */
  readonly restoredPrompts: PromptCopy[] = [];
  readonly keptPrompts: PromptCopy[] = [];
  readonly prefills: PrefillChunk[] = [];
  /**
   * One row each: the last token sampled goes in, at position `computed` - 1, and the next one is sampled; and a row for each of the
   * sequence's `drafts`, if any.
   */
  readonly decodes: Sequence[] = [];
  /** Sent back to wait; their slots and blocks may be others' in this very iteration. */
  readonly preempted: Sequence[] = [];
  /** Rows of prefill chunks. */
  contextTokens = 0;
  /** While it is put together: blocks have just run out. */
  crowded = false;

  /** Rows of all kinds: what the balance ratio counts. */
  get tokens(): number {
    return this.contextTokens + this.decodes.length;
  }
}

export interface Iteration {
  readonly number: number;
  readonly ranks: readonly WorkList[];
}

/** What an iteration gave. Every rank must be told the same. */
export interface IterationResults {
  /**
   * ids[rank][slot]: tokens sampled. Needed where a preempted sequence is recomputed or generated tokens are cached; a
   * simulation leaves them out.
   */
  readonly ids?: readonly ArrayLike<number>[];
  /** Requests that end with this iteration's token: end of text, a stop string. */
  readonly ended?: readonly string[];
  /**
   * Stepwise requests that may sample their next token, each with the tokens that come before it, as nothing else could: they aren't
   * sampled but computed, and count as generated.
   */
  readonly goOn?: ReadonlyMap<string, readonly number[]>;
  /** By request: tokens of its prompt, which ended and was compressed, that blocks need no longer hold; default what `PromptEviction` says. */
  readonly evicted?: ReadonlyMap<string, number>;
  /** By request that had `drafts`, if none: the token sampled at its row, and those behind drafts that were right. */
  readonly verified?: ReadonlyMap<string, readonly number[]>;
  /** Seconds the iteration took, as one rank measured them and told the others. */
  readonly seconds?: number;
}
