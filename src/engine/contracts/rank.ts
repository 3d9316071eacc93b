import type { CommStats } from '../../distributed/communicator.js';
import type { CompressionOptions } from '../../model/compression/options.js';
import type { LowRankPair } from '../../model/adapters/targets.js';
import type { Grid } from '../../model/config/vision_config.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import type { PictureSpan } from '../../model/layers/attention/rope_table.js';
import type { BlockRun, SharedSequence } from '../../placement/index.js';
import type { SamplingOptions, TuningStats } from './api.js';
import type { KvPiece } from './prefill_worker.js';

/** How every rank of a model is set up; alike on all. */
export interface RunnerOptions {
  /** Sequences decoded side by side in a batch. */
  readonly slots: number;
  /** Batches of slots that run one after another, each on its way through the ranks by itself: what a pipeline works on at once. */
  readonly batches?: number;
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  readonly prefillChunk: number;
  readonly kvType: KvType;
  /** KV blocks that sequences share (of all ranks that split them together); default: as many as every slot may need. */
  readonly kvBlocks?: number;
  /** Copies of recurrent layers' states that there is room for, for each place that sequences are dealt out to; default 0. */
  readonly keptStates?: number;
  /** Drafts may be verified. 'now': what that takes is there from the beginning; 'later': once `prepareVerifying` made it. */
  readonly speculates?: 'later' | 'now';
  /** Where prompts are compressed: KV blocks of each head that whole prompts are kept in, for others that begin alike; default 0. */
  readonly keptBlocks?: number;
  /** How prompts are compressed; undefined: not at all. */
  readonly compression?: CompressionOptions;
  /** Sequences whose windows there is room for, in layers with windows; default: one for every slot. */
  readonly windows?: number;
  /** Layers with windows keep all tokens, too; default false. */
  readonly keepsAll?: boolean;
  /** Prompts may have pictures, whose encoder the first rank has, from a GGUF file perhaps; default false. */
  readonly images?: boolean | string;
  /** The same of sound. */
  readonly sound?: boolean | string;
  /** A GPU's kernels may be timed, to choose among plans of equal bits; default true. */
  readonly tune?: boolean;
  /** Bytes of GPU memory that each rank may take; undefined: no limit. */
  readonly memory?: readonly (number | undefined)[];
}

export type DrawOptions = SamplingOptions & {
  readonly seed: number;
  /** Tokens that end the text, which `minTokens` holds back. */
  readonly endIds?: readonly number[];
  /** Tokens that the next step may sample; default: all. */
  readonly allowed?: AllowedTokens | undefined;
};
/** Bit id % 32 of word id / 32 says that the token is allowed. */
export type AllowedTokens = Uint32Array;
/** Rows of logits computed at once by `Rank.logits`. */
export const LOGITS_ROWS = 8;
/** Rows of generated tokens computed again at once. */
export const RECOMPUTED_ROWS = 16;
/** Rows of a verification: a token and drafts of what follows it. */
export const VERIFIED_ROWS = 16;
/** Sequences that may have drafts at once where each takes the memory of a state: of a model with recurrent layers. */
const MOST_STATES = 4;

/** States that ranks with so many slots keep for drafts: a sequence that has some has two rows of a step at least. */
export const draftStates = ({ slots, batches = 1 }: Pick<RunnerOptions, 'slots' | 'batches'>): number =>
  Math.max(1, Math.min(MOST_STATES, (slots * batches) >> 1));

/** `counter`: tokens that were sampled before, of a request that goes on. */
export type StartOptions = DrawOptions & { readonly counter?: number };

/** Tokens [start, start + tokens.length) of one slot, to be run in one call. */
export interface SlotTokens {
  readonly slot: number;
  readonly tokens: Uint32Array;
  readonly start: number;
  /** The prompt ends here. */
  readonly last: boolean;
  /**
   * f32 [rows][`rowWidth` of hiddenSize]: of those of the tokens that are given rows (`GIVEN_ID`), in order; of a model that joins its
   * tokens with rows (`InputsConfig`) of all.
   */
  readonly given?: Float32Array | undefined;
  /** Where pictures are read both ways: the position behind the one that the tokens have, 0 where they have none. */
  readonly runEnd?: number | undefined;
}

