import type { GgufFile } from '../../loader/index.js';
import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { ExpertsConfig, GqaConfig, LayerConfig, MlpConfig } from '../config/model_config.js';
import { parseGemma4Samples, parseGemma4Sound } from '../config/sound_config.js';
import { checkRuns, firstWindow, parseGemma4Patches, parseGemma4Vision, tokensOf } from '../config/vision_config.js';
import { type LayerType, parseLayerRope } from '../config/rope_config.js';
import { expertNames, gatedNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import {
  countRange,
  fullEvery,
  ggufLayerTypes,
  parseExperts,
  parseGated,
  parseGelu,
  parseGqa,
  parseLayerTypes,
  refuseForeign,
} from './common_keys.js';
import { defineFamily } from './family.js';

const layer = 'model.layers.{layer}.';
const tensors: TensorNames = {
  ...llamaNames,
  attentionOutNorm: `${layer}post_attention_layernorm`,
  postNorm: `${layer}pre_feedforward_layernorm`,
  mlpOutNorm: `${layer}post_feedforward_layernorm`,
  layerScale: `${layer}layer_scalar`,
  perLayer: {
    table: 'model.embed_tokens_per_layer',
    projection: 'model.per_layer_model_projection',
    norm: 'model.per_layer_projection_norm',
    gate: `${layer}per_layer_input_gate`,
    project: `${layer}per_layer_projection`,
    outNorm: `${layer}post_per_layer_input_norm`,
  },
  experts: {
    ...expertNames(),
    ...gatedNames(`${layer}experts.{expert}`),
    router: `${layer}router.proj`,
    beside: {
      mlp: llamaNames.gated,
      mlpOutNorm: `${layer}post_feedforward_layernorm_1`,
      norm: `${layer}pre_feedforward_layernorm_2`,
      outNorm: `${layer}post_feedforward_layernorm_2`,
      routerScale: `${layer}router.scale`,
      expertScale: `${layer}router.per_expert_scale`,
    },
  },
};

const defaults = {
  vocab_size: 262144,
  hidden_size: 2304,
  intermediate_size: 9216,
  num_hidden_layers: 30,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 256,
  global_head_dim: 512,
  max_position_embeddings: 131072,
  sliding_window: 512,
  tie_word_embeddings: true,
  eos_token_id: 1,
  bos_token_id: 2,
  rope_parameters: {
    sliding_attention: { rope_type: 'default', rope_theta: 1e4 },
    full_attention: { rope_type: 'proportional', partial_rotary_factor: 0.25, rope_theta: 1e6 },
  },
};
const unified = { ...defaults, sliding_window: 1024, max_position_embeddings: 262144 };

/**
 * Gemma 4 (text): Gemma 3's layers with norms of values, unscaled scores and a scaled output; those without a window have wider heads,
 * may have fewer kv heads whose keys are the values, and turn a part of their pairs. Some models' last layers attend to the keys and
 * values of the last one of their type before them, some have inputs for each layer, some experts beside the MLP.
 */
export const gemma4 = defineFamily({
  defaults: {
    gemma4_text: { ...defaults, hidden_size_per_layer_input: 256 },
    gemma4_unified_text: unified,
  },
  config(config, common) {
    const { numLayers, hiddenSize } = common;
    const bidirectional = config.optionalString('use_bidirectional_attention');
    // Tokens of pictures see each other; text has none.
    if (bidirectional !== undefined && bidirectional !== 'vision')
      throw config.unsupported('use_bidirectional_attention', bidirectional, 'a token sees none after it');
    const types = parseLayerTypes(config, numLayers, fullEvery(6)).with(-1, 'full_attention');
    const firstShared =
      numLayers - (config.optionalInteger('num_kv_shared_layers', { min: 0, max: numLayers - 1 }) ?? 0);
    const activation = parseGelu(config);
    const dense = parseGated(config, activation);
    const doubled = config.boolean('use_double_wide_mlp', false);
    const experts = config.boolean('enable_moe_block', false) ? expertsBeside(config) : undefined;
    const perLayer = config.optionalInteger('hidden_size_per_layer_input', { min: 0, max: 2 ** 16 }) ?? 0;
    const rows = config.optionalInteger('vocab_size_per_layer_input', { min: 1, max: 1 << 24 }) ?? common.vocabSize;
    if (perLayer > 0 && rows !== common.vocabSize)
      throw config.unsupported('vocab_size_per_layer_input', rows, `as many as vocab_size (${common.vocabSize})`);
    return {
      embeddingScale: Math.sqrt(hiddenSize),
      logitCap: config.optionalPositive('final_logit_softcapping'),
      layers: types.map((type, index): LayerConfig => {
        const mlp: MlpConfig = doubled && index >= firstShared ? { ...dense, width: 2 * dense.width } : dense;
        return {
          attention: {
            ...parseAttention(config, hiddenSize, type, index),
            ...(index >= firstShared && { sharesKv: types.lastIndexOf(type, firstShared - 1) }),
          },
          mlp: experts ? { ...experts, beside: mlp } : mlp,
          norms: 'both',
          scaled: true,
          ...(perLayer > 0 && { perLayer: { width: perLayer } }),
        };
      }),
      tensors,
    };
  },
  vision(config) {
    const vision = config.optionalObject('vision_config');
    if (!vision) return undefined;
    const bare = isUnified(config);
    const of = bare ? vision : config;
    const tokens = bare ? 'num_soft_tokens' : 'vision_soft_tokens_per_image';
    const rows = of.optionalInteger(tokens, { max: 1120 }) ?? 280;
    const text = textBesideEncoders(config);
    const key = 'use_bidirectional_attention';
    const bothWays = bare && !text?.has(key) ? true : text?.optionalString(key) === 'vision';
    const { sliding_window: window } = bare ? unified : defaults;
    if (bothWays) checkRuns(config, tokens, rows, window);
    const runs = bothWays && { runs: rows, windowedRuns: true };
    const read = bare ? parseGemma4Patches : parseGemma4Vision;
    return { ...tokensOf(config, ['image_token_id'], 258880), ...read(vision, rows), ...runs };
  },
  sound(config) {
    const sound = config.optionalObject('audio_config');
    if (!sound) return undefined;
    textBesideEncoders(config);
    const token = config.optionalInteger('audio_token_id', { min: 0, max: 2 ** 24 - 1 }) ?? 258881;
    return isUnified(config) ? parseGemma4Samples(sound, token) : parseGemma4Sound(sound, token);
  },
  mmproj(clip, idOf, { layers }) {
    const { tensors: stored, metadata } = clip.gguf;
    const bare = metadata.get('clip.vision.projector_type') === 'gemma4uv';
    const places = stored.get('v.position_embd.weight')?.shape[1];
    const width = clip.integer('embedding_length');
    return {
      ...(bare && { model_type: 'gemma4_unified' }),
      image_token_id: idOf('<|image|>'),
      text_config: {
        sliding_window: firstWindow(layers),
        // No file says so; those with inputs for each layer don't.
        use_bidirectional_attention: layers[0]?.perLayer ? undefined : 'vision',
      },
      vision_config: {
        hidden_act: 'gelu_pytorch_tanh',
        rms_norm_eps: clip.positive('attention.layer_norm_epsilon'),
        pooling_kernel_size: clip.optionalInteger('projector.scale_factor') ?? 3,
        position_embedding_size: places,
        ...(bare && { mm_embed_dim: width, output_proj_dims: width, mm_posemb_size: places }),
        standardize: stored.has('v.std_scale'),
        use_clipped_linears: stored.has('v.blk.0.attn_q.input_max'),
      },
    };
  },
  mmprojSound: {
    types: ['gemma4a', 'gemma4ua'],
    keys(clip, idOf) {
      const { tensors: stored, metadata } = clip.gguf;
      const width = clip.integer('embedding_length');
      const token = { audio_token_id: idOf('<|audio|>') };
      if (metadata.get('clip.audio.projector_type') === 'gemma4ua')
        return { ...token, model_type: 'gemma4_unified', audio_config: { audio_embed_dim: width } };
      return {
        ...token,
        audio_config: {
          hidden_size: width,
          num_hidden_layers: clip.integer('block_count'),
          num_attention_heads: clip.integer('attention.head_count'),
          subsampling_conv_channels: [0, 1].map((at) => stored.get(`a.conv1d.${at}.weight`)?.shape[0]),
          conv_kernel_size: stored.get('a.blk.0.conv_dw.weight')?.shape[1],
          output_proj_dims: stored.get('a.pre_encode.out.weight')?.shape[0],
          use_clipped_linears: stored.has('a.blk.0.attn_q.input_max'),
        },
      };
    },
  },
  gguf: { keys: ggufKeys, plainWindows: ['gemma4'] },
});

/** Gemma 4 12B, which makes rows of patches and of samples without an encoder. */
const isUnified = (config: ConfigReader): boolean => config.raw('model_type') === 'gemma4_unified';

function textBesideEncoders(config: ConfigReader): ConfigReader | undefined {
  const text = config.optionalObject('text_config');
  const rest = "given rows have token 0's inputs for each layer";
  if (text && !isUnified(config)) refuseForeign(text, [['pad_token_id', 0, rest]]);
  return text;
}

function parseAttention(config: ConfigReader, hiddenSize: number, type: LayerType, index: number): GqaConfig {
  const full = type === 'full_attention';
  const keysAreValues = full && config.boolean('attention_k_eq_v', false);
  const own = config.optionalObject('per_layer_config')?.optionalObject(`${index}`);
  const usual = parseGqa(config, hiddenSize);
  const headDim = own?.optionalInteger('head_dim') ?? (full ? config.integer('global_head_dim') : usual.headDim);
  const few = keysAreValues ? config.optionalInteger('num_global_key_value_heads', countRange) : undefined;
  const kvHeads = own?.optionalInteger('num_key_value_heads', countRange) ?? few ?? usual.kvHeads;
  if (usual.heads % kvHeads !== 0)
    throw config.invalid('num_global_key_value_heads', kvHeads, `a divisor of num_attention_heads (${usual.heads})`);
  const rope = parseLayerRope(config, type, headDim, full ? 1e6 : 1e4, full ? ['proportional'] : []);
  return {
    ...usual,
    kvHeads,
    headDim,
    scale: 1,
    qkNorm: 'head',
    valueNorm: true,
    ...(keysAreValues && { keysAreValues }),
    rope: rope ?? config.missing('rope_parameters'),
    window: full ? undefined : config.integer('sliding_window'),
  };
}

/** Softmax over all, and the chosen ones' divided by their sum. */
const expertsBeside = (config: ConfigReader): ExpertsConfig => ({
  ...parseExperts(config, 'num_experts', 'top_k_experts', 'moe_intermediate_size', parseGelu(config)),
  normTopkProb: true,
});

function ggufKeys(metadata: GgufMetadata, gguf: GgufFile): Record<string, unknown> {
  const { layer_types: types } = ggufLayerTypes(metadata, 6);
  const full = types.indexOf('full_attention');
  const [window, count] = [types.indexOf('sliding_attention'), metadata.raw('attention.head_count_kv')];
  const kvHeads = (index: number): unknown => (Array.isArray(count) ? count[Math.max(0, index)] : count);
  const widths = metadata.raw('feed_forward_length');
  const [width, last] = Array.isArray(widths) ? [widths[0], widths.at(-1)] : [widths, widths];
  const experts = metadata.optionalInteger('expert_count', countRange);
  const rope = (base: string, otherwise: number) => ({
    rope_type: 'default',
    rope_theta: metadata.optionalPositive(base) ?? otherwise,
  });
  return {
    model_type: 'gemma4_text',
    intermediate_size: width,
    use_double_wide_mlp: width !== last,
    num_key_value_heads: kvHeads(window),
    num_global_key_value_heads: kvHeads(full),
    head_dim: metadata.integer('attention.key_length_swa'),
    global_head_dim: metadata.integer('attention.key_length'),
    // The tensors decide.
    attention_k_eq_v: !gguf.tensors.has(`blk.${full}.attn_v.weight`),
    num_kv_shared_layers: metadata.optionalInteger('attention.shared_kv_layers', { min: 0, max: 4096 }) ?? 0,
    hidden_size_per_layer_input:
      metadata.optionalInteger('embedding_length_per_layer_input', { min: 0, max: 2 ** 16 }) ?? 0,
    sliding_window: metadata.integer('attention.sliding_window'),
    layer_types: types,
    rope_parameters: {
      full_attention: rope('rope.freq_base', 1e6),
      sliding_attention: rope('rope.freq_base_swa', 1e4),
    },
    final_logit_softcapping: metadata.optionalPositive('final_logit_softcapping') ?? null,
    ...(experts !== undefined && {
      enable_moe_block: true,
      num_experts: experts,
      top_k_experts: metadata.integer('expert_used_count', countRange),
      moe_intermediate_size: metadata.integer('expert_feed_forward_length'),
    }),
  };
}
