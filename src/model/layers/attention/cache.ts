import { kvCacheBytes, type KvType } from '../../../../shaders/cache/kv_cache.js';
import { latentCacheBytes } from '../../../../shaders/cache/latent_cache.js';
import type { Buffer } from '../../../gpu/index.js';
import type { Owners } from '../../../placement/index.js';
import type { CompressionOptions } from '../../compression/options.js';
import type { PromptCompression } from '../../compression/prompt_compression.js';
import type { PagedAttention } from '../../config/model_config.js';

export { KV_TYPES, type KvType } from '../../../../shaders/cache/kv_cache.js';

/** What layers need to know of the cache that the engine pages. */
export interface CacheOptions {
  readonly type: KvType;
  /** Tokens per block. */
  readonly block: number;
  readonly numBlocks: number;
  /** u32 [slots][tableStride]: physical block of each logical block; NO_BLOCK where another rank holds it. */
  readonly blockTable: Buffer;
  readonly tableStride: number;
  /** u32 [slots]: rotates the owners of a sequence's chunks (shaders/cache/kv_cache.ts). */
  readonly chunkOffsets: Buffer;
  /** Behind those, of models whose prompts have runs (shaders/lib/runs.wgsl), u32 [slots] their ends: which word is the first: there are as many slots. */
  readonly runEnds: number;
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /**
   * Where layers have a state of each sequence: how many the rank runs, and u32 [slots] which is a slot's. `kept`: copies that there is
   * room for.
   */
  readonly states: { readonly count: number; readonly places: Buffer; readonly kept: number };
  /** Of layers with windows, where they keep fewer blocks; `blockTable` as above, NO_BLOCK also where a block is before the window. */
  readonly windowed?: Pick<CacheOptions, 'numBlocks' | 'blockTable'> | undefined;
  /** Where prompts are compressed head by head. The class is handed over, so that programs that never compress needn't load it. */
  readonly compression?:
    | { readonly options: CompressionOptions; readonly compressor: typeof PromptCompression }
    | undefined;
  /** Where heads are copied: who holds what of them. */
  readonly copyOwners?: Owners | undefined;
  /** Keys and values are of one step alone, which runs layer by layer: all layers of a stage have the same room. */
  readonly passing?: true;
  /** In both cases: heads keep different entries. A block of `numBlocks` is then one of each kv head. */
  readonly headTables?: HeadTables;
}

interface HeadTables {
  /** By the model's layer, u32 [slots][the rank's kv heads][tableStride] (shaders/lib/kv_table.wgsl); instead of the one block table. */
  readonly tables: ReadonlyMap<number, Buffer>;
  /** By the model's layer: blocks of all the rank's kv heads together. */
  readonly headBlocks: ReadonlyMap<number, number>;
  /** Most merge lanes that a rank has of a head of some slots' sequences, where copies of heads share lanes. `layer`: of the model. */
  readonly mostLanes: (slots: readonly number[], layer: number, head: number, rank: number) => number;
}

/** State p begins at p * bytes; in `kept`, which has copies that sequences may begin with, likewise. */
export interface LayerState {
  readonly buffer: Buffer;
  readonly bytes: number;
  readonly kept: Buffer | undefined;
}

export interface LayerCache {
  /** Of the model. */
  readonly layer: number;
  /** K and V, or the latents; none where the rank holds none of the layer's heads. */
  readonly buffers: readonly Buffer[];
  /** Of a buffer. */
  readonly bytes: number;
  /** Blocks are those of `CacheOptions.windowed`. */
  readonly isWindowed?: boolean;
  /** Of all buffers, of the heads whose cache the rank keeps: copied ones by its share. */
  readonly bytesPerToken: number;
  /** Of a recurrent layer, in place of all others. */
  readonly states?: readonly LayerState[];
  /** Of a per-head cache: bytes of a block of one head, K and V. */
  readonly headBlockBytes?: number;
}

/** Bytes that a token takes in a layer's cache, of one kv head or of the latent. */
export const kvTokenBytes = (attention: PagedAttention, kvType: KvType): number =>
  attention.kind === 'gqa'
    ? 2 * kvCacheBytes({ kvHeads: 1, headDim: attention.headDim, kvType, block: 1 }, 1)
    : latentCacheBytes({ ...attention, kvType, block: 1 }, 1);
