import { usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkHeads, checkLatentShape, type LatentShape } from '../../cache/latent_cache.js';
import { MLA_BINDINGS, MLA_PARAMS, MLA_VECTORS, mlaPlan } from '../mla.js';
import type { QueryPieces } from '../query_pieces.js';
import { localChunks, type Share, WHOLE } from '../share.js';
import source from './mla_split.wgsl?raw';
import rowSource from './mla_split_row.wgsl?raw';

// Invocations of a workgroup on software adapters, 4 heads each.
const SOFTWARE_THREADS = 4;

export interface MlaSplitProblem extends LatentShape, QueryPieces {
  /** That q_abs has room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  /** 256-token chunks that partials have room for: this rank's local ones. */
  readonly maxChunks: number;
  /** Block-table entries of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q_abs; a row starts with its (or its piece's) heads * (kvLoraRank + qkRopeHeadDim) elements. */
  readonly qStride: number;
  /** Of the scores: (nope + rope)^-0.5, times mscale^2 with YaRN. */
  readonly scale: number;
  /** Of the sequences' chunks; all of them where left out. chunk_offsets is read only where ranks share them. */
  readonly share?: Share;
}

/**
 * Generated rows: unnormalised attention over one 256-token chunk of this rank's latent cache, several heads sharing each read of
 * it. attention_merge with headDim = kvLoraRank and partials = maxChunks follows.
 */
export const mlaSplit = defineKernel({
  name: 'mla_split',
  bindings: MLA_BINDINGS,
  params: MLA_PARAMS,
  plan(problem: MlaSplitProblem, traits) {
    const { heads, maxChunks, share = WHOLE } = problem;
    checkLatentShape('mla_split', problem);
    checkHeads('mla_split', heads);
    if (!Number.isInteger(maxChunks) || maxChunks < 1 || maxChunks > 65535) {
      throw usageError(`mla_split: maxChunks ${maxChunks}; expected an integer from 1 to 65535`);
    }
    const { software } = traits;
    const tile = MLA_VECTORS * (software ? SOFTWARE_THREADS : 1);
    return {
      ...mlaPlan(
        'mla_split',
        problem,
        { layout: 'row', lanes: maxChunks },
        software ? { rowSource, threads: SOFTWARE_THREADS } : { source },
      ),
      grid: (step) => [Math.min(localChunks(step.chunks, share), maxChunks), ceilDiv(heads, tile), step.rows],
    };
  },
});
