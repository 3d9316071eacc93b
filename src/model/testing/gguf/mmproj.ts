import { f32, type GgufTensor, type GgufValue, text, u32, writeGguf } from './file.js';
import type { WritableType } from '../../../loader/gguf/testing/quantise.js';
import type { ReferenceSound } from '../reference/sound.js';
import type { RandomVision } from '../random_vision.js';
import { modelToGguf } from './model.js';
import { vocabularyMetadata } from './vocabulary.js';

/** llama.cpp's names, by what a name of the checkpoint's has. */
const RENAMES: readonly (readonly [from: RegExp, to: string])[] = [
  [/^(model\.vision_model|(model\.)?vision_tower\.vision_model)\./, 'v.'],
  [/^model\.vision_tower\.patch_embedder\.input_proj\./, 'v.patch_embd.'],
  [/^model\.vision_tower\.patch_embedder\.position_embedding_table$/, 'v.position_embd.weight'],
  [/^model\.vision_tower\./, 'v.'],
  [/^model\.vision_embedder\.patch_ln/, 'v.patch_norm.'],
  [/^model\.vision_embedder\.pos_norm\./, 'v.patch_norm.3.'],
  [/^model\.vision_embedder\.patch_dense\./, 'v.patch_embd.'],
  [/^model\.vision_embedder\.pos_embedding$/, 'v.position_embd.weight'],
  [/embeddings\.patch_embedding\./, 'patch_embd.'],
  [/embeddings\.position_embedding\./, 'position_embd.'],
  [/encoder\.layers\.(\d+)\./, 'blk.$1.'],
  [/layer_norm([12])\./, 'ln$1.'],
  [/self_attn\.([qkv])_proj\./, 'attn_$1.'],
  [/self_attn\.out_proj\./, 'attn_out.'],
  [/mlp\.fc1\./, 'ffn_up.'],
  [/mlp\.fc2\./, 'ffn_down.'],
  [/post_layernorm\./, 'post_ln.'],
  [/^model\.connector\.modality_projection\.proj\./, 'mm.model.fc.'],
  [/^model\.embed_vision\.embedding_projection\./, 'mm.input_projection.'],
  [/\.linear\.weight$/, '.weight'],
  [/self_attn\.o_proj\./, 'attn_out.'],
  [/self_attn\.([qk])_norm\./, 'attn_$1_norm.'],
  [/mlp\.(gate|up|down)_proj\./, 'ffn_$1.'],
  [/(v\.blk\.\d+\.)input_layernorm\./, '$1ln1.'],
  [/post_attention_layernorm\./, 'attn_post_norm.'],
  [/pre_feedforward_layernorm\./, 'ln2.'],
  [/post_feedforward_layernorm\./, 'ffn_post_norm.'],
  [/^model\.visual\.merger\.(norm|ln_q)\./, 'v.post_ln.'],
  [/^model\.visual\.merger\.mlp\./, 'mm.'],
  [/^model\.visual\.merger\.linear_fc1\./, 'mm.0.'],
  [/^model\.visual\.merger\.linear_fc2\./, 'mm.2.'],
  [/^model\.visual\./, 'v.'],
  [/patch_embed\.proj\./, 'patch_embd.'],
  [/pos_embed\./, 'position_embd.'],
  [/blocks\.(\d+)\.norm([12])\./, 'blk.$1.ln$2.'],
  [/blocks\.(\d+)\.attn\.qkv\./, 'blk.$1.attn_qkv.'],
  [/blocks\.(\d+)\.attn\.proj\./, 'blk.$1.attn_out.'],
  [/blocks\.(\d+)\.mlp\.linear_fc1\./, 'blk.$1.ffn_up.'],
  [/blocks\.(\d+)\.mlp\.linear_fc2\./, 'blk.$1.ffn_down.'],
  [/blocks\.(\d+)\.ffn/, 'blk.$1.ffn'],
  [/^multi_modal_projector\.mm_input_projection_weight$/, 'mm.input_projection.weight'],
  [/^multi_modal_projector\.mm_soft_emb_norm\./, 'mm.soft_emb_norm.'],
  [/^model\.multi_modal_projector\.layer_norm\./, 'mm.input_norm.'],
  [/^model\.multi_modal_projector\.linear_([12])\./, 'mm.$1.'],
];
/** Of sound, in the words of tensor_mapping.py, which has two norms the other way round. */
const SOUND_NAMES: Readonly<Record<string, string>> = {
  'feed_forward1.pre_layer_norm': 'ffn_norm',
  'feed_forward1.ffw_layer_1': 'ffn_up',
  'feed_forward1.ffw_layer_2': 'ffn_down',
  'feed_forward1.post_layer_norm': 'ffn_post_norm',
  'feed_forward2.pre_layer_norm': 'ffn_norm_1',
  'feed_forward2.ffw_layer_1': 'ffn_up_1',
  'feed_forward2.ffw_layer_2': 'ffn_down_1',
  'feed_forward2.post_layer_norm': 'ffn_post_norm_1',
  norm_pre_attn: 'attn_pre_norm',
  norm_post_attn: 'attn_post_norm',
  norm_out: 'ln2',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.post': 'attn_out',
  'self_attn.relative_k_proj': 'attn_k_rel',
  'self_attn.per_dim_scale': 'per_dim_scale.weight',
  'lconv1d.pre_layer_norm': 'conv_norm',
  'lconv1d.conv_norm': 'norm_conv',
  'lconv1d.linear_start': 'conv_pw1',
  'lconv1d.linear_end': 'conv_pw2',
  'lconv1d.depthwise_conv1d': 'conv_dw',
};
const SOUND_ENDS: Readonly<Record<string, string>> = {
  'model.audio_tower.subsample_conv_projection.input_proj_linear.weight': 'a.input_projection.weight',
  'model.audio_tower.output_proj.weight': 'a.pre_encode.out.weight',
  'model.audio_tower.output_proj.bias': 'a.pre_encode.out.bias',
  'model.embed_audio.embedding_projection.weight': 'mm.a.input_projection.weight',
};

