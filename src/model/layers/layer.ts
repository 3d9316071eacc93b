/**
 * Room: the layers of a model, by kind: `attention/` (grouped-query, latent), `mlp/` (gated, experts) and the projections that both are
 * made of, `linear/`. A kind has its weights (`*_weights.ts`: which tensors a rank's slice is made of, their bytes, how they are
 * loaded) and its program beside them. These are the only parts of a model that talk to other ranks (`World`); the decoder that puts
 * them in order (../forward/decoder.ts) sees neither ranks nor kinds.
 *
 * Layers of a stage that are alike share one `AttentionLayers` or `MlpLayers`, and each set of rows that runs through them one
 * `AttentionProgram` or `MlpProgram`; those record a layer at a time.
 */

import type { Buffer, Device } from '../../gpu/index.js';
import type { StageTopology } from '../../placement/index.js';
import type { HalfWeights } from '../weights/weight_loader.js';
import type { PromptCompression } from '../compression/prompt_compression.js';
import type { ModelConfig } from '../config/model_config.js';
import type { AttentionWeights, MlpWeights } from './weight_kinds.js';
import type { CacheOptions, LayerCache } from './attention/cache.js';
import type { RopeTables } from './attention/rope_table.js';
import type { Scratch, StageRows } from './rows.js';
import type { RankRecorder, World } from './world.js';

/** A stage of the plan on this rank, as its layers see it. */
export interface StageContext {
  readonly device: Device;
  readonly world: World;
  readonly config: ModelConfig;
  readonly cache: CacheOptions;
  readonly topology: StageTopology;
  /** Elements from row to row of the residual stream. */
  readonly hiddenStride: number;
  readonly ropes: RopeTables;
  /** For what stages may share, whatever the rows. */
  readonly scratch: Scratch;
}

export interface AlikeLayers<Config, Weights> {
  readonly stage: StageContext;
  readonly config: Config;
  /** Their numbers in the model, ascending. */
  readonly layers: readonly number[];
  /** What the rank has of each: all of them, or none where it only keeps their cache. */
  readonly weights: readonly Weights[];
  /** Ends the names of buffers whose layout is theirs alone. */
  readonly suffix: string;
}

/** A layer's half, of which the rank has weights: x += residualScale * f(before(input)), or x += behind(f(before(input))). */
export interface Half<Weights> extends HalfWeights<Weights> {
  /** f32 [rows][hiddenStride]: where halves stand side by side, what their norm made of x; otherwise x itself is read. */
  readonly input?: Buffer;
}

/** Attention of alike layers on this rank: their caches, and how they work on some rows. */
export interface AttentionLayers {
  /** Query heads of this rank's weights, or of its root's. */
  readonly heads: number;
  /** By layer, in the order of `AlikeLayers.layers`; none where these share those of others. */
  readonly caches: readonly LayerCache[];
  /** Of a per-head cache: what compresses prompts. */
  readonly compression?: PromptCompression | undefined;
  /** Elements that a prompt row takes of the widest buffer. */
  readonly widestRow: number;
  program(rows: StageRows): AttentionProgram;
}

export interface AttentionProgram {
  /**
   * Records the layer of a cache. `half`: undefined where the rank only keeps the cache. `compresses`: the rows end a prompt, which is compressed
   * after its attention.
   */
  record(
    recorder: RankRecorder,
    cache: LayerCache,
    half: Half<AttentionWeights> | undefined,
    compresses: boolean,
  ): void;
}

export interface MlpLayers {
  /** Others than the projection after it read the normalised rows: the norm is a dispatch of its own. */
  readonly sharesNormed: boolean;
  /** Elements that a prompt row takes of the widest buffer. */
  readonly widestRow: number;
  program(rows: StageRows): MlpProgram;
}

export interface MlpProgram {
  record(recorder: RankRecorder, half: Half<MlpWeights>): void;
}

/** The classes of the kinds of layers: each takes layers of its own kind. */
export interface LayerKinds {
  readonly attention: Kinds<AttentionWeights['kind'], AttentionLayers>;
  readonly mlp: Kinds<MlpWeights['kind'], MlpLayers>;
}

export type Kinds<Kind extends string, Layers> = {
  readonly [K in Kind]?: (new (alike: AlikeLayers<never, never>) => Layers) | undefined;
};
