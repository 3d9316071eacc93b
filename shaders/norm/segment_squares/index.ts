import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './segment_squares.wgsl?raw';

export interface SegmentSquaresProblem {
  /** Most rows of a step; of every segment `out` has room for so many. */
  readonly rows: number;
  readonly segments: number;
  /** Elements of a segment's query heads, and of its kv heads: multiples of 4. */
  readonly qWidth: number;
  readonly kWidth: number;
  /** Elements of a row that the first segment's q and k begin at: multiples of 4. */
  readonly qStart: number;
  readonly kStart: number;
  /** Elements between rows of x; a multiple of 4. */
  readonly stride: number;
  readonly outStride: number;
}

/** Of each row and segment, the sums of the squares of its part of q and of k. */
export const segmentSquares = defineKernel({
  name: 'segment_squares',
  bindings: { x: 'read', out: 'read_write' },
  params: {
    rows: 'u32',
    stride4: 'u32',
    q_start4: 'u32',
    q_vec4s: 'u32',
    k_start4: 'u32',
    k_vec4s: 'u32',
    out_stride: 'u32',
  },
  plan(problem: SegmentSquaresProblem, traits) {
    const { rows, segments, qWidth, kWidth, qStart, kStart, stride, outStride } = problem;
    const cut = [qWidth, kWidth, qStart, kStart, stride].some((elements) => elements % 4 !== 0);
    if (cut || outStride < 2 || kStart < qStart + segments * qWidth || stride < kStart + segments * kWidth) {
      throw new SplitkvError(
        'internal',
        `segment_squares: ${segments} segments of ${qWidth} and ${kWidth}, from ${qStart} and ${kStart} on, stride ${stride}, outStride ` +
          `${outStride}: expected multiples of 4, room for all segments, and for two sums`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most)
      throw limitError(`segment_squares: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    return {
      wgsl: [rms, steps, source],
      constants: { THREADS: traits.software ? 8 : 64 },
      params: {
        rows,
        stride4: stride / 4,
        q_start4: qStart / 4,
        q_vec4s: qWidth / 4,
        k_start4: kStart / 4,
        k_vec4s: kWidth / 4,
        out_stride: outStride,
      },
      grid: (step) => [segments, step.rows, 1],
    };
  },
});
