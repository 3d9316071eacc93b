import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { checkHeads, checkLatentShape, type LatentShape } from '../../cache/latent_cache.js';
import { MLA_BINDINGS, MLA_PARAMS, MLA_VECTORS, mlaPlan } from '../mla.js';
import type { QueryPieces } from '../query_pieces.js';
import { checkLanes, localLanes, type PartialLayout, type Share, WHOLE } from '../share.js';
import source from './mla_prefill.wgsl?raw';
import rowSource from './mla_prefill_row.wgsl?raw';

// Rows of a workgroup on software adapters, an invocation each: llvmpipe runs 8 in one instruction.
const SOFTWARE_ROWS = 8;

export interface MlaPrefillProblem extends LatentShape, QueryPieces {
  /** That q_abs and, in bundles, partials have room for; a step may have fewer. */
  readonly rows: number;
  readonly heads: number;
  /** 256-token chunks of the longest sequence, whoever holds them. */
  readonly maxChunks: number;
  /** Merge lanes that partials have room for: min(8, maxChunks), over the ranks that share the sequences: localLanes. */
  readonly lanes: number;
  /** Block-table entries of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q_abs; a row starts with its (or its piece's) heads * (kvLoraRank + qkRopeHeadDim) elements. */
  readonly qStride: number;
  /** Of the scores: (nope + rope)^-0.5, times mscale^2 with YaRN. */
  readonly scale: number;
  /** Of the sequences' chunks; all of them where left out. chunk_offsets is read only where ranks share them. */
  readonly share?: Share;
  /** 'row' where left out. */
  readonly partialLayout?: PartialLayout;
}

/**
 * Prompt rows: causal attention over the latent cache, which already holds the rows' own tokens; one partial a merge lane.
 * Rows come in tiles as attention_prefill's (PREFILL_TILE_ROWS). attention_merge with headDim = kvLoraRank and partials = lanes
 * follows; it reads only the lanes that hold tokens of the row, and only those are sure to be written.
 */
export const mlaPrefill = defineKernel({
  name: 'mla_prefill',
  bindings: MLA_BINDINGS,
  params: MLA_PARAMS,
  plan(problem: MlaPrefillProblem, traits) {
    const { heads, maxChunks, lanes, share = WHOLE, partialLayout = 'row' } = problem;
    checkLatentShape('mla_prefill', problem);
    checkHeads('mla_prefill', heads);
    checkLanes('mla_prefill', { lanes, maxChunks, share });
    const partials = { layout: partialLayout, lanes };
    const gridLanes = (chunks: number): number => Math.min(localLanes(chunks, share), lanes);
    if (traits.software) {
      return {
        ...mlaPlan('mla_prefill', problem, partials, { rowSource, threads: SOFTWARE_ROWS }),
        grid: (step) => [gridLanes(step.chunks), ceilDiv(heads, MLA_VECTORS), ceilDiv(step.rows, SOFTWARE_ROWS)],
      };
    }
    return {
      ...mlaPlan('mla_prefill', problem, partials, { source, quads: 1 }),
      grid: (step) => [gridLanes(step.chunks), heads, ceilDiv(step.rows, MLA_VECTORS)],
    };
  },
});
