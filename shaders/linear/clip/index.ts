import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import gelu from '../../lib/gelu.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './clip.wgsl?raw';

export interface ClipProblem {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  readonly width: number;
  readonly xStride: number;
  /** Element of a row that is clipped first. Defaults to 0. */
  readonly xOffset?: number | undefined;
  readonly outStride: number;
  readonly outOffset?: number;
  /** Element of `bounds`: the least of a pair, with the most behind it. */
  readonly boundsAt: number;
  /** What is clipped is a gate, by whose GELU (by tanh) these are multiplied, clipped by bounds of their own. */
  readonly up?: { readonly offset: number; readonly boundsAt: number } | undefined;
  /** SiLU of what is clipped. */
  readonly silu?: boolean;
  /** It is added to what stands in out. */
  readonly adds?: boolean;
}

/** Elements within bounds, their SiLU, or the same of a gate's GELU times what it lets through. */
export const clip = defineKernel({
  name: 'clip',
  bindings: { x: 'read', bounds: 'read', out: 'read_write' },
  params: {
    width: 'u32',
    x_stride: 'u32',
    x_offset: 'u32',
    up_offset: 'u32',
    out_stride: 'u32',
    out_offset: 'u32',
    bounds_at: 'u32',
    up_bounds_at: 'u32',
  },
  plan(problem: ClipProblem, traits) {
    const { rows, width, xStride, xOffset = 0, outStride, outOffset = 0, boundsAt, up } = problem;
    const { silu: SILU = false, adds: ADDS = false } = problem;
    if (width < 1 || xStride < Math.max(xOffset, up?.offset ?? 0) + width || outStride < outOffset + width) {
      throw new SplitkvError(
        'internal',
        `clip: width ${width}, xStride ${xStride}, xOffset ${xOffset}, outStride ${outStride}, outOffset ${outOffset}: expected room for the width`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`clip: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const [workgroup, perThread] = traits.software ? [32, 16] : [256, 1];
    return {
      wgsl: [steps, gelu, silu, source],
      constants: { GATED: up !== undefined, SILU, ADDS, ERF: false, WORKGROUP: workgroup, PER_THREAD: perThread },
      params: {
        width,
        x_stride: xStride,
        x_offset: xOffset,
        up_offset: up?.offset ?? 0,
        out_stride: outStride,
        out_offset: outOffset,
        bounds_at: boundsAt,
        up_bounds_at: up?.boundsAt ?? 0,
      },
      grid: (step) => [ceilDiv(width, workgroup * perThread), step.rows, 1],
    };
  },
});
