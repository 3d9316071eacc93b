import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import softplus from '../../lib/softplus.wgsl?raw';
import tanh from '../../lib/tanh.wgsl?raw';
import source from './relative_attention.wgsl?raw';

export interface RelativeAttentionProblem {
  /** Most rows of a step, which are of one sequence from its first. */
  readonly rows: number;
  readonly heads: number;
  readonly dim: number;
  /** Rows that a row sees: itself, and those before it. */
  readonly keys: number;
  /** True: scales are as they are multiplied. */
  readonly softened: boolean;
  readonly xStride: number;
  readonly relativeStride: number;
  readonly outStride: number;
  /** What scores stay below. */
  readonly cap: number;
}

/** Attention to a row and few before it, with relative places and capped scores, as Gemma 4's encoder of sound has it. */
export const relativeAttention = defineKernel({
  name: 'relative_attention',
  bindings: { x: 'read', relative: 'read', scale: 'read', out: 'read_write' },
  params: {
    width: 'u32',
    x_stride: 'u32',
    relative_stride: 'u32',
    out_stride: 'u32',
    query_scale: 'f32',
    key_scale: 'f32',
    cap: 'f32',
  },
  plan(problem: RelativeAttentionProblem, traits) {
    const { rows, heads, dim, keys, softened, xStride, relativeStride, outStride, cap } = problem;
    const width = heads * dim;
    if (width < 1 || keys < 1 || keys > 256 || xStride < 3 * width || Math.min(relativeStride, outStride) < width) {
      throw new SplitkvError(
        'internal',
        `relative_attention: ${heads} heads of ${dim}, ${keys} keys, strides ${xStride}, ${relativeStride}, ${outStride}: ` +
          'expected room for the heads, and at most 256 keys',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`relative_attention: ${rows} rows; at most ${most} in one dispatch`);
    return {
      wgsl: [softplus, tanh, source],
      constants: { DIM: dim, KEYS: keys, SOFTENED: softened, THREADS: traits.software ? 16 : 64 },
      params: {
        width,
        x_stride: xStride,
        relative_stride: relativeStride,
        out_stride: outStride,
        // Softplus of 0 is ln 2, and of 1 ln(1 + e).
        query_scale: dim ** -0.5 / Math.LN2,
        key_scale: Math.log(1 + Math.E) / Math.LN2,
        cap,
      },
      grid: (step) => [heads, step.rows, 1],
    };
  },
});
