import { packTiles, unpackTiles, type WeightType } from '../../shaders/linear/pack.js';
import type { KvType } from '../../src/model/layers/attention/cache.js';

/** What all runtimes are given: q4_k_m is a GGUF file's mixture, for those that read such files. */
export type PeerWeights = WeightType | 'q4_k_m';

/** The cache's type beside weights of a type, in every runtime: those that compute in f16 cache f16. */
export const kvOf = (weights: PeerWeights): KvType => (weights === 'f16' ? 'f16' : 'f32');

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
