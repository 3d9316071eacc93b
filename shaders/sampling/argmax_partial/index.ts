import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import logit from '../logit.wgsl?raw';
import {
  ARGMAX_TILE,
  BIN_PAIRS,
  checkSamplingProblem,
  partialsPerSlot,
  seenWords,
  type SliceProblem,
} from '../params.js';
import source from './argmax_partial.wgsl?raw';

export interface ArgmaxProblem extends SliceProblem {
  /** Tiles of `partials`; default: as many as the slice has. Where ranks send theirs, as many as the longest slice has. */
  readonly tiles?: number;
  /** Also makes the bins behind `partials` zero, for `binWeights`. Default false. */
  readonly clearsBins?: boolean;
}

/**
 * The best logit of each tile of ARGMAX_TILE tokens, repetition penalty applied; `sample` finishes. Also advances the step
 * counter: run it once per step, before `sample`.
 */
export const argmaxPartial = defineKernel({
  name: 'argmax_partial',
  bindings: { logits: 'read', sampling: 'read', seen: 'read', partials: 'read_write', step_counter: 'read_write' },
  params: { first: 'u32', end: 'u32', stride: 'u32', seen_words: 'u32', tiles: 'u32', cleared_first: 'u32' },
  plan(problem: ArgmaxProblem, traits) {
    const [first, end] = checkSamplingProblem(
      'argmax_partial',
      problem,
      traits.limits.maxComputeWorkgroupsPerDimension,
    );
    const { slots, vocab, stride, tiles = partialsPerSlot(end - first), clearsBins = false } = problem;
    return {
      wgsl: [steps, logit, source],
      constants: {
        THREADS: traits.software ? 16 : 256,
        TILE: ARGMAX_TILE,
        CLEARED: clearsBins ? BIN_PAIRS : 0,
        UNROLLED: traits.unroll,
      },
      params: { first, end, stride, seen_words: seenWords(vocab), tiles, cleared_first: slots * tiles },
      grid: (step) => [tiles, step.rows, 1],
    };
  },
});
