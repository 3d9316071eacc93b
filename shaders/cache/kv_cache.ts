/**
 * Room: how keys, values and latents lie in the cache, and how a kernel finds the entries of a head; kernels of
 * attention, rope and compression read these. Here are keys and values.
 */

import { ceilDiv } from '../../src/base/math.js';
import { unsupportedError, usageError } from '../../src/base/errors.js';
import kvF16 from '../lib/kv_f16.wgsl?raw';
import kvF32 from '../lib/kv_f32.wgsl?raw';
import kvLayout from '../lib/kv_layout.wgsl?raw';
import kvQ8 from '../lib/kv_q8.wgsl?raw';
import stage from '../lib/kv_stage.wgsl?raw';

/**
 * How K and V elements are stored. 'f16': values are packed two a word, which needs no adapter feature; beyond +-65504 they are
 * clamped. 'q8': bytes in blocks of 32 elements of a vector (the last may be shorter), each with a scale in f16 (lib/kv_q8.wgsl).
 */
export type KvType = 'f32' | 'f16' | 'q8';
export const KV_TYPES: readonly KvType[] = ['f32', 'f16', 'q8'];

export { CHUNK_TOKENS, INACTIVE as INACTIVE_POSITION, MERGE_LANES, NO_BLOCK } from '../../src/base/kv_units.js';

/**
 * The paged cache of one layer, one buffer each for K and V. A unit is 4 consecutive dims (f32: 16 bytes, f16: 8, q8: 4).
 *   K: [physical block][kv_head][stored units][block] units: token-contiguous
 *   V: [physical block][kv_head][block][stored units] units
 * Stored units: head_dim/4, and in q8 ceil(head_dim/64) more with the scales of the blocks, two f16 each (`scaleUnit`).
 */
export interface KvShape {
  readonly kvHeads: number;
  /** A multiple of 8, at most `MOST_HEAD_DIM`. */
  readonly headDim: number;
  readonly kvType: KvType;
  /** Tokens of a block: a power of two, 16..256. */
  readonly block: number;
}

/** Which of the cache's kv heads a kernel works on: head h of its problem is head firstKvHead + h of the cache. */
export interface CacheHeads {
  /** kv heads of the cache's layout. Defaults to the problem's. */
  readonly cacheKvHeads?: number;
  /** Defaults to 0. */
  readonly firstKvHead?: number;
}

const UNIT_BYTES: Readonly<Record<KvType, number>> = { f32: 16, f16: 8, q8: 4 };

/** Of 4 consecutive elements, or of scales. */
export const kvUnitBytes = (kvType: KvType): number => UNIT_BYTES[kvType];

/** Units with scales behind those of a vector of so many elements. */
const scaleUnits = (elements: number, kvType: KvType): number => (kvType === 'q8' ? ceilDiv(elements, 64) : 0);

/** Units that a vector of so many elements (a multiple of 4) takes, scales included. */
export const storedUnits = (elements: number, kvType: KvType): number => elements / 4 + scaleUnits(elements, kvType);

/** Bytes that a vector of so many elements takes. */
export const kvVectorBytes = (elements: number, kvType: KvType): number =>
  storedUnits(elements, kvType) * kvUnitBytes(kvType);

/** q8: which of a vector's units holds the scale of its unit, in the low half for even blocks of 8 units. */
export const scaleUnit = (elements: number, unit: number): number => elements / 4 + (unit >> 4);

/** Bytes of one layer's K buffer (V is as large) with `blocks` physical blocks. */
export const kvCacheBytes = (shape: KvShape, blocks: number): number =>
  blocks * shape.block * shape.kvHeads * kvVectorBytes(shape.headDim, shape.kvType);

/** Unit index in the K buffer of dims 4*unit..4*unit+3 of a token at `offset` in its physical block. */
export const keyUnit = (shape: KvShape, block: number, kvHead: number, unit: number, offset: number): number =>
  ((block * shape.kvHeads + kvHead) * storedUnits(shape.headDim, shape.kvType) + unit) * shape.block + offset;

/** Unit index in the V buffer, as `keyUnit`. */
export const valueUnit = (shape: KvShape, block: number, kvHead: number, unit: number, offset: number): number =>
  ((block * shape.kvHeads + kvHead) * shape.block + offset) * storedUnits(shape.headDim, shape.kvType) + unit;

