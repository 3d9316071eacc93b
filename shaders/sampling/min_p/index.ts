import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import controls from '../controls.wgsl?raw';
import logit from '../logit.wgsl?raw';
import { ARGMAX_TILE, checkSamplingProblem, partialsPerSlot, type SamplingProblem } from '../params.js';
import source from './min_p.wgsl?raw';

/** Takes tokens whose probability is below min_p times the largest out of `adjusted`, between `argmaxPartial` of it and `sample`. */
export const minP = defineKernel({
  name: 'min_p',
  bindings: { partials: 'read', sampling: 'read', controls: 'read', adjusted: 'read_write' },
  params: { vocab: 'u32', stride: 'u32', tiles: 'u32' },
  plan(problem: SamplingProblem, traits) {
    checkSamplingProblem('min_p', problem, traits.limits.maxComputeWorkgroupsPerDimension);
    const { vocab, stride } = problem;
    const tiles = partialsPerSlot(vocab);
    return {
      wgsl: [steps, logit, controls, source],
      constants: { THREADS: traits.software ? 16 : 256, TILE: ARGMAX_TILE },
      params: { vocab, stride, tiles },
      grid: (step) => [tiles, step.rows, 1],
    };
  },
});
