import type { KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type CandidatesCase, candidatesCase, foundLength, mixed } from '../candidates/cases.js';
import { candidatesReference } from '../candidates/reference.js';
import { samplingInputs } from '../case_inputs.js';
import { CANDIDATES, NO_TOKEN } from '../params.js';
import { mergeCandidates } from './index.js';
import { mergedReference } from './reference.js';

const [first] = mixed;

export const suite: KernelSuite<typeof mergeCandidates.bindings, typeof mergeCandidates.params, CandidatesCase> = {
  kernel: mergeCandidates,
  cases: [
    candidatesCase('control', 200, [64, 120], [first!], 'normal', { races: true }),
    candidatesCase('fewer tokens than candidates', 100, [64, 100], mixed),
    candidatesCase('two tiles, of one token the last', 4200, [64, 4161], mixed, 'ties'),
    candidatesCase('all equal', 9000, [0, 9000], mixed, 'equal'),
    candidatesCase('NaN and infinities', 9000, [0, 9000], mixed, 'wild'),
    candidatesCase('half of 151936', 151936, [75968, 151936], [first!]),
    candidatesCase('half of 151936, ties', 151936, [0, 75968], [first!], 'ties'),
    candidatesCase('vocabulary 262144: the most tiles', 262144, [0, 262144], [first!], 'crowded'),
  ],
  inputs: (problem, random) => {
    const { sampling, ...inputs } = samplingInputs(problem, random);
    const before = new Array(foundLength(problem)).fill(NO_TOKEN);
    return {
      found: Uint32Array.from(candidatesReference(problem, { sampling: sampling!, ...inputs }, before)),
      sampling: sampling!,
      candidates: new Uint32Array(problem.slots * CANDIDATES * 2).fill(7),
    };
  },
  outputs: () => ({}),
  reference: (problem, inputs) => ({ candidates: mergedReference(problem, inputs) }),
};
