import { Random } from '../../base/random.js';
import { range } from '../../base/lists.js';
import { writeSafetensors } from '../../loader/testing/write_safetensors.js';
import { byteLevelTokenizer } from '../../tokenizer/testing/tiny_tokenizers.js';
import type { ModelConfig } from '../config/model_config.js';
import { parseModelConfig } from '../families/registry.js';
import { makeRandomModel } from './random_model.js';
import { idefics3Connector, siglipTensors, type TensorRecipe } from './random_tensors.js';
import type { ReferenceTensor, WeightMap } from './reference/reference.js';
import type { ReferenceSound } from './reference/sound.js';
import type { ReferenceTower } from './reference/vision.js';

/** A small SmolVLM, Gemma 3, Qwen3.5, Qwen2.5-VL, Qwen3-VL, LFM2-VL or Gemma 4 (also as the 12B) of random weights. */
export interface RandomVision {
  config: ModelConfig;
  /** The text part's config.json. */
  text: Record<string, unknown>;
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /** As stored, under transformers' names; those of the text part as a Llama's by itself. */
  weights: WeightMap;
  tower: ReferenceTower;
  scale: number;
  /** Of a Gemma 4 that hears. */
  sound: ReferenceSound | undefined;
}

export interface RandomVisionOptions {
  kind?: 'idefics3' | 'gemma3' | 'qwen3_5' | 'qwen2_5_vl' | 'qwen3_vl' | 'lfm2_vl' | 'gemma4' | 'gemma4_unified';
  seed?: number;
  /** Of the text part's config.json. */
  text?: Record<string, unknown>;
  tower?: Partial<ReferenceTower>;
  scale?: number;
  imageToken?: number;
  /** Of Gemma 4: sound, too; of the 12B its `out` is how many samples are a row. */
  sound?: Partial<ReferenceSound>;
}

/** A template of SmolVLM's kind: of messages of parts. */
const TEMPLATE =
  "{{ bos_token }}{% for m in messages %}{{ m['role'] | capitalize }}{% if m['content'][0]['type'] == 'image' %}{{ ':' }}" +
  "{% else %}{{ ': ' }}{% endif %}{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}" +
  "{% elif part['type'] == 'image' %}{{ '<image>' }}{% elif part['type'] == 'audio' %}{{ '<|audio|>' }}{% endif %}{% endfor %}<|end|>\n{% endfor %}" +
  "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

/** Of a Gemma 3's text part. */
const GEMMA = {
  model_type: 'gemma3_text',
  hidden_act: undefined,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
  query_pre_attn_scalar: 16,
  num_hidden_layers: 3,
  sliding_window: 9,
  sliding_window_pattern: 3,
};

/** Of Qwen's. */
const QWEN = {
  qwen3_5: {
    model_type: 'qwen3_5_text',
    hidden_act: undefined,
    rope_theta: undefined,
    num_hidden_layers: 4,
    full_attention_interval: 2,
    head_dim: 32,
    partial_rotary_factor: 0.5,
    rope_parameters: { rope_theta: 1e4, mrope_section: [3, 3, 2], rope_type: 'default' },
    linear_num_key_heads: 2,
    linear_num_value_heads: 4,
    linear_key_head_dim: 16,
    linear_value_head_dim: 16,
  },
  qwen2_5_vl: {
    model_type: 'qwen2_5_vl_text',
    head_dim: undefined,
    num_hidden_layers: 4,
    rope_scaling: { type: 'mrope', mrope_section: [2, 3, 3] },
  },
  qwen3_vl: {
    model_type: 'qwen3_vl_text',
    num_hidden_layers: 4,
    rope_scaling: { mrope_section: [4, 2, 2], mrope_interleaved: true, rope_type: 'default' },
  },
};

/** Of LFM2-VL's. */
const LFM2 = {
  model_type: 'lfm2',
  num_hidden_layers: 4,
  head_dim: undefined,
  hidden_act: undefined,
  block_multiple_of: 20,
  full_attn_idxs: [1, 3],
  norm_eps: 1e-5,
  rope_theta: 1e6,
  tie_word_embeddings: undefined,
};

