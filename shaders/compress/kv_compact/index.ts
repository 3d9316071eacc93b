import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { chunkTableWgsl, tableConstants } from '../../cache/head_tables.js';
import {
  type CacheHeads,
  cacheHeads,
  checkKvShape,
  kvConstants,
  type KvType,
  kvWgsl,
  storedUnits,
} from '../../cache/kv_cache.js';
import steps from '../../lib/steps.wgsl?raw';
import { promptSteps } from '../problem.js';
import source from './kv_compact.wgsl?raw';

export interface KvCompactProblem extends CacheHeads {
  /** kv heads of this rank. */
  readonly kvHeads: number;
  readonly headDim: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table words of a head of a slot. */
  readonly tableStride: number;
  /** u32 elements from head to head of `kept`. */
  readonly scoreStride: number;
}

/**
 * Moves what each head keeps to the front of its own blocks, and notes in its block table how many entries are gone. The cache has
 * a block table for each head.
 */
export const kvCompact = defineKernel({
  name: 'kv_compact',
  bindings: {
    kept: 'read',
    kept_lengths: 'read',
    compress_info: 'read',
    block_table: 'read_write',
    k_cache: 'read_write',
    v_cache: 'read_write',
  },
  params: { score_stride: 'u32', cache_kv_heads: 'u32', first_kv_head: 'u32', table_stride: 'u32' },
  plan(problem: KvCompactProblem, traits) {
    const { kvHeads, headDim, scoreStride, tableStride } = problem;
    checkKvShape('kv_compact', problem);
    const layout = traits.software ? { TILE: 1, UNITS: 8 } : { TILE: 64, UNITS: 4 };
    return {
      wgsl: [...kvWgsl(problem.kvType), ...chunkTableWgsl, steps, source],
      constants: { ...kvConstants(problem), ...tableConstants({ perHead: true }), ...layout },
      params: { score_stride: scoreStride, ...cacheHeads('kv_compact', problem), table_stride: tableStride },
      // Keys, then values.
      grid: (step) => [ceilDiv(storedUnits(headDim, problem.kvType), layout.UNITS), kvHeads, 2 * promptSteps(step)],
    };
  },
});
