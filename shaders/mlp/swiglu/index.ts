import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import gelu from '../../lib/gelu.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './swiglu.wgsl?raw';

/** Of a gate. 'gelu_tanh': lib/gelu.wgsl. */
export type Activation = 'silu' | 'gelu_tanh';

export interface SwigluProblem {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  /** Elements of the gate, of the up projection, and of the output. */
  readonly width: number;
  /** Elements between rows of the input, which holds gate and up side by side. */
  readonly inStride: number;
  /** First element of the up projection within an input row. */
  readonly upOffset: number;
  readonly outStride: number;
  /** Of the gate; 'silu' where left out. */
  readonly activation?: Activation;
}

/** out[r][i] = silu(gate_up[r][i]) * gate_up[r][upOffset + i], or another activation. Output elements beyond width are never written. */
export const swiglu = defineKernel({
  name: 'swiglu',
  bindings: { gate_up: 'read', out: 'read_write' },
  params: { width: 'u32', in_stride: 'u32', up_offset: 'u32', out_stride: 'u32' },
  plan(problem: SwigluProblem, traits) {
    const { rows, width, inStride, upOffset, outStride } = problem;
    if (width < 1 || outStride < width || upOffset < width || inStride < upOffset + width) {
      throw new SplitkvError(
        'internal',
        `swiglu: width ${width}, inStride ${inStride}, upOffset ${upOffset}, outStride ${outStride}: expected ` +
          '1 <= width <= outStride, width <= upOffset and upOffset + width <= inStride',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`swiglu: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    // A software adapter pays for every workgroup; a GPU wants as many invocations as there are elements.
    const [workgroup, perThread] = traits.software ? [32, 16] : [256, 1];
    return {
      wgsl: [steps, gelu, silu, source],
      constants: { WORKGROUP: workgroup, PER_THREAD: perThread, GELU: problem.activation === 'gelu_tanh' },
      params: { width, in_stride: inStride, up_offset: upOffset, out_stride: outStride },
      grid: (step) => [ceilDiv(width, workgroup * perThread), step.rows, 1],
    };
  },
});
