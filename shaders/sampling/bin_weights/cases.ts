import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type SamplingCase, samplingInputs } from '../case_inputs.js';
import { BIN_TILE, type SamplingValues } from '../params.js';
import { binWeights } from './index.js';
import { binWeightsReference, clearedPartials } from './reference.js';

function binnedCase(
  name: string,
  vocab: number,
  settings: readonly SamplingValues[],
  logits: SamplingCase['logits'] = 'normal',
  more: Partial<KernelCase<SamplingCase>> = {},
): KernelCase<SamplingCase> {
  const slots = settings.length;
  return {
    name,
    problem: { slots, vocab, stride: alignUp(vocab, 32), ring: 4, settings, logits },
    seed: 41,
    step: { rows: slots, chunks: 1 },
    tolerance: { absolute: 0, relative: 0 },
    flops: slots * vocab * 4,
    bytes: slots * vocab * 4,
    ...more,
  };
}

const seed = 0x1234_5678_9abcn;
const mixed: readonly SamplingValues[] = [
  { temperature: 1, seed },
  { active: false, temperature: 1 },
  { temperature: 0 },
  { temperature: 0.7, topP: 0.9, repetitionPenalty: 1.3, seed: 5, counter: 3 },
  { temperature: 1.5, topK: 100, topP: 0.8, seed: 6 },
];

export const binnedCases: readonly KernelCase<SamplingCase>[] = [
  binnedCase('control', 70, mixed),
  binnedCase('one slot', 70, mixed.slice(4), 'normal', { races: true }),
  binnedCase('one token', 1, mixed.slice(0, 1)),
  binnedCase('all equal', 5000, mixed, 'equal'),
  binnedCase('ties', 3000, mixed, 'ties'),
  binnedCase('NaN and infinities', 5000, mixed, 'wild'),
  binnedCase('flat', 9000, mixed, 'flat'),
  binnedCase('one token into the next tile', BIN_TILE + 1, mixed.slice(3)),
  binnedCase('vocabulary 151936', 151936, mixed.slice(0, 1)),
  binnedCase('vocabulary 262144', 262144, mixed.slice(3, 4)),
];

/** What both kernels of the bins are given; `partials` as argmax_partial leaves it. */
export function binnedInputs(problem: SamplingCase, random: Random): HostArrays & { readonly partials: Uint32Array } {
  const inputs = samplingInputs(problem, random);
  return { ...inputs, partials: clearedPartials(problem, inputs) };
}

export const suite: KernelSuite<typeof binWeights.bindings, typeof binWeights.params, SamplingCase> = {
  kernel: binWeights,
  cases: binnedCases,
  inputs: binnedInputs,
  outputs: () => ({}),
  reference: binWeightsReference,
};
