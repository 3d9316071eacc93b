import { formatError, ioError, unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import {
  entryOf,
  findMmproj,
  type GgufFile,
  openGguf,
  type Source,
  summedView,
  type TensorEntry,
  type TensorIndex,
  transposedView,
} from '../../loader/index.js';
import { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { ModelConfig } from '../config/model_config.js';
import type { VisionConfig } from '../config/vision_config.js';
import { projectorFamily, projectorsOf } from '../families/registry.js';
import { Block } from './tensors.js';

/**
 * The encoder of images beside a GGUF model, in llama.cpp's file of it (mmproj); undefined where models of the architecture have none.
 * @param images the file, or true for the one that lies there
 * @throws SplitkvError `io` where there is none, `format` for one that is no encoder or another model's; `unsupported`, `config`
 */
export async function openMmproj(
  source: Source,
  { file, metadata: text }: GgufFile,
  model: ModelConfig,
  images: boolean | string | undefined,
  signal: AbortSignal | undefined,
) {
  const types = projectorsOf(String(text.get('general.architecture')));
  if (types.length === 0) return undefined;
  const name = typeof images === 'string' ? images : await findMmproj(source, file, signal);
  if (name === undefined) {
    throw ioError(
      `images: no mmproj file lies beside ${file} of ${source.name}: put llama.cpp's mmproj-*.gguf of the same model there, or name it (mmproj); leave images out for text alone`,
    );
  }
  const mmproj = await openGguf(source, name, signal);
  const { metadata, what } = mmproj;
  const kind = metadata.get('general.architecture') ?? null;
  if (kind !== 'clip')
    throw formatError(`${what} is no encoder of images: general.architecture is ${show(kind)}; expected "clip"`);
  const type = metadata.get('clip.projector_type') ?? metadata.get('clip.vision.projector_type') ?? null;
  if (typeof type !== 'string' || !types.includes(type))
    throw unsupportedError(
      `${what}: clip.projector_type is ${show(type)}; beside ${file} expected ${types.map(show).join(', ')}`,
    );
  const clip = new GgufMetadata(mmproj, 'clip.vision');
  const width = clip.integer('projection_dim');
  if (width !== model.hiddenSize) {
    throw formatError(
      `${what} is of another model: its rows have ${width} elements (clip.vision.projection_dim), the model's ${model.hiddenSize}. Take the mmproj file of the same model`,
    );
  }
  const tokens = text.get('tokenizer.ggml.tokens');
  const idOf = (token: string): number => {
    const id = Array.isArray(tokens) ? tokens.indexOf(token) : -1;
    if (id >= 0) return id;
    throw unsupportedError(`images: ${file} has no token ${token}, which stands for them in prompts`);
  };
  const family = await projectorFamily(type, String(text.get('general.architecture')));
  const { vision_config: own, ...said } = family.mmproj!(clip, idOf, model);
  const keys = {
    ...said,
    vision_config: {
      hidden_size: clip.integer('embedding_length'),
      intermediate_size: clip.integer('feed_forward_length'),
      num_hidden_layers: clip.integer('block_count'),
      num_attention_heads: clip.integer('attention.head_count'),
      image_size: clip.integer('image_size'),
      patch_size: clip.integer('patch_size'),
      layer_norm_eps: clip.positive('attention.layer_norm_epsilon'),
      hidden_act: metadata.get('clip.use_gelu') === true ? 'gelu_pytorch_tanh' : 'quick_gelu',
      ...(own as Readonly<Record<string, unknown>> | undefined),
    },
  };
  const { average, ...read } = family.vision!(new ConfigReader(keys, what))!;
  // As in the decoder: files have 1 + w.
  const plain = average && { average: { ...average, norm: { ...average.norm, offset: 0 } } };
  const vision = { ...read, file: name, ...plain };
  const edge = clip.optionalInteger('preproc_image_size');
  return {
    vision,
    /** In the words of preprocessor_config.json. */
    pictures: {
      image_mean: clip.raw('image_mean'),
      image_std: clip.raw('image_std'),
      min_pixels: clip.raw('image_min_pixels'),
      max_pixels: clip.raw('image_max_pixels'),
      ...(edge !== undefined && { size: { longest_edge: edge } }),
    } as Readonly<Record<string, unknown>>,
    add: (index: TensorIndex): TensorIndex => withMmproj(index, mmproj, vision),
  };
}

const towerParts = { patches: 'patch_embd', positions: 'position_embd', post_layernorm: 'post_ln' };
const layerParts = {
  layer_norm1: 'ln1',
  layer_norm2: 'ln2',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.qkv': 'attn_qkv',
  'self_attn.out_proj': 'attn_out',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  post_attention_layernorm: 'attn_post_norm',
  post_feedforward_layernorm: 'ffn_post_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.fc1': 'ffn_up',
  'mlp.fc2': 'ffn_down',
};
/** Old files have the names of the two the other way round. */
const swappedParts = { ...layerParts, 'mlp.fc1': 'ffn_down', 'mlp.fc2': 'ffn_up' };

/** The model's tensors, and the encoder's under the names of config/vision_config.ts. */
function withMmproj(index: TensorIndex, mmproj: GgufFile, { kind, tower, patch, merger }: VisionConfig): TensorIndex {
  const tensors = new Map(index.tensors);
  const { hiddenSize, layers } = tower;
  const kernel = (entry: TensorEntry): TensorEntry =>
    entry.shape.length === 4 ? { ...entry, shape: [hiddenSize, 3 * patch ** 2] } : entry;
  // Of the second frame, which is the same picture.
  const second = mmproj.tensors.get('v.patch_embd.weight.1');
  if (kind === 'any size' && !second)
    throw formatError(`${mmproj.what} has no tensor 'v.patch_embd.weight.1'; expected two frames' patches`);
  const others = second ? [kernel(entryOf(second))] : [];
  const put = (prefix: string, to: string, parts: Readonly<Record<string, string>>): void =>
    new Block(mmproj, tensors, prefix).addParts(
      parts,
      Object.fromEntries(Object.keys(parts).map((part) => [part, to + part])),
      // A patch's kernel is a row.
      {
        patches: (entry) =>
          second && entry.shape.length === 4 ? summedView(kernel(entry), 1, 3 * patch ** 2, others) : kernel(entry),
      },
    );
  put('v.', 'vision.', towerParts);
  const [rows, columns] = mmproj.tensors.get('v.blk.0.ffn_down.weight')?.shape ?? [];
  const parts = columns === hiddenSize && rows !== hiddenSize ? swappedParts : layerParts;
  for (const layer of layers.keys()) put(`v.blk.${layer}.`, `vision.encoder.layers.${layer}.`, parts);
  for (const [at, layer] of merger?.taps.entries() ?? [])
    put(`v.deepstack.${layer}.`, `vision.deepstack.${at}.`, { norm: 'norm', fc1: 'fc1', fc2: 'fc2' });
  if (merger) for (const fc1 of ['0', '1']) put('mm.', 'vision.merger.', { norm: 'input_norm', fc1, fc2: '2' });
  put('mm.', 'vision.', { project: 'model.fc', average_norm: 'soft_emb_norm' });
  const whole = new Block(mmproj, tensors);
  for (const name of ['std_bias', 'std_scale']) whole.add(mmproj.tensors.get(`v.${name}`), `vision.${name}`);
  // Gemma 3's is stored input by input.
  whole.add(mmproj.tensors.get('mm.input_projection.weight'), 'vision.project.weight', (entry) =>
    kind === 'whole' ? transposedView(entry, { first: 0, step: 1 }) : entry,
  );
  return { ...index, tensors, files: [...index.files, ...mmproj.files] };
}