/** WGSL fragments for a kernel that touches the cache; they declare the variants of `kvConstants`. */
export const kvWgsl = (kvType: KvType): readonly string[] => [KV_TYPE_WGSL[kvType], kvLayout];

export const KV_TYPE_WGSL: Readonly<Record<KvType, string>> = { f32: kvF32, f16: kvF16, q8: kvQ8 };

/** For a kernel that writes vectors into the cache; it declares the variant of `kvStage`. */
export const kvStageWgsl: readonly string[] = [stage];

/** Room for the vectors that a workgroup writes, `elements` in all. */
export const kvStage = (kvType: KvType, elements: number): { readonly KV_STAGE: number } => ({
  KV_STAGE: kvType === 'q8' ? elements / 4 : 1,
});

export const kvConstants = (shape: KvShape): { readonly HEAD_DIM: number; readonly BLOCK: number } => ({
  HEAD_DIM: shape.headDim,
  BLOCK: shape.block,
});

/** Elements of a head that all kernels of attention take. */
export const MOST_HEAD_DIM = 512;

/** @throws SplitkvError when the kernels can't hold a cache of this shape. */
export function checkKvShape(kernel: string, { kvHeads, headDim, kvType, block }: KvShape): void {
  if (!Number.isInteger(headDim) || headDim < 8 || headDim > MOST_HEAD_DIM || headDim % 8 !== 0) {
    throw unsupportedError(
      `${kernel}: head_dim ${headDim} is not supported; it must be a multiple of 8 from 8 to ${MOST_HEAD_DIM}`,
    );
  }
  if (!Number.isInteger(kvHeads) || kvHeads < 1) {
    throw usageError(`${kernel}: ${kvHeads} kv heads; expected an integer of at least 1`);
  }
  if (![16, 32, 64, 128, 256].includes(block)) {
    throw usageError(`${kernel}: KV block of ${block} tokens; use 16, 32, 64, 128 or 256`);
  }
  if (!KV_TYPES.includes(kvType)) {
    throw usageError(`${kernel}: KV type '${String(kvType)}'; use ${KV_TYPES.join(', ')}`);
  }
}

/** @throws SplitkvError when query heads don't divide over kv heads. Returns the query heads of each kv head. */
export function queryGroup(kernel: string, heads: number, kvHeads: number): number {
  if (!Number.isInteger(heads) || heads < 1 || heads % kvHeads !== 0) {
    throw unsupportedError(
      `${kernel}: ${heads} query heads can't share ${kvHeads} kv heads evenly; heads must be a multiple`,
    );
  }
  return heads / kvHeads;
}

/** @throws SplitkvError when the cache lacks some of the heads. Returns what kernels call these numbers in their params. */
export function cacheHeads(
  kernel: string,
  { kvHeads, cacheKvHeads = kvHeads, firstKvHead = 0 }: CacheHeads & Pick<KvShape, 'kvHeads'>,
): { readonly cache_kv_heads: number; readonly first_kv_head: number } {
  if (!Number.isInteger(cacheKvHeads) || !Number.isInteger(firstKvHead) || firstKvHead < 0) {
    throw usageError(
      `${kernel}: cacheKvHeads ${cacheKvHeads}, firstKvHead ${firstKvHead}; expected integers, firstKvHead at least 0`,
    );
  }
  if (firstKvHead + kvHeads > cacheKvHeads) {
    throw usageError(
      `${kernel}: kv heads ${firstKvHead} to ${firstKvHead + kvHeads - 1} of a cache of ${cacheKvHeads}; expected ` +
        'firstKvHead + kvHeads to be at most cacheKvHeads',
    );
  }
  return { cache_kv_heads: cacheKvHeads, first_kv_head: firstKvHead };
}

/** @throws SplitkvError when a row of `stride` f32 can't be read as vec4s or is narrower than what it holds. */
export function checkStride(kernel: string, name: string, stride: number, width: number): void {
  if (stride % 4 !== 0 || stride < width) {
    throw usageError(
      `${kernel}: ${name} ${stride}; expected a multiple of 4 of at least ${width} (alignUp(width, 32))`,
    );
  }
}
