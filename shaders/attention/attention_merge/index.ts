import { unsupportedError, usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkStride } from '../../cache/kv_cache.js';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import source from './attention_merge.wgsl?raw';

export interface AttentionMergeProblem {
  readonly rows: number;
  readonly heads: number;
  readonly headDim: number;
  /** Partials of a (row, head) in partial_o and partial_ml: maxChunks after attention_split, lanes after attention_prefill. */
  readonly partials: number;
  /** f32 elements from row to row of out. */
  readonly outStride: number;
}

/** Merges attention partials: each merge lane's chunks in ascending order, then the lanes in order; then divides by l. */
export const attentionMerge = defineKernel({
  name: 'attention_merge',
  bindings: { partial_o: 'read', partial_ml: 'read', row_info: 'read', out: 'read_write' },
  params: { heads: 'u32', partials: 'u32', out_units: 'u32' },
  plan({ heads, headDim, partials, outStride }: AttentionMergeProblem, traits) {
    if (headDim % 8 !== 0 || headDim < 8 || headDim > 1024) {
      throw unsupportedError(
        `attention_merge: head_dim ${headDim} is not supported; it must be a multiple of 8 from 8 to 1024`,
      );
    }
    if (!Number.isInteger(partials) || partials < 1) {
      throw usageError(`attention_merge: ${partials} partials; expected an integer of at least 1`);
    }
    checkStride('attention_merge', 'outStride', outStride, heads * headDim);
    const units = Math.min(32, headDim / 4);
    return {
      wgsl: [softmaxState, source],
      constants: { HEAD_UNITS: headDim / 4, UNITS: units, PARALLEL: traits.software ? 1 : 8 },
      params: { heads, partials, out_units: outStride / 4 },
      grid: (step) => [heads, ceilDiv(headDim / 4, units), step.rows],
    };
  },
});
