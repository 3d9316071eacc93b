import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type SamplingCase, samplingInputs } from '../case_inputs.js';
import {
  CANDIDATE_TILE,
  CANDIDATES,
  candidateTiles,
  type SamplingValues,
  type SliceProblem,
  type VocabSlice,
} from '../params.js';
import { candidates } from './index.js';
import { candidatesReference } from './reference.js';

export type CandidatesCase = SamplingCase & SliceProblem;

export function candidatesCase(
  name: string,
  vocab: number,
  slice: VocabSlice,
  settings: readonly SamplingValues[],
  logits: SamplingCase['logits'] = 'normal',
  more: Partial<KernelCase<CandidatesCase>> = {},
): KernelCase<CandidatesCase> {
  const slots = settings.length;
  const tokens = slice[1] - slice[0];
  return {
    name,
    problem: { slots, vocab, stride: alignUp(vocab, 32), ring: 4, settings, logits, slice },
    seed: 53,
    step: { rows: slots, chunks: 1 },
    tolerance: { absolute: 0, relative: 0 },
    flops: slots * tokens,
    bytes: slots * tokens * 4,
    ...more,
  };
}

// Powers of two: their quotients and products are exact, so that keys can be compared with ===.
export const mixed: readonly SamplingValues[] = [
  { temperature: 1, topK: 40 },
  { repetitionPenalty: 2 },
  { active: false },
  { temperature: 1, topK: 64, repetitionPenalty: 0.5 },
];

/** Elements of `found` or, where a slice is one tile, of `candidates`. */
export const foundLength = ({ slots, vocab, slice: [first, end] = [0, vocab] }: SliceProblem): number =>
  slots * candidateTiles(end - first) * CANDIDATES * 2;

export const suite: KernelSuite<typeof candidates.bindings, typeof candidates.params, CandidatesCase> = {
  kernel: candidates,
  cases: [
    candidatesCase('control', 200, [64, 120], [mixed[3]!], 'ties', { races: true }),
    candidatesCase('one token', 65, [64, 65], mixed),
    candidatesCase('one token fewer than candidates', 1000, [64, 64 + CANDIDATES - 1], mixed),
    candidatesCase('as many tokens as candidates', 1000, [64, 64 + CANDIDATES], mixed),
    candidatesCase('one token more than candidates', 1000, [64, 64 + CANDIDATES + 1], mixed),
    candidatesCase('uneven tail', 3003, [1024, 3003], mixed, 'ties'),
    candidatesCase('all equal', 5000, [64, 5000], mixed, 'equal'),
    candidatesCase('NaN and infinities', 5000, [0, 5000], mixed, 'wild'),
    candidatesCase('the most pairs listed', CANDIDATE_TILE, [0, CANDIDATE_TILE], [mixed[0]!], 'crowded'),
    candidatesCase('one good token a group', CANDIDATE_TILE, [0, CANDIDATE_TILE], [mixed[0]!], 'spread'),
    candidatesCase('one full tile', CANDIDATE_TILE, [0, CANDIDATE_TILE], [mixed[0]!], 'flat'),
    candidatesCase('one token into the next tile', CANDIDATE_TILE + 1, [0, CANDIDATE_TILE + 1], [mixed[0]!]),
    candidatesCase('half of 151936', 151936, [75968, 151936], [mixed[0]!]),
    candidatesCase(
      'half of 151936, eight slots',
      151936,
      [0, 75968],
      Array.from({ length: 8 }, () => mixed[0]!),
    ),
    candidatesCase('vocabulary 262144', 262144, [0, 262144], [mixed[3]!]),
  ],
  inputs: (problem, random) => ({
    ...samplingInputs(problem, random),
    candidates: new Uint32Array(foundLength(problem)).fill(7),
    step_counter: Uint32Array.of(41),
  }),
  outputs: () => ({}),
  reference: (problem, inputs) => ({
    candidates: candidatesReference(problem, inputs, inputs['candidates']!),
    step_counter: [42],
  }),
};
