import { limitError, SplitkvError, usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import steps from '../../lib/steps.wgsl?raw';
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
  /**
   * Ranks that the experts are spread over: expert_out is then [ranks][rows][topK][inStride], and (row, slot) is read from region
   * owners[expert_ids[row][slot]]. 1 where left out: expert_ids and owners aren't read.
   */
  readonly ranks?: number;
  /** True: x becomes the sum, instead. */
  readonly apart?: boolean;
}

/**
 * x[r] += ((w0 o0 + w1 o1) + w2 o2) + ..., slots in order, which is that of the experts: the same bits whichever ranks they are on.
 * Beyond width nothing is written.
 */
export const moeCombine = defineKernel({
  name: 'moe_combine',
  bindings: { expert_out: 'read', expert_weights: 'read', expert_ids: 'read', owners: 'read', x: 'read_write' },
  params: { top_k: 'u32', width: 'u32', in_stride: 'u32', stride: 'u32', per_thread: 'u32', region: 'u32' },
  plan({ rows, topK, width, inStride, stride, ranks = 1, apart = false }: MoeCombineProblem, traits) {
    if (topK < 1 || width < 1 || width > inStride || width > stride) {
      throw new SplitkvError(
        'internal',
        `moe_combine: topK ${topK}, width ${width}, inStride ${inStride}, stride ${stride}: expected topK >= 1 and ` +
          '1 <= width <= inStride, stride',
      );
    }
    if (!Number.isInteger(ranks) || ranks < 1) {
      throw usageError(`moe_combine: experts spread over ${ranks} ranks; expected an integer of at least 1`);
    }
    const region = rows * topK * inStride;
    const bytes = ranks * region * 4;
    const { maxStorageBufferBindingSize: room } = traits.limits;
    if (bytes > room) {
      throw limitError(
        `moe_combine: ${ranks} ranks' expert outputs of ${rows} rows take ${bytes} bytes; a binding holds ${room}: use smaller steps`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`moe_combine: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const [workgroup, perThread] = traits.software ? [32, 8] : [128, 1];
    return {
      wgsl: [steps, source],
      constants: { WORKGROUP: workgroup, SPREAD: ranks > 1, APART: apart },
      params: { top_k: topK, width, in_stride: inStride, stride, per_thread: perThread, region },
      grid: (step) => [ceilDiv(width, workgroup * perThread), step.rows, 1],
    };
  },
});
