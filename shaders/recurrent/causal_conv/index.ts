import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import silu from '../../lib/silu.wgsl?raw';
import stateRows from '../../lib/state_rows.wgsl?raw';
import source from './causal_conv.wgsl?raw';

export interface CausalConvProblem {
  /** Most rows of a step. */
  readonly rows: number;
  /** Rows are of one sequence, from row 0 on; otherwise each may begin a run of rows. */
  readonly oneRun: boolean;
  /** Channels. */
  readonly width: number;
  /** 2 to 8. */
  readonly taps: number;
  /** B, C and x side by side, `width` each: C * conv(B * x). Else silu(conv(x)). */
  readonly gated: boolean;
  /** Each channel has one; default false. */
  readonly bias?: boolean;
  readonly xStride: number;
  readonly outStride: number;
}

/** Of a prompt on a GPU, for a thread: more than the rows that a state keeps. */
const ROWS_AT_ONCE = 8;

/** A causal convolution of each channel over the last `taps` rows of a sequence, whose state keeps the `taps` - 1 before a step. */
export const causalConv = defineKernel({
  name: 'causal_conv',
  bindings: {
    x: 'read',
    weight: 'read',
    bias: 'read',
    row_info: 'read',
    places: 'read',
    state: 'read_write',
    out: 'read_write',
  },
  params: { rows: 'u32', width: 'u32', x_stride: 'u32', out_stride: 'u32', block: 'u32' },
  plan({ rows, oneRun, width, taps, gated, bias = false, xStride, outStride }: CausalConvProblem, traits) {
    if (width < 1 || taps < 2 || taps > 8 || xStride < (gated ? 3 : 1) * width || outStride < width) {
      throw new SplitkvError(
        'internal',
        `causal_conv: width ${width}, ${taps} taps, xStride ${xStride}, outStride ${outStride}: expected 2 to 8 taps and strides ` +
          'with room for the channels',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`causal_conv: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const threads = traits.software ? 32 : 64;
    const blocks = oneRun && !traits.software;
    const block = blocks ? ROWS_AT_ONCE : rows;
    return {
      wgsl: [silu, stateRows, source],
      constants: {
        TAPS: taps,
        GATED: gated,
        BIAS: bias,
        ONE_RUN: oneRun,
        BLOCK: blocks ? ROWS_AT_ONCE : 1,
        THREADS: threads,
      },
      params: { rows, width, x_stride: xStride, out_stride: outStride, block },
      grid: (step) => [ceilDiv(width, threads), oneRun ? ceilDiv(step.rows, block) : step.rows, 1],
    };
  },
});
