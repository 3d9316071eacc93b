import type { Random } from '../../src/base/random.js';
import type { HostArrays } from '../../src/gpu/testing/kernel_case.js';
import {
  SAMPLING_PARAMS_BYTES,
  type SamplingProblem,
  type SamplingValues,
  seenWords,
  writeSamplingParams,
} from './params.js';

/** A case's problem: what the kernels need, and how to make the slots' logits and parameters. */
export interface SamplingCase extends SamplingProblem {
  /** One for each slot. */
  readonly settings: readonly SamplingValues[];
  /**
   * 'normal': spread 3, a few likely tokens. 'flat': spread 0.01. 'ties': few distinct values. 'wild': NaN and infinities among others.
   * 'crowded', 'spread': the best tokens lie in as few, or as many, of the groups of best_pairs.wgsl as can be.
   */
  readonly logits: 'normal' | 'flat' | 'ties' | 'equal' | 'wild' | 'crowded' | 'spread';
}

function logitOf(kind: SamplingCase['logits'], random: Random, id: number): number {
  if (kind === 'crowded') return -Math.floor((id % 1024) / 4);
  const value = random.normal();
  if (kind === 'spread') return value - (id % 4 === 0 && id % 4096 < 1024 ? 0 : 100);
  if (kind === 'normal') return value * 3;
  if (kind === 'flat') return value * 0.01;
  if (kind === 'ties') return Math.round(value * 2);
  if (kind === 'equal') return -7.25;
  const dice = random.integer(20);
  return [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -3e38, 3e38][dice] ?? value;
}

/** Logits, seen bits (a tenth of the vocabulary) and parameters of a case. */
export function samplingInputs(
  { slots, vocab, stride, settings, logits: kind }: SamplingCase,
  random: Random,
): HostArrays {
  // Beyond the vocabulary: larger than any logit, so that reading there shows.
  const logits = new Float32Array(slots * stride).fill(1e9);
  for (let slot = 0; slot < slots; slot++) {
    for (let id = 0; id < vocab; id++) logits[slot * stride + id] = logitOf(kind, random, id);
  }
  const seen = new Uint32Array(slots * seenWords(vocab));
  for (let slot = 0; slot < slots; slot++) {
    for (let n = 0; n < vocab / 10; n++) {
      const id = random.integer(vocab);
      seen[slot * seenWords(vocab) + (id >>> 5)]! |= 1 << (id & 31);
    }
  }
  const sampling = new Uint32Array((slots * SAMPLING_PARAMS_BYTES) / 4);
  const view = new DataView(sampling.buffer);
  for (let slot = 0; slot < slots; slot++) writeSamplingParams(view, slot * SAMPLING_PARAMS_BYTES, settings[slot]!);
  return { logits, seen, sampling };
}
