import { defineKernel } from '../../../src/gpu/kernel.js';
import random from '../../lib/random.wgsl?raw';
import logit from '../logit.wgsl?raw';
import { checkSamplingProblem, partialsPerSlot, type SamplingProblem, seenWords } from '../params.js';
import bins from './bins.wgsl?raw';
import source from './sample.wgsl?raw';
import walk from './walk.wgsl?raw';

export interface SampleProblem extends SamplingProblem {
  /** False promises that every slot is greedy; default true. */
  readonly draws?: boolean;
}

/**
 * The next token of each slot, from the logits and `argmax_partial`'s partials: greedy, or temperature, top-k and top-p in
 * Hugging Face's order. Writes everything that the next step reads, so that no token waits for the host.
 */
export const sample = defineKernel({
  name: 'sample',
  bindings: {
    logits: 'read',
    partials: 'read',
    sampling: 'read_write',
    seen: 'read_write',
    tokens: 'read_write',
    row_info: 'read_write',
    ids: 'read_write',
    step_counter: 'read',
  },
  params: { slots: 'u32', vocab: 'u32', stride: 'u32', seen_words: 'u32', tiles: 'u32', ring: 'u32', one: 'u32' },
  plan(problem: SampleProblem, traits) {
    checkSamplingProblem('sample', problem, traits.limits.maxComputeWorkgroupsPerDimension);
    const { slots, vocab, stride, ring } = problem;
    return {
      wgsl: [random, logit, bins, walk, source],
      constants: { THREADS: traits.software ? 32 : 256, DRAWS: problem.draws ?? true },
      params: { slots, vocab, stride, seen_words: seenWords(vocab), tiles: partialsPerSlot(vocab), ring, one: 1 },
      grid: (step) => [1, step.rows, 1],
    };
  },
});
