import type { Buffer, Recorder } from '../gpu/index.js';
import type { KvType } from './kv_cache.js';
import type { Role } from './roles.js';

/** Buffers that the forward program of some rows works in. `rows` is the most that a step may have. */
export interface RowBuffers {
  readonly role: Role;
  readonly rows: number;
  /** u32 [rows]: token ids. */
  readonly tokens: Buffer;
  /** vec2<u32> [rows]: (position, slot); position 0xffffffff marks an inactive row. */
  readonly rowInfo: Buffer;
  /** f32 [rows][hiddenStride]: the residual stream; after the program, the last layer's output. */
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
  /** u32 [slots][tableStride]: physical block of each logical block. */
  readonly blockTable: Buffer;
  readonly tableStride: number;
  /** Tokens a sequence may have. */
  readonly contextLength: number;
}

/** A model family's forward program on one rank: recorded once, replayed each step. */
export interface Forward {
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly cacheBytes: number;
  readonly cacheBytesPerToken: number;
  /** At most `wanted` prompt rows a step: as many as the activations' bindings hold. */
  promptRows(wanted: number): number;
  allocateRows(role: Role, rows: number): RowBuffers;
  /** Embedding and every layer, for rows that `allocateRows` of this program made. */
  recordLayers(recorder: Recorder, buffers: RowBuffers): void;
  /**
   * Final norm and output head for `rows` rows of `x`; logits are f32 [rows][logitsStride]. Rows whose logits are wanted run the
   * generated rows' kernels, whatever their role was before.
   */
  recordHead(recorder: Recorder, x: Buffer, normed: Buffer | undefined, rows: number, logits: Buffer): void;
}
