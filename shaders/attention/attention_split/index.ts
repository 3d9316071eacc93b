import { usageError } from '../../../src/base/errors.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkKvShape, checkStride, kvConstants, type KvType, kvWgsl, queryGroup } from '../../cache/kv_cache.js';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import source from './attention_split.wgsl?raw';

export interface AttentionSplitProblem {
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** 256-token chunks that partials have room for. */
  readonly maxChunks: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table entries of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q; a row starts with heads * headDim elements. */
  readonly qStride: number;
  /** Of the scores, usually headDim^-0.5. */
  readonly scale: number;
}

/** Generated rows: unnormalised attention of one 256-token chunk, all query heads of a kv head together. */
export const attentionSplit = defineKernel({
  name: 'attention_split',
  bindings: {
    q: 'read',
    k_cache: 'read',
    v_cache: 'read',
    row_info: 'read',
    block_table: 'read',
    partial_o: 'read_write',
    partial_ml: 'read_write',
  },
  params: {
    heads: 'u32',
    kv_heads: 'u32',
    q_units: 'u32',
    max_chunks: 'u32',
    table_stride: 'u32',
    group: 'u32',
    head_units: 'u32',
    stats: 'u32',
    slices: 'u32',
    scale: 'f32',
  },
  plan(problem: AttentionSplitProblem, traits) {
    const { heads, kvHeads, headDim, maxChunks, qStride } = problem;
    checkKvShape('attention_split', problem);
    const group = queryGroup('attention_split', heads, kvHeads);
    checkStride('attention_split', 'qStride', qStride, heads * headDim);
    const units = headDim / 4;
    if (!Number.isInteger(maxChunks) || maxChunks < 1 || maxChunks > 65535) {
      throw usageError(`attention_split: maxChunks ${maxChunks}; expected an integer from 1 to 65535`);
    }
    const layout = traits.software
      ? { THREADS: 8, STATS: 8, LANES: 8, SLICES: 1 }
      : { THREADS: 256, STATS: 16, LANES: units, SLICES: Math.min(16, Math.floor(256 / units)) };
    return {
      wgsl: [...kvWgsl(problem.kvType), softmaxState, source],
      constants: { ...kvConstants(problem), ...layout, HEAD_TILE: group === 1 ? 1 : group === 2 ? 2 : 4 },
      params: {
        heads,
        kv_heads: kvHeads,
        q_units: qStride / 4,
        max_chunks: maxChunks,
        table_stride: problem.tableStride,
        head_units: units,
        group,
        stats: layout.STATS,
        slices: layout.SLICES,
        scale: problem.scale,
      },
      grid: (step) => [Math.min(step.chunks, maxChunks), kvHeads, step.rows],
    };
  },
});
