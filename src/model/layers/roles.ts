import { CHUNK_TOKENS } from '../../../shaders/cache/kv_cache.js';
import type { TileRows } from '../../../shaders/linear/problem.js';
import { alignUp, ceilDiv } from '../../base/math.js';

export const DOWN_SEGMENTS = { total: 8, align: 32 } as const;
export const ONE_SEGMENT = { total: 1, align: 32 } as const;

/**
 * What a row is decides its kernels: prompt rows run in tiles, generated rows through split-KV. A row's bits depend on its role
 * only, never on how many rows run with it.
 */
export type Role = 'prompt' | 'generated';

/** Activation rows are padded to this many elements; the padding stays zero. */
export const activationStride = (width: number): number => alignUp(width, 32);

/** Rows of `width` elements as they lie in buffers, padded to `stride`. */
export function padRows(rows: Float32Array, width: number, stride: number): Float32Array<ArrayBuffer> {
  const padded = new Float32Array((rows.length / width) * stride);
  for (let row = 0; row * width < rows.length; row++)
    padded.set(rows.subarray(row * width, (row + 1) * width), row * stride);
  return padded;
}

/** The first `count` of them as they are without. */
export function unpadRows(
  padded: Float32Array,
  count: number,
  width: number,
  stride: number,
): Float32Array<ArrayBuffer> {
  const rows = new Float32Array(count * width);
  for (let row = 0; row < count; row++) rows.set(padded.subarray(row * stride, row * stride + width), row * width);
  return rows;
}

/** Names a buffer that stages share: rows of `width` elements that are padded don't lie where others may have left something. */
export const paddedName = (name: string, width: number): string =>
  activationStride(width) === width ? name : `${name} of ${width}`;

/** 256-token chunks that a sequence of `tokens` tokens has. */
export const chunksOf = (tokens: number): number => ceilDiv(tokens, CHUNK_TOKENS);

/** A few-row kernel reads the weights once for so many rows; on a GPU for twice as many. */
export const FULL_TILE_ROWS = 8;

/** Rows that one workgroup of a few-row kernel takes at once, or fewer where a variant has no room; never changes a row's bits. */
export const tileRows = (rows: number): TileRows =>
  rows >= 16 ? 16 : rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;

/** Elements from row to row of queries that lie beside those of other weight groups: each begins where it can be bound by itself. */
export const queryStride = (
  groups: readonly (readonly number[])[],
  strideOf: (segments: readonly number[]) => number,
): number => alignUp(Math.max(...groups.map(strideOf)), groups.length > 1 ? 64 : 1);
