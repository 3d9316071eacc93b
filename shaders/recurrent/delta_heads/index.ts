import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import softplus from '../../lib/softplus.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import type { DeltaShape } from '../shape.js';
import source from './delta_heads.wgsl?raw';

/** Added to a head's sum of squares. */
export const L2_EPS = 1e-6;

export interface DeltaHeadsProblem extends DeltaShape {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  /** Elements between rows of q, k and v; a multiple of 4. */
  readonly stride: number;
  readonly inputStride: number;
  /** Element of an input row that b begins at; a is behind it. */
  readonly bOffset: number;
}

/** q and k of each head to unit length, q times keyDim^-0.5 (unless `plain`), and each value head's decay and rate. */
export const deltaHeads = defineKernel({
  name: 'delta_heads',
  bindings: { inputs: 'read', rates: 'read', dt_bias: 'read', qkv: 'read_write', gates: 'read_write' },
  params: {
    key_heads: 'u32',
    ratio: 'u32',
    key_dim: 'u32',
    stride: 'u32',
    input_stride: 'u32',
    b_offset: 'u32',
    eps: 'f32',
  },
  plan(problem: DeltaHeadsProblem, traits) {
    const { rows, keyHeads, ratio, keyDim, plain = false, stride, inputStride, bOffset } = problem;
    if (keyDim % 4 !== 0 || stride % 4 !== 0 || inputStride < bOffset + (plain ? 1 : 2) * keyHeads * ratio) {
      throw new SplitkvError(
        'internal',
        `delta_heads: heads of ${keyDim}, stride ${stride}, inputStride ${inputStride}, bOffset ${bOffset}: expected multiples of 4, ` +
          'and room for b and a',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`delta_heads: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    return {
      wgsl: [rms, steps, silu, softplus, source],
      constants: { CORRECTS: !plain, THREADS: traits.software ? 8 : 32 },
      params: {
        key_heads: keyHeads,
        ratio,
        key_dim: keyDim,
        stride,
        input_stride: inputStride,
        b_offset: bOffset,
        eps: L2_EPS,
      },
      grid: (step) => [keyHeads, step.rows, 1],
    };
  },
});