/** As convert_hf_to_gguf.py stores a tensor of an encoder of sound: softplus of scales, taps without the axis between. */
function soundTensor(from: string, shape: readonly number[], data: Float32Array): GgufTensor {
  const [, layer, part = '', end] =
    /layers\.(\d+)\.(.*?)(?:\.linear)?(\.weight|\.(?:in|out)put_m(?:in|ax)|)$/.exec(from) ?? [];
  const conv = /layer([01])\.(conv|norm)\.weight$/.exec(from);
  const name =
    SOUND_ENDS[from] ??
    (conv
      ? `a.conv1d.${conv[1]}.${conv[2] === 'norm' ? 'norm.' : ''}weight`
      : `a.blk.${layer}.${SOUND_NAMES[part]}${end}`);
  const isScale = part === 'self_attn.per_dim_scale';
  return {
    name,
    shape: shape.length === 0 ? [1] : part === 'lconv1d.depthwise_conv1d' ? [shape[0]!, shape[2]!] : shape,
    data: isScale ? data.map((value) => Math.log(1 + Math.exp(value))) : data,
  };
}

const isSound = (name: string): boolean => /^model\.(audio_tower|embed_audio)\./.test(name);
const isVision = (name: string): boolean =>
  /^(model\.)?(vision_model|connector|visual|vision_tower|vision_embedder|multi_modal_projector|embed_vision)\./.test(
    name,
  );

/** A kernel of two frames, [hidden, 3, 2, patch, patch], is two tensors. */
const framesOf = (
  name: string,
  [rows = 0, , frames = 0, ...patch]: readonly number[],
  data: Float32Array,
): GgufTensor[] =>
  Array.from({ length: frames }, (_, frame) => {
    const size = patch.reduce((a, b) => a * b);
    const own = data.filter((_value, at) => Math.floor(at / size) % frames === frame);
    return { name: frame === 0 ? name : `${name}.${frame}`, shape: [rows, 3, ...patch], data: own };
  });

