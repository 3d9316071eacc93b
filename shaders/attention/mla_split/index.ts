import { ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { CHUNK_TOKENS } from '../../cache/kv_cache.js';
import { checkHeads, checkLatentShape, type LatentShape } from '../../cache/latent_cache.js';
import { someActivations } from '../../linear/problem.js';
import { MLA_BINDINGS, MLA_PARAMS, MLA_VECTORS, mlaPlan, roomyQuads } from '../mla.js';
import type { QueryPieces } from '../query_pieces.js';
import { type Finish, finishPlan, localChunks, type Share, WHOLE } from '../share.js';
import source from './mla_split.wgsl?raw';
import rowSource from './mla_split_row.wgsl?raw';

// Invocations of a workgroup on software adapters, 4 heads each.
const SOFTWARE_THREADS = 4;

export interface MlaSplitProblem extends LatentShape, QueryPieces, Finish {
  /** That q_abs has room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  /** Block-table entries of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q_abs; a row starts with its (or its piece's) heads * (kvLoraRank + qkRopeHeadDim) elements. */
  readonly qStride: number;
  /** Of the scores: (nope + rope)^-0.5, times mscale^2 with YaRN. */
  readonly scale: number;
  /** Of the sequences' chunks; all of them where left out. chunk_offsets is read only where ranks share them. */
  readonly share?: Share;
}

/** Rows of a batch whose workgroups fill a GPU though each takes twice the heads. */
const BATCH_ROWS = 4;

/**
 * Quads of heads that read the latent together. A lone row has few workgroups, and each computes long: more of them are quicker than
 * fewer reads. `tuning`: twice as many, or half where that can't be.
 */
function quadsOf({ rows, heads }: MlaSplitProblem, traits: DeviceTraits): number {
  const most = Math.min(roomyQuads(traits), ceilDiv(heads, MLA_VECTORS));
  const usual = Math.min(most, rows >= BATCH_ROWS ? 2 : 1);
  if (traits.tuning !== 'heads') return usual;
  return 2 * usual <= most ? 2 * usual : Math.ceil(usual / 2);
}

/**
 * Generated rows: unnormalised attention over one 256-token chunk of this rank's latent cache, several heads sharing each read of
 * it. attention_merge with headDim = kvLoraRank and partials = maxChunks follows.
 */
export const mlaSplit = defineKernel({
  name: 'mla_split',
  bindings: MLA_BINDINGS,
  params: MLA_PARAMS,
  tunings: ['heads'],
  contents: ({ rows, qStride, block, tableStride, maxChunks, kvLoraRank, qkRopeHeadDim }: MlaSplitProblem) => ({
    q_abs: someActivations(rows * qStride),
    // One block is read again and again: about 1 in f16, and numbers in f32 and bytes.
    latent_cache: Uint32Array.from({ length: (block * (kvLoraRank + qkRopeHeadDim)) / 4 }, (_, i) => 0x3c003c00 + i),
    block_table: new Uint32Array(tableStride),
    row_info: Uint32Array.from({ length: 2 * rows }, (_, i) => (i % 2 === 0 ? maxChunks * CHUNK_TOKENS - 1 : 0)),
  }),
  plan(problem: MlaSplitProblem, traits) {
    const { heads, maxChunks, share = WHOLE } = problem;
    checkLatentShape('mla_split', problem);
    checkHeads('mla_split', heads);
    const finish = finishPlan('mla_split', problem, traits);
    const { software } = traits;
    const quads = quadsOf(problem, traits);
    const tile = MLA_VECTORS * (software ? SOFTWARE_THREADS : quads);
    const plan = mlaPlan(
      'mla_split',
      problem,
      { layout: 'row', lanes: maxChunks },
      software ? { rowSource, threads: SOFTWARE_THREADS } : { source, quads },
    );
    return {
      ...plan,
      constants: { ...plan.constants, ...finish },
      grid: (step) => [
        Math.min(localChunks(step.chunks, share), maxChunks),
        ceilDiv(heads, tile),
        Math.min(step.rows, problem.rows),
      ],
    };
  },
});
