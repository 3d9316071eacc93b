import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import controls from '../controls.wgsl?raw';
import logit from '../logit.wgsl?raw';
import { ARGMAX_TILE, checkSamplingProblem, partialsPerSlot, seenWords, type SliceProblem } from '../params.js';
import source from './adjust_logits.wgsl?raw';

/**
 * Logits after min_tokens, what is allowed, biases and penalties, as a copy that the search for the best tokens reads instead; also counts the tokens
 * that the step feeds. Run it once per step.
 */
export const adjustLogits = defineKernel({
  name: 'adjust_logits',
  bindings: {
    logits: 'read',
    controls: 'read',
    seen: 'read',
    biases: 'read',
    tokens: 'read',
    row_info: 'read',
    counts: 'read_write',
    adjusted: 'read_write',
  },
  params: { first: 'u32', end: 'u32', stride: 'u32', seen_words: 'u32', slots: 'u32' },
  plan(problem: SliceProblem, traits) {
    const [first, end] = checkSamplingProblem('adjust_logits', problem, traits.limits.maxComputeWorkgroupsPerDimension);
    return {
      wgsl: [steps, logit, controls, source],
      constants: { THREADS: traits.software ? 16 : 256, TILE: ARGMAX_TILE },
      params: { first, end, stride: problem.stride, seen_words: seenWords(problem.vocab), slots: problem.slots },
      grid: (step) => [partialsPerSlot(end - first), step.rows, 1],
    };
  },
});
