import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import bestPairs from '../best_pairs.wgsl?raw';
import logit from '../logit.wgsl?raw';
import { CANDIDATE_TILE, CANDIDATES, candidateTiles, checkSamplingProblem, type SliceProblem } from '../params.js';
import source from './merge_candidates.wgsl?raw';

/** The CANDIDATES best of a slice, of those that `candidates` found in its tiles. */
export const mergeCandidates = defineKernel({
  name: 'merge_candidates',
  bindings: { found: 'read', sampling: 'read', candidates: 'read_write' },
  params: { tiles: 'u32' },
  plan(problem: SliceProblem, traits) {
    const [first, end] = checkSamplingProblem(
      'merge_candidates',
      problem,
      traits.limits.maxComputeWorkgroupsPerDimension,
    );
    return {
      wgsl: [steps, logit, bestPairs, source],
      constants: {
        THREADS: traits.software ? 32 : 256,
        AHEAD: traits.unroll ? 16 : 1,
        COUNT: CANDIDATES,
        TILE: CANDIDATE_TILE,
      },
      params: { tiles: candidateTiles(end - first) },
      grid: (step) => [1, step.rows, 1],
    };
  },
});
