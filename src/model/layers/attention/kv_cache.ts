import type { Buffer, Device } from '../../../gpu/index.js';

export type KvType = 'f32' | 'f16';

export interface KvShape {
  /** Of the model; names the buffers. */
  readonly firstLayer: number;
  readonly numLayers: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly type: KvType;
  /** Tokens a block. */
  readonly block: number;
  readonly numBlocks: number;
  /** Where a block holds one head: a layer's blocks of all its heads; default numBlocks of each. */
  readonly headBlocks?: number | undefined;
}

/** The paged KV cache: a K and a V buffer a layer (layouts in shaders/lib/kv_*.wgsl). */
export interface KvCache extends KvShape {
  readonly layers: readonly { readonly k: Buffer; readonly v: Buffer }[];
  readonly bytes: number;
}

export const kvBytesPerToken = (shape: Pick<KvShape, 'numLayers' | 'numKvHeads' | 'headDim' | 'type'>): number =>
  2 * shape.numLayers * shape.numKvHeads * shape.headDim * (shape.type === 'f16' ? 2 : 4);

/** Allocates the cache. @throws SplitkvError `limit` when a layer's K or V exceeds one buffer or binding. */
export function allocateKvCache(device: Device, shape: KvShape): KvCache {
  const { numKvHeads, numLayers, headBlocks = shape.numBlocks * numKvHeads } = shape;
  const bytes = numKvHeads === 0 ? 0 : (kvBytesPerToken(shape) * shape.block * headBlocks) / numKvHeads / numLayers / 2;
  // A rank may hold none of a layer's heads.
  const layers = Array.from({ length: shape.numKvHeads === 0 ? 0 : shape.numLayers }, (_, layer) => ({
    k: device.createBuffer(
      `layers.${shape.firstLayer + layer}.k_cache (${shape.block * shape.numBlocks} tokens)`,
      bytes,
    ),
    v: device.createBuffer(
      `layers.${shape.firstLayer + layer}.v_cache (${shape.block * shape.numBlocks} tokens)`,
      bytes,
    ),
  }));
  return { ...shape, layers, bytes: bytes * 2 * shape.numLayers };
}
