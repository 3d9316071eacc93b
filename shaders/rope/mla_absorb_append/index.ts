import { contractWgsl } from '../../linear/contract.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { latentWidth } from '../../cache/latent_cache.js';
import mlaTokenElements from '../../lib/mla_token_elements.wgsl?raw';
import mlaTokenInputs from '../../lib/mla_token_inputs.wgsl?raw';
import groupOutputsWgsl from '../../linear/group_outputs.wgsl?raw';
import { linearGrouped } from '../../linear/linear_grouped/index.js';
import type { MatrixType } from '../../linear/pack.js';
import { weightsWgsl } from '../../linear/weights_wgsl.js';
import {
  MLA_TOKEN_PARAMS,
  mlaRopeAppend,
  type MlaRopeAppendProblem,
  mlaTokenWgsl,
  mlaTokenWorkgroups,
} from '../mla_rope_append/index.js';
import source from './mla_absorb_append.wgsl?raw';

/** Heads of q, and the type of their matrices [kvLoraRank, qkNopeHeadDim]. */
export interface MlaAbsorbAppendProblem extends Omit<MlaRopeAppendProblem, 'latents'> {
  readonly type: MatrixType;
}

/**
 * mla_rope_append and linear_grouped (absorb) in one, bit for bit, for generated rows whose sequences are in this rank's cache. On
 * every adapter planned as for a GPU. q and kv_a may be one buffer. Binds 10 storage buffers.
 */
export const mlaAbsorbAppend = defineKernel({
  name: 'mla_absorb_append',
  bindings: {
    q: 'read',
    kv_a: 'read',
    weight: 'read',
    scale: 'read',
    norm_weight: 'read',
    rope_table: 'read',
    row_info: 'read',
    block_table: 'read',
    latent_cache: 'read_write',
    out: 'read_write',
  },
  params: {
    rows: 'u32',
    out_features: 'u32',
    units: 'u32',
    tile_units: 'u32',
    out_stride: 'u32',
    out_offset: 'u32',
    out_group: 'u32',
    extra: 'u32',
    ...MLA_TOKEN_PARAMS,
  },
  plan(problem: MlaAbsorbAppendProblem, traits) {
    const { rows, heads, type, qkNopeHeadDim, qkRopeHeadDim, kvLoraRank } = problem;
    const gpu = { ...traits, software: false };
    const token = mlaRopeAppend.plan(problem, gpu);
    const { THREADS: _own, ...tokenConstants } = token.constants;
    const absorb = linearGrouped.plan(
      {
        rows,
        tileRows: 1,
        groups: heads,
        type,
        inFeatures: qkNopeHeadDim,
        outFeatures: kvLoraRank,
        xStride: problem.qStride,
        xOffset: problem.qOffset ?? 0,
        xGroupStride: qkNopeHeadDim + qkRopeHeadDim,
        outStride: problem.qAbsStride,
        outOffset: 0,
        outGroupStride: latentWidth(problem),
      },
      gpu,
    );
    const { out_features, units, tile_units, out_stride, out_offset, out_group } = absorb.params;
    const [tiles] = typeof absorb.grid === 'function' ? absorb.grid({ rows: 1, chunks: 1 }) : absorb.grid;
    const extra = mlaTokenWorkgroups(problem, Number(absorb.constants['LANES']) * Number(absorb.constants['SLICES']));
    return {
      wgsl: [
        ...mlaTokenWgsl(problem.kvType),
        mlaTokenInputs,
        mlaTokenElements,
        weightsWgsl(type, traits),
        contractWgsl,
        groupOutputsWgsl,
        source,
      ],
      constants: { ...tokenConstants, ...absorb.constants },
      params: {
        rows,
        out_features,
        units,
        tile_units,
        out_stride,
        out_offset,
        out_group,
        extra,
        ...token.params,
      },
      grid: (step) => [tiles, heads + ceilDiv(extra, tiles), Math.min(step.rows, rows)],
    };
  },
});