/** A matrix of patches whose pixels have their channels side by side as a kernel [hidden, 3, patch, patch]. */
function kernelOf(data: Float32Array, patch: number): Pick<GgufTensor, 'shape' | 'data'> {
  const size = patch * patch;
  const columns = 3 * size;
  const out = data.map((_, at) => {
    const [row, channel, pixel] = [Math.floor(at / columns), Math.floor((at % columns) / size), at % size];
    return data[row * columns + pixel * 3 + channel]!;
  });
  return { shape: [data.length / columns, 3, patch, patch], data: out };
}

/** As the converter turns them: a patch's numbers by channels, and of places the first axis' before the second one's. */
function bareTensor(
  name: string,
  shape: readonly number[],
  data: Float32Array,
  side: number,
): Pick<GgufTensor, 'shape' | 'data'> {
  if (name.startsWith('v.patch')) return { shape, data: kernelOf(data, side).data };
  const [places = 0, axes = 0, width = 0] = shape;
  const out = data.map((_, at) => {
    const [axis, place, i] = [Math.floor(at / (places * width)), Math.floor(at / width) % places, at % width];
    return data[(place * axes + axis) * width + i]!;
  });
  return { shape: [axes, places, width], data: out };
}

const soundMetadata = (
  { hidden, heads, layers }: Pick<ReferenceSound, 'hidden' | 'heads' | 'layers'>,
  textWidth: number,
  type: string,
): Record<string, GgufValue> => ({
  'clip.has_audio_encoder': { type: 'bool', value: true },
  'clip.audio.projector_type': text(type),
  'clip.audio.embedding_length': u32(hidden),
  'clip.audio.feed_forward_length': u32(layers && 4 * hidden),
  'clip.audio.block_count': u32(layers),
  'clip.audio.projection_dim': u32(textWidth),
  'clip.audio.attention.head_count': u32(heads),
  // As it stands in files: not what the model was trained with.
  'clip.audio.attention.layer_norm_epsilon': f32(1e-5),
  'clip.audio.num_mel_bins': u32(128),
});

export interface MmprojOptions {
  readonly metadata?: Readonly<Record<string, GgufValue>>;
  readonly typeOf?: (name: string, shape: readonly number[]) => WritableType | undefined;
  readonly rename?: (name: string) => string;
}

