import { usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { tableConstants, tableWgsl } from '../../cache/head_tables.js';
import {
  type CacheHeads,
  cacheHeads,
  checkKvShape,
  checkStride,
  kvConstants,
  kvStage,
  type KvType,
  kvStageWgsl,
  kvWgsl,
  queryGroup,
  storedUnits,
} from '../../cache/kv_cache.js';
import attendChunk from '../../lib/attend_chunk.wgsl?raw';
import headRope from '../../lib/head_rope.wgsl?raw';
import headNorm from '../../lib/head_norm.wgsl?raw';
import rotate from '../../lib/rotate.wgsl?raw';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import stepsWgsl from '../../lib/steps.wgsl?raw';
import { type RotaryHeads, rotaryConstants } from '../../rope/rope_append/index.js';
import { attendConstants } from '../attention_split/index.js';
import { type Attended, SINK_PARAMS, sinkPlan, sinksWgsl, WINDOW_PARAMS, windowPlan, windowWgsl } from '../window.js';
import source from './attention_append.wgsl?raw';

export interface AttentionAppendProblem extends CacheHeads, RotaryHeads, Attended {
  /** That qkv has room for; a step may have fewer. Those of a step are of different slots. */
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  /** RMS norm over each q and k head before RoPE (Qwen3). Without it q_norm and k_norm may be left unbound. */
  readonly qkNorm: boolean;
  /** With qkNorm: over each v head too, without weights. */
  readonly valueNorm?: boolean | undefined;
  readonly eps: number;
  /** 256-token chunks that partials have room for. */
  readonly maxChunks: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table words of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of qkv. */
  readonly qkvStride: number;
  /** Of the scores, usually headDim^-0.5. */
  readonly scale: number;
}

/** Elements of a head for which a workgroup has room and threads for all that it rotates. */
const MOST_APPENDED_DIM = 256;

/** Whether the kernel takes heads of so many elements; rope_append and attention_split take more. */
export const canAppend = (headDim: number): boolean => headDim <= MOST_APPENDED_DIM;

/**
 * rope_append and attention_split in one, bit for bit, for generated rows whose whole sequences are in this rank's cache; qkv is left
 * as it is. On every adapter planned as for a GPU. Binds 10 storage buffers.
 */
export const attentionAppend = defineKernel({
  name: 'attention_append',
  bindings: {
    qkv: 'read',
    rope_table: 'read',
    q_norm: 'read',
    k_norm: 'read',
    row_info: 'read',
    block_table: 'read',
    k_cache: 'read_write',
    v_cache: 'read_write',
    partial_o: 'read_write',
    partial_ml: 'read_write',
  },
  params: {
    heads: 'u32',
    kv_heads: 'u32',
    cache_kv_heads: 'u32',
    first_kv_head: 'u32',
    row_units: 'u32',
    max_chunks: 'u32',
    table_stride: 'u32',
    group: 'u32',
    head_units: 'u32',
    half_units: 'u32',
    lanes: 'u32',
    stats: 'u32',
    eps: 'f32',
    scale: 'f32',
    ...WINDOW_PARAMS,
    ...SINK_PARAMS,
  },
  plan(problem: AttentionAppendProblem, traits) {
    const { heads, kvHeads, headDim, maxChunks, qkvStride, qkNorm } = problem;
    checkKvShape('attention_append', problem);
    if (!canAppend(headDim)) throw usageError(`attention_append: heads of ${headDim}; at most ${MOST_APPENDED_DIM}`);
    const group = queryGroup('attention_append', heads, kvHeads);
    checkStride(
      'attention_append',
      'qkvStride',
      qkvStride,
      (heads + 2 * kvHeads) * headDim + (problem.sinks ? heads : 0),
    );
    if (!Number.isInteger(maxChunks) || maxChunks < 1 || maxChunks > 65535) {
      throw usageError(`attention_append: maxChunks ${maxChunks}; expected an integer from 1 to 65535`);
    }
    const attended = windowPlan('attention_append', problem);
    const sinks = sinkPlan(problem, group);
    const constants = attendConstants(problem, traits);
    return {
      wgsl: [
        ...kvWgsl(problem.kvType),
        ...kvStageWgsl,
        ...tableWgsl,
        softmaxState,
        stepsWgsl,
        ...windowWgsl,
        ...sinksWgsl,
        headNorm,
        headRope,
        rotate,
        attendChunk,
        source,
      ],
      constants: {
        ...kvConstants(problem),
        ...kvStage(problem.kvType, 2 * headDim),
        ...tableConstants({}),
        ...attended.constants,
        ...sinks.constants,
        ...constants,
        QK_NORM: qkNorm,
        VALUE_NORM: qkNorm && (problem.valueNorm ?? false),
        ...rotaryConstants('attention_append', problem),
        STORED: storedUnits(headDim, problem.kvType),
      },
      params: {
        heads,
        kv_heads: kvHeads,
        ...cacheHeads('attention_append', problem),
        row_units: qkvStride / 4,
        max_chunks: maxChunks,
        table_stride: problem.tableStride,
        group,
        head_units: headDim / 4,
        half_units: headDim / 8,
        lanes: headDim / 8,
        stats: 16,
        eps: problem.eps,
        scale: problem.scale,
        ...attended.params,
        ...sinks.params,
      },
      grid: ({ chunks, rows }) => [Math.min(chunks, maxChunks), kvHeads * ceilDiv(group, constants.HEAD_TILE), rows],
    };
  },
});
