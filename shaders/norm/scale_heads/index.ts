import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
import source from './scale_heads.wgsl?raw';

export interface ScaleHeadsProblem {
  /** Most rows of a step; of every segment `squares` has so many. */
  readonly rows: number;
  /** All segments of the model. */
  readonly segments: number;
  readonly squaresStride: number;
  /** Elements of x that are normalised: q, then from kStart on k. */
  readonly width: number;
  readonly kStart: number;
  readonly stride: number;
  /** Elements of the model's q and k, this rank's or not. */
  readonly qTotal: number;
  readonly kTotal: number;
  readonly eps: number;
}

/**
 * q and k of this rank, each divided by the root mean square of the model's whole q or k, times weights. Without k (`kStart` is `width`):
 * any rows of which ranks have a part.
 */
export const scaleHeads = defineKernel({
  name: 'scale_heads',
  bindings: { squares: 'read', weight: 'read', x: 'read_write' },
  params: {
    rows: 'u32',
    segments: 'u32',
    squares_stride: 'u32',
    width: 'u32',
    k_start: 'u32',
    stride: 'u32',
    q_total: 'f32',
    k_total: 'f32',
    eps: 'f32',
  },
  plan(problem: ScaleHeadsProblem, traits) {
    const { rows, segments, squaresStride, width, kStart, stride, qTotal, kTotal, eps } = problem;
    if (width < 1 || stride < width || kStart > width || squaresStride < 2 || segments < 1) {
      throw new SplitkvError(
        'internal',
        `scale_heads: width ${width}, k from ${kStart} on, stride ${stride}, ${segments} segments, squaresStride ${squaresStride}: ` +
          'expected 1 <= width <= stride, k within it, and sums of at least one segment',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`scale_heads: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const [workgroup, perThread] = traits.software ? [32, 16] : [256, 1];
    return {
      wgsl: [steps, source],
      constants: { WORKGROUP: workgroup, PER_THREAD: perThread },
      params: {
        rows,
        segments,
        squares_stride: squaresStride,
        width,
        k_start: kStart,
        stride,
        q_total: qTotal,
        k_total: kTotal,
        eps,
      },
      grid: (step) => [ceilDiv(width, workgroup * perThread), step.rows, 1],
    };
  },
});
