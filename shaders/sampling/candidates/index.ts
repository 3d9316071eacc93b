import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import bestPairs from '../best_pairs.wgsl?raw';
import logit from '../logit.wgsl?raw';
import {
  CANDIDATE_TILE,
  CANDIDATES,
  candidateTiles,
  checkSamplingProblem,
  seenWords,
  type SliceProblem,
} from '../params.js';
import source from './candidates.wgsl?raw';

/**
 * The CANDIDATES best logits of each tile of CANDIDATE_TILE tokens, repetition penalty applied; `mergeCandidates` finishes where
 * there are several tiles. Also advances the step counter: run it, or `argmaxPartial`, once per step, before `sample`.
 */
export const candidates = defineKernel({
  name: 'candidates',
  bindings: { logits: 'read', sampling: 'read', seen: 'read', candidates: 'read_write', step_counter: 'read_write' },
  params: { first: 'u32', end: 'u32', stride: 'u32', seen_words: 'u32', tiles: 'u32' },
  plan(problem: SliceProblem, traits) {
    const [first, end] = checkSamplingProblem('candidates', problem, traits.limits.maxComputeWorkgroupsPerDimension);
    const tiles = candidateTiles(end - first);
    return {
      wgsl: [steps, logit, bestPairs, source],
      constants: {
        THREADS: traits.software ? 32 : 256,
        AHEAD: traits.unroll ? 16 : 1,
        COUNT: CANDIDATES,
        TILE: CANDIDATE_TILE,
      },
      params: { first, end, stride: problem.stride, seen_words: seenWords(problem.vocab), tiles },
      grid: (step) => [tiles, step.rows, 1],
    };
  },
});
