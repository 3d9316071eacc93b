import { usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { chunkTableWgsl, type TableLayout, tableConstants } from '../../cache/head_tables.js';
import {
  type CacheHeads,
  cacheHeads,
  checkKvShape,
  checkStride,
  CHUNK_TOKENS,
  kvConstants,
  type KvType,
  kvWgsl,
  MERGE_LANES,
  queryGroup,
} from '../../cache/kv_cache.js';
import softmaxState from '../../lib/softmax_state.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import { checkWindow, promptSteps, type SelectionProblem } from '../problem.js';
import source from './snap_scores.wgsl?raw';

export interface SnapScoresProblem extends SelectionProblem, CacheHeads, TableLayout {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Block-table words of a slot, or of a head of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q; a row starts with heads * headDim elements. */
  readonly qStride: number;
  /** Of the scores, usually headDim^-0.5. */
  readonly scale: number;
  /** Merge lanes that attention_prefill's partials have room for; one rank holds them all, lanes of a row side by side. */
  readonly lanes: number;
  /** Where this rank's first kv head stands among the heads of `scores`. Defaults to 0. */
  readonly firstScoreHead?: number;
}

/**
 * Mean attention probability of each key before the window, over the window's queries and a kv head's query heads. Runs after
 * attention_prefill of the step that ends a prompt, whose partial_ml it takes.
 */
export const snapScores = defineKernel({
  name: 'snap_scores',
  bindings: {
    q: 'read',
    k_cache: 'read',
    partial_ml: 'read',
    compress_info: 'read',
    block_table: 'read',
    scores: 'read_write',
  },
  params: {
    heads: 'u32',
    cache_kv_heads: 'u32',
    first_kv_head: 'u32',
    q_units: 'u32',
    lanes: 'u32',
    table_stride: 'u32',
    score_stride: 'u32',
    first_score_head: 'u32',
    group: 'u32',
    head_units: 'u32',
    window: 'u32',
    scale: 'f32',
  },
  plan(problem: SnapScoresProblem, traits) {
    const { heads, kvHeads, headDim, qStride, lanes, window } = problem;
    checkKvShape('snap_scores', problem);
    const group = queryGroup('snap_scores', heads, kvHeads);
    checkStride('snap_scores', 'qStride', qStride, heads * headDim);
    checkWindow('snap_scores', window);
    if (!Number.isInteger(lanes) || lanes < 1 || lanes > MERGE_LANES) {
      throw usageError(`snap_scores: ${lanes} merge lanes; expected 1 to ${MERGE_LANES}, as attention_prefill has`);
    }
    const threads = traits.software ? 16 : 64;
    return {
      wgsl: [...kvWgsl(problem.kvType), ...chunkTableWgsl, softmaxState, steps, source],
      constants: { ...kvConstants(problem), ...tableConstants(problem), THREADS: threads, WINDOW: window },
      params: {
        heads,
        ...cacheHeads('snap_scores', problem),
        q_units: qStride / 4,
        lanes,
        table_stride: problem.tableStride,
        score_stride: problem.scoreStride,
        first_score_head: problem.firstScoreHead ?? 0,
        group,
        head_units: headDim / 4,
        window,
        scale: problem.scale,
      },
      grid: (step) => [ceilDiv(step.chunks * CHUNK_TOKENS, threads), kvHeads, promptSteps(step)],
    };
  },
});
