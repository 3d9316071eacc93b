import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import source from './moe_combine.wgsl?raw';

export interface MoeCombineProblem {
  /** Most rows of a step. */
  readonly rows: number;
  readonly topK: number;
  readonly width: number;
  /** Elements between rows of expert_out, which is [rows][topK][inStride]. */
  readonly inStride: number;
  /** Elements between rows of x. */
  readonly stride: number;
}

/** x[r] += ((w0 o0 + w1 o1) + w2 o2) + ..., slots in order, which is that of the experts. Beyond width nothing is written. */
export const moeCombine = defineKernel({
  name: 'moe_combine',
  bindings: { expert_out: 'read', expert_weights: 'read', x: 'read_write' },
  params: { top_k: 'u32', width: 'u32', in_stride: 'u32', stride: 'u32', per_thread: 'u32' },
  plan({ rows, topK, width, inStride, stride }: MoeCombineProblem, traits) {
    if (topK < 1 || width < 1 || width > inStride || width > stride) {
      throw new SplitkvError(
        'internal',
        `moe_combine: topK ${topK}, width ${width}, inStride ${inStride}, stride ${stride}: expected topK >= 1 and ` +
          '1 <= width <= inStride, stride',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`moe_combine: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const [workgroup, perThread] = traits.software ? [32, 8] : [128, 1];
    return {
      wgsl: [source],
      constants: { WORKGROUP: workgroup },
      params: { top_k: topK, width, in_stride: inStride, stride, per_thread: perThread },
      grid: (step) => [ceilDiv(width, workgroup * perThread), step.rows, 1],
    };
  },
});
