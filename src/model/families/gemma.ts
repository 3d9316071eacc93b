import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { LayerConfig } from '../config/model_config.js';
import { type LayerType, parseLayerRope, parseRope, type RopeConfig } from '../config/rope_config.js';
import { checkRuns, firstWindow, parseSiglip, tokensOf } from '../config/vision_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import {
  attentionByType,
  countRange,
  fullEvery,
  ggufHeads,
  ggufLayerTypes,
  parseGated,
  parseGelu,
  parseGqa,
  parseLayerTypes,
} from './common_keys.js';
import { defineFamily } from './family.js';

const tensors: TensorNames = {
  ...llamaNames,
  // Of the attention's output, here; the MLP's is called by its place.
  attentionOutNorm: 'model.layers.{layer}.post_attention_layernorm',
  postNorm: 'model.layers.{layer}.pre_feedforward_layernorm',
  mlpOutNorm: 'model.layers.{layer}.post_feedforward_layernorm',
};

const defaults = {
  hidden_size: 2304,
  intermediate_size: 9216,
  num_hidden_layers: 26,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 256,
  rms_norm_eps: 1e-6,
  query_pre_attn_scalar: 256,
  sliding_window: 4096,
  tie_word_embeddings: true,
  eos_token_id: 1,
  bos_token_id: 2,
};

/**
 * Gemma is Llama with GELU, norms with 1 + w, and embeddings times sqrt(hidden_size). Gemma 2 and Gemma 3 (text) have layers with a window and, every so often, one without; in Gemma 3 each has its rotary embedding. Norms
 * before and after each half, all of them with 1 + w (EmbeddingGemma is Gemma 3 that sees both ways); GELU; embeddings times sqrt(hidden_size). Gemma 2 caps scores and logits,
 * Gemma 3 normalises queries and keys instead.
 */
export const gemma = defineFamily({
  // Files leave out what equals transformers' defaults.
  defaults: {
    gemma3_text: { ...defaults, vocab_size: 262208, max_position_embeddings: 131072 },
    gemma: {
      ...defaults,
      vocab_size: 256000,
      hidden_size: 3072,
      intermediate_size: 24576,
      num_hidden_layers: 28,
      num_attention_heads: 16,
      num_key_value_heads: 16,
      max_position_embeddings: 8192,
    },
    gemma2: {
      ...defaults,
      vocab_size: 256000,
      max_position_embeddings: 8192,
      attn_logit_softcapping: 50,
      final_logit_softcapping: 30,
    },
  },
  config(config, common) {
    const plain = common.architecture === 'gemma';
    const gemma2 = common.architecture === 'gemma2';
    const heads = parseGqa(config, common.hiddenSize);
    const scale = plain ? heads.scale : config.positive('query_pre_attn_scalar') ** -0.5;
    const bothWays = config.boolean('use_bidirectional_attention', false);
    const attention = {
      ...heads,
      scale,
      qkNorm: gemma2 || plain ? (false as const) : ('head' as const),
      softcap: config.optionalPositive('attn_logit_softcapping'),
      ...(bothWays && { bothWays }),
    };
    const ropes = parseRopes(config, heads.headDim, gemma2 || plain);
    const logitCap = config.optionalPositive('final_logit_softcapping');
    // Of an encoder it is as wide on both sides together.
    const width = config.optionalInteger('sliding_window');
    const window = width !== undefined && bothWays ? Math.floor(width / 2) + 1 : width;
    const attentionOf = attentionByType(attention, ropes, window);
    // The first files say 'gelu', and mean the other.
    const mlp = parseGated(config, plain && config.raw('hidden_act') === 'gelu' ? 'gelu_tanh' : parseGelu(config));
    // Where layer_types don't say.
    const every = plain ? 1 : gemma2 ? 2 : (config.optionalInteger('sliding_window_pattern', countRange) ?? 6);
    return {
      norm: { ...common.norm, offset: 1 },
      ...(bothWays && { tieWordEmbeddings: true }),
      embeddingScale: Math.sqrt(common.hiddenSize),
      logitCap,
      layers: parseLayerTypes(config, common.numLayers, fullEvery(every)).map((type): LayerConfig => ({
        attention: attentionOf(type),
        mlp,
        ...(!plain && { norms: 'both' }),
      })),
      tensors: plain ? llamaNames : tensors,
    };
  },
  /** Gemma 3's: patches are averaged to as many rows as there are, which see each other. */
  vision(config) {
    const vision = config.optionalObject('vision_config');
    if (!vision) return undefined;
    const rows = config.optionalInteger('mm_tokens_per_image') ?? 256;
    checkRuns(config, 'mm_tokens_per_image', rows, defaults.sliding_window);
    const siglip = parseSiglip(vision, (side) => side / Math.sqrt(rows));
    return {
      kind: 'whole',
      ...tokensOf(config, ['image_token_index'], 262144),
      mark: tokensOf(config, ['boi_token_index'], 255999).mark,
      ...siglip,
      average: { norm: { kind: 'rms', eps: siglip.tower.norm.eps, offset: 1 }, scale: siglip.merge ** -2 },
      runs: rows,
    };
  },
  mmproj(clip, idOf, { layers }) {
    const side = Math.floor(clip.integer('image_size') / clip.integer('patch_size'));
    return {
      image_token_index: idOf('<image_soft_token>'),
      boi_token_index: idOf('<start_of_image>'),
      mm_tokens_per_image: Math.floor(side / (clip.optionalInteger('projector.scale_factor') ?? 4)) ** 2,
      text_config: { sliding_window: firstWindow(layers) },
    };
  },
  gguf: { keys: ggufKeys, plainWindows: ['gemma3', 'gemma-embedding'] },
});

