import { unsupportedError, usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { tableConstants, tableWgsl } from '../../cache/head_tables.js';
import { type CacheHeads, cacheHeads, checkStride, MERGE_LANES, queryGroup } from '../../cache/kv_cache.js';
import shareSource from '../../lib/share.wgsl?raw';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import { type Share, SHARE_PARAMS, sharePlan, WHOLE } from '../share.js';
import source from './attention_merge.wgsl?raw';

/**
 * 'all':   partials of a rank that holds every chunk, to the output.
 * 'lanes': local chunks of a rank that shares the sequences, to its local merge lanes, which then travel.
 * 'home':  the local lanes of all ranks that share the sequences, to the output.
 */
export type MergeMode = 'all' | 'lanes' | 'home';

export interface AttentionMergeProblem {
  readonly rows: number;
  readonly heads: number;
  readonly headDim: number;
  /** 'all' where left out. */
  readonly mode?: MergeMode;
  /**
   * Partials of a (row, head) in partial_o and partial_ml. 'all', 'lanes': maxChunks after attention_split, 'all' also lanes after
   * attention_prefill: [rows][heads][partials]. 'home': local lanes of each rank: [ranks][partials][rows][heads].
   */
  readonly partials: number;
  /** 'lanes': the share of this rank; 'home': of any rank. One rank where left out. */
  readonly share?: Share;
  /** The tables of a cache that is compressed head by head: every head has chunks of its own. Position + 1 entries where left out. */
  readonly perHead?: HeadTables;
  /** f32 elements from row to row of out; 'lanes' writes [8 / ranks][rows][heads][headDim] whatever it is. */
  readonly outStride: number;
}

/** Where the heads of a merge stand in a compressed cache's tables, [slot][cacheKvHeads][tableStride]. */
export interface HeadTables extends CacheHeads {
  /** That the problem's query heads share. */
  readonly kvHeads: number;
  readonly tableStride: number;
}

const MODES: readonly MergeMode[] = ['all', 'lanes', 'home'];

const mergeTables = (tables: HeadTables | undefined, heads: number) =>
  tables
    ? {
        group: queryGroup('attention_merge', heads, tables.kvHeads),
        ...cacheHeads('attention_merge', tables),
        table_stride: tables.tableStride,
      }
    : { group: 1, cache_kv_heads: 0, first_kv_head: 0, table_stride: 0 };

/**
 * Merges attention partials: each merge lane's chunks in ascending order, then the lanes in order; then divides by l. 'lanes' on the
 * ranks that share the sequences, then 'home', give the bits of 'all' on one rank. chunk_offsets is read only where ranks share
 * the sequences, block_table only with perHead, out_ml is written by 'lanes' only; a lane without chunks is left unwritten.
 */
export const attentionMerge = defineKernel({
  name: 'attention_merge',
  bindings: {
    partial_o: 'read',
    partial_ml: 'read',
    row_info: 'read',
    chunk_offsets: 'read',
    block_table: 'read',
    out: 'read_write',
    out_ml: 'read_write',
  },
  params: {
    rows: 'u32',
    heads: 'u32',
    partials: 'u32',
    out_units: 'u32',
    ...SHARE_PARAMS,
    lane_step: 'u32',
    group: 'u32',
    cache_kv_heads: 'u32',
    first_kv_head: 'u32',
    table_stride: 'u32',
  },
  plan(problem: AttentionMergeProblem, traits) {
    const { rows, heads, headDim, mode = 'all', partials, share = WHOLE, perHead, outStride } = problem;
    if (headDim % 8 !== 0 || headDim < 8 || headDim > 1024) {
      throw unsupportedError(
        `attention_merge: head_dim ${headDim} is not supported; it must be a multiple of 8 from 8 to 1024`,
      );
    }
    if (!Number.isInteger(partials) || partials < 1) {
      throw usageError(`attention_merge: ${partials} partials; expected an integer of at least 1`);
    }
    const shared = sharePlan('attention_merge', share);
    if (mode === 'all' && share.ranks > 1) {
      throw usageError(
        `attention_merge: mode 'all' with ${share.ranks} ranks; use 'lanes' on each rank, then 'home' where o_proj is`,
      );
    }
    const laneStep = MERGE_LANES / share.ranks;
    if (mode === 'home' && partials > laneStep) {
      throw usageError(
        `attention_merge: ${partials} lanes of each of ${share.ranks} ranks; expected at most ${laneStep}`,
      );
    }
    if (mode !== 'lanes') checkStride('attention_merge', 'outStride', outStride, heads * headDim);
    const units = Math.min(32, headDim / 4);
    return {
      wgsl: [softmaxState, shareSource, ...tableWgsl, source],
      constants: {
        ...tableConstants({ perHead: perHead !== undefined }),
        ...shared.constants,
        HEAD_UNITS: headDim / 4,
        UNITS: units,
        PARALLEL: traits.software || mode === 'home' ? 1 : laneStep,
        MODE: MODES.indexOf(mode),
      },
      params: {
        rows,
        heads,
        partials,
        out_units: outStride / 4,
        ...shared.params,
        lane_step: laneStep,
        ...mergeTables(perHead, heads),
      },
      grid: (step) => [heads, ceilDiv(headDim / 4, units), step.rows],
    };
  },
});
