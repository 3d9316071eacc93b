/**
 * Room: from logits to a token: `candidates` or `argmax_partial` on each rank, `merge_candidates` over ranks, `sample`
 * draws (on a GPU after `bin_weights` and `list_bins` where all tokens may be drawn), `mark_seen` remembers for the repetition penalty. Here is what all are told.
 */

import { SplitkvError, usageError } from '../../src/base/errors.js';
import { ceilDiv } from '../../src/base/math.js';

/** What every sampling kernel needs to know. */
export interface SamplingProblem {
  /** Sequences sampled side by side: the most rows of a step. Row r of a step is slot r. */
  readonly slots: number;
  /** Token ids are 0..vocab-1; at most MAX_VOCAB. */
  readonly vocab: number;
  /** Elements between the logits of two slots; a multiple of 4. */
  readonly stride: number;
  /** Steps whose ids are kept: the first axis of `ids`. */
  readonly ring: number;
}

/** Tokens [first, end): those whose logits a rank has. `first` is a multiple of 32. */
export type VocabSlice = readonly [first: number, end: number];

/** A problem of a kernel that looks at one rank's logits. */
export interface SliceProblem extends SamplingProblem {
  /** Default: all tokens. Logits lie at their token's place of the row all the same. */
  readonly slice?: VocabSlice;
}

const MAX_VOCAB = 262144;
/** Logits that one workgroup of `argmax_partial` looks at. Changes no result. */
export const ARGMAX_TILE = 2048;
/** Tokens that a rank sends where the best one isn't enough: the largest top_k that needs no more. */
export const CANDIDATES = 64;
/** Pairs that one workgroup of `candidates` looks at; CANDIDATES of each tile of MAX_VOCAB make one tile again. Changes no result. */
export const CANDIDATE_TILE = 4096;
/** Tokens that one workgroup of `bin_weights` and `list_bins` looks at. Changes no result. */
export const BIN_TILE = 4096;
/** Bins of `bin_weights`: 1 / 44 nat each. */
export const BINS = 1024;
/** Pairs of words of each slot's bins in `partials`: three words a bin, and the number of tokens to list. */
export const BIN_PAIRS = (3 * BINS) / 2 + 1;
/** Tokens of each slot that `list_bins` has place for; where it finds more, `sample` looks at all. Changes no result. */
export const LISTED = 4096;
/** What `ids` holds for a slot that is not active, and a (key, token id) pair that stands for no token. */
export const NO_TOKEN = 0xffffffff;
/** Temperatures below it, as f32, act as 0: the likeliest token. */
export const LEAST_TEMPERATURE = 1e-5;

/** Pairs that `argmax_partial` finds in this many tokens: one per tile. */
export const partialsPerSlot = (tokens: number): number => ceilDiv(tokens, ARGMAX_TILE);
/** Tiles that `candidates` cuts this many tokens into. */
export const candidateTiles = (tokens: number): number => ceilDiv(tokens, CANDIDATE_TILE);
/** Bytes of `partials` where it holds the vocabulary's bins, too (binned_layout.wgsl). */
export const binnedBytes = ({ slots, vocab }: SamplingProblem): number =>
  slots * (partialsPerSlot(vocab) + BIN_PAIRS + LISTED) * 8;
/** Words of `seen` for each slot: bit t % 32 of word t / 32 says that token t was in the prompt or was sampled. */
export const seenWords = (vocab: number): number => ceilDiv(vocab, 32);

/**
 * One element of the buffer `sampling`: eight little-endian 4-byte fields in this order. `counter` is the number of tokens
 * sampled since the request began: the GPU advances it.
 */
export const SAMPLING_PARAMS_BYTES = 32;
export const SAMPLING_FIELDS = {
  temperature: 0,
  topK: 4,
  topP: 8,
  repetitionPenalty: 12,
  seedLow: 16,
  seedHigh: 20,
  counter: 24,
  active: 28,
} as const;

export interface SamplingValues {
  /** 0: the likeliest token. Temperatures below 1e-5 act as 0. */
  readonly temperature?: number;
  /** Only the k likeliest tokens; 0: all. Among equal logits the lower ids come first. */
  readonly topK?: number;
  /** Only the fewest tokens whose probabilities add up to this; 1: all. */
  readonly topP?: number;
  /** Positive logits of seen tokens are divided by this, negative ones multiplied; 1: off. */
  readonly repetitionPenalty?: number;
  /** An integer from 0 to 2^64 - 1. The same seed gives the same text, whatever else is in the batch. */
  readonly seed?: number | bigint;
  readonly counter?: number;
  readonly active?: boolean;
}

