import { ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { chunkTableWgsl, type TableLayout, tableConstants } from '../../cache/head_tables.js';
import {
  type CacheHeads,
  cacheHeads,
  CHUNK_TOKENS,
  checkKvShape,
  checkStride,
  kvConstants,
  type KvType,
  kvWgsl,
  queryGroup,
} from '../../cache/kv_cache.js';
import share from '../../lib/share.wgsl?raw';
import partialLayoutSource from '../../lib/partial_layout.wgsl?raw';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { PIECE_PARAMS, piecesPlan, piecesWgsl, type QueryPieces, widestPiece } from '../query_pieces.js';
import {
  checkLanes,
  LAYOUT_PARAMS,
  layoutParams,
  localLanes,
  type PartialLayout,
  type Share,
  SHARE_PARAMS,
  sharePlan,
  WHOLE,
} from '../share.js';
import {
  type Attended,
  queryElements,
  RUN_PARAMS,
  promptPlan,
  runsWgsl,
  SINK_PARAMS,
  sinkPlan,
  sinksWgsl,
  WINDOW_PARAMS,
  windowWgsl,
} from '../window.js';
import source from './attention_prefill.wgsl?raw';
import rowSource from './attention_prefill_row.wgsl?raw';

/**
 * Rows of a tile. Rows [16 i, 16 i + 16) belong to one slot, in ascending order of position; the caller pads with
 * inactive rows (also the last tile, beyond the step's rows).
 */
export const PREFILL_TILE_ROWS = 16;

export interface AttentionPrefillProblem extends CacheHeads, TableLayout, QueryPieces, Attended {
  /** That q and, in bundles, partials have room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** 256-token chunks of the longest sequence, whoever holds them. */
  readonly maxChunks: number;
  /**
   * Merge lanes that partials have room for: min(8, maxChunks), over the ranks that share the sequences: localLanes. Where ranks share
   * the lanes of heads (perHead tables with holes, in bundles), the most that lie here of any head, whatever the offset.
   */
  readonly lanes: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table words of a slot, or of a head of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q; a row starts with its (or its piece's) heads * headDim elements. */
  readonly qStride: number;
  /** Of the scores, usually headDim^-0.5. */
  readonly scale: number;
  /** Of the sequences' chunks; all of them where left out. chunk_offsets is read only where ranks share them, or there are `runs`. */
  readonly share?: Share;
  /** 'row' where left out. In bundles, lanes of a perHead table that lie elsewhere are left out: the others stand one behind the other. */
  readonly partialLayout?: PartialLayout;
}

/** Prompt rows: attention, causal but within `runs`, over the paged cache, which already holds the rows' own k and v; one partial a merge lane. */
export const attentionPrefill = defineKernel({
  name: 'attention_prefill',
  bindings: {
    q: 'read',
    k_cache: 'read',
    v_cache: 'read',
    row_info: 'read',
    block_table: 'read',
    chunk_offsets: 'read',
    partial_o: 'read_write',
    partial_ml: 'read_write',
  },
  params: {
    rows: 'u32',
    heads: 'u32',
    cache_kv_heads: 'u32',
    first_kv_head: 'u32',
    q_units: 'u32',
    ...PIECE_PARAMS,
    ...LAYOUT_PARAMS,
    table_stride: 'u32',
    ...SHARE_PARAMS,
    group: 'u32',
    head_units: 'u32',
    key_tile: 'u32',
    tile_rows: 'u32',
    scale: 'f32',
    ...WINDOW_PARAMS,
    ...RUN_PARAMS,
    ...SINK_PARAMS,
  },
  plan(problem: AttentionPrefillProblem, traits) {
    const {
      rows,
      heads,
      kvHeads,
      headDim,
      maxChunks,
      lanes,
      qStride,
      share: own = WHOLE,
      partialLayout = 'row',
    } = problem;
    checkKvShape('attention_prefill', problem);
    const group = queryGroup('attention_prefill', heads, kvHeads);
    const pieces = piecesPlan('attention_prefill', problem, qStride, group);
    checkStride('attention_prefill', 'qStride', qStride, queryElements(problem, widestPiece(problem), group));
    const shared = sharePlan('attention_prefill', own);
    const attended = promptPlan('attention_prefill', problem);
    const sinks = sinkPlan(problem, group);
    const compact = problem.perHead === true && own.ranks === 1 && partialLayout !== 'row';
    checkLanes('attention_prefill', { lanes, maxChunks, share: own }, compact);
    const gridLanes = (chunks: number): number => localLanes(Math.min(chunks, maxChunks), own);
    // On a GPU a tile of K or V takes at most 8 KiB of workgroup memory.
    const keyTile = traits.software ? 64 : headDim <= 64 ? 32 : headDim <= 128 ? 16 : headDim <= 256 ? 8 : 4;
    const params = {
      rows,
      heads,
      ...cacheHeads('attention_prefill', problem),
      q_units: qStride / 4,
      ...pieces.params,
      ...layoutParams('attention_prefill', partialLayout, problem),
      table_stride: problem.tableStride,
      ...shared.params,
      group,
      head_units: headDim / 4,
      key_tile: keyTile,
      tile_rows: PREFILL_TILE_ROWS,
      scale: problem.scale,
      ...attended.params,
      ...sinks.params,
    };
    const fragments = [
      ...kvWgsl(problem.kvType),
      ...chunkTableWgsl,
      softmaxState,
      share,
      ...piecesWgsl,
      ...windowWgsl,
      ...runsWgsl,
      ...sinksWgsl,
      partialLayoutSource,
    ];
    const constants = {
      ...kvConstants(problem),
      ...tableConstants(problem),
      ...shared.constants,
      ...pieces.constants,
      ...attended.constants,
      WINDOWED: attended.constants.WINDOWED || attended.constants.BOUNDED,
      ...sinks.constants,
      COMPACT: compact,
      TILE_ROWS: PREFILL_TILE_ROWS,
      KEY_TILE: keyTile,
    };
    if (traits.software) {
      return {
        wgsl: [...fragments, rowSource],
        constants,
        params,
        grid: (step) => [gridLanes(step.chunks), heads, ceilDiv(step.rows, PREFILL_TILE_ROWS)],
      };
    }
    const headTile = group === 1 ? 1 : 2;
    const headTiles = ceilDiv(group, headTile);
    return {
      wgsl: [stepsWgsl, ...fragments, source],
      constants: { ...constants, HEAD_TILE: headTile, KEEPS_QUERIES: keepsQueries(problem, keyTile, headTile, traits) },
      params,
      grid: (step) => [gridLanes(step.chunks), kvHeads * headTiles, ceilDiv(step.rows, PREFILL_TILE_ROWS)],
    };
  },
});

/** Whether a GPU's workgroup keeps its queries in workgroup memory: those of wider heads would leave room for few workgroups. */
function keepsQueries(
  { headDim, block }: AttentionPrefillProblem,
  keyTile: number,
  headTile: number,
  { limits }: DeviceTraits,
): boolean {
  const queries = PREFILL_TILE_ROWS * headTile;
  // In words: a tile of K or V, scores, and what threads share.
  const tiles = keyTile * headDim + keyTile * (queries + 1) + 128 + queries + CHUNK_TOKENS / block;
  return headDim <= 64 && 4 * (tiles + queries * headDim) <= limits.maxComputeWorkgroupStorageSize;
}
