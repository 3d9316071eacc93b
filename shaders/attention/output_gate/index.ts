import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import gelu from '../../lib/gelu.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import { type Activation, activationConstants } from '../../linear/problem.js';
import source from './output_gate.wgsl?raw';

export interface OutputGateProblem {
  /** Most rows of a step; the step's own number is the grid's. */
  readonly rows: number;
  readonly width: number;
  readonly stride: number;
  /** 0: all rows have the same gates. */
  readonly gateStride: number;
  /** Element of a gate row that the gate begins at. */
  readonly gateOffset: number;
  /** True: a row has one gate. */
  readonly perRow?: boolean;
  /** True: the gate as it is, without a sigmoid. */
  readonly open?: boolean;
  /** In the sigmoid's place. */
  readonly by?: Activation;
}

/** x <- x * sigmoid(gate), x * activation(gate) or x * gate, in place: a gate per element, or per row. */
export const outputGate = defineKernel({
  name: 'output_gate',
  bindings: { gate: 'read', x: 'read_write' },
  params: { width: 'u32', stride: 'u32', gate_stride: 'u32', gate_offset: 'u32', gate_step: 'u32' },
  plan({ rows, width, stride, gateStride, gateOffset, perRow = false, open = false, by }: OutputGateProblem, traits) {
    if (width < 1 || stride < width || (gateStride > 0 && gateStride < gateOffset + (perRow ? 1 : width))) {
      throw new SplitkvError(
        'internal',
        `output_gate: width ${width}, stride ${stride}, gateStride ${gateStride}, gateOffset ${gateOffset}: expected room for the width`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`output_gate: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const [workgroup, perThread] = traits.software ? [32, 16] : [256, 1];
    return {
      wgsl: [steps, gelu, silu, source],
      constants: {
        OPEN: open,
        ACTIVATED: by !== undefined,
        ...activationConstants(by),
        WORKGROUP: workgroup,
        PER_THREAD: perThread,
      },
      params: { width, stride, gate_stride: gateStride, gate_offset: gateOffset, gate_step: perRow ? 0 : 1 },
      grid: (step) => [ceilDiv(width, workgroup * perThread), step.rows, 1],
    };
  },
});