/** The last token sampled at a slot, and drafts of those behind it, to be verified. */
export interface VerifiedRun extends Pick<SlotTokens, 'slot' | 'tokens' | 'start'> {
  /** What is `allowed` is of each of the tokens, one behind the other. */
  readonly sampling: StartOptions;
  /** All tokens up to the last draft; where neither a penalty nor a control reads them, `tokens` alone. */
  readonly seen: Uint32Array;
}

/** KV blocks of a slot, by the numbers of the pool that it is of. */
export interface SlotBlocks {
  readonly slot: number;
  readonly blocks: readonly number[];
  /** Where layers with windows have blocks of their own. */
  readonly windows?: BlockRun | undefined;
}

/** Block `from` of a pool is to be copied to block `to`; `windows`: of the pool of layers with windows. */
export interface CopiedBlock {
  readonly from: number;
  readonly to: number;
  readonly windows?: Pick<CopiedBlock, 'from' | 'to'> | undefined;
}

/** A run of consecutive prompt positions whose logits are wanted; default slot 0. */
export interface LogitsRun {
  readonly slot?: number;
  readonly start: number;
  readonly count: number;
}

/** What a head kept of a prompt. */
export interface KeptEntries {
  /** Of the model, as the kv head. */
  readonly layer: number;
  readonly head: number;
  readonly entries: number;
}

/** What a slot's prompt takes of a rank's cache. All empty where it wasn't compressed, or where another rank keeps it. */
export interface CacheUse {
  /** Bytes of its blocks before it was compressed, and after. */
  readonly promptBytes: number;
  readonly keptBytes: number;
  readonly kept: readonly KeptEntries[];
}

/** What a rank counted, exchanges with other ranks among it. */
export interface RankCounts extends Readonly<CommStats> {
  /** Decode steps that have ended, the bytes that they sent, and the time in which one was under way, of which the two are a part. */
  readonly steps: number;
  readonly stepBytes: number;
  readonly stepMs: number;
  /** Decode steps whose attention was timed (`timeAttention`), and what that took, by the device's own clock. */
  readonly timedSteps: number;
  readonly attentionMs: number;
}

export interface CacheFacts {
  /** Of the model. */
  readonly layer: number;
  /** Of a KV block, of the rank's kv heads. */
  readonly blockBytes: number;
  /** Its blocks are of the pool of layers with windows. */
  readonly isWindowed: boolean;
}

/** Blocks of the pools that a slot is of, and kept states of recurrent layers of its place: what the prefix cache has of a sequence. */
export interface KeptPlaces {
  readonly blocks: readonly number[];
  readonly windows: readonly number[];
  readonly states: readonly number[];
}

/** What a rank is, once its programs are recorded. */
export interface RankFacts {
  readonly rank: number;
  readonly adapter: string;
  /** Prompt rows that a step may have (of each block, where rows are split over ranks). */
  readonly promptRows: number;
  readonly weightBytes: number;
  /** Of the paged cache, and of the states of recurrent layers. */
  readonly kvBytes: number;
  /** Of those, of the states. */
  readonly stateBytes: number;
  readonly kvBytesPerToken: number;
  readonly dispatchesPerStep: number;
  readonly exchangesPerStep: number;
  /** Of each cache buffer, in the order of layers. */
  readonly caches: readonly CacheFacts[];
  /**
   * Each token's inputs are read from the checkpoint: it must be known before its step, so rows are paused after every step. Default
   * false.
   */
  readonly readsRows?: boolean;
  /** Of its kernels, by their names. */
  readonly variants: Readonly<Record<string, string>>;
  /** What a stopwatch chose among plans of equal bits, once the rank is open. */
  readonly tuning?: TuningStats;
}

/**
 * One rank of a model: in this process, or in a worker. Every rank is given the same calls in the same order, and runs them in
 * that order, but for steps of different batches and the blocks of their slots, which run side by side; plain data in, plain data out. A call that fails leaves the rank broken until it is reset.
 */
