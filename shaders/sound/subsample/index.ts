import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import source from './subsample.wgsl?raw';

export interface SubsampleProblem {
  /** Most lines of out; the step's own number is the grid's. */
  readonly rows: number;
  /** Of out: half of those of x. */
  readonly columns: number;
  /** Channels of x, and of out. */
  readonly inputs: number;
  readonly channels: number;
  /** Element of `counts` that says how many lines of x there are. */
  readonly countsAt: number;
  readonly eps: number;
}

/** Half as many lines and columns: relu(LayerNorm(conv 3 x 3)), with zeros around. */
export const subsample = defineKernel({
  name: 'subsample',
  bindings: { x: 'read', weight: 'read', norm: 'read', counts: 'read', out: 'read_write' },
  params: { columns: 'u32', counts_at: 'u32', eps: 'f32' },
  plan({ rows, columns, inputs, channels, countsAt, eps }: SubsampleProblem, traits) {
    if (columns < 1 || inputs < 1 || channels < 1 || channels > 1024) {
      throw new SplitkvError(
        'internal',
        `subsample: ${columns} columns, ${inputs} channels to ${channels}: expected some, and at most 1024 channels`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (Math.max(rows, columns) > most)
      throw limitError(`subsample: ${rows} x ${columns} places; at most ${most} a side in one dispatch`);
    return {
      wgsl: [source],
      constants: { INPUTS: inputs, CHANNELS: channels, THREADS: traits.software ? 8 : 64 },
      params: { columns, counts_at: countsAt, eps },
      grid: (step) => [columns, step.rows, 1],
    };
  },
});