/** The encoder of a random model as convert_hf_to_gguf.py --mmproj writes it: 1 is added to Gemma 3's norm. */
export function mmprojOf(made: RandomVision, options: MmprojOptions = {}): Uint8Array<ArrayBuffer> {
  const { tower, scale, weights, config, sound } = made;
  const { kind } = config.vision!;
  const { places = 0, taps = [] } = tower;
  const qwen = kind === 'any size';
  const { window } = config.vision!;
  const gemma4 = kind === 'all rows';
  // What has no layers.
  const bare = config.vision!.tower.layers.length === 0;
  const zero = { hidden: sound?.out ?? 0, heads: 0, layers: 0 };
  const types = {
    tiles: 'idefics3',
    whole: 'gemma3',
    'any size': window ? 'qwen2.5vl_merger' : 'qwen3vl_merger',
    'tiles or any size': 'lfm2',
    'all rows': bare ? 'gemma4uv' : 'gemma4v',
  };
  const half: GgufValue = { type: 'f32[]', value: [0.5, 0.5, 0.5] };
  const metadata: Record<string, GgufValue> = {
    'general.architecture': text('clip'),
    'general.type': text('mmproj'),
    'clip.has_vision_encoder': { type: 'bool', value: true },
    ...(gemma4
      ? {
          'clip.vision.projector_type': text(types[kind]),
          ...(sound ? soundMetadata(bare ? zero : sound, config.hiddenSize, bare ? 'gemma4ua' : 'gemma4a') : {}),
        }
      : { 'clip.projector_type': text(types[kind]), 'clip.use_gelu': { type: 'bool', value: true } }),
    'clip.vision.image_size': u32(gemma4 ? 224 : places ? places * tower.patch : tower.image),
    'clip.vision.patch_size': u32(tower.patch),
    'clip.vision.embedding_length': u32(tower.hidden),
    'clip.vision.feed_forward_length': u32(bare ? 0 : tower.width),
    'clip.vision.block_count': u32(bare ? 0 : tower.layers),
    'clip.vision.projection_dim': u32(config.hiddenSize),
    'clip.vision.attention.head_count': u32(bare ? 0 : tower.heads),
    'clip.vision.attention.layer_norm_epsilon': f32(tower.eps),
    'clip.vision.image_mean': half,
    'clip.vision.image_std': half,
    ...(qwen
      ? {
          'clip.vision.spatial_merge_size': u32(scale),
          'clip.vision.image_min_pixels': u32(16 * tower.patch ** 2),
          'clip.vision.image_max_pixels': u32(64 * tower.patch ** 2),
          ...(window
            ? { 'clip.vision.n_wa_pattern': u32(2), 'clip.vision.window_size': u32(window * scale * tower.patch) }
            : {
                'clip.vision.is_deepstack_layers': {
                  type: 'bool[]',
                  value: Array.from({ length: tower.layers }, (_, layer) => taps.includes(layer)),
                },
              }),
        }
      : !gemma4 && { 'clip.vision.projector.scale_factor': u32(scale) }),
    ...(kind === 'tiles' && { 'clip.vision.preproc_image_size': u32(3 * tower.image) }),
    ...options.metadata,
  };
  const tensors = [...weights].flatMap(([from, { shape, data }]): GgufTensor[] => {
    if (isSound(from)) {
      const own = soundTensor(from, shape, data);
      return [{ ...own, name: options.rename?.(own.name) ?? own.name }];
    }
    if (!isVision(from)) return [];
    const usual = RENAMES.reduce((name, [before, after]) => name.replace(before, after), from);
    const level = /deepstack_merger_list\.(\d+)\.(linear_)?/.exec(usual);
    const named = level ? usual.replace(level[0], `deepstack.${taps[Number(level[1])]}.`) : usual;
    const name = options.rename?.(named) ?? named;
    // By themselves, of Qwen2.5-VL's.
    if (window && usual.includes('attn_qkv')) {
      const [rows = 0, ...rest] = shape;
      return ['q', 'k', 'v'].map((part, at) => {
        const own = data.slice((at * data.length) / 3, ((at + 1) * data.length) / 3);
        return {
          name: name.replace('qkv', part),
          shape: [rows / 3, ...rest],
          data: own,
          type: options.typeOf?.(name, shape),
        };
      });
    }
    if (usual === 'v.patch_embd.weight' && shape.length === 5) return framesOf(name, shape, data);
    if (bare && /^v\.(patch_embd\.weight|patch_norm\.1|position_embd)/.test(usual))
      return [{ name, ...bareTensor(usual, shape, data, tower.patch * scale) }];
    if (usual === 'v.patch_embd.weight' && shape.length === 2) return [{ name, ...kernelOf(data, tower.patch) }];
    // Numbers by themselves are tensors of one.
    if (shape.length === 0) return [{ name, shape: [1], data }];
    const plusOne = usual === 'mm.soft_emb_norm.weight';
    return [{ name, shape, data: plusOne ? data.map((w) => w + 1) : data, type: options.typeOf?.(name, shape) }];
  });
  return writeGguf(metadata, tensors);
}

/** The text part with its tokenizer. */
export function textGgufOf(
  { config: { vision: _v, sound: _s, ...config }, weights, files }: RandomVision,
  typeOf?: MmprojOptions['typeOf'],
): Uint8Array<ArrayBuffer> {
  const json = (name: string): never => JSON.parse(new TextDecoder().decode(files.get(name))) as never;
  const own = new Map([...weights].filter(([name]) => !isVision(name) && !isSound(name)));
  const metadata = vocabularyMetadata(json('tokenizer.json'), json('tokenizer_config.json'), {
    pre: 'gpt-2',
    vocabSize: config.vocabSize,
    addBos: true,
  });
  return modelToGguf(config, own, { metadata, typeOf });
}