/** Of Gemma 4's, as E2B is: with inputs for each layer, and shared keys and values. */
const GEMMA4 = {
  model_type: 'gemma4_text',
  hidden_act: undefined,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
  num_hidden_layers: 5,
  head_dim: 16,
  global_head_dim: 32,
  layer_types: ['sliding', 'full', 'sliding', 'sliding', 'full'].map((type) => `${type}_attention`),
  num_kv_shared_layers: 3,
  sliding_window: 9,
  hidden_size_per_layer_input: 64,
  vocab_size_per_layer_input: 320,
  final_logit_softcapping: 30,
};

/** As the 12B is: without those, and keys that are values. */
const UNIFIED = {
  model_type: 'gemma4_unified_text',
  num_kv_shared_layers: 0,
  hidden_size_per_layer_input: 0,
  vocab_size_per_layer_input: undefined,
  attention_k_eq_v: true,
  num_global_key_value_heads: 1,
  sliding_window: 11,
};

/** What is special in a family's texts, the placeholder first. */
const SPECIAL = {
  idefics3: [
    '<image>',
    '<fake_token_around_image>',
    '<global-img>',
    ...range(1, 4).flatMap((row) => range(1, 4).map((column) => `<row_${row}_col_${column}>`)),
  ],
  gemma3: ['<image_soft_token>', '<start_of_image>', '<end_of_image>'],
  qwen3_5: ['<|image_pad|>', '<|vision_start|>', '<|vision_end|>'],
  qwen2_5_vl: ['<|image_pad|>', '<|vision_start|>', '<|vision_end|>'],
  qwen3_vl: ['<|image_pad|>', '<|vision_start|>', '<|vision_end|>'],
  lfm2_vl: [
    '<image>',
    '<|image_start|>',
    '<|image_end|>',
    '<|img_thumbnail|>',
    ...range(1, 3).flatMap((row) => range(1, 4).map((column) => `<|img_row_${row}_col_${column}|>`)),
  ],
  gemma4: ['<|image|>', '<|image>', '<image|>', '<|audio|>', '<|audio>', '<audio|>'],
  gemma4_unified: ['<|image|>', '<|image>', '<image|>', '<|audio|>', '<|audio>', '<audio|>'],
};
/** What its template puts where a picture is. */
const MARK = {
  idefics3: '<image>',
  gemma3: '<start_of_image>',
  qwen3_5: '<|vision_start|><|image_pad|><|vision_end|>',
  qwen2_5_vl: '<|vision_start|><|image_pad|><|vision_end|>',
  qwen3_vl: '<|vision_start|><|image_pad|><|vision_end|>',
  lfm2_vl: '<image>',
  gemma4: '<|image|>',
  gemma4_unified: '<|image|>',
};

const SOUND: ReferenceSound = {
  hidden: 64,
  heads: 4,
  layers: 2,
  channels: [128, 6],
  taps: 5,
  chunk: 12,
  left: 13,
  cap: 50,
  factor: 0.5,
  eps: 1e-6,
  out: 72,
  clipped: true,
};
const audioConfig = (sound: ReferenceSound): Record<string, unknown> => ({
  model_type: 'gemma4_audio',
  hidden_size: sound.hidden,
  num_attention_heads: sound.heads,
  num_hidden_layers: sound.layers,
  subsampling_conv_channels: sound.channels,
  conv_kernel_size: sound.taps,
  attention_chunk_size: sound.chunk,
  attention_context_left: sound.left,
  attention_logit_cap: sound.cap,
  residual_weight: sound.factor,
  rms_norm_eps: sound.eps,
  output_proj_dims: sound.out,
  use_clipped_linears: sound.clipped,
});

function addedTokens({ added_tokens: before }: Record<string, unknown>, first: number, own: string[]): unknown[] {
  const more = own.map((content, at) => {
    return {
      id: first + at,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    };
  });
  return [...(before as unknown[]), ...more];
}

