import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { alignUp } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import softplus from '../../lib/softplus.wgsl?raw';
import stateRows from '../../lib/state_rows.wgsl?raw';
import { L2_EPS } from '../delta_heads/index.js';
import { type DeltaShape, MOST_KEY_DIM } from '../shape.js';
import source from './delta_step.wgsl?raw';

export interface DeltaStepProblem extends DeltaShape {
  /** Most rows of a step; each may begin a run of rows. */
  readonly rows: number;
  readonly taps: number;
  /** Elements between rows of x: of q, k, v, z, b and a. */
  readonly xStride: number;
  /** A multiple of 4. */
  readonly outStride: number;
  /** Of the norm of the value heads. */
  readonly eps: number;
}

/** Columns of a key head that a workgroup has room for. */
const MOST_COLUMNS = 1024;
const MOST_THREADS = 512;

/** Whether the kernel takes such heads; the four that it stands for take more. */
export const canStep = ({ ratio, keyDim, valueDim }: Omit<DeltaShape, 'keyHeads'>): boolean =>
  keyDim <= MOST_KEY_DIM && valueDim <= 256 && valueDim % 4 === 0 && ratio * valueDim <= MOST_COLUMNS;

/**
 * causal_conv, delta_heads, delta_rule and gated_norm in one, bit for bit, for generated rows. On every adapter planned as for a GPU. Binds
 * 10 storage buffers.
 */
export const deltaStep = defineKernel({
  name: 'delta_step',
  bindings: {
    x: 'read',
    taps: 'read',
    row_info: 'read',
    places: 'read',
    rates: 'read',
    dt_bias: 'read',
    norm: 'read',
    conv_state: 'read_write',
    memory: 'read_write',
    out: 'read_write',
  },
  params: {
    rows: 'u32',
    key_heads: 'u32',
    key_dim: 'u32',
    value_dim: 'u32',
    x_stride: 'u32',
    out_stride: 'u32',
    units: 'u32',
    l2_eps: 'f32',
    eps: 'f32',
  },
  plan({ rows, keyHeads, ratio, keyDim, valueDim, taps, xStride, outStride, eps }: DeltaStepProblem, traits) {
    const values = keyHeads * ratio * valueDim;
    const width = 2 * (keyHeads * keyDim + values + keyHeads * ratio);
    if (
      !canStep({ ratio, keyDim, valueDim }) ||
      [keyDim, outStride].some((n) => n % 4 !== 0) ||
      taps < 2 ||
      xStride < width ||
      outStride < values
    ) {
      throw new SplitkvError(
        'internal',
        `delta_step: ${keyHeads} x ${ratio} heads of ${keyDim} and ${valueDim}, ${taps} taps, xStride ${xStride}, outStride ` +
          `${outStride}: expected heads of a multiple of 4 up to ${MOST_KEY_DIM}, and strides with room for all of them`,
      );
    }
    const { maxComputeWorkgroupsPerDimension: most, maxComputeInvocationsPerWorkgroup: invocations } = traits.limits;
    if (rows > most) throw limitError(`delta_step: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const threads = Math.min(MOST_THREADS, invocations, Math.max(128, alignUp(4 * ratio * valueDim, 64)));
    return {
      wgsl: [rms, silu, softplus, stateRows, source],
      constants: {
        TAPS: taps,
        KEY_DIM: keyDim,
        VALUE_DIM: valueDim,
        RATIO: ratio,
        THREADS: threads,
        UNROLLED: traits.unroll,
      },
      params: {
        rows,
        key_heads: keyHeads,
        key_dim: keyDim,
        value_dim: valueDim,
        x_stride: xStride,
        out_stride: outStride,
        units: keyDim / 4,
        l2_eps: L2_EPS,
        eps,
      },
      grid: (step) => [keyHeads, step.rows, 1],
    };
  },
});
