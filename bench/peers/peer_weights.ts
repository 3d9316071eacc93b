import { packTiles, unpackTiles, type WeightType } from '../../shaders/linear/pack.js';
import type { KvType } from '../../src/model/layers/attention/cache.js';

/** The cache's type beside weights of a type, in every runtime: those that compute in f16 cache f16. */
export const kvOf = (weights: WeightType): KvType => (weights === 'f16' ? 'f16' : 'f32');

/** Rows as our own kernels multiply by them when they are packed as a type. */
export const asMultiplied = (
  weights: WeightType,
  rows: Float32Array<ArrayBuffer>,
  columns: number,
): Float32Array<ArrayBuffer> => {
  if (weights === 'f32') return rows;
  const count = rows.length / columns;
  return unpackTiles(weights, packTiles(weights, rows, count, columns), count, columns);
};