/**
 * Writes one slot's parameters at byte `offset`. Defaults: temperature 0, everything off, seed 0, counter 0, active.
 * @throws SplitkvError `usage` for a value that isn't allowed.
 */
export function writeSamplingParams(view: DataView, offset: number, values: SamplingValues): void {
  const { temperature = 0, topK = 0, topP = 1, repetitionPenalty = 1, seed = 0, counter = 0, active = true } = values;
  checkSampling(temperature, topK, topP, repetitionPenalty);
  const bits = seedBits(seed);
  if (!Number.isInteger(counter) || counter < 0 || counter > 0xffffffff) {
    throw new SplitkvError('internal', `sampling counter ${counter}: expected a u32`);
  }
  view.setFloat32(offset + SAMPLING_FIELDS.temperature, temperature, true);
  view.setUint32(offset + SAMPLING_FIELDS.topK, topK, true);
  view.setFloat32(offset + SAMPLING_FIELDS.topP, topP, true);
  view.setFloat32(offset + SAMPLING_FIELDS.repetitionPenalty, repetitionPenalty, true);
  view.setUint32(offset + SAMPLING_FIELDS.seedLow, Number(bits & 0xffffffffn), true);
  view.setUint32(offset + SAMPLING_FIELDS.seedHigh, Number(bits >> 32n), true);
  view.setUint32(offset + SAMPLING_FIELDS.counter, counter, true);
  view.setUint32(offset + SAMPLING_FIELDS.active, active ? 1 : 0, true);
}

function checkSampling(temperature: number, topK: number, topP: number, repetitionPenalty: number): void {
  if (!(temperature >= 0 && temperature <= 3e38))
    throw usageError(`temperature ${temperature}: use 0 (greedy) or a larger number, such as 0.7`);
  if (!Number.isInteger(topK) || topK < 0 || topK > 0xffffffff)
    throw usageError(`top_k ${topK}: use 0 (off) or a positive integer, such as 40`);
  // Compared as the f32 that the GPU sees: a positive number that rounds to 0 would keep nothing.
  if (!(Math.fround(topP) > 0 && topP <= 1))
    throw usageError(`top_p ${topP}: use a number above 0 and at most 1 (off), such as 0.95`);
  if (!(repetitionPenalty >= 1e-6 && repetitionPenalty <= 1e6)) {
    throw usageError(
      `repetition_penalty ${repetitionPenalty}: use a positive number (1e-6 to 1e6), such as 1.1; 1 is off`,
    );
  }
}

function seedBits(seed: number | bigint): bigint {
  const whole = typeof seed === 'bigint' || Number.isSafeInteger(seed);
  const bits = whole ? BigInt(seed) : -1n;
  if (bits < 0n || bits >= 1n << 64n)
    throw usageError(`seed ${seed}: use an integer from 0 to 2^64 - 1 (as a number, to 2^53 - 1)`);
  return bits;
}

/**
 * @returns the slice, or all tokens where the problem has none
 * @throws SplitkvError for shapes that the sampling kernels don't take.
 */
export function checkSamplingProblem(
  kernel: string,
  { slots, vocab, stride, ring, slice = [0, vocab] }: SliceProblem,
  mostSlots: number,
): VocabSlice {
  if (vocab < 1 || vocab > MAX_VOCAB) {
    throw new SplitkvError(
      'unsupported',
      `${kernel}: a vocabulary of ${vocab} tokens; 1 to ${MAX_VOCAB} can be sampled from`,
    );
  }
  if (stride < vocab || stride % 4 !== 0 || ring < 1 || slots < 1 || slots > mostSlots) {
    throw new SplitkvError(
      'internal',
      `${kernel}: slots ${slots}, vocab ${vocab}, stride ${stride}, ring ${ring}: expected slots 1..${mostSlots}, ` +
        'stride >= vocab and a multiple of 4, ring >= 1',
    );
  }
  const [first, end] = slice;
  if (first < 0 || first % 32 !== 0 || first >= end || end > vocab) {
    throw new SplitkvError(
      'internal',
      `${kernel}: tokens ${first} to ${end} of ${vocab}: expected a first token that is a multiple of 32, below the end`,
    );
  }
  return slice;
}
