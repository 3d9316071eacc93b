import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './light_conv.wgsl?raw';

export interface LightConvProblem {
  /** Most rows of a step, which are of one sequence from its first. */
  readonly rows: number;
  /** Channels; x has twice as many. */
  readonly width: number;
  /** 2 to 8. */
  readonly taps: number;
  readonly xStride: number;
  readonly outStride: number;
  readonly eps: number;
}

/** silu(norm(conv(a * sigmoid(b)))) of rows (a, b): a causal convolution of each channel, and an RMS norm of a row. */
export const lightConv = defineKernel({
  name: 'light_conv',
  bindings: { x: 'read', weight: 'read', norm: 'read', out: 'read_write' },
  params: { width: 'u32', x_stride: 'u32', out_stride: 'u32', eps: 'f32' },
  plan({ rows, width, taps, xStride, outStride, eps }: LightConvProblem, traits) {
    if (width < 1 || taps < 2 || taps > 8 || xStride < 2 * width || outStride < width) {
      throw new SplitkvError(
        'internal',
        `light_conv: width ${width}, ${taps} taps, xStride ${xStride}, outStride ${outStride}: expected 2 to 8 taps and strides ` +
          'with room for the channels',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`light_conv: ${rows} rows; at most ${most} in one dispatch`);
    return {
      wgsl: [silu, steps, rms, source],
      constants: { TAPS: taps, THREADS: traits.software ? 8 : 64 },
      params: { width, x_stride: xStride, out_stride: outStride, eps },
      grid: (step) => [step.rows, 1, 1],
    };
  },
});
