import { unsupportedError, usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { chunkTableWgsl, tableConstants } from '../../cache/head_tables.js';
import { checkStride, MERGE_LANES, queryGroup } from '../../cache/kv_cache.js';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import source from './merge_copies.wgsl?raw';

export interface MergeCopiesProblem {
  /** There is room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  /** Of the rank, and of its cache. */
  readonly kvHeads: number;
  readonly headDim: number;
  /** 'lanes': this rank's chunks to lanes; 'home': all copies' lanes to the output. */
  readonly mode: 'lanes' | 'home';
  /** 'lanes': chunks that partials of a (row, head) have room for. Not read by 'home'. */
  readonly partials: number;
  /** min(8, chunks of the longest sequence). */
  readonly lanes: number;
  /** Tokens of a cache block. */
  readonly block: number;
  /** Block-table words of a head. */
  readonly tableStride: number;
  /** f32 elements from row to row of out; read by 'home' only. */
  readonly outStride: number;
}

/**
 * Merges attention partials of heads whose merge lanes are shared by the ranks that hold copies of them: 'lanes' on every rank, then
 * 'home' where a head's output is wanted. The bits are those of attention_merge on one rank. guests is read by 'home' only, out_ml
 * written by 'lanes' only.
 */
export const mergeCopies = defineKernel({
  name: 'merge_copies',
  bindings: {
    partial_o: 'read',
    partial_ml: 'read',
    row_info: 'read',
    block_table: 'read',
    guests: 'read',
    out: 'read_write',
    out_ml: 'read_write',
  },
  params: {
    rows: 'u32',
    heads: 'u32',
    partials: 'u32',
    lanes: 'u32',
    group: 'u32',
    out_units: 'u32',
    cache_kv_heads: 'u32',
    table_stride: 'u32',
  },
  plan(problem: MergeCopiesProblem) {
    const { rows, heads, kvHeads, headDim, mode, partials, lanes, block, tableStride, outStride } = problem;
    if (headDim % 8 !== 0 || headDim < 8 || headDim > 1024) {
      throw unsupportedError(
        `merge_copies: head_dim ${headDim} is not supported; it must be a multiple of 8 from 8 to 1024`,
      );
    }
    if (!Number.isInteger(lanes) || lanes < 1 || lanes > MERGE_LANES) {
      throw usageError(`merge_copies: ${lanes} lanes; expected 1 to ${MERGE_LANES}`);
    }
    const group = queryGroup('merge_copies', heads, kvHeads);
    if (mode === 'home') checkStride('merge_copies', 'outStride', outStride, heads * headDim);
    const units = Math.min(32, headDim / 4);
    return {
      wgsl: [softmaxState, ...chunkTableWgsl, source],
      constants: {
        ...tableConstants({ perHead: true }),
        HEAD_UNITS: headDim / 4,
        UNITS: units,
        HOME: mode === 'home',
        BLOCK: block,
      },
      params: {
        rows,
        heads,
        partials,
        lanes,
        group,
        out_units: outStride / 4,
        cache_kv_heads: kvHeads,
        table_stride: tableStride,
      },
      grid: (step) => [heads, ceilDiv(headDim / 4, units), step.rows],
    };
  },
});
