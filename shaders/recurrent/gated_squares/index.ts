import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import rms from '../../lib/rms.wgsl?raw';
import segmentStarts from '../../lib/segments.wgsl?raw';
import silu from '../../lib/silu.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import { segmentRange, type Segments } from '../../linear/segments.js';
import source from './gated_squares.wgsl?raw';

export interface GatedSquaresProblem {
  /** Most rows of a step; of every segment `squares` has room for so many. */
  readonly rows: number;
  /** Elements of a value head: a multiple of 4. */
  readonly headDim: number;
  /** How the value heads of the model are cut, and which segments these are; `align` a multiple of 4. */
  readonly segments: Required<Segments>;
  /** Elements of all value heads of the model. */
  readonly modelWidth: number;
  /** Elements between rows, and those that the first value head begins at: multiples of 4. */
  readonly stride: number;
  readonly vStride: number;
  readonly vOffset: number;
  readonly gateStride: number;
  readonly gateOffset: number;
  readonly squaresStride: number;
}

/** x <- (x + skip * v) * silu(gate) of each row, in place, and of each segment the sum of the squares. */
export const gatedSquares = defineKernel({
  name: 'gated_squares',
  bindings: { v: 'read', gate: 'read', skip: 'read', x: 'read_write', squares: 'read_write' },
  params: {
    rows: 'u32',
    head4: 'u32',
    stride4: 'u32',
    v_stride4: 'u32',
    v_start4: 'u32',
    gate_stride4: 'u32',
    gate_start4: 'u32',
    squares_stride: 'u32',
    first: 'u32',
    total: 'u32',
    align: 'u32',
    model_width: 'u32',
    start: 'u32',
  },
  plan(problem: GatedSquaresProblem, traits) {
    const { rows, headDim, segments, modelWidth, stride, vStride, vOffset, gateStride, gateOffset } = problem;
    const { first, count, total, align } = segments;
    const { start, end } = segmentRange(modelWidth, segments);
    const width = end - start;
    const cut = [headDim, align, start, stride, vStride, vOffset, gateStride, gateOffset].some((n) => n % 4 !== 0);
    if (cut || stride < width || vStride < vOffset + width || gateStride < gateOffset + width) {
      throw new SplitkvError(
        'internal',
        `gated_squares: ${width} elements of heads of ${headDim}, stride ${stride}, vStride ${vStride}, gateStride ${gateStride}: ` +
          'expected multiples of 4 with room for all heads',
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most)
      throw limitError(`gated_squares: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    return {
      wgsl: [rms, segmentStarts, silu, steps, source],
      constants: { THREADS: traits.software ? 8 : 64 },
      params: {
        rows,
        head4: headDim / 4,
        stride4: stride / 4,
        v_stride4: vStride / 4,
        v_start4: vOffset / 4,
        gate_stride4: gateStride / 4,
        gate_start4: gateOffset / 4,
        squares_stride: problem.squaresStride,
        first,
        total,
        align,
        model_width: modelWidth,
        start,
      },
      grid: (step) => [count, step.rows, 1],
    };
  },
});