export interface Rank {
  readonly facts: RankFacts;
  /**
   * Gives a slot these KV blocks, by the numbers of its pool (`CachePools`): block i holds tokens [64 i, 64 (i + 1)). `windows`: those of
   * layers with windows, where they have blocks of their own.
   */
  setBlocks(slot: number, blocks: readonly number[], chunkOffset: number, windows?: BlockRun): Promise<void>;
  /**
   * Instead of `setBlocks`, where prompts are compressed: makes room for positions below `tokens` of a slot. `chunkOffset` rotates the
   * chunks of a sequence that is new; default 0.
   */
  reserve(slot: number, tokens: number, chunkOffset?: number): Promise<void>;
  /** Copies KV blocks of the pool that `slot` is of, in every layer, in order. */
  copyBlocks(slot: number, copies: readonly CopiedBlock[]): Promise<void>;
  /** Copies the state of a slot's recurrent layers, as the calls before left it, to a kept one of its place; or `back`. */
  copyState(slot: number, kept: number, back: boolean): Promise<void>;
  /**
   * Copies KV blocks of a slot from its `first` on, before its prompt is compressed, to those that whole prompts are kept in; or `back`.
   */
  copyPrompt(slot: number, first: number, kept: readonly number[], back: boolean): Promise<void>;
  /**
   * Copies KV blocks from the rank that keeps slot `from.slot` to the one that keeps `to.slot`, in order and in every layer; the two are
   * different ranks that share sequences out among them.
   */
  moveBlocks(from: SlotBlocks, to: SlotBlocks): Promise<void>;
  /**
   * Where copies of a head share it by sequences: they decide anew who keeps which of the sequences that there are, all of which are
   * listed, and move what should be elsewhere. Returns how many pieces (a sequence's cache of one head, in the layers of a stage) moved,
   * on all ranks together.
   */
  balanceCopies(sequences: readonly SharedSequence[]): Promise<number>;
  /**
   * Runs prompt tokens of a slot. The last row of those that are its prompt's `last` is kept for `start`; a prompt that is longer than what compression keeps is compressed. The last step has its whole window. Resolves with
   * the tokens that the compressed prompt's blocks here need no longer hold, each head's; undefined where none was compressed.
   * `rowsByPlace`, where places run rows of their own: how many each runs in this call, which all make with theirs; a rank without
   * any is given no tokens. `slots`: all whose rows run in this call; default `slot`.
   */
  prefill(run: SlotTokens, rowsByPlace?: readonly number[], slots?: readonly number[]): Promise<number | undefined>;
  /**
   * At once, before calls under way: nobody wants what is computed for this slot until its `release`. Prompts stop after what is
   * submitted, and only take part in exchanges still.
   */
  drop(slot: number): Promise<void>;
  /**
   * The KV blocks of a slot that has all of a sequence's, as they lie: [cache buffer][block], or where heads have blocks of their own
   * [cache buffer][kv head][block].
   */
  readKv(slot: number): Promise<Uint8Array>;
  /** What the rank has of these places: [cache buffer][block or window], then [state buffer][state]. */
  readPlaces(slot: number, places: KeptPlaces): Promise<Uint8Array>;
  /** Of a slot whose prompt was just run, f32 [hiddenStride]: the last layer's output for its last token. Where the head is. */
  readLastRow(slot: number): Promise<Float32Array>;
  /**
   * Takes over keys and values that were computed elsewhere; the slot has its blocks already. `start` may follow. Resolves as `prefill`,
   * where the prompt was compressed there.
   */
  takeOver(slot: number, piece: KvPiece): Promise<number | undefined>;
  /**
   * The rows that a tile of a picture becomes, or a picture, f32 [rows][`rowWidth` of hiddenSize], on the first rank of a model that takes
   * pictures; or a recording, where it takes sound.
   * @param values f32 [patches][3 * patch * patch], normalised
   * @param grid undefined: of sound, f32 [frames][MEL_BINS]
   */
  encode(values: Float32Array, grid: Grid | undefined): Promise<Float32Array>;
  /** Logits of positions that the last `prefill` or (its last 16 tokens) `recompute` ran, [count][vocabSize]; the root's answer counts, or that of the rank that ran them. */
  logits(run: LogitsRun): Promise<Float32Array | undefined>;
  /**
   * Final hidden states, before the last norm, of positions of one chunk that the last `prefill` or `recompute` ran: f32
   * [count][hiddenStride]. Undefined where other ranks ran them.
   */
  states(run: LogitsRun): Promise<Float32Array | undefined>;
  /** Weights of the norm before the head, f32 [hiddenSize], then its biases where it has them; undefined where no rows of the head are. */
  finalNorm(): Promise<Float32Array | undefined>;
  /**
   * Runs tokens of a slot, which were generated before, through the generated rows' kernels.
   * `rowsByPlace` and `slots` as for `prefill`.
   */
  recompute(run: SlotTokens, rowsByPlace?: readonly number[], slots?: readonly number[]): Promise<void>;
  /** Begins sampling at a slot whose prompt was just run; `seen`: its tokens. The next step samples its first token. */
  start(slot: number, sampling: StartOptions, seen: Uint32Array): Promise<void>;
  /**
   * Goes on with a request whose cache was computed again: `token`, the last one sampled, is fed at `position` by the next
   * decode step.
   */
  resume(slot: number, sampling: StartOptions, seen: Uint32Array, token: number, position: number): Promise<void>;
  /**
   * Samples a token of each of a batch's active slots; ids by slot of the batch, from the root. Slots that were just started
   * sample from their prompt; the others take part where `decodes`, after one decode step, and then the longest sequence has
   * `longest` tokens. `rows`: slots from here on are all inactive; default all slots run. Where every rank runs rows of its own, the
   * rows of each, and each answers with the ids of its own slots.
   */
  step(
    batch: number,
    decodes: boolean,
    longest: number,
    rows?: number | readonly number[],
  ): Promise<Uint32Array | undefined>;
  /** Makes what `verify` needs, where it isn't there: beside steps, which don't wait for it. */
  prepareVerifying(): Promise<void>;
  /**
   * Feeds the last tokens sampled at some slots, and drafts of those behind them, each at its position, and samples a token behind each:
   * those up to the first that isn't the draft beside it are what steps would have sampled. A slot takes part in steps again after
   * `resume`. Resolves with the tokens of those runs that this rank's place runs.
   * @param runs VERIFIED_ROWS tokens at most; where sequences are dealt out to places, in the order of these
   */
  verify(runs: readonly VerifiedRun[]): Promise<Uint32Array | undefined>;
  /** A slot takes no part in steps until `goOn`, or `resume` where other tokens come first. Call it after a step of the slot. */
  pause(slot: number): Promise<void>;
  /** The next decode step of a paused slot feeds `token`, which its last step sampled, at `position`, and samples what is `allowed`. */
  goOn(slot: number, token: number, position: number, allowed: AllowedTokens | undefined): Promise<void>;
  /**
   * Puts a low-rank adapter at a place, or takes away what is there; every program is recorded anew. Resolves with the bytes that all
   * adapters take here. Where it fails, all is as before: the rank isn't broken.
   */
  setAdapter(place: number, pairs?: readonly LowRankPair[]): Promise<number>;
  /** Rows of a slot have the adapter at a place, until its release. */
  useAdapter(slot: number, place: number): Promise<void>;
  /** Rows of these pictures have positions of their own in a slot, until its release. */
  placePictures(slot: number, pictures: readonly PictureSpan[]): Promise<void>;
  /** Frees a slot's cache; its row is inactive from now on. */
  release(slot: number): Promise<void>;
  /** Of the logits that a slot's next token was or will be sampled from, this rank's rows of the head; `row`: of a verification. */
  slotLogits(slot: number, row?: number): Promise<Float32Array | undefined>;
  /**
   * What `states` gives of the row that the slot's last step ran, or of the first `rows` of its last verification; calls under way aren't
   * waited for. Undefined where other ranks ran them.
   */
  slotStates(slot: number, rows?: number): Promise<Float32Array | undefined>;
  /** What compression left of a slot's prompt. */
  cacheUse(slot: number): Promise<CacheUse>;
  /**
   * KV tokens that a decode step reads here when the sequences have these lengths, by slot (0: none): by layer of the model, added up
   * over kv heads.
   */
  kvTokens(lengths: readonly number[]): Promise<number[]>;
  counts(): Promise<RankCounts>;
  /**
   * Times attention of so many of the next decode steps, for `counts`. Resolves with whether the device has a clock for it
   * (`timestamp-query`).
   */
  timeAttention(steps: number): Promise<boolean>;
  /** This rank can't go on: tells the others, whose waits end with the reason. */
  abort(reason: unknown): void;
  /** Every slot free, nothing under way. */
  reset(): Promise<void>;
  dispose(): void;
}
