import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { AttentionConfig, LayerConfig, MlpConfig } from '../config/model_config.js';
import { parseRope } from '../config/rope_config.js';
import type { GatedMlpNames, TensorNames } from '../config/tensor_names.js';
import { parseSiglip2, tokensOf } from '../config/vision_config.js';
import { countRange, ggufExperts, parseExperts, parseGqa, parseLayerTypes, refuseForeign } from './common_keys.js';
import { defineFamily } from './family.js';
import { ggufMixers } from './mixers.js';

const at = 'model.layers.{layer}.';
const gatedOf = (prefix: string): GatedMlpNames => ({ gate: `${prefix}.w1`, up: `${prefix}.w3`, down: `${prefix}.w2` });

const tensors: TensorNames = {
  embedding: 'model.embed_tokens',
  // At the end, despite its name.
  norm: 'model.embedding_norm',
  head: 'lm_head',
  inputNorm: `${at}operator_norm`,
  postNorm: `${at}ffn_norm`,
  gqa: {
    q: `${at}self_attn.q_proj`,
    k: `${at}self_attn.k_proj`,
    v: `${at}self_attn.v_proj`,
    o: `${at}self_attn.out_proj`,
    qNorm: `${at}self_attn.q_layernorm`,
    kNorm: `${at}self_attn.k_layernorm`,
  },
  conv: { input: `${at}conv.in_proj`, taps: `${at}conv.conv`, output: `${at}conv.out_proj` },
  gated: gatedOf(`${at}feed_forward`),
  experts: {
    ...gatedOf(`${at}feed_forward.experts.{expert}`),
    router: `${at}feed_forward.gate`,
    correctionBias: `${at}feed_forward.expert_bias`,
    // There are none.
    shared: gatedOf(`${at}feed_forward.shared`),
  },
};

/** What transformers takes for absent keys. */
const common = {
  vocab_size: 65536,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  num_hidden_layers: 32,
  max_position_embeddings: 128000,
  tie_word_embeddings: true,
  conv_L_cache: 3,
  bos_token_id: 1,
  eos_token_id: 2,
};

/** LFM2 and LFM2-MoE: gated short convolutions, and in some layers grouped-query attention with norms of q and k; SwiGLU or experts. */
export const lfm2 = defineFamily({
  defaults: {
    lfm2: { ...common, hidden_size: 2560, intermediate_size: 12288 },
    lfm2_moe: {
      ...common,
      hidden_size: 2048,
      intermediate_size: 7168,
      moe_intermediate_size: 1792,
      num_dense_layers: 2,
      num_experts: 32,
      num_experts_per_tok: 4,
    },
  },
  neutral: [
    ['conv_bias', false, 'convolutions and their projections have no bias'],
    ['sliding_window', undefined, 'attention sees all tokens'],
  ],
  config(config, { architecture, hiddenSize, numLayers, tieWordEmbeddings }) {
    const heads = parseGqa(config, hiddenSize, false);
    const rope = parseRope(config, heads.headDim, ['linear', 'llama3']);
    const theta =
      config.optionalPositive('theta') ??
      (config.has('rope_theta') || config.has('rope_parameters') ? rope.theta : 1e6);
    const attention: AttentionConfig = { ...heads, qkNorm: 'head', rope: { ...rope, theta } };
    const taps = config.integer('conv_L_cache', { min: 2, max: 64 });
    const conv: AttentionConfig = { kind: 'conv', width: hiddenSize, taps, segments: heads.kvHeads };
    const mlp = parseMlps(config, architecture);
    return {
      norm: { kind: 'rms', eps: config.optionalPositive('norm_eps') ?? 1e-5 },
      tieWordEmbeddings: config.has('tie_embedding') ? config.boolean('tie_embedding', true) : tieWordEmbeddings,
      layers: parseTypes(config, numLayers).map((type, layer): LayerConfig => ({
        attention: type === 'conv' ? conv : attention,
        mlp: mlp(layer),
      })),
      tensors,
    };
  },
  /** LFM2-VL's: SigLIP 2, for pictures of up to 32 by 32 patches. */
  vision(config) {
    const vision = config.optionalObject('vision_config');
    if (!vision) return undefined;
    refuseForeign(config, [
      ['projector_hidden_act', 'gelu', "the projector's activation is gelu"],
      ['projector_bias', true, 'the projector has biases'],
      ['vision_feature_layer', -1, 'all layers of the encoder run'],
    ]);
    const tokens = tokensOf(config, ['image_token_id', 'image_token_index'], 396);
    const norm = config.boolean('projector_use_layernorm', true) && {
      norm: { kind: 'layer', eps: 1e-5, bias: true } as const,
    };
    const merger = { width: config.optionalInteger('projector_hidden_size') ?? 2560, taps: [], ...norm };
    const merge = config.optionalInteger('downsample_factor', { min: 1, max: 16 }) ?? 2;
    return { kind: 'tiles or any size', ...tokens, ...parseSiglip2(vision, 32), merge, merger };
  },
  mmproj: (clip, idOf) => ({
    image_token_id: idOf('<image>'),
    downsample_factor: clip.optionalInteger('projector.scale_factor'),
    projector_hidden_size: clip.gguf.tensors.get('mm.1.weight')?.shape[0],
    projector_use_layernorm: clip.gguf.tensors.has('mm.input_norm.weight'),
    vision_config: { num_patches: Math.floor(clip.integer('image_size') / clip.integer('patch_size')) ** 2 },
  }),
  gguf: { keys: ggufKeys, parts: { norm: 'token_embd_norm' } },
});

