import { formatError, unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { type GgufFile, type TensorIndex, transposedView } from '../../loader/index.js';
import { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { ModelConfig } from '../config/model_config.js';
import type { VisionConfig } from '../config/vision_config.js';
import { projectorFamily, projectorsOf } from '../families/registry.js';
import { Block } from './tensors.js';

/**
 * The encoder of images in llama.cpp's file of it (mmproj), for the model beside which it lies.
 * @param tokens the model's vocabulary
 * @throws SplitkvError `format` for a file that is none, or another model's; `unsupported`, `config` as `parseModelConfig`
 */
export async function mmprojVision(
  mmproj: GgufFile,
  model: ModelConfig,
  arch: string,
  tokens: unknown,
): Promise<VisionConfig> {
  const { metadata, what, file } = mmproj;
  const kind = metadata.get('general.architecture');
  if (kind !== 'clip')
    throw formatError(
      `${what} is no encoder of images: general.architecture is ${show(kind ?? null)}; expected 'clip'`,
    );
  const type = metadata.get('clip.projector_type') ?? metadata.get('clip.vision.projector_type') ?? null;
  if (typeof type !== 'string' || !projectorsOf(arch).includes(type)) {
    throw unsupportedError(
      `${what}: clip.projector_type is ${show(type)}; beside a model of the architecture '${arch}' expected ${projectorsOf(arch).map(show).join(', ')}`,
    );
  }
  const clip = new GgufMetadata(mmproj, 'clip.vision');
  const width = clip.integer('projection_dim');
  if (width !== model.hiddenSize) {
    throw formatError(
      `${what} is of another model: its rows have ${width} elements (clip.vision.projection_dim), the model's ${model.hiddenSize}. Take the mmproj file of the same model`,
    );
  }
  const ids = new Map(Array.isArray(tokens) ? tokens.map((token, id) => [token, id] as const) : []);
  const idOf = (token: string): number => {
    const id = ids.get(token);
    if (id !== undefined) return id;
    throw unsupportedError(`${what}: the model beside it has no token ${token}, which stands for images in prompts`);
  };
  const family = await projectorFamily(type);
  const keys = {
    ...family.mmproj!(clip, idOf, model),
    vision_config: {
      hidden_size: clip.integer('embedding_length'),
      intermediate_size: clip.integer('feed_forward_length'),
      num_hidden_layers: clip.integer('block_count'),
      num_attention_heads: clip.integer('attention.head_count'),
      image_size: clip.integer('image_size'),
      patch_size: clip.integer('patch_size'),
      layer_norm_eps: clip.positive('attention.layer_norm_epsilon'),
      ...(metadata.get('clip.use_gelu') !== true && {
        hidden_act: metadata.get('clip.use_silu') ? 'silu' : 'quick_gelu',
      }),
    },
  };
  const { averageNorm, ...vision } = family.vision!(new ConfigReader(keys, what))!;
  // As in the decoder: files have 1 + w.
  return { ...vision, file, ...(averageNorm && { averageNorm: { ...averageNorm, offset: 0 } }) };
}

/** What such a file says of pictures, in the words of preprocessor_config.json. */
export function mmprojPictures({ metadata }: GgufFile): Record<string, unknown> {
  const [image_mean, image_std, longest_edge] = ['image_mean', 'image_std', 'preproc_image_size'].map((key) =>
    metadata.get(`clip.vision.${key}`),
  );
  return { image_mean, image_std, ...(longest_edge !== undefined && { size: { longest_edge } }) };
}

const towerParts = { patches: 'patch_embd', positions: 'position_embd', post_layernorm: 'post_ln' };
const layerParts = {
  layer_norm1: 'ln1',
  layer_norm2: 'ln2',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.out_proj': 'attn_out',
  'mlp.fc1': 'ffn_up',
  'mlp.fc2': 'ffn_down',
};
/** Old files have the names of the two the other way round. */
const swappedParts = { ...layerParts, 'mlp.fc1': 'ffn_down', 'mlp.fc2': 'ffn_up' };

/** The model's tensors, and the encoder's under the names of config/vision_config.ts. */
export function withMmproj(index: TensorIndex, mmproj: GgufFile, { tower, patch }: VisionConfig): TensorIndex {
  const tensors = new Map(index.tensors);
  const { hiddenSize, layers } = tower;
  const put = (prefix: string, to: string, parts: Readonly<Record<string, string>>): void =>
    new Block(mmproj, tensors, prefix).addParts(
      parts,
      Object.fromEntries(Object.keys(parts).map((part) => [part, to + part])),
      // A patch's kernel is a row.
      { patches: (entry) => (entry.shape.length === 4 ? { ...entry, shape: [hiddenSize, 3 * patch ** 2] } : entry) },
    );
  put('v.', 'vision.', towerParts);
  const [rows, columns] = mmproj.tensors.get('v.blk.0.ffn_down.weight')?.shape ?? [];
  const parts = columns === hiddenSize && rows !== hiddenSize ? swappedParts : layerParts;
  for (const layer of layers.keys()) put(`v.blk.${layer}.`, `vision.encoder.layers.${layer}.`, parts);
  put('mm.', 'vision.', { project: 'model.fc', average_norm: 'soft_emb_norm' });
  // Stored input by input.
  new Block(mmproj, tensors).add(mmproj.tensors.get('mm.input_projection.weight'), 'vision.project.weight', (entry) =>
    transposedView(entry, { first: 0, step: 1 }),
  );
  return { ...index, tensors, files: [...index.files, ...mmproj.files] };
}
