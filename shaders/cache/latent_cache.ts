import { unsupportedError, usageError } from '../../src/base/errors.js';
import latentLayout from '../lib/latent_layout.wgsl?raw';
import { checkKvShape, KV_TYPE_WGSL, type KvType, kvUnitBytes, storedUnits } from './kv_cache.js';

/**
 * The paged latent cache of one MLA layer, one buffer: kvLoraRank + qkRopeHeadDim numbers per token, in units of 4 consecutive
 * elements (f32: 16 bytes, f16: 8, q8: 4):
 *   [physical block][stored units][block] units: token-contiguous
 * Stored units: (kvLoraRank + qkRopeHeadDim)/4. In q8 a token has the latent's units, those with their scales (see KvShape), and then
 * the rotated key in f16, two units for each of f32's (`latentKeyUnit`).
 */
export interface LatentShape {
  /** Elements of the normalised latent c_t: a multiple of 8, at most 1024. */
  readonly kvLoraRank: number;
  /** Elements of the rotated key k_pe that all heads share: a multiple of 8, at most 256. */
  readonly qkRopeHeadDim: number;
  readonly kvType: KvType;
  /** Tokens of a block: a power of two, 16..256. */
  readonly block: number;
}

/** Elements a token has in the cache, and a head has in q_abs. */
export const latentWidth = ({ kvLoraRank, qkRopeHeadDim }: Pick<LatentShape, 'kvLoraRank' | 'qkRopeHeadDim'>): number =>
  kvLoraRank + qkRopeHeadDim;

/** Where a token's rotated key begins in its stored units. */
export const latentKeyUnit = ({ kvLoraRank, kvType }: Pick<LatentShape, 'kvLoraRank' | 'kvType'>): number =>
  storedUnits(kvLoraRank, kvType);

/** Units that a token takes. */
const latentUnits = (shape: LatentShape): number =>
  latentKeyUnit(shape) + (shape.kvType === 'q8' ? shape.qkRopeHeadDim / 2 : shape.qkRopeHeadDim / 4);

/** Bytes that a token takes. */
export const latentTokenBytes = (shape: Omit<LatentShape, 'block'>): number =>
  latentUnits({ ...shape, block: 1 }) * kvUnitBytes(shape.kvType);

/** Bytes of one layer's latent buffer with `blocks` physical blocks. */
export const latentCacheBytes = (shape: LatentShape, blocks: number): number =>
  blocks * shape.block * latentTokenBytes(shape);

/** Unit index in the buffer of a stored unit of the token at `offset` in its physical block. */
export const latentUnit = (shape: LatentShape, block: number, unit: number, offset: number): number =>
  (block * latentUnits(shape) + unit) * shape.block + offset;

/** WGSL fragments for a kernel that touches the latent cache; they declare the variants of `latentConstants`. */
export const latentWgsl = (kvType: KvType): readonly string[] => [KV_TYPE_WGSL[kvType], latentLayout];

export const latentConstants = (shape: LatentShape): { readonly BLOCK: number } => ({ BLOCK: shape.block });

/** @throws SplitkvError when the kernels can't hold a latent cache of this shape. */
export function checkLatentShape(kernel: string, { kvLoraRank, qkRopeHeadDim, kvType, block }: LatentShape): void {
  if (!Number.isInteger(kvLoraRank) || kvLoraRank < 8 || kvLoraRank > 1024 || kvLoraRank % 8 !== 0) {
    throw unsupportedError(
      `${kernel}: kv_lora_rank ${kvLoraRank} is not supported; it must be a multiple of 8 from 8 to 1024`,
    );
  }
  if (!Number.isInteger(qkRopeHeadDim) || qkRopeHeadDim < 8 || qkRopeHeadDim > 256 || qkRopeHeadDim % 8 !== 0) {
    throw unsupportedError(
      `${kernel}: qk_rope_head_dim ${qkRopeHeadDim} is not supported; it must be a multiple of 8 from 8 to 256`,
    );
  }
  checkKvShape(kernel, { kvHeads: 1, headDim: 8, kvType, block });
}

/** @throws SplitkvError when `heads` is not a count of heads. */
export function checkHeads(kernel: string, heads: number): void {
  if (!Number.isInteger(heads) || heads < 1)
    throw usageError(`${kernel}: ${heads} heads; expected an integer of at least 1`);
}
