/**
 * Room: model families, a file each. A family reads config.json (and GGUF metadata) into layers and names its tensors;
 * registry.ts makes it known. Read llama.ts next.
 */

import type { GgufFile } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { SoundConfig } from '../config/sound_config.js';
import type { VisionConfig } from '../config/vision_config.js';
import { countRange, type NeutralKey, parseTokenIds, refuseFloat8, refuseQuantized } from './common_keys.js';

/** What config.json says in the same words in every family. */
export type CommonConfig = Omit<ModelConfig, 'layers' | 'tensors'> & { readonly numLayers: number };

/**
 * A family of models: how its config.json becomes a list of layers, and what its checkpoints call their tensors. All else (loading,
 * planning, the forward program) follows from the layers. A family is one file beside this and one row of registry.ts.
 */
export interface Family {
  /** By model_type, what transformers takes for keys that a config.json leaves out. */
  readonly defaults?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Keys by which relatives of the family change the computation, beside `neutralKeys`, of which a family may read some itself. */
  readonly neutral?: readonly NeutralKey[];
  /** Methods of `quantization_config` whose files the family reads; default: none. */
  readonly packings?: readonly string[];
  /**
   * Reads the keys of config.json that are the family's own; what it gives back replaces the common part's. The reader's errors name
   * the key. A layer may say more than the runtime runs: `checkSupported` refuses that, not the family.
   */
  config(
    config: ConfigReader,
    common: CommonConfig,
  ): Pick<ModelConfig, 'layers' | 'tensors'> & Partial<Omit<CommonConfig, 'numLayers'>>;
  /** Of a wrapper's config.json: the encoder of pictures beside the text part. */
  vision?(config: ConfigReader): VisionConfig | undefined;
  /** And that of sound. */
  sound?(config: ConfigReader): SoundConfig | undefined;
  /**
   * What llama.cpp's file of the encoder says, in the words of that config.json, beside what all of them say alike (gguf/mmproj.ts).
   * @param idOf the id of a token of the model's
   */
  mmproj?(clip: GgufMetadata, idOf: (token: string) => number, model: ModelConfig): Record<string, unknown>;
  /** The same of its encoder of sound, all of it; and what llama.cpp calls that (`clip.audio.projector_type`). */
  readonly mmprojSound?: {
    readonly types: readonly string[];
    keys(clip: GgufMetadata, idOf: (token: string) => number): Record<string, unknown>;
  };
  /** Where llama.cpp has the family: its metadata, in the words of config.json. */
  readonly gguf?: FamilyGguf;
}

export interface FamilyGguf {
  /** Keys of config.json, `model_type` among them, beside those that every architecture's metadata says alike (gguf/config.ts). */
  keys(metadata: GgufMetadata, gguf: GgufFile): Record<string, unknown>;
  /** Architectures whose rows of q and k llama.cpp keeps in neighbouring pairs (2i, 2i + 1), where the checkpoint has halves. */
  readonly pairedRows?: readonly string[];
  /** What llama.cpp calls tensors here that it calls otherwise elsewhere, by what TensorNames calls them; where the file has them. */
  readonly parts?: Readonly<Partial<Record<'norm' | 'postNorm' | 'attentionOutNorm' | 'mlpOutNorm', string>>>;
  /** Architectures whose value heads of linear attention lie by their place among those of a key head, then by key head. */
  readonly tiledHeads?: readonly string[];
  /** Architectures in which the file's stretch of rotary frequencies isn't that of layers with a window: theirs aren't stretched. */
  readonly plainWindows?: readonly string[];
  /** Architectures in which the logarithm of YaRN's factor scales the softmax instead of cos and sin. */
  readonly yarnScalesSoftmax?: readonly string[];
  /** Architectures whose models were trained without the rounding of YaRN's bounds that llama.cpp does; no metadata says so. */
  readonly unroundedYarn?: readonly string[];
}

export const defineFamily = (family: Family): Family => family;

export function parseCommon(
  architecture: string,
  config: ConfigReader,
  generation: ConfigReader | undefined,
  packings?: readonly string[],
): CommonConfig {
  refuseQuantized(config, packings);
  refuseFloat8(config);
  const vocabSize = config.integer('vocab_size', { min: 1, max: 1 << 24 });
  return {
    architecture,
    hiddenSize: config.integer('hidden_size'),
    numLayers: config.integer('num_hidden_layers', countRange),
    vocabSize,
    maxPositions: config.integer('max_position_embeddings', { min: 1, max: 2 ** 30 }),
    norm: { kind: 'rms', eps: config.optionalPositive('rms_norm_eps') ?? 1e-6 },
    tieWordEmbeddings: config.boolean('tie_word_embeddings', false),
    embeddingScale: 1,
    residualScale: 1,
    logitScale: 1,
    ...parseTokenIds(config, generation, vocabSize),
  };
}
