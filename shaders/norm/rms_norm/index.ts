import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './rms_norm.wgsl?raw';

export interface RmsNormProblem {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  readonly width: number;
  /** Elements between rows of x and out; a multiple of 4. */
  readonly stride: number;
  readonly eps: number;
  /** Add what is normalised to out, instead of writing it. */
  readonly residual: boolean;
}

/** out = x / sqrt(mean(x^2) + eps) * weight for each row, or out += that. */
export const rmsNorm = defineKernel({
  name: 'rms_norm',
  bindings: { x: 'read', weight: 'read', out: 'read_write' },
  params: { width: 'u32', stride: 'u32', eps: 'f32' },
  plan({ rows, width, stride, eps, residual }: RmsNormProblem, traits) {
    if (width < 1 || stride < width || stride % 4 !== 0) {
      throw new SplitkvError(
        'internal',
        `rms_norm: width ${width}, stride ${stride}: expected 1 <= width <= stride, stride a multiple of 4`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`rms_norm: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    return {
      wgsl: [rms, steps, source],
      constants: { RESIDUAL: residual, THREADS: traits.software ? 8 : 64 },
      params: { width, stride, eps },
      grid: (step) => [step.rows, 1, 1],
    };
  },
});
