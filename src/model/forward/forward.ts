import type { Buffer } from '../../gpu/index.js';
import type { CompressionOptions } from '../compression/options.js';
import type { StageCompression } from '../compression/stage_compression.js';
import type { Owners } from '../../placement/index.js';
import type { KvType } from '../layers/attention/kv_cache.js';
import type { Role } from '../layers/roles.js';
import type { RankRecorder } from '../layers/world.js';

/** Buffers that the forward program of some rows works in. `rows` is the most that a step may have. */
export interface RowBuffers {
  readonly role: Role;
  readonly rows: number;
  /**
   * u32 [blocks][rows]: token ids. Prompt rows have a block for each replica that rows are split over (`rowBlocks`),
   * this rank's own among them; generated rows one.
   */
  readonly tokens: Buffer;
  /** vec2<u32> [blocks][rows]: (position, slot); position 0xffffffff marks an inactive row. */
  readonly rowInfo: Buffer;
  /** f32 [rows][hiddenStride]: the residual stream of the own block; after the program, the last layer's output. */
  readonly x: Buffer;
  /** f32 [rows][hiddenStride], where a norm isn't fused into the projection that follows. */
  readonly normed: Buffer | undefined;
}

/** What a family needs to know of the cache that the engine pages. */
export interface CacheOptions {
  readonly type: KvType;
  /** Tokens a block. */
  readonly block: number;
  readonly numBlocks: number;
  /** u32 [slots][tableStride]: physical block of each logical block; NO_BLOCK where another rank holds it. */
  readonly blockTable: Buffer;
  readonly tableStride: number;
  /** u32 [slots]: rotates the owners of a sequence's chunks (shaders/cache/kv_cache.ts). */
  readonly chunkOffsets: Buffer;
  /** Tokens a sequence may have. */
  readonly contextLength: number;
  /** Where every kv head has tables and blocks of its own: prompts are compressed head by head, or heads are copied. */
  readonly perHead?: PerHeadCache;
}

/** A cache whose heads keep different entries. A block of `CacheOptions.numBlocks` is then one of each kv head. */
export interface PerHeadCache {
  readonly compression?: CompressionOptions | undefined;
  /** What compresses: the class is handed over, so that programs that never compress needn't load it. */
  readonly compressor: typeof StageCompression;
  /** Where heads are copied: who holds what of them. */
  readonly owners?: Owners | undefined;
  /** By the model's layer, u32 [slots][the rank's kv heads][tableStride] (shaders/lib/kv_table.wgsl); instead of the one block table. */
  readonly tables: ReadonlyMap<number, Buffer>;
  /** By the model's layer: blocks of all the rank's kv heads together. */
  readonly headBlocks: ReadonlyMap<number, number>;
}

/** A model family's forward program on one rank: recorded once, replayed each step. */
export interface Forward {
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly cacheBytes: number;
  readonly cacheBytesPerToken: number;
  /** Every cache buffer, with the bytes of a block in it: block b begins at b * blockBytes. */
  readonly cacheBuffers: readonly { readonly buffer: Buffer; readonly blockBytes: number }[];
  /** Of a per-head cache: bytes of a block of one head, K and V, and each layer's two buffers, which have half of them each. */
  readonly headBlockBytes?: number;
  layerBuffers?(layer: number): readonly Buffer[];
  /** Rows of the output head that this rank holds. */
  readonly headRows: number;
  /** Of a per-head cache: what compresses the prompts of each of the rank's stages. */
  readonly compressions?: readonly StageCompression[];
  /** At most `wanted` prompt rows a step: as many as the activations' bindings hold. */
  promptRows(wanted: number): number;
  /** `allRows`: the most that all ranks together may have in a step, where every rank runs rows of its own; else as `rows`. */
  allocateRows(role: Role, rows: number, allRows?: number): RowBuffers;
  /**
   * This rank's part of embedding and layers, with the hops between, for rows that `allocateRows` of this program made.
   * `compresses`: prompt rows that end a prompt, each layer of which is compressed after its attention.
   */
  recordLayers(recorder: RankRecorder, buffers: RowBuffers, compresses?: boolean): void;
  /**
   * Final norm and this rank's rows of the output head for `rows` rows of `x`; logits are f32 [rows][logitsStride], each at its
   * token's place. Rows whose logits are wanted run the generated rows' kernels, whatever their role was before. Nothing where
   * the rank holds no rows of the head.
   */
  recordHead(recorder: RankRecorder, x: Buffer, normed: Buffer | undefined, rows: number, logits: Buffer): void;
}
