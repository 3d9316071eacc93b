import { usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import {
  checkKvShape,
  checkStride,
  kvConstants,
  type KvType,
  kvWgsl,
  MERGE_LANES,
  queryGroup,
} from '../../cache/kv_cache.js';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import source from './attention_prefill.wgsl?raw';
import rowSource from './attention_prefill_row.wgsl?raw';

/**
 * Rows of a tile. Rows [16 i, 16 i + 16) belong to one slot, in ascending order of position; the caller pads with
 * inactive rows (also the last tile, beyond the step's rows).
 */
export const PREFILL_TILE_ROWS = 16;

export interface AttentionPrefillProblem {
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** 256-token chunks of the longest sequence the cache has room for. */
  readonly maxChunks: number;
  /** Merge lanes that partials have room for: min(8, maxChunks). */
  readonly lanes: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table entries of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q; a row starts with heads * headDim elements. */
  readonly qStride: number;
  /** Of the scores, usually headDim^-0.5. */
  readonly scale: number;
}

/** Prompt rows: causal attention over the paged cache, which already holds the rows' own k and v; one partial a merge lane. */
export const attentionPrefill = defineKernel({
  name: 'attention_prefill',
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
    rows: 'u32',
    heads: 'u32',
    kv_heads: 'u32',
    q_units: 'u32',
    lanes: 'u32',
    table_stride: 'u32',
    group: 'u32',
    head_units: 'u32',
    key_tile: 'u32',
    tile_rows: 'u32',
    scale: 'f32',
  },
  plan(problem: AttentionPrefillProblem, traits) {
    const { rows, heads, kvHeads, headDim, maxChunks, lanes, qStride } = problem;
    checkKvShape('attention_prefill', problem);
    const group = queryGroup('attention_prefill', heads, kvHeads);
    checkStride('attention_prefill', 'qStride', qStride, heads * headDim);
    if (!Number.isInteger(lanes) || lanes < 1 || lanes !== Math.min(MERGE_LANES, maxChunks)) {
      throw usageError(
        `attention_prefill: lanes ${lanes} with maxChunks ${maxChunks}; expected min(${MERGE_LANES}, maxChunks)`,
      );
    }
    const software = traits.software;
    // On a GPU a tile of K or V takes at most 8 KiB of workgroup memory.
    const keyTile = software ? 64 : headDim <= 64 ? 32 : headDim <= 128 ? 16 : 8;
    const params = {
      rows,
      heads,
      kv_heads: kvHeads,
      q_units: qStride / 4,
      lanes,
      table_stride: problem.tableStride,
      group,
      head_units: headDim / 4,
      key_tile: keyTile,
      tile_rows: PREFILL_TILE_ROWS,
      scale: problem.scale,
    };
    const fragments = [...kvWgsl(problem.kvType), softmaxState];
    const constants = { ...kvConstants(problem), TILE_ROWS: PREFILL_TILE_ROWS, KEY_TILE: keyTile };
    if (software) {
      return {
        wgsl: [...fragments, rowSource],
        constants,
        params,
        grid: (step) => [Math.min(step.chunks, lanes), heads, ceilDiv(step.rows, PREFILL_TILE_ROWS)],
      };
    }
    const headTile = group === 1 ? 1 : 2;
    const headTiles = ceilDiv(group, headTile);
    return {
      wgsl: [...fragments, source],
      constants: { ...constants, HEAD_TILE: headTile },
      params,
      grid: (step) => [Math.min(step.chunks, lanes), kvHeads * headTiles, ceilDiv(step.rows, PREFILL_TILE_ROWS)],
    };
  },
});
