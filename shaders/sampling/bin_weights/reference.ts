import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { partialsReference, penalisedLogits, readSlotParams } from '../argmax_partial/reference.js';
import { BIN_PAIRS, binnedBytes, BINS, LEAST_TEMPERATURE, partialsPerSlot, type SamplingProblem } from '../params.js';

const BINS_PER_NAT = 44;
/** f32 may fall on the other side of an edge this near, in bins. */
const EDGE = 1e-3;

export interface WeighedToken {
  readonly id: number;
  readonly bin: number;
  /** Units of 2^-31, an integer. */
  readonly weight: number;
  /** f32 may find another bin, or no weight. */
  readonly isNear: boolean;
}

/** A slot's tokens that have weight, or may have; none where the slot isn't active or greedy. */
export function weighedTokens(problem: SamplingProblem, inputs: HostArrays, slot: number): WeighedToken[] {
  const { active, temperature } = readSlotParams(inputs['sampling']!, slot);
  if (!active || temperature < LEAST_TEMPERATURE) return [];
  const logits = penalisedLogits(problem, inputs, slot);
  const best = logits.reduce((most, logit) => Math.max(most, logit));
  return Array.from(logits, (logit, id) => {
    const nats = (best - logit) / temperature;
    const place = Math.min(1023, nats * BINS_PER_NAT);
    const weight = Math.exp(-nats) * 2 ** 31;
    const isNear = (nats > 0 && Math.abs(place - Math.round(place)) < EDGE) || Math.abs(weight - 0.5) < EDGE;
    return { id, bin: Math.floor(place), weight: Math.round(weight), isNear };
  }).filter(({ weight, isNear }) => weight > 0 || isNear);
}

/** The first word of a slot's bins in `partials`. */
export const firstBinWord = ({ slots, vocab }: SamplingProblem, slot: number): number =>
  2 * (slots * partialsPerSlot(vocab) + slot * BIN_PAIRS);

/** `partials` as argmax_partial leaves it: best pairs and, of active slots, empty bins; what it doesn't write is 5. */
export function clearedPartials(problem: SamplingProblem, inputs: HostArrays): Uint32Array {
  const { slots, vocab } = problem;
  const partials = new Uint32Array(binnedBytes(problem) / 4).fill(5);
  partials.set(partialsReference(problem, inputs, new Array(slots * partialsPerSlot(vocab) * 2).fill(5)));
  for (let slot = 0; slot < slots; slot++) {
    const first = firstBinWord(problem, slot);
    if (readSlotParams(inputs['sampling']!, slot).active) partials.fill(0, first, first + 2 * BIN_PAIRS);
  }
  return partials;
}

/** Adds the weights of all slots' tokens, which f32 rounds otherwise in their last digits. */
export function addWeights(problem: SamplingProblem, inputs: HostArrays, partials: Uint32Array): void {
  for (let slot = 0; slot < problem.slots; slot++) {
    const first = firstBinWord(problem, slot);
    for (const { bin, weight } of weighedTokens(problem, inputs, slot)) {
      partials[first + bin]! += 1;
      const low = partials[first + BINS + bin]! + weight;
      partials[first + BINS + bin] = low;
      partials[first + 2 * BINS + bin]! += Math.floor(low / 2 ** 32);
    }
  }
}

/** Counts of the bins, and the words of masses that f32 can be held to: all where all weights are 1. */
export function binWeightsReference(problem: SamplingProblem, inputs: HostArrays): Expected {
  const after = Uint32Array.from(inputs['partials']!);
  addWeights(problem, inputs, after);
  const partials: (number | undefined)[] = Array.from(after);
  for (let slot = 0; slot < problem.slots; slot++) {
    const first = firstBinWord(problem, slot);
    for (const { bin, weight, isNear } of weighedTokens(problem, inputs, slot)) {
      const [low, high] = [first + BINS + bin, first + 2 * BINS + bin];
      if (weight !== 2 ** 31) partials[low] = undefined;
      const mass = after[high]! + after[low]! / 2 ** 32;
      if (Math.floor(mass * (1 - 1e-5)) !== Math.floor(mass * (1 + 1e-5)) && weight !== 2 ** 31)
        partials[high] = undefined;
      // Its neighbours' counts are in question, too.
      if (isNear)
        for (const other of [-1, 0, 1])
          for (const row of [0, 1, 2]) partials[first + row * BINS + Math.max(0, bin + other)] = undefined;
    }
  }
  return { partials: partials as number[] };
}
