import { usageError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkWindow, promptSteps, type SelectionProblem } from '../problem.js';
import source from './snap_pool.wgsl?raw';

export interface SnapPoolProblem extends SelectionProblem {
  /** Heads of the scores. */
  readonly heads: number;
  /** Neighbours that a score is the largest of, itself among them: odd. */
  readonly width: number;
}

/** Scores as the largest of their neighbours'. */
export const snapPool = defineKernel({
  name: 'snap_pool',
  bindings: { scores: 'read', compress_info: 'read', pooled: 'read_write' },
  params: { score_stride: 'u32', window: 'u32', radius: 'u32' },
  plan({ heads, width, scoreStride, window }: SnapPoolProblem) {
    checkWindow('snap_pool', window);
    if (!Number.isInteger(width) || width < 1 || width > 255 || width % 2 === 0) {
      throw usageError(`snap_pool: width ${width}; expected an odd number from 1 (no pooling) to 255`);
    }
    return {
      wgsl: [source],
      constants: {},
      params: { score_stride: scoreStride, window, radius: width >> 1 },
      // A chunk is as many keys as a workgroup has threads.
      grid: (step) => [step.chunks, heads, promptSteps(step)],
    };
  },
});
