import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { penalisedLogits, readSlotParams, type SlotParams } from '../argmax_partial/reference.js';
import { NO_TOKEN, SAMPLING_PARAMS_BYTES, type SamplingProblem, seenWords } from '../params.js';

/** f32 may fall on the other side of an edge this near, in probability. */
const EDGE = 1e-6;

/** Philox4x32-10 with BigInt products, straight from the paper. */
export function philoxReference(counter: readonly number[], key: readonly number[]): number[] {
  const mask = 0xffffffffn;
  let [c0, c1, c2, c3] = counter.map(BigInt) as [bigint, bigint, bigint, bigint];
  let [k0, k1] = key.map(BigInt) as [bigint, bigint];
  for (let round = 0; round < 10; round++) {
    const a = c0 * 0xd2511f53n;
    const b = c2 * 0xcd9e8d57n;
    [c0, c1, c2, c3] = [(b >> 32n) ^ c1 ^ k0, b & mask, (a >> 32n) ^ c3 ^ k1, a & mask];
    [k0, k1] = [(k0 + 0x9e3779b9n) & mask, (k1 + 0xbb67ae85n) & mask];
  }
  return [c0, c1, c2, c3].map(Number);
}

/** Ids by descending logit, equal ones by ascending id. */
export function sortedIds(logits: Float64Array): number[] {
  return Array.from(logits.keys()).sort((a, b) => logits[b]! - logits[a]! || a - b);
}

export interface Kept {
  /** The tokens that can be drawn, in order. */
  readonly ids: readonly number[];
  /** Their probabilities, which add up to 1. */
  readonly probabilities: readonly number[];
  /** Probability of the tokens that f32 may keep or drop otherwise, being within EDGE of the end of the top-p set. */
  readonly slack: number;
  /** All weights are equal: f32 makes no error. */
  readonly exact: boolean;
}

/** Temperature, then top-k, then top-p on the renormalised rest: transformers' order, with exactly k kept where logits tie. */
export function keptTokens(
  logits: Float64Array,
  { temperature, topK, topP }: SlotParams,
  order = sortedIds(logits),
): Kept {
  const ids = topK === 0 ? order : order.slice(0, topK);
  const best = logits[ids[0]!]!;
  const weights = ids.map((id) => Math.exp((logits[id]! - best) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const exact = weights.every((weight) => weight === 1);
  let count = ids.length;
  let slack = 0;
  if (topP < 1) {
    let sum = 0;
    for (count = 0; count < ids.length && sum < topP * total; count++) {
      sum += weights[count]!;
      if (!exact && Math.abs(sum / total - topP) < EDGE) slack += weights[count]! / total;
    }
    if (slack > 0) slack += weights[count - 1]! / total;
  }
  const mass = weights.slice(0, count).reduce((sum, weight) => sum + weight, 0);
  return {
    ids: ids.slice(0, count),
    probabilities: weights.slice(0, count).map((weight) => weight / mass),
    slack,
    exact,
  };
}

export interface Drawn {
  readonly id: number;
  /** False where an edge is too near to the uniform number for f32 to be held to it. */
  readonly sure: boolean;
}

/** Inverse CDF of the kept tokens in order, at the slot's uniform number. */
export function drawReference({ ids, probabilities, slack, exact }: Kept, params: SlotParams): Drawn {
  const uniform = philoxReference([params.counter, 0, 0, 0], params.seed)[0]! / 2 ** 32;
  const edge = exact ? 0 : EDGE + slack;
  let below = 0;
  for (const [i, probability] of probabilities.entries()) {
    const sum = below + probability;
    const last = i === ids.length - 1;
    if (sum > uniform || last) {
      return { id: ids[i]!, sure: (i === 0 || uniform - below > edge) && (last || sum - uniform > edge) };
    }
    below = sum;
  }
  throw new Error('no token was kept');
}

export function sampleReference(problem: SamplingProblem, inputs: HostArrays): Expected {
  const { slots, vocab, ring } = problem;
  const tokens: number[] = Array.from(inputs['tokens']!);
  const rowInfo: number[] = Array.from(inputs['row_info']!);
  const ids: number[] = Array.from(inputs['ids']!);
  const sampling: number[] = Array.from(inputs['sampling']!);
  const seen: number[] = Array.from(inputs['seen']!);
  const row = (inputs['step_counter']![0]! - 1) % ring;
  for (let slot = 0; slot < slots; slot++) {
    const params = readSlotParams(inputs['sampling']!, slot);
    if (!params.active || rowInfo[slot * 2] === 0xffffffff) {
      ids[row * slots + slot] = NO_TOKEN;
      continue;
    }
    const logits = penalisedLogits(problem, inputs, slot);
    const order = sortedIds(logits);
    const { id, sure } =
      params.temperature < 1e-5
        ? { id: order[0]!, sure: true }
        : drawReference(keptTokens(logits, params, order), params);
    if (!sure)
      throw new Error(
        `slot ${slot}: the draw is too close to an edge to be checked; choose another seed for this case`,
      );
    tokens[slot] = id;
    rowInfo[slot * 2]! += 1;
    ids[row * slots + slot] = id;
    sampling[(slot * SAMPLING_PARAMS_BYTES) / 4 + 6]! += 1;
    const word = slot * seenWords(vocab) + (id >>> 5);
    seen[word] = (seen[word]! | (1 << (id & 31))) >>> 0;
  }
  return { tokens, row_info: rowInfo, ids, sampling, seen };
}
