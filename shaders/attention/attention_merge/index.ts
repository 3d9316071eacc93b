import { unsupportedError, usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { chunkTableWgsl, tableConstants } from '../../cache/head_tables.js';
import { joinsLanes } from '../../../src/base/kv_units.js';
import {
  type CacheHeads,
  cacheHeads,
  checkStride,
  CHUNK_TOKENS,
  MERGE_LANES,
  queryGroup,
} from '../../cache/kv_cache.js';
import partialLayoutSource from '../../lib/partial_layout.wgsl?raw';
import shareSource from '../../lib/share.wgsl?raw';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import { PIECE_PARAMS, piecesPlan, piecesWgsl } from '../query_pieces.js';
import { LAYOUT_PARAMS, layoutParams, localLanes, type Share, SHARE_PARAMS, sharePlan, WHOLE } from '../share.js';
import { promptPlan, RUN_PARAMS, type Runs, runsWgsl, WINDOW_PARAMS, windowWgsl } from '../window.js';
import source from './attention_merge.wgsl?raw';

/**
 * 'all':   partials of a rank that holds every chunk, to the output.
 * 'lanes': chunks of a rank that holds some of the merge lanes, to those, which then travel.
 * 'home':  the lanes of all ranks that hold some, to the output.
 */
type MergeMode = 'all' | 'lanes' | 'home';

export interface AttentionMergeProblem {
  /** There is room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  readonly headDim: number;
  /** 'all' where left out. */
  readonly mode?: MergeMode;
  /**
   * 'all', 'lanes': partials of a (row, head) in partial_o and partial_ml, [rows][heads][partials]: maxChunks after attention_split,
   * 'all' also lanes after attention_prefill. Left out for 'home', which has sources.
   */
  readonly partials?: number;
  /** 'lanes': the share of this rank. One rank where left out: with perHead, the tables say which lanes it holds. */
  readonly share?: Share;
  /** 'home': ranks that share every sequence (`Share`), by whom sources are listed. Left out: copies of heads, whose tables (perHead) say who has which lane. */
  readonly sharers?: number;
  /** The tables of a cache that is compressed head by head: every head has chunks of its own. Position + 1 entries where left out. */
  readonly perHead?: HeadTables;
  /** 'lanes', 'home': neighbouring heads whose lanes lie together (`HeadBundles`); all heads where left out. */
  readonly bundleHeads?: number;
  /** 'lanes': lanes that each bundle of out has room for; all that a rank may have where left out. */
  readonly lanes?: number;
  /** Of chunks, not of lanes: those before a row's window aren't read. None where left out. */
  readonly slidingWindow?: number;
  /** Of lanes: some rows have more than those up to themselves. */
  readonly runs?: Runs;
  /** 'all', 'home': f32 elements from row to row of out. */
  readonly outStride?: number;
  /** 'all': heads of each piece of out, [piece][rows][outStride], as queries come in pieces. One piece where left out. */
  readonly outPieces?: readonly number[];
}

/** Where the heads of a merge stand in a compressed cache's tables, [slot][cacheKvHeads][tableStride]. */
export interface HeadTables extends CacheHeads {
  /** That the problem's query heads share. */
  readonly kvHeads: number;
  readonly tableStride: number;
  /** Tokens of a cache block. */
  readonly block: number;
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
 * Merges attention partials: each merge lane's chunks in ascending order, then the lanes in a binary tree; then divides by l. 'lanes' on
 * the ranks that hold some, then 'home', give the bits of 'all' on one rank; of 2 or 4 ranks each gives one state (`joinsLanes`). sources (`laneSources`) is read by 'home' only, chunk_offsets
 * where ranks share the sequences, block_table only with perHead; out_ml is written by 'lanes' only, [bundle][lanes][rows]
 * [bundleHeads] as its out. A lane that the rank doesn't hold, or without chunks, is left unwritten.
 */
export const attentionMerge = defineKernel({
  name: 'attention_merge',
  bindings: {
    partial_o: 'read',
    partial_ml: 'read',
    row_info: 'read',
    chunk_offsets: 'read',
    block_table: 'read',
    sources: 'read',
    out: 'read_write',
    out_ml: 'read_write',
  },
  params: {
    rows: 'u32',
    heads: 'u32',
    partials: 'u32',
    out_units: 'u32',
    ...SHARE_PARAMS,
    lane_room: 'u32',
    ...LAYOUT_PARAMS,
    ...PIECE_PARAMS,
    group: 'u32',
    cache_kv_heads: 'u32',
    first_kv_head: 'u32',
    table_stride: 'u32',
    ...WINDOW_PARAMS,
    ...RUN_PARAMS,
  },
  plan(problem: AttentionMergeProblem, traits) {
    const { rows, heads, headDim, mode = 'all', share = WHOLE, perHead } = problem;
    const { bundleHeads = heads, outStride = 0, outPieces = [heads] } = problem;
    if (headDim % 8 !== 0 || headDim < 8 || headDim > 1024) {
      throw unsupportedError(
        `attention_merge: head_dim ${headDim} is not supported; it must be a multiple of 8 from 8 to 1024`,
      );
    }
    const partials = problem.partials ?? 0;
    if (mode !== 'home' && (!Number.isInteger(partials) || partials < 1)) {
      throw usageError(`attention_merge: ${partials} partials; expected an integer of at least 1`);
    }
    const { sharers } = problem;
    const shared = sharePlan('attention_merge', sharers === undefined ? share : { ranks: sharers, index: 0 });
    if (mode !== 'lanes' && share.ranks > 1) {
      throw usageError(
        `attention_merge: mode '${mode}' with ${share.ranks} ranks; use 'lanes' on each rank, then 'home' with sources where o_proj is`,
      );
    }
    const copies = mode === 'home' && sharers === undefined;
    if (copies && !perHead) {
      throw usageError(
        "attention_merge: mode 'home' needs sharers, or perHead: the tables of copied heads say who has which lane",
      );
    }
    if (mode !== 'home' && sharers !== undefined) {
      throw usageError(`attention_merge: sharers with mode '${mode}'; 'lanes' takes the rank's share`);
    }
    const laneRoom = localLanes(MERGE_LANES, share);
    const joins = mode === 'lanes' && joinsLanes(share.ranks);
    const mostLanes = joins ? 1 : laneRoom;
    const { lanes = mostLanes } = problem;
    if (!Number.isInteger(lanes) || lanes < 1 || lanes > mostLanes) {
      throw usageError(`attention_merge: room for ${lanes} lanes; expected 1 to ${mostLanes}`);
    }
    const treeLanes = joins ? laneRoom : sharers !== undefined && joinsLanes(sharers) ? sharers : MERGE_LANES;
    const pieces = piecesPlan('attention_merge', { heads, rows, queryPieces: outPieces }, outStride);
    if (mode !== 'all' && outPieces.length > 1) throw usageError(`attention_merge: mode '${mode}' writes one piece`);
    if (mode !== 'lanes') checkStride('attention_merge', 'outStride', outStride, Math.max(...outPieces) * headDim);
    const attended = promptPlan('attention_merge', problem);
    const holes = mode === 'lanes' && perHead !== undefined && share.ranks === 1;
    const units = Math.min(32, headDim / 4);
    return {
      wgsl: [
        softmaxState,
        shareSource,
        ...chunkTableWgsl,
        ...windowWgsl,
        ...runsWgsl,
        ...piecesWgsl,
        partialLayoutSource,
        steps,
        source,
      ],
      constants: {
        ...tableConstants({ perHead: perHead !== undefined }),
        ...shared.constants,
        ...attended.constants,
        ...pieces.constants,
        HEAD_UNITS: headDim / 4,
        UNITS: units,
        PARALLEL: traits.software || mode === 'home' ? 1 : laneRoom,
        MODE: MODES.indexOf(mode),
        JOINS: joins,
        TREE_LANES: treeLanes,
        HOLES: holes,
        COPIES: copies,
        BLOCK: holes ? perHead.block : CHUNK_TOKENS,
      },
      params: {
        rows,
        heads,
        partials,
        out_units: outStride / 4,
        ...shared.params,
        lane_room: laneRoom,
        ...layoutParams('attention_merge', { bundleHeads }, { rows, heads, lanes }),
        ...pieces.params,
        ...mergeTables(perHead, heads),
        ...attended.params,
      },
      grid: (step) => [heads, ceilDiv(headDim / 4, units), step.rows],
    };
  },
});