/** In Gemma 3 layers with a window have a base of their own, and are never stretched. */
function parseRopes(config: ConfigReader, headDim: number, alike: boolean): Readonly<Record<LayerType, RopeConfig>> {
  if (alike) {
    const rope = parseRope(config, headDim, ['linear']);
    return { full_attention: rope, sliding_attention: rope };
  }
  const full = parseLayerRope(config, 'full_attention', headDim, 1e6, ['linear']);
  const sliding = parseLayerRope(config, 'sliding_attention', headDim, 1e4, ['linear']);
  const [theta, local] = ['rope_theta', 'rope_local_base_freq'].map((key) => config.optionalPositive(key));
  return {
    full_attention: full ?? { ...parseRope(config, headDim, ['linear']), theta: theta ?? 1e6 },
    sliding_attention: sliding ?? { theta: local ?? 1e4, scaling: null, dims: headDim, interleaved: false },
  };
}

/** llama.cpp guesses what scores are divided by from the number of layers: 62 are Gemma 3 27B, 46 Gemma 2 27B. */
function ggufKeys(metadata: GgufMetadata): Record<string, unknown> {
  const heads = metadata.integer('attention.head_count', countRange);
  const hiddenSize = metadata.integer('embedding_length');
  const shape = ggufHeads(metadata, 256);
  const gemma2 = metadata.arch === 'gemma2';
  const largest = metadata.integer('block_count', countRange) === (gemma2 ? 46 : 62);
  const window = metadata.optionalInteger('attention.sliding_window', { min: 0, max: 2 ** 30 });
  if (metadata.arch === 'gemma') return { ...shape, model_type: 'gemma' };
  const common = { ...shape, query_pre_attn_scalar: largest ? hiddenSize / heads : shape.head_dim };
  if (gemma2) {
    return {
      ...common,
      model_type: 'gemma2',
      sliding_window: window ?? 4096,
      attn_logit_softcapping: metadata.optionalPositive('attn_logit_softcapping') ?? 50,
      final_logit_softcapping: metadata.optionalPositive('final_logit_softcapping') ?? 30,
    };
  }
  return {
    ...common,
    model_type: 'gemma3_text',
    ...(metadata.arch === 'gemma-embedding' && { use_bidirectional_attention: true, tie_word_embeddings: true }),
    sliding_window: window || null,
    ...ggufLayerTypes(metadata, 6),
    rope_local_base_freq: metadata.optionalPositive('rope.freq_base_swa') ?? 10000,
    final_logit_softcapping: metadata.optionalPositive('final_logit_softcapping') ?? null,
  };
}
