import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './gated_norm.wgsl?raw';

export interface GatedNormProblem {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  readonly heads: number;
  /** Elements of a head; a multiple of 4. */
  readonly width: number;
  /** Elements between rows of x; a multiple of 4. */
  readonly stride: number;
  readonly gateStride: number;
  /** Element of a gate row that the first head's gate begins at. */
  readonly gateOffset: number;
  readonly eps: number;
}

/** x <- x / sqrt(mean(x^2) + eps) * weight * silu(gate) for each head of each row, in place. */
export const gatedNorm = defineKernel({
  name: 'gated_norm',
  bindings: { gate: 'read', weight: 'read', x: 'read_write' },
  params: { width: 'u32', stride: 'u32', gate_stride: 'u32', gate_offset: 'u32', eps: 'f32' },
  plan({ rows, heads, width, stride, gateStride, gateOffset, eps }: GatedNormProblem, traits) {
    if (width % 4 !== 0 || stride % 4 !== 0 || stride < heads * width || gateStride < gateOffset + heads * width) {
      throw new SplitkvError(
        'internal',
        `gated_norm: ${heads} heads of ${width}, stride ${stride}, gateStride ${gateStride}: expected multiples of 4 with room for all heads`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`gated_norm: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    return {
      wgsl: [rms, steps, silu, source],
      constants: { THREADS: traits.software ? 8 : 32 },
      params: { width, stride, gate_stride: gateStride, gate_offset: gateOffset, eps },
      grid: (step) => [heads, step.rows, 1],
    };
  },
});
