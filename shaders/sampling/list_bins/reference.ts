import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { keyOf, penalisedLogits, readSlotParams } from '../argmax_partial/reference.js';
import { addWeights, clearedPartials, firstBinWord, weighedTokens } from '../bin_weights/reference.js';
import { BIN_PAIRS, BINS, LISTED, partialsPerSlot, type SamplingProblem } from '../params.js';
import { philoxReference } from '../sample/reference.js';

/** Tokens of the first bins are listed while they are at most so many. */
const FEW = 256;

/** Bins whose tokens are listed, by what `partials` says of all bins: exact, in integers. */
function listedBins(problem: SamplingProblem, inputs: HostArrays, slot: number): Set<number> {
  const { topK, topP, seed, counter } = readSlotParams(inputs['sampling']!, slot);
  const first = firstBinWord(problem, slot);
  const word = (place: number): number => inputs['partials']![first + place]!;
  const counts: number[] = [];
  const masses: bigint[] = [];
  for (let bin = 0; bin < BINS; bin++) {
    counts.push((counts[bin - 1] ?? 0) + word(bin));
    masses.push((masses[bin - 1] ?? 0n) + BigInt(word(BINS + bin)) + (BigInt(word(2 * BINS + bin)) << 32n));
  }
  const bins = new Set(counts.flatMap((count, bin) => (count <= FEW ? [bin] : [])));
  const total = masses.at(-1)!;
  let [least, most] = [total, total];
  const add = (from: number, to: number): void => {
    for (let bin = from; bin <= to; bin++) bins.add(bin);
  };
  if (topK > 0 && topK < counts.at(-1)!) {
    const bin = counts.findIndex((count) => count >= topK);
    add(bin, bin);
    [least, most] = [(masses[bin - 1] ?? 0n) + 1n, masses[bin]!];
  }
  const narrow = (goal: (mass: bigint) => bigint): void => {
    const [low, high] = [goal(least), goal(most)];
    const end = masses.findIndex((mass) => mass >= high);
    add(
      masses.findIndex((mass) => mass >= low),
      end,
    );
    [least, most] = [low, masses[end]!];
  };
  if (topP < 1) {
    const fraction = BigInt(Math.floor(topP * 2 ** 32));
    narrow((mass) => {
      const part = (mass * fraction + 0xffffffffn) >> 32n;
      return part > 0n ? part : 1n;
    });
  }
  const random = BigInt(philoxReference([counter, 0, 0, 0], seed)[0]!);
  narrow((mass) => ((mass * random) >> 32n) + 1n);
  return bins;
}

/** (key, id) of the tokens to list, in order of ids; undefined where f32 may see it otherwise. */
export function listedTokens(
  problem: SamplingProblem,
  inputs: HostArrays,
  slot: number,
): [number, number][] | undefined {
  const tokens = weighedTokens(problem, inputs, slot);
  if (tokens.length === 0) return [];
  const bins = listedBins(problem, inputs, slot);
  const isNear = ({ bin, isNear: near }: (typeof tokens)[number]): boolean =>
    near &&
    [bin - 1, bin, bin + 1].some((other) => bins.has(other)) &&
    ![bin - 1, bin, bin + 1].every((other) => bins.has(other));
  if (tokens.some(isNear)) return undefined;
  const logits = penalisedLogits(problem, inputs, slot);
  return tokens.filter(({ bin }) => bins.has(bin)).map(({ id }) => [keyOf(logits[id]!), id]);
}

/** `partials` as bin_weights leaves it. */
export function summedPartials(problem: SamplingProblem, inputs: HostArrays): Uint32Array {
  const partials = clearedPartials(problem, inputs);
  addWeights(problem, inputs, partials);
  return partials;
}

/** How many tokens are to be listed; the list has no order, and so is undefined here. */
export function listBinsReference(problem: SamplingProblem, inputs: HostArrays): Expected {
  const { slots } = problem;
  const partials: (number | undefined)[] = Array.from(inputs['partials']!);
  for (let slot = 0; slot < slots; slot++) {
    const tokens = listedTokens(problem, inputs, slot);
    if (tokens?.length === 0) continue;
    partials[firstBinWord(problem, slot) + 2 * BIN_PAIRS - 2] = tokens?.length;
    const list = firstListWord(problem, slot);
    partials.fill(undefined, list, list + 2 * Math.min(LISTED, tokens?.length ?? LISTED));
  }
  return { partials: partials as number[] };
}

/** The first word of a slot's list in `partials`. */
export const firstListWord = ({ slots, vocab }: SamplingProblem, slot: number): number =>
  2 * (slots * (partialsPerSlot(vocab) + BIN_PAIRS) + slot * LISTED);

/** `partials` as list_bins leaves it, its list in order of ids; tokens near an edge are listed as float64 sees them. */
export function listedPartials(problem: SamplingProblem, inputs: HostArrays): Uint32Array {
  const partials = summedPartials(problem, inputs);
  for (let slot = 0; slot < problem.slots; slot++) {
    const tokens = weighedTokens(problem, inputs, slot);
    if (tokens.length === 0) continue;
    const bins = listedBins(problem, { ...inputs, partials }, slot);
    const logits = penalisedLogits(problem, inputs, slot);
    const list = tokens.filter(({ bin }) => bins.has(bin));
    partials[firstBinWord(problem, slot) + 2 * BIN_PAIRS - 2] = list.length;
    list
      .slice(0, LISTED)
      .forEach(({ id }, i) => partials.set([keyOf(logits[id]!), id], firstListWord(problem, slot) + 2 * i));
  }
  return partials;
}
