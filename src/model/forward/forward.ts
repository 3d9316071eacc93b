/**
 * Room: a model's forward program on one rank: recorded once, replayed each step. What the engine knows of it; decoder.ts is the one there
 * is, layer_kinds.ts beside it says where the layers come from (../layers/).
 */

import type { Buffer } from '../../gpu/index.js';
import type { StageCompression } from '../compression/stage_compression.js';
import type { LayerCache, LayerState } from '../layers/attention/cache.js';
import type { Norm } from '../layers/norm.js';
import type { Role } from '../layers/roles.js';
import type { RowBuffers } from '../layers/rows.js';
import type { RankRecorder } from '../layers/world.js';

/** Block b begins at b * blockBytes. */
export interface CacheBuffer {
  readonly buffer: Buffer;
  readonly blockBytes: number;
  /** Blocks are those of layers with windows, which have numbers of their own. */
  readonly isWindowed: boolean;
}

export interface Forward {
  readonly hiddenStride: number;
  readonly logitsStride: number;
  /** Of the paged cache, and of all states. */
  readonly cacheBytes: number;
  /** Of the states alone, kept ones included. */
  readonly stateBytes: number;
  readonly states: readonly LayerState[];
  readonly cacheBytesPerToken: number;
  /** Every cache buffer, in the order of layers. */
  readonly cacheBuffers: readonly CacheBuffer[];
  /** The cache of a layer of the model that this rank holds some of. */
  layerCache(layer: number): LayerCache;
  /** Weights of the norm before the head; undefined where no rows of it are. */
  readonly finalNorm: Norm | undefined;
  /** Rows of the output head that this rank holds. */
  readonly headRows: number;
  /** Of a per-head cache: what compresses the prompts of each of the rank's stages. */
  readonly compressions: readonly StageCompression[];
  /** At most `wanted` prompt rows a step: as many as the activations' bindings hold. */
  promptRows(wanted: number): number;
  /**
   * `allRows`: the most that all ranks together may have in a step, where every rank runs rows of its own; otherwise as `rows`. `like`: more
   * rows, whose tokens and residual stream these are the first ones of.
   */
  allocateRows(role: Role, rows: number, allRows?: number, like?: RowBuffers): RowBuffers;
  /**
   * This rank's part of embedding and layers, with the exchanges between, for rows that `allocateRows` of this program made.
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
