import type { ConfigReader } from './config_reader.js';
import type { GqaConfig, LayerConfig, ModelConfig, NormConfig } from './model_config.js';
import { range } from '../../base/lists.js';

/**
 * An encoder of pictures beside a decoder: patches of a square tile become rows that take the places of placeholders. Sizes are in pixels
 * and elements.
 */
export interface VisionConfig {
  /** How pictures are cut, and announced in prompts (src/images). */
  readonly kind: 'tiles' | 'whole';
  /** A placeholder's id, of which a prompt has one for each row. */
  readonly imageToken: number;
  /** What stands for a picture in a text. */
  readonly mark: number;
  /** Of a tile's side, and of a patch's. */
  readonly image: number;
  readonly patch: number;
  /** So many patches by so many neighbours become a row of the decoder: one behind the other, or their average. */
  readonly merge: number;
  /** Of averages. */
  readonly averageNorm?: NormConfig;
  /** Rows of a picture, where each sees all of them; undefined: each sees those up to itself. */
  readonly runs?: number;
  /** The GGUF file that has it, where it isn't the decoder's. */
  readonly file?: string;
  /** The layers, of patches in the order of `patchOrder`. It has no vocabulary. */
  readonly tower: ModelConfig;
}

/** Patches of a tile, and rows that they become. */
export const patchesOf = ({ image, patch }: VisionConfig): number => Math.floor(image / patch) ** 2;
export const imageRows = (vision: VisionConfig): number => patchesOf(vision) / vision.merge ** 2;

/**
 * By place in the encoder's sequence: which patch, counted row by row. Those that become a row lie side by side; where they are averaged
 * first the first one of each row, then the second.
 */
export function patchOrder(vision: Pick<VisionConfig, 'image' | 'patch' | 'merge' | 'averageNorm'>): number[] {
  const { image, patch, merge } = vision;
  const side = Math.floor(image / patch);
  const blocks = side / merge;
  return range(0, side * side).map((at) => {
    const [block, inside] = vision.averageNorm
      ? [at % blocks ** 2, Math.floor(at / blocks ** 2)]
      : [Math.floor(at / merge ** 2), at % merge ** 2];
    const row = Math.floor(block / blocks) * merge + Math.floor(inside / merge);
    return row * side + (block % blocks) * merge + (inside % merge);
  });
}

/** What tensors of an encoder are called here, whatever a checkpoint calls them (weights/stored_names.ts). */
const layer = 'vision.encoder.layers.{layer}';
const attention = `${layer}.self_attn`;
const tensors: ModelConfig['tensors'] = {
  embedding: 'vision.none',
  head: 'vision.none',
  norm: 'vision.post_layernorm',
  inputNorm: `${layer}.layer_norm1`,
  gqa: {
    q: `${attention}.q_proj`,
    k: `${attention}.k_proj`,
    v: `${attention}.v_proj`,
    o: `${attention}.out_proj`,
  },
  postNorm: `${layer}.layer_norm2`,
  plain: { up: `${layer}.mlp.fc1`, down: `${layer}.mlp.fc2` },
};

/** What transformers takes for keys that a SigLIP's config leaves out. */
const siglipDefaults = {
  hidden_size: 768,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  image_size: 224,
  patch_size: 16,
  layer_norm_eps: 1e-6,
  hidden_act: 'gelu_pytorch_tanh',
};

/**
 * A SigLIP encoder: LayerNorms and biases everywhere, an MLP without a gate, a learned row for each patch's place.
 * @param mergeOf `merge` of so many patches a side
 * @param defaults in place of SigLIP's own
 */
export function parseSiglip(
  config: ConfigReader,
  mergeOf: (side: number) => number,
  defaults: Readonly<Record<string, unknown>> = {},
): Pick<VisionConfig, 'image' | 'patch' | 'merge' | 'tower'> {
  config.setDefaults({ ...siglipDefaults, ...defaults });
  const hiddenSize = config.integer('hidden_size');
  // Rows that are joined have nothing between them.
  if (hiddenSize % 64 !== 0) throw config.unsupported('hidden_size', hiddenSize, 'a multiple of 64');
  const heads = config.integer('num_attention_heads', { min: 1, max: 256 });
  const headDim = hiddenSize / heads;
  if (!Number.isInteger(headDim / 8)) throw config.invalid('num_attention_heads', heads, 'heads of whole eights');
  const activation = config.optionalString('hidden_act');
  if (activation !== 'gelu_pytorch_tanh')
    throw config.unsupported('hidden_act', activation, "only 'gelu_pytorch_tanh'");
  const size = config.raw('image_size');
  if (Array.isArray(size) && size[0] !== size[1]) throw config.unsupported('image_size', size, 'squares only');
  const image = Number(Array.isArray(size) ? size[0] : config.integer('image_size'));
  const patch = config.integer('patch_size');
  const side = Math.floor(image / patch);
  const merge = mergeOf(side);
  if (!(side >= 1 && side <= 64) || side % merge !== 0)
    throw config.unsupported('image_size', size, `up to 64 patches a side, a multiple of ${merge}`);
  const gqa: GqaConfig = {
    kind: 'gqa',
    heads,
    kvHeads: heads,
    headDim,
    bias: { q: true, k: true, v: true, o: true },
    qkNorm: false,
    rope: null,
    scale: headDim ** -0.5,
    bothWays: true,
  };
  const width = config.integer('intermediate_size');
  const one: LayerConfig = { attention: gqa, mlp: { kind: 'plain', width, activation: 'gelu_tanh', bias: true } };
  const tower: ModelConfig = {
    architecture: 'siglip',
    hiddenSize,
    vocabSize: 32,
    maxPositions: side * side,
    norm: { kind: 'layer', eps: config.positive('layer_norm_eps'), bias: true },
    tieWordEmbeddings: true,
    embeddingScale: 1,
    residualScale: 1,
    logitScale: 1,
    eosTokenIds: [],
    bosTokenId: null,
    layers: range(0, config.integer('num_hidden_layers', { min: 1, max: 256 })).map(() => one),
    tensors,
  };
  return { image, patch, merge, tower };
}