type LayerType = 'conv' | 'full_attention';

function parseTypes(config: ConfigReader, numLayers: number): LayerType[] {
  const listed = config.raw('full_attn_idxs');
  if (listed !== undefined && !(Array.isArray(listed) && listed.every(Number.isInteger)))
    throw config.invalid('full_attn_idxs', listed, "a list of layers' numbers");
  const full = (listed as number[] | undefined) ?? Array.from({ length: numLayers }, (_, layer) => layer);
  return parseLayerTypes<LayerType>(config, numLayers, (layer) => (full.includes(layer) ? 'full_attention' : 'conv'), [
    'full_attention',
    'conv',
  ]);
}

function parseMlps(config: ConfigReader, architecture: string): (layer: number) => MlpConfig {
  const gated = (width: number): MlpConfig => ({ kind: 'gated', width, activation: 'silu', bias: false });
  if (architecture === 'lfm2') {
    const dense = gated(parseWidth(config));
    return () => dense;
  }
  const dense = gated(config.integer('intermediate_size'));
  const numDense = config.integer('num_dense_layers', { min: 0, max: countRange.max });
  const experts: MlpConfig = {
    ...parseExperts(config),
    scoring: 'sigmoid',
    normTopkProb: config.boolean('norm_topk_prob', true),
    routedScalingFactor: config.optionalPositive('routed_scaling_factor') ?? 1,
    correctionBias: config.boolean('use_expert_bias', true),
  };
  return (layer) => (layer < numDense ? dense : experts);
}

/** The width of an MLP isn't the number in the config: two thirds of it, rounded up. */
function parseWidth(config: ConfigReader): number {
  const stated = config.optionalInteger('block_ff_dim') ?? config.integer('intermediate_size');
  if (!config.boolean('block_auto_adjust_ff_dim', true)) return stated;
  const multiplier = config.optionalPositive('block_ffn_dim_multiplier') ?? 1;
  const step = config.optionalInteger('block_multiple_of') ?? 256;
  return step * Math.ceil(Math.floor(multiplier * Math.floor((2 * stated) / 3)) / step);
}

/** Widths are the tensors'. */
function ggufKeys(metadata: GgufMetadata): Record<string, unknown> {
  const { kvHeads, types } = ggufMixers<LayerType>(metadata, 'conv', 'full_attention');
  const keys = {
    model_type: metadata.arch === 'lfm2moe' ? 'lfm2_moe' : 'lfm2',
    num_key_value_heads: kvHeads,
    head_dim: metadata.optionalInteger('attention.key_length') ?? null,
    norm_eps: metadata.positive('attention.layer_norm_rms_epsilon'),
    conv_L_cache: metadata.integer('shortconv.l_cache', countRange),
    block_auto_adjust_ff_dim: false,
    layer_types: types,
  };
  if (metadata.arch !== 'lfm2moe') return keys;
  const scoring = metadata.optionalInteger('expert_gating_func', { min: 0, max: 16 }) ?? 2;
  if (scoring !== 2) throw metadata.unsupported('expert_gating_func', scoring, 'experts are chosen by sigmoid (2)');
  return {
    ...keys,
    num_dense_layers: metadata.optionalInteger('leading_dense_block_count', { min: 0, max: countRange.max }) ?? 0,
    ...ggufExperts(metadata),
    norm_topk_prob: true,
    use_expert_bias: true,
  };
}
