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
import type { Family } from '../families/family.js';
import type { VisionConfig } from '../config/vision_config.js';
import { projectorFamily, projectorsOf } from '../families/registry.js';
import { asVector } from '../weights/stored_names.js';
import { Block } from './tensors.js';

/**
 * The encoders beside a GGUF model, in llama.cpp's file of them (mmproj): of images, and perhaps of sound; undefined where models of the architecture have none.
 * @param wanted the file, or true for the one that lies there
 * @throws SplitkvError `io` where there is none, `format` for one that is no encoder or another model's; `unsupported`, `config`
 */
export async function openMmproj(
  source: Source,
  { file, metadata: text }: GgufFile,
  model: ModelConfig,
  wanted: boolean | string | undefined,
  signal: AbortSignal | undefined,
) {
  const types = projectorsOf(String(text.get('general.architecture')));
  if (types.length === 0) return undefined;
  const name = typeof wanted === 'string' ? wanted : await findMmproj(source, file, signal);
  if (name === undefined) {
    throw ioError(
      `images and sound: no mmproj file lies beside ${file} of ${source.name}: put llama.cpp's mmproj-*.gguf of the same model there, or name it (mmproj); leave them out for text alone`,
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
  const clip = clipOf('vision', mmproj, model);
  const tokens = text.get('tokenizer.ggml.tokens');
  const idOf = (token: string): number => {
    const id = Array.isArray(tokens) ? tokens.indexOf(token) : -1;
    if (id >= 0) return id;
    throw unsupportedError(`${what}: ${file} has no token ${token}, which stands in prompts for what is encoded`);
  };
  // Without an encoder there are none.
  const size = (key: string): number => clip.integer(key, { min: 0 });
  const family = await projectorFamily(type, String(text.get('general.architecture')));
  const { vision_config: own, ...said } = family.mmproj!(clip, idOf, model);
  const keys = {
    ...said,
    vision_config: {
      hidden_size: clip.integer('embedding_length'),
      intermediate_size: size('feed_forward_length'),
      num_hidden_layers: size('block_count'),
      num_attention_heads: size('attention.head_count'),
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
    configs: { vision, ...soundOf(family, mmproj, model, name, idOf) },
    /** In the words of preprocessor_config.json. */
    pictures: {
      image_mean: clip.raw('image_mean'),
      image_std: clip.raw('image_std'),
      min_pixels: clip.raw('image_min_pixels') ?? said['min_pixels'],
      max_pixels: clip.raw('image_max_pixels'),
      ...(edge !== undefined && { size: { longest_edge: edge } }),
    } as Readonly<Record<string, unknown>>,
    add: (index: TensorIndex): TensorIndex => withMmproj(index, mmproj, vision),
  };
}

/** What is said of an encoder. @throws SplitkvError `format` for another model's */
function clipOf(kind: 'vision' | 'audio', mmproj: GgufFile, { hiddenSize }: ModelConfig): GgufMetadata {
  const clip = new GgufMetadata(mmproj, `clip.${kind}`);
  const width = clip.integer('projection_dim');
  if (width === hiddenSize) return clip;
  throw formatError(
    `${mmproj.what} is of another model: its rows have ${width} elements (clip.${kind}.projection_dim), the model's ${hiddenSize}. Take the mmproj file of the same model`,
  );
}

/** The encoder of sound, where the file has one; or why it isn't run. */
function soundOf(
  { sound, mmprojSound }: Family,
  mmproj: GgufFile,
  model: ModelConfig,
  file: string,
  idOf: (token: string) => number,
): Pick<ModelConfig, 'sound' | 'soundMisfit'> {
  const { metadata, what } = mmproj;
  const type = metadata.get('clip.audio.projector_type');
  if (type === undefined || !sound || !mmprojSound) return {};
  if (!mmprojSound.types.includes(String(type))) {
    const expected = mmprojSound.types.map(show).join(', ');
    return { soundMisfit: `${what}: clip.audio.projector_type is ${show(type)}; expected ${expected}` };
  }
  const keys = mmprojSound.keys(clipOf('audio', mmproj, model), idOf);
  const read = sound(new ConfigReader(keys, what))!;
  return { sound: { ...read, ...('frame' in read ? undefined : { softened: true }), file } };
}

const towerParts = {
  patches: 'patch_embd',
  positions: 'position_embd',
  post_layernorm: 'post_ln',
  ...Object.fromEntries([1, 2, 3].map((at) => [`patch_norm.${at}`, `patch_norm.${at}`])),
};
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
  addSound(mmproj, tensors);
  return { ...index, tensors, files: [...index.files, ...mmproj.files] };
}

const soundParts = {
  'a.conv1d.0': 'subsample_conv_projection.layer0.conv',
  'a.conv1d.0.norm': 'subsample_conv_projection.layer0.norm',
  'a.conv1d.1': 'subsample_conv_projection.layer1.conv',
  'a.conv1d.1.norm': 'subsample_conv_projection.layer1.norm',
  'a.input_projection': 'subsample_conv_projection.input_proj_linear',
  'a.pre_encode.out': 'output_proj',
  'mm.a.input_projection': 'project',
};
const soundLayerParts = {
  ffn_norm: 'feed_forward1.pre_layer_norm',
  ffn_up: 'feed_forward1.ffw_layer_1',
  ffn_down: 'feed_forward1.ffw_layer_2',
  ffn_post_norm: 'feed_forward1.post_layer_norm',
  attn_pre_norm: 'norm_pre_attn',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_k_rel: 'self_attn.relative_k_proj',
  per_dim_scale: 'self_attn.per_dim_scale',
  attn_out: 'self_attn.post',
  attn_post_norm: 'norm_post_attn',
  // By the other one's name each, which llama.cpp's converter gives them.
  conv_norm: 'lconv1d.pre_layer_norm',
  norm_conv: 'lconv1d.conv_norm',
  conv_pw1: 'lconv1d.linear_start',
  conv_dw: 'lconv1d.depthwise_conv1d',
  conv_pw2: 'lconv1d.linear_end',
  ffn_norm_1: 'feed_forward2.pre_layer_norm',
  ffn_up_1: 'feed_forward2.ffw_layer_1',
  ffn_down_1: 'feed_forward2.ffw_layer_2',
  ffn_post_norm_1: 'feed_forward2.post_layer_norm',
  ln2: 'norm_out',
};

/** An encoder of sound's tensors under the names of sound/sound_specs.ts. */
function addSound(mmproj: GgufFile, tensors: Map<string, TensorEntry>): void {
  const whole = new Block(mmproj, tensors);
  for (const stored of mmproj.tensors.values()) {
    const [, layer, part = '', suffix] =
      /^(?:a\.blk\.(\d+)\.)?(.*)\.(weight|bias|(?:in|out)put_m(?:in|ax))$/.exec(stored.name) ?? [];
    const name = layer === undefined ? nameIn(soundParts, part) : nameIn(soundLayerParts, part);
    if (name === undefined) continue;
    const isTaps = part === 'conv_dw';
    whole.add(stored, `sound.${layer === undefined ? '' : `layers.${layer}.`}${name}.${suffix}`, (entry) =>
      isTaps ? { ...entry, shape: [entry.shape.reduce((a, b) => a * b, 1)] } : asVector(entry),
    );
  }
}

const nameIn = (names: Readonly<Record<string, string>>, part: string): string | undefined =>
  Object.hasOwn(names, part) ? names[part] : undefined;
