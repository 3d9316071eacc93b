import { internalError } from '../../../src/base/errors.js';
import { alignUp } from '../../../src/base/math.js';
import type { DeviceTraits } from '../../../src/gpu/device.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import { ONE_SEGMENT, planContract, contractWgsl } from '../../linear/contract.js';
import mlaTokenElements from '../../lib/mla_token_elements.wgsl?raw';
import { canFuseNorm, planNormedX } from '../../linear/linear/index.js';
import { BLOCK, blockElements, type MatrixType, TILE, UNIT_ELEMENTS } from '../../linear/pack.js';
import { weightsWgsl } from '../../linear/weights_wgsl.js';
import { MLA_TOKEN_PARAMS, mlaRopeAppend, type MlaRopeAppendProblem, mlaTokenWgsl } from '../mla_rope_append/index.js';
import source from './mla_up_append.wgsl?raw';

/** Rows of the bottleneck (`loraRank` elements), the latent and the rotary key, and what becomes of them. */
export interface MlaUpAppendProblem extends Omit<MlaRopeAppendProblem, 'latents' | 'qStride' | 'qOffset'> {
  readonly loraRank: number;
  /** Of the up-projection [heads * (qkNopeHeadDim + qkRopeHeadDim), loraRank]. */
  readonly type: MatrixType;
  /** Of the heads' matrices [kvLoraRank, qkNopeHeadDim]. */
  readonly absorbType: MatrixType;
  /** Element of norm_weight that the latent's norm starts at, behind the bottleneck's: a multiple of 4. */
  readonly latentNorm: number;
}

/** Whether heads and matrices are such as mla_up_append takes. */
export const canUp = (
  {
    loraRank,
    qkNopeHeadDim,
    qkRopeHeadDim,
    absorbType,
  }: Pick<MlaUpAppendProblem, 'loraRank' | 'qkNopeHeadDim' | 'qkRopeHeadDim' | 'absorbType'>,
  traits: DeviceTraits,
): boolean =>
  (absorbType === 'f16' || absorbType === 'f32') &&
  qkNopeHeadDim % 8 === 0 &&
  qkRopeHeadDim % 8 === 0 &&
  qkNopeHeadDim / UNIT_ELEMENTS[absorbType] <= 32 &&
  canFuseNorm(loraRank, traits);

/**
 * linear with its norm, and mla_absorb_append in one, bit for bit, for generated rows whose sequences are in this rank's cache. On every
 * adapter planned as for a GPU. Binds 10 storage buffers.
 */
export const mlaUpAppend = defineKernel({
  name: 'mla_up_append',
  bindings: {
    x: 'read',
    weight: 'read',
    scale: 'read',
    norm_weight: 'read',
    absorb: 'read',
    rope_table: 'read',
    row_info: 'read',
    block_table: 'read',
    latent_cache: 'read_write',
    out: 'read_write',
  },
  params: {
    model_in_features: 'u32',
    x_stride4: 'u32',
    units: 'u32',
    tile_units: 'u32',
    absorb_tile_units: 'u32',
    latent_norm: 'u32',
    ...MLA_TOKEN_PARAMS,
  },
  plan(problem: MlaUpAppendProblem, traits) {
    const { rows, heads, loraRank, type, absorbType, latentNorm, qkNopeHeadDim, qkRopeHeadDim } = problem;
    const gpu = { ...traits, software: false };
    if (!canUp(problem, gpu)) throw internalError(`mla_up_append: can't run ${JSON.stringify(problem)}`);
    const width = qkNopeHeadDim + qkRopeHeadDim;
    const token = mlaRopeAppend.plan({ ...problem, qStride: heads * width }, gpu);
    const { THREADS: _own, KEEP_LATENTS: _keeps, READY: _ready, ...tokenConstants } = token.constants;
    const normed = planNormedX(loraRank, gpu);
    const contraction = { type, inFeatures: loraRank, outFeatures: width, segments: ONE_SEGMENT, cut: false } as const;
    const { constants } = planContract({ ...contraction, tileRows: 1, matrices: 1 }, gpu);
    // Of a thread: heads that don't begin with a tile of 32 rows are cut into shorter runs.
    const lanes = Number(constants['LANES']);
    const each = [TILE / lanes, 2, 1].find((count) => width % (lanes * count) === 0)!;
    const unit = UNIT_ELEMENTS[type];
    return {
      wgsl: [
        ...mlaTokenWgsl(problem.kvType),
        mlaTokenElements,
        weightsWgsl(type, traits),
        contractWgsl,
        ...normed.fragments.filter((text) => !mlaTokenWgsl(problem.kvType).includes(text)),
        source,
      ],
      constants: {
        ...tokenConstants,
        KEEP_LATENTS: false,
        READY: false,
        ...constants,
        ...normed.constants,
        EACH: each,
        UNROLL: 1,
        TURNS: width / (lanes * each),
        HALVES: absorbType === 'f16',
        ABSORB_UNITS: qkNopeHeadDim / UNIT_ELEMENTS[absorbType],
      },
      params: {
        model_in_features: loraRank,
        x_stride4: problem.kvStride / 4,
        units: Math.ceil(loraRank / unit),
        tile_units: alignUp(loraRank, blockElements(type)) / unit,
        absorb_tile_units: alignUp(qkNopeHeadDim, BLOCK) / UNIT_ELEMENTS[absorbType],
        latent_norm: latentNorm / 4,
        ...token.params,
      },
      grid: (step) => [heads + 1, Math.min(step.rows, rows), 1],
    };
  },
});
