import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type SamplingCase, samplingInputs } from '../case_inputs.js';
import { ARGMAX_TILE, partialsPerSlot, type SamplingValues } from '../params.js';
import { type ArgmaxProblem, argmaxPartial } from './index.js';
import { partialsReference } from './reference.js';

type ArgmaxCase = SamplingCase & ArgmaxProblem;

function argmaxCase(
  name: string,
  vocab: number,
  settings: readonly SamplingValues[],
  logits: SamplingCase['logits'] = 'normal',
  more: Partial<KernelCase<ArgmaxCase>> = {},
  part: Pick<ArgmaxProblem, 'slice' | 'tiles'> = {},
): KernelCase<ArgmaxCase> {
  const slots = settings.length;
  return {
    name,
    problem: { slots, vocab, stride: alignUp(vocab, 32), ring: 4, settings, logits, ...part },
    seed: 31,
    step: { rows: slots, chunks: 1 },
    tolerance: { absolute: 0, relative: 0 },
    flops: slots * vocab,
    bytes: slots * vocab * 4,
    ...more,
  };
}

// Powers of two: their quotients and products are exact, so that keys can be compared with ===.
const mixed: readonly SamplingValues[] = [
  {},
  { repetitionPenalty: 2 },
  { active: false },
  { temperature: 1, repetitionPenalty: 0.5 },
];

export const suite: KernelSuite<typeof argmaxPartial.bindings, typeof argmaxPartial.params, ArgmaxCase> = {
  kernel: argmaxPartial,
  cases: [
    argmaxCase('control', 70, mixed, 'normal', { races: true }),
    argmaxCase('ties', 3000, mixed, 'ties'),
    argmaxCase('all equal', 5000, mixed, 'equal'),
    argmaxCase('NaN and infinities', 5000, mixed, 'wild'),
    argmaxCase('one token', 1, [{}]),
    argmaxCase('one full tile', ARGMAX_TILE, [{}]),
    argmaxCase('one token into the next tile', ARGMAX_TILE + 1, [{}]),
    argmaxCase('vocabulary 50257', 50257, mixed),
    argmaxCase('vocabulary 151936', 151936, [{}]),
    argmaxCase('vocabulary 262144', 262144, [{ repetitionPenalty: 2 }]),
    argmaxCase('first slice of 9000', 9000, mixed, 'ties', {}, { slice: [0, 4544] }),
    argmaxCase('last slice of 9000, shorter than others', 9000, mixed, 'ties', {}, { slice: [7040, 9000], tiles: 3 }),
    argmaxCase('a slice of one token', 65, mixed, 'normal', {}, { slice: [64, 65] }),
  ],
  inputs: (problem, random) => ({
    ...samplingInputs(problem, random),
    partials: new Uint32Array(problem.slots * (problem.tiles ?? partialsPerSlot(problem.vocab)) * 2).fill(7),
    step_counter: Uint32Array.of(41),
  }),
  outputs: () => ({}),
  reference: (problem, inputs) => ({
    partials: partialsReference(problem, inputs, inputs['partials']!),
    step_counter: [42],
  }),
};
