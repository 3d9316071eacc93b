import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkSamplingProblem, type SamplingProblem, seenWords } from '../params.js';
import source from './mark_seen.wgsl?raw';

/** Marks the tokens that a step feeds as seen, on ranks that hold logits and don't sample. */
export const markSeen = defineKernel({
  name: 'mark_seen',
  bindings: { tokens: 'read', row_info: 'read', seen: 'read_write' },
  params: { slots: 'u32', seen_words: 'u32' },
  plan(problem: SamplingProblem, traits) {
    checkSamplingProblem('mark_seen', problem, traits.limits.maxComputeWorkgroupsPerDimension);
    return {
      wgsl: [source],
      constants: {},
      params: { slots: problem.slots, seen_words: seenWords(problem.vocab) },
      grid: (step) => [ceilDiv(step.rows, 64), 1, 1],
    };
  },
});