/** Tiles of 32 pixels and 16 patches, of which 4 become a row; Qwen's pictures have 16 to 64 patches. */
export function makeRandomVision({
  kind = 'idefics3',
  seed = 1,
  text = {},
  tower: changes = {},
  scale = kind.startsWith('gemma4') ? 3 : 2,
  imageToken = 300,
  sound: hearing,
}: RandomVisionOptions = {}): RandomVision {
  const gemma = kind === 'gemma3';
  const lfm2 = kind === 'lfm2_vl';
  const unified = kind === 'gemma4_unified';
  const gemma4 = kind === 'gemma4' || unified;
  const qwen25 = kind === 'qwen2_5_vl';
  const qwen = kind === 'qwen3_5' || kind === 'qwen3_vl' || qwen25 ? QWEN[kind] : undefined;
  const own = {
    ...(qwen && { layers: 4, places: 5, taps: kind === 'qwen3_vl' ? [0, 2] : [] }),
    ...(qwen25 && { places: 0, whole: [1, 3], window: 2 }),
    ...(lfm2 && { places: 5, inner: 72, normed: true }),
    ...(gemma4 && { patch: 4, places: 40, rows: 8, clipped: true }),
    ...(unified && { hidden: 72, eps: 1e-5 }),
    ...changes,
  };
  const tower = { hidden: 64, heads: 4, layers: 2, width: 96, image: 32, patch: 8, eps: 1e-6, ...own };
  const { hidden, heads, layers, width, image, patch } = tower;
  const decoder = makeRandomModel({
    config: {
      ...(gemma && GEMMA),
      ...qwen,
      ...(lfm2 && LFM2),
      ...(gemma4 && GEMMA4),
      ...(unified && UNIFIED),
      ...text,
    },
    seed,
  });
  const random = new Random(seed + 1000);
  const vision = new Map<string, ReferenceTensor>();
  const add = (name: string, shape: number[], deviation: number, mean = 0): void => {
    const data = random
      .normals(
        shape.reduce((a, b) => a * b, 1),
        deviation,
      )
      .map((value) => value + mean);
    vision.set(name, { shape, data });
  };
  const addRecipe = ({ name, shape, deviation, mean }: TensorRecipe): void => add(name, shape, deviation, mean);
  const linear = (name: string, rows: number, columns: number, gain: number): void => {
    add(`${name}.weight`, [rows, columns], gain / Math.sqrt(columns));
    add(`${name}.bias`, [rows], 0.3);
  };
  const norm = (name: string, length = hidden): void => {
    add(`${name}.weight`, [length], 0.2, 1);
    add(`${name}.bias`, [length], 0.2);
  };
  const textWidth = decoder.config.hiddenSize;
  if (qwen25) addQwen25();
  else if (qwen) addQwen();
  else if (unified) addPatches();
  else if (gemma4) addGemma4();
  else addSiglip();
  const sound = hearing && { ...SOUND, ...hearing };
  if (sound && unified)
    add('model.embed_audio.embedding_projection.weight', [textWidth, sound.out], 2 / Math.sqrt(sound.out));
  else if (sound) addSound(sound);
  function addSound({ hidden: own, heads: parts, layers: count, channels, taps, out, clipped }: ReferenceSound): void {
    const at = 'model.audio_tower';
    for (const [layer, rows] of channels.entries()) {
      const inputs = layer === 0 ? 1 : channels[0];
      add(`${at}.subsample_conv_projection.layer${layer}.conv.weight`, [rows, inputs, 3, 3], 1 / Math.sqrt(9 * inputs));
      add(`${at}.subsample_conv_projection.layer${layer}.norm.weight`, [rows], 0.2, 1);
    }
    const joined = 32 * channels[1];
    add(`${at}.subsample_conv_projection.input_proj_linear.weight`, [own, joined], 1.5 / Math.sqrt(joined));
    for (let layer = 0; layer < count; layer++) {
      const block = `${at}.layers.${layer}`;
      const halves = ['feed_forward1', 'feed_forward2'];
      for (const name of [
        ...halves.flatMap((half) => [`${half}.pre_layer_norm`, `${half}.post_layer_norm`]),
        'norm_pre_attn',
        'norm_post_attn',
        'norm_out',
        'lconv1d.pre_layer_norm',
        'lconv1d.conv_norm',
      ])
        add(`${block}.${name}.weight`, [own], 0.2, 1);
      for (const [name, rows, columns] of [
        ...halves.flatMap((half) => [
          [`${half}.ffw_layer_1`, 4 * own, own] as const,
          [`${half}.ffw_layer_2`, own, 4 * own] as const,
        ]),
        ...['q_proj', 'k_proj', 'v_proj', 'post'].map((part) => [`self_attn.${part}`, own, own] as const),
        ['lconv1d.linear_start', 2 * own, own] as const,
        ['lconv1d.linear_end', own, own] as const,
      ]) {
        add(`${block}.${name}.linear.weight`, [rows, columns], 1.5 / Math.sqrt(columns));
        if (clipped) addBounds(`${block}.${name}`);
      }
      add(`${block}.self_attn.relative_k_proj.weight`, [own, own], 1.5 / Math.sqrt(own));
      add(`${block}.self_attn.per_dim_scale`, [own / parts], 0.5, 1);
      add(`${block}.lconv1d.depthwise_conv1d.weight`, [own, 1, taps], 0.5);
    }
    add(`${at}.output_proj.weight`, [out, own], 1.5 / Math.sqrt(own));
    add(`${at}.output_proj.bias`, [out], 0.3);
    add('model.embed_audio.embedding_projection.weight', [textWidth, out], 2 / Math.sqrt(out));
  }
  /** Different for each, and narrow enough to show. */
  function addBounds(name: string): void {
    for (const [bound, mean] of [
      ['input_min', -1.1],
      ['input_max', 1.1],
      ['output_min', -1.4],
      ['output_max', 1.4],
    ] as const)
      add(`${name}.${bound}`, [], 0.1, mean);
  }
  function addQwen(): void {
    const { places = 0, taps = [] } = tower as ReferenceTower;
    const at = 'model.visual';
    add(`${at}.patch_embed.proj.weight`, [hidden, 3, 2, patch, patch], 1 / Math.sqrt(6 * patch * patch));
    add(`${at}.patch_embed.proj.bias`, [hidden], 0.3);
    add(`${at}.pos_embed.weight`, [places ** 2, hidden], 1);
    for (let layer = 0; layer < layers; layer++) {
      const block = `${at}.blocks.${layer}`;
      for (const name of ['norm1', 'norm2']) norm(`${block}.${name}`);
      linear(`${block}.attn.qkv`, 3 * hidden, hidden, 1.5);
      linear(`${block}.attn.proj`, hidden, hidden, 1);
      linear(`${block}.mlp.linear_fc1`, width, hidden, 1.5);
      linear(`${block}.mlp.linear_fc2`, hidden, width, 1);
    }
    const joined = hidden * scale * scale;
    const merger = (name: string, normed: number): void => {
      norm(`${name}.norm`, normed);
      linear(`${name}.linear_fc1`, joined, joined, 1.5);
      linear(`${name}.linear_fc2`, textWidth, joined, 1.5);
    };
    merger(`${at}.merger`, hidden);
    for (const level of taps.keys()) merger(`${at}.deepstack_merger_list.${level}`, joined);
  }
  function addQwen25(): void {
    const at = 'model.visual';
    const weights = (name: string): void => add(`${name}.weight`, [hidden], 0.2, 1);
    add(`${at}.patch_embed.proj.weight`, [hidden, 3, 2, patch, patch], 1 / Math.sqrt(6 * patch * patch));
    for (let layer = 0; layer < layers; layer++) {
      const block = `${at}.blocks.${layer}`;
      for (const name of ['norm1', 'norm2']) weights(`${block}.${name}`);
      linear(`${block}.attn.qkv`, 3 * hidden, hidden, 1.5);
      linear(`${block}.attn.proj`, hidden, hidden, 1);
      for (const name of ['gate', 'up']) linear(`${block}.mlp.${name}_proj`, width, hidden, 1.5);
      linear(`${block}.mlp.down_proj`, hidden, width, 1);
    }
    weights(`${at}.merger.ln_q`);
    linear(`${at}.merger.mlp.0`, hidden * scale ** 2, hidden * scale ** 2, 1.5);
    linear(`${at}.merger.mlp.2`, textWidth, hidden * scale ** 2, 1.5);
  }
  function addGemma4(): void {
    const { places = 0, clipped, standardized } = tower as ReferenceTower;
    const at = 'model.vision_tower';
    add(`${at}.patch_embedder.input_proj.weight`, [hidden, 3 * patch * patch], 1 / Math.sqrt(3 * patch * patch));
    add(`${at}.patch_embedder.position_embedding_table`, [2, places, hidden], 0.7);
    for (let layer = 0; layer < layers; layer++) {
      const block = `${at}.encoder.layers.${layer}`;
      for (const name of ['input', 'post_attention', 'pre_feedforward', 'post_feedforward'])
        add(`${block}.${name}_layernorm.weight`, [hidden], 0.2, 1);
      for (const name of ['q', 'k']) add(`${block}.self_attn.${name}_norm.weight`, [hidden / heads], 0.2, 1);
      for (const [name, rows, columns] of [
        ...['q', 'k', 'v', 'o'].map((part) => [`self_attn.${part}_proj`, hidden, hidden] as const),
        ...['gate', 'up'].map((part) => [`mlp.${part}_proj`, width, hidden] as const),
        ['mlp.down_proj', hidden, width] as const,
      ]) {
        add(`${block}.${name}.linear.weight`, [rows, columns], 1.5 / Math.sqrt(columns));
        if (clipped) addBounds(`${block}.${name}`);
      }
    }
    if (standardized) {
      add(`${at}.std_bias`, [hidden], 2);
      add(`${at}.std_scale`, [hidden], 0.3, 1);
    }
    add('model.embed_vision.embedding_projection.weight', [textWidth, hidden], 2 / Math.sqrt(hidden));
  }
  function addPatches(): void {
    const { places = 0 } = tower as ReferenceTower;
    const at = 'model.vision_embedder';
    const pixels = 3 * (patch * scale) ** 2;
    norm(`${at}.patch_ln1`, pixels);
    linear(`${at}.patch_dense`, hidden, pixels, 1.5);
    norm(`${at}.patch_ln2`);
    add(`${at}.pos_embedding`, [places, 2, hidden], 0.7);
    norm(`${at}.pos_norm`);
    add('model.embed_vision.embedding_projection.weight', [textWidth, hidden], 2 / Math.sqrt(hidden));
  }
  function addSiglip(): void {
    const prefix = gemma
      ? 'vision_tower.vision_model'
      : lfm2
        ? 'model.vision_tower.vision_model'
        : 'model.vision_model';
    const kernel = lfm2 ? [hidden, patch * patch * 3] : [hidden, 3, patch, patch];
    const { places = Math.floor(image / patch), inner = 0, normed } = tower as ReferenceTower;
    const sizes = { hidden, layers, width, patch, places: places ** 2 };
    siglipTensors(prefix, sizes, kernel).forEach(addRecipe);
    if (gemma) {
      add('multi_modal_projector.mm_input_projection_weight', [hidden, textWidth], 3 / Math.sqrt(hidden));
      add('multi_modal_projector.mm_soft_emb_norm.weight', [hidden], 0.3);
    } else if (lfm2) {
      const at = 'model.multi_modal_projector';
      const joined = hidden * scale * scale;
      if (normed) norm(`${at}.layer_norm`, joined);
      linear(`${at}.linear_1`, inner, joined, 1.5);
      linear(`${at}.linear_2`, textWidth, inner, 1.5);
    } else addRecipe(idefics3Connector(textWidth, hidden, scale));
  }
  const ofText = JSON.parse(new TextDecoder().decode(decoder.files.get('config.json'))) as Record<string, unknown>;
  const rows = (Math.floor(image / patch) / scale) ** 2;
  const wrapper = qwen
    ? {
        model_type: kind,
        architectures: [
          `${{ qwen3_5: 'Qwen3_5', qwen2_5_vl: 'Qwen2_5_VL', qwen3_vl: 'Qwen3VL' }[kind as 'qwen3_5']}ForConditionalGeneration`,
        ],
        image_token_id: imageToken,
        tie_word_embeddings: false,
      }
    : gemma
      ? {
          model_type: 'gemma3',
          architectures: ['Gemma3ForConditionalGeneration'],
          image_token_index: imageToken,
          boi_token_index: imageToken + 1,
          mm_tokens_per_image: rows,
        }
      : gemma4
        ? {
            model_type: kind,
            architectures: [`Gemma4${unified ? 'Unified' : ''}ForConditionalGeneration`],
            image_token_id: imageToken,
            ...(!unified && { vision_soft_tokens_per_image: own.rows }),
            ...(sound && {
              audio_token_id: imageToken + 3,
              audio_config: unified ? { audio_embed_dim: sound.out, rms_norm_eps: sound.eps } : audioConfig(sound),
            }),
          }
        : lfm2
          ? {
              model_type: 'lfm2_vl',
              architectures: ['Lfm2VlForConditionalGeneration'],
              image_token_id: imageToken,
              downsample_factor: scale,
              projector_hidden_size: own.inner,
              projector_use_layernorm: own.normed,
            }
          : {
              model_type: 'idefics3',
              architectures: ['Idefics3ForConditionalGeneration'],
              image_token_id: imageToken,
              scale_factor: scale,
              tie_word_embeddings: false,
            };
  const raw = {
    ...wrapper,
    text_config: ofText,
    vision_config: qwen
      ? {
          model_type: kind,
          depth: layers,
          hidden_size: hidden,
          intermediate_size: width,
          num_heads: heads,
          patch_size: patch,
          spatial_merge_size: scale,
          temporal_patch_size: 2,
          ...(qwen25
            ? { fullatt_block_indexes: own.whole, window_size: (own.window ?? 0) * scale * patch }
            : { num_position_embeddings: (own.places ?? 0) ** 2, deepstack_visual_indexes: own.taps }),
          out_hidden_size: textWidth,
        }
      : unified
        ? {
            model_type: 'gemma4_unified_vision',
            mm_embed_dim: hidden,
            output_proj_dims: hidden,
            mm_posemb_size: own.places,
            num_soft_tokens: own.rows,
            patch_size: patch,
            pooling_kernel_size: scale,
            model_patch_size: patch * scale,
            rms_norm_eps: tower.eps,
          }
        : gemma4
          ? {
              model_type: 'gemma4_vision',
              hidden_size: hidden,
              intermediate_size: width,
              num_hidden_layers: layers,
              num_attention_heads: heads,
              num_key_value_heads: heads,
              head_dim: hidden / heads,
              hidden_activation: 'gelu_pytorch_tanh',
              patch_size: patch,
              pooling_kernel_size: scale,
              position_embedding_size: own.places,
              rms_norm_eps: tower.eps,
              rope_parameters: { rope_theta: 100, rope_type: 'default' },
              standardize: own.standardized ?? false,
              use_clipped_linears: own.clipped,
            }
          : {
              model_type: gemma ? 'siglip_vision_model' : lfm2 ? 'siglip2_vision_model' : 'idefics3',
              hidden_size: hidden,
              intermediate_size: width,
              num_hidden_layers: layers,
              num_attention_heads: heads,
              ...(lfm2 ? { num_patches: (own.places ?? 0) ** 2 } : { image_size: image }),
              patch_size: patch,
              layer_norm_eps: tower.eps,
            },
  };
  const stored = [
    ...[...decoder.weights].map(
      ([name, tensor]) =>
        [
          gemma
            ? `language_model.${name}`
            : name.replace(/^model\./, qwen || lfm2 || gemma4 ? 'model.language_model.' : 'model.text_model.'),
          tensor,
        ] as const,
    ),
    ...vision,
  ].map(([name, { shape, data }]) => ({
    name,
    dtype: 'F32' as const,
    shape: [...shape],
    data: new Uint8Array(Float32Array.from(data).buffer),
  }));
  const files = new Map(decoder.files);
  const json = (value: unknown): Uint8Array<ArrayBuffer> => new TextEncoder().encode(JSON.stringify(value));
  // Tiles of the encoder's size, at most three by three; of LFM2-VL's up to six. Its GGUF files say nothing: patches are of 16 pixels then.
  const few = { tile_size: image, min_image_tokens: 4, max_image_tokens: 16, max_tiles: 6 };
  files.set(
    'preprocessor_config.json',
    json(
      qwen
        ? { size: { shortest_edge: 16 * patch ** 2, longest_edge: 64 * patch ** 2 } }
        : gemma
          ? { size: { height: image, width: image }, resample: 2, do_pan_and_scan: null }
          : gemma4
            ? {
                max_soft_tokens: own.rows,
                do_normalize: false,
                image_mean: [0, 0, 0],
                image_std: [1, 1, 1],
                resample: 3,
              }
            : lfm2
              ? patch === 16
                ? {}
                : few
              : { size: { longest_edge: 3 * image }, max_image_size: { longest_edge: image }, resample: 1 },
    ),
  );
  const { json: tokenizer, config: words } = byteLevelTokenizer(imageToken);
  files.set('tokenizer.json', json({ ...tokenizer, added_tokens: addedTokens(tokenizer, imageToken, SPECIAL[kind]) }));
  files.set('tokenizer_config.json', json({ ...words, chat_template: TEMPLATE.replace('<image>', MARK[kind]) }));
  files.set('config.json', new TextEncoder().encode(JSON.stringify(raw)));
  files.set('model.safetensors', writeSafetensors(stored, { format: 'pt' }));
  return {
    config: parseModelConfig(raw),
    text: ofText,
    files,
    weights: new Map([...decoder.weights, ...vision]),
    tower,
    scale,
    sound,
  };
}
