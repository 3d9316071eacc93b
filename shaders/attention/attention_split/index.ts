import { ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { chunkTableWgsl, type TableLayout, tableConstants } from '../../cache/head_tables.js';
import {
  type CacheHeads,
  CHUNK_TOKENS,
  cacheHeads,
  checkKvShape,
  checkStride,
  kvCacheBytes,
  kvConstants,
  type KvType,
  kvWgsl,
  queryGroup,
} from '../../cache/kv_cache.js';
import attendChunk from '../../lib/attend_chunk.wgsl?raw';
import share from '../../lib/share.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import { someActivations } from '../../linear/problem.js';
import { PIECE_PARAMS, piecesPlan, piecesWgsl, type QueryPieces, widestPiece } from '../query_pieces.js';
import { type Finish, finishPlan, localChunks, type Share, SHARE_PARAMS, sharePlan, WHOLE } from '../share.js';
import {
  type Attended,
  queryElements,
  SINK_PARAMS,
  sinkPlan,
  sinksWgsl,
  WINDOW_PARAMS,
  windowPlan,
  windowWgsl,
} from '../window.js';
import source from './attention_split.wgsl?raw';
import serialSource from './attention_split_serial.wgsl?raw';

export interface AttentionSplitProblem extends CacheHeads, TableLayout, QueryPieces, Attended, Finish {
  /** That q has room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table words of a slot, or of a head of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q; a row starts with its (or its piece's) heads * headDim elements. */
  readonly qStride: number;
  /** Of the scores, usually headDim^-0.5. */
  readonly scale: number;
  /** Of the sequences' chunks; all of them where left out. chunk_offsets is read only where ranks share them. */
  readonly share?: Share;
}

/**
 * How a workgroup attends to a chunk on a hardware adapter (attend_chunk.wgsl); HEAD_TILE also on a software adapter. `tuning`: twice
 * or half as much is asked for at a time.
 */
export function attendConstants(
  { heads, kvHeads, headDim }: Pick<AttentionSplitProblem, 'heads' | 'kvHeads' | 'headDim'>,
  { unroll, tuning }: DeviceTraits,
) {
  const group = heads / kvHeads;
  const most = tuning === 'fewer loads' ? 4 : 8;
  const values = { 'fewer loads': 2, 'more loads': 8 }[tuning ?? ''] ?? 4;
  return {
    HEAD_TILE: group === 1 ? 1 : group === 2 ? 2 : 4,
    // Units of a key that a thread asks for at a time.
    STEP: unroll ? [8, 6, 5, 4, 3, 2, 1].find((divisor) => divisor <= most && (headDim / 4) % divisor === 0)! : 1,
    // Compilers of CPUs take long for more; a tuned plan differs all the same.
    VALUES: unroll ? values : Math.max(1, values / 4),
    UNROLLED: unroll,
  };
}

/** Generated rows: unnormalised attention of one 256-token chunk of this rank, all query heads of a kv head together. */
export const attentionSplit = defineKernel({
  name: 'attention_split',
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
    heads: 'u32',
    cache_kv_heads: 'u32',
    first_kv_head: 'u32',
    q_units: 'u32',
    ...PIECE_PARAMS,
    max_chunks: 'u32',
    table_stride: 'u32',
    ...SHARE_PARAMS,
    group: 'u32',
    head_units: 'u32',
    stats: 'u32',
    scale: 'f32',
    ...WINDOW_PARAMS,
    ...SINK_PARAMS,
  },
  tunings: ['fewer loads', 'more loads'],
  contents: (problem: AttentionSplitProblem) => {
    const { rows, qStride, kvHeads, tableStride, maxChunks } = problem;
    // One block is read again and again: about 1 in f16, and numbers in f32 and bytes.
    const words = kvCacheBytes(problem, 1) / 4;
    const block = Uint32Array.from({ length: words }, (_, i) => 0x3c003c00 + (i % 256));
    return {
      q: someActivations(rows * qStride),
      k_cache: block,
      v_cache: block,
      block_table: new Uint32Array(kvHeads * tableStride),
      row_info: Uint32Array.from({ length: 2 * rows }, (_, i) => (i % 2 === 0 ? maxChunks * CHUNK_TOKENS - 1 : 0)),
    };
  },
  plan(problem: AttentionSplitProblem, traits) {
    const { heads, kvHeads, headDim, maxChunks, qStride, share: own = WHOLE } = problem;
    checkKvShape('attention_split', problem);
    const group = queryGroup('attention_split', heads, kvHeads);
    const pieces = piecesPlan('attention_split', problem, qStride, group);
    checkStride('attention_split', 'qStride', qStride, queryElements(problem, widestPiece(problem), group));
    const shared = sharePlan('attention_split', own);
    const attended = windowPlan('attention_split', problem);
    const sinks = sinkPlan(problem, group);
    const units = headDim / 4;
    const { software } = traits;
    const finish = finishPlan('attention_split', problem, traits);
    const { HEAD_TILE: headTile, ...hardware } = attendConstants(problem, traits);
    return {
      wgsl: [
        ...kvWgsl(problem.kvType),
        ...chunkTableWgsl,
        softmaxState,
        share,
        ...piecesWgsl,
        ...windowWgsl,
        ...sinksWgsl,
        ...(software ? [serialSource] : [stepsWgsl, attendChunk, source]),
      ],
      constants: {
        ...kvConstants(problem),
        ...tableConstants(problem),
        ...shared.constants,
        ...pieces.constants,
        ...attended.constants,
        ...sinks.constants,
        HEAD_TILE: headTile,
        ...finish,
        ...(!software && hardware),
      },
      params: {
        heads,
        ...cacheHeads('attention_split', problem),
        q_units: qStride / 4,
        ...pieces.params,
        max_chunks: maxChunks,
        table_stride: problem.tableStride,
        ...shared.params,
        head_units: units,
        group,
        stats: software ? 8 : 16,
        scale: problem.scale,
        ...attended.params,
        ...sinks.params,
      },
      grid: ({ chunks, rows }) => [
        Math.min(localChunks(chunks, own), maxChunks),
        kvHeads * (software ? 1 : ceilDiv(group, headTile)),
        Math.min(rows, problem.rows),
      ],
    };
  },
});
