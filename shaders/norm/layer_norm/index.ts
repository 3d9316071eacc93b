import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import { planNorm, type RmsNormProblem } from '../rms_norm/index.js';
import source from './layer_norm.wgsl?raw';

export interface LayerNormProblem extends RmsNormProblem {
  readonly bias: boolean;
  /** What stands in out is added to x first. */
  readonly ofSum?: boolean;
}

/** out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias for each row, or out += that; of x + out where `ofSum`. */
export const layerNorm = defineKernel({
  name: 'layer_norm',
  bindings: { x: 'read', weight: 'read', bias: 'read', out: 'read_write' },
  params: { width: 'u32', stride: 'u32', eps: 'f32' },
  plan(problem: LayerNormProblem, traits) {
    const plan = planNorm('layer_norm', problem, traits);
    return {
      ...plan,
      wgsl: [rms, steps, source],
      constants: { ...plan.constants, OF_SUM: problem.ofSum === true, BIAS: problem.bias },
    };
  },
});
