import { unsupportedError, usageError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel, type ParamTypes } from '../../../src/gpu/kernel.js';
import {
  checkHeads,
  checkLatentShape,
  latentConstants,
  type LatentShape,
  latentWgsl,
  latentWidth,
} from '../../cache/latent_cache.js';
import { checkStride, kvStage, kvStageWgsl, type KvType } from '../../cache/kv_cache.js';
import mlaToken from '../../lib/mla_token.wgsl?raw';
import mlaTokenInputs from '../../lib/mla_token_inputs.wgsl?raw';
import rms from '../../lib/rms.wgsl?raw';
import rotate from '../../lib/rotate.wgsl?raw';
import steps from '../../lib/steps.wgsl?raw';
import source from './mla_rope_append.wgsl?raw';

export interface MlaRopeAppendProblem extends LatentShape {
  readonly rows: number;
  readonly heads: number;
  /** Elements of a head's q before its rotary part: a multiple of 4. */
  readonly qkNopeHeadDim: number;
  /** Of the latent's RMS norm (kv_a_layernorm). */
  readonly eps: number;
  /** Block-table entries of a slot. */
  readonly tableStride: number;
  /** f32 elements from row to row of q, and of the first head in a row. Multiples of 4. Offset defaults to 0. */
  readonly qStride: number;
  readonly qOffset?: number;
  /** f32 elements from row to row of kv_a, and of the latent in a row (k_pe follows it). Multiples of 4. Offset defaults to 0. */
  readonly kvStride: number;
  readonly kvOffset?: number;
  /** f32 elements from row to row of q_abs. */
  readonly qAbsStride: number;
  /**
   * Rows that travel to ranks that keep caches only. 'kept': q_abs[row] gets what the cache gets of its token, f32, behind the heads,
   * whether or not this rank appends it. 'ready': kv_a has it, and it is appended as it is; the other tensors are left alone.
   */
  readonly latents?: 'kept' | 'ready' | undefined;
}

export const MLA_TOKEN_PARAMS = {
  heads: 'u32',
  rank: 'u32',
  rope_units: 'u32',
  nope_units: 'u32',
  q_units: 'u32',
  q_start: 'u32',
  kv_units: 'u32',
  kv_start: 'u32',
  q_abs_units: 'u32',
  table_stride: 'u32',
  eps: 'f32',
} as const satisfies ParamTypes;

/** Rotation and append of a row (mla_token.wgsl), with what they need. */
export const mlaTokenWgsl = (kvType: KvType): readonly string[] => [
  ...latentWgsl(kvType),
  ...kvStageWgsl,
  rms,
  steps,
  rotate,
  mlaToken,
];

/** Workgroups of a row: the first has the latent and k_pe; the others share the pairs of units of q_pe. */
export const mlaTokenWorkgroups = (
  { heads, qkRopeHeadDim }: Pick<MlaRopeAppendProblem, 'heads' | 'qkRopeHeadDim'>,
  threads: number,
): number => 1 + ceilDiv(heads * (qkRopeHeadDim / 8), threads);

/**
 * Normalises the latent, rotates k_pe, and appends both to the latent cache; rotates each head's q_pe into q_abs[row][head][R..).
 * q and kv_a may be one buffer (bound twice, read only). A row whose block-table entry is NO_BLOCK appends nothing: another rank
 * holds its token.
 */
export const mlaRopeAppend = defineKernel({
  name: 'mla_rope_append',
  bindings: {
    q: 'read',
    kv_a: 'read',
    norm_weight: 'read',
    rope_table: 'read',
    row_info: 'read',
    block_table: 'read',
    latent_cache: 'read_write',
    q_abs: 'read_write',
  },
  params: MLA_TOKEN_PARAMS,
  plan(problem: MlaRopeAppendProblem, traits) {
    const {
      heads,
      kvLoraRank,
      qkRopeHeadDim,
      qkNopeHeadDim,
      qStride,
      qOffset = 0,
      kvStride,
      kvOffset = 0,
      qAbsStride,
      latents,
    } = problem;
    const ready = latents === 'ready';
    checkLatentShape('mla_rope_append', problem);
    checkHeads('mla_rope_append', heads);
    if (!Number.isInteger(qkNopeHeadDim) || qkNopeHeadDim < 4 || qkNopeHeadDim % 4 !== 0) {
      throw unsupportedError(
        `mla_rope_append: qk_nope_head_dim ${qkNopeHeadDim} is not supported; it must be a multiple of 4 from 4 on`,
      );
    }
    for (const [name, offset] of Object.entries({ qOffset, kvOffset })) {
      if (!Number.isInteger(offset) || offset < 0 || offset % 4 !== 0) {
        throw usageError(`mla_rope_append: ${name} ${offset}; expected a multiple of 4 of at least 0`);
      }
    }
    checkStride('mla_rope_append', 'qStride', qStride, qOffset + heads * (qkNopeHeadDim + qkRopeHeadDim));
    checkStride('mla_rope_append', 'kvStride', kvStride, kvOffset + latentWidth(problem));
    const tokens = heads + (latents === 'kept' ? 1 : 0);
    checkStride('mla_rope_append', 'qAbsStride', qAbsStride, tokens * latentWidth(problem));
    // Threads of a workgroup; on a software adapter they are one vector register, so that its barrier is cheap.
    const threads = traits.software ? 8 : 64;
    return {
      wgsl: [...mlaTokenWgsl(problem.kvType), mlaTokenInputs, source],
      constants: {
        ...latentConstants(problem),
        ...kvStage(problem.kvType, latentWidth(problem)),
        THREADS: threads,
        KEEP_LATENTS: latents === 'kept',
        READY: ready,
      },
      params: {
        heads,
        rank: kvLoraRank,
        rope_units: qkRopeHeadDim / 4,
        nope_units: qkNopeHeadDim / 4,
        q_units: qStride / 4,
        q_start: qOffset / 4,
        kv_units: kvStride / 4,
        kv_start: kvOffset / 4,
        q_abs_units: qAbsStride / 4,
        table_stride: problem.tableStride,
        eps: problem.eps,
      },
      grid: (step) => [ready ? 1 : mlaTokenWorkgroups(problem, threads), step.rows, 1],
    };
  },
});
