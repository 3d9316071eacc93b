import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { type MatrixType, packedLayout } from '../../linear/pack.js';
import { weightsWgsl } from '../../linear/weights_wgsl.js';
import steps from '../../lib/steps.wgsl?raw';
import source from './embedding.wgsl?raw';

export interface EmbeddingProblem {
  /** Most rows (tokens) of a step; the step's own number is the grid's. */
  readonly rows: number;
  readonly hidden: number;
  /** Elements between rows of out; a multiple of 4. */
  readonly outStride: number;
  readonly type: MatrixType;
  /** The vocabulary rows that `weight` and `scale` hold; rows of other tokens are left alone. One dispatch a shard. */
  readonly shardFirst: number;
  readonly shardRows: number;
  /** Multiplies what is read; 1 where left out. */
  readonly scaleBy?: number;
  /**
   * Rows of tokens outside the shard get zeros, -0, so that the rows of ranks that hold a vocabulary together add up
   * (reduce_segments) to the embedding's bit for bit. Of a rank's shards, for the first only: the others fill its zeros.
   */
  readonly zeroOthers?: boolean;
  /** What is read is added to out. */
  readonly adds?: boolean;
  /** Row r's row of the table is ((tokens[r * stride] >> shift) & mask) + first; tokens[r] where left out. */
  readonly index?: { readonly stride: number; readonly shift: number; readonly mask: number; readonly first: number };
}

const AS_IT_IS = { stride: 1, shift: 0, mask: 0xffffffff, first: 0 };

/**
 * out[r] = weight[tokens[r]] * scaleBy. `weight` and `scale` are packed as a linear layer's are (`packTiles`), so tied
 * embeddings share the buffers of the output projection.
 */
export const embedding = defineKernel({
  name: 'embedding',
  bindings: { tokens: 'read', weight: 'read', scale: 'read', out: 'read_write' },
  params: {
    hidden: 'u32',
    units: 'u32',
    out_stride: 'u32',
    shard_first: 'u32',
    shard_rows: 'u32',
    scale_by: 'f32',
    others: 'f32',
    index_stride: 'u32',
    index_shift: 'u32',
    index_mask: 'u32',
    index_first: 'u32',
  },
  plan({ rows, hidden, outStride, type, shardFirst, shardRows, scaleBy = 1, ...problem }: EmbeddingProblem, traits) {
    const { zeroOthers = false, adds = false, index = AS_IT_IS } = problem;
    if (hidden < 1 || outStride < hidden || outStride % 4 !== 0) {
      throw new SplitkvError(
        'internal',
        `embedding: hidden ${hidden}, outStride ${outStride}: expected 1 <= hidden <= outStride, outStride a multiple of 4`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`embedding: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const [workgroup, perThread] = traits.software ? [16, 16] : [64, 1];
    return {
      wgsl: [steps, weightsWgsl(type, traits), source],
      constants: {
        ZERO_OTHERS: zeroOthers,
        ADDS: adds,
        WORKGROUP: workgroup,
        PER_THREAD: perThread,
      },
      params: {
        hidden,
        units: packedLayout(type, shardRows, hidden).units,
        out_stride: outStride,
        shard_first: shardFirst,
        shard_rows: shardRows,
        scale_by: scaleBy,
        others: -0,
        index_stride: index.stride,
        index_shift: index.shift,
        index_mask: index.mask,
        index_first: index.first,
      },
      grid: (step) => [ceilDiv(hidden, 4 * workgroup * perThread), step.rows, 1],
    };
  },
});
