import { limitError } from '../../../base/errors.js';
import { ceilDiv } from '../../../base/math.js';
import { defineKernel } from '../../kernel.js';
import source from './toy_scale.wgsl?raw';

export interface ToyScaleProblem {
  readonly length: number;
  readonly factor: number;
}

/** out[i] = factor * x[i]. */
export const toyScale = defineKernel({
  name: 'toy_scale',
  bindings: { x: 'read', out: 'read_write' },
  params: { length: 'u32', factor: 'f32' },
  plan({ length, factor }: ToyScaleProblem, { limits, software }) {
    const workgroup = software ? 8 : 256;
    const groups = ceilDiv(length, workgroup);
    const most = limits.maxComputeWorkgroupsPerDimension;
    if (groups > most) throw limitError(`toy_scale: ${length} elements; at most ${most * workgroup}: use several`);
    return {
      wgsl: [source],
      constants: { WORKGROUP: workgroup },
      params: { length, factor },
      grid: [groups, 1, 1],
    };
  },
});
