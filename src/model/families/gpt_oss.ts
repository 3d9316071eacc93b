import type { GgufFile } from '../../loader/index.js';
import type { ConfigReader } from '../config/config_reader.js';
import type { ExpertsConfig, GqaConfig, LayerConfig } from '../config/model_config.js';
import { parseRope } from '../config/rope_config.js';
import { gatedNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import type { GgufMetadata } from '../gguf/metadata.js';
import { countRange, neutralKeys, parseActivation, parseLayerTypes, refuseForeign, sizeRange } from './common_keys.js';
import { defineFamily } from './family.js';

const mlp = 'model.layers.{layer}.mlp.';
const tensors: TensorNames = {
  ...llamaNames,
  gqa: { ...llamaNames.gqa, sinks: 'model.layers.{layer}.self_attn.sinks' },
  experts: {
    ...gatedNames(`${mlp}experts.{expert}`),
    router: `${mlp}router`,
    // It has neither.
    correctionBias: `${mlp}router.e_score_correction_bias`,
    shared: gatedNames(`${mlp}shared_experts`),
    alternating: true,
  },
};

/**
 * gpt-oss: a sink a head, every second layer with a window, YaRN whose blend isn't rounded to whole dimensions, biases everywhere; in all
 * layers experts with a clamped SwiGLU, whose matrices the files have in MXFP4.
 */
export const gptOss = defineFamily({
  defaults: {
    gpt_oss: {
      vocab_size: 201088,
      hidden_size: 2880,
      intermediate_size: 2880,
      num_hidden_layers: 36,
      num_attention_heads: 64,
      num_key_value_heads: 8,
      head_dim: 64,
      max_position_embeddings: 131072,
      rms_norm_eps: 1e-5,
      num_local_experts: 128,
      num_experts_per_tok: 4,
      sliding_window: 128,
      attention_bias: true,
      rope_theta: 150000,
      rope_scaling: {
        rope_type: 'yarn',
        factor: 32,
        beta_fast: 32,
        beta_slow: 1,
        truncate: false,
        original_max_position_embeddings: 4096,
      },
      eos_token_id: 200002,
    },
  },
  packings: ['mxfp4'],
  config(config, common) {
    refuseForeign(config, neutralKeys);
    const attention = parseAttention(config);
    const experts = parseExperts(config);
    const window = config.optionalInteger('sliding_window', sizeRange);
    const types = parseLayerTypes(config, common.numLayers, (layer) =>
      layer % 2 === 0 ? 'sliding_attention' : 'full_attention',
    );
    return {
      layers: types.map((type): LayerConfig => {
        const slides = type === 'sliding_attention' && window !== undefined;
        return { attention: slides ? { ...attention, window } : attention, mlp: experts };
      }),
      tensors,
    };
  },
  gguf: { keys: ggufKeys, parts: { postNorm: 'post_attention_norm' }, unroundedYarn: ['gpt-oss'] },
});

function parseAttention(config: ConfigReader): GqaConfig {
  const heads = config.integer('num_attention_heads', countRange);
  const kvHeads = config.integer('num_key_value_heads', { min: 1, max: heads });
  if (heads % kvHeads !== 0)
    throw config.invalid('num_key_value_heads', kvHeads, `a divisor of num_attention_heads (${heads})`);
  const headDim = config.integer('head_dim', sizeRange);
  const biased = config.boolean('attention_bias', true);
  return {
    kind: 'gqa',
    heads,
    kvHeads,
    headDim,
    bias: { q: biased, k: biased, v: biased, o: biased },
    qkNorm: false,
    rope: parseRope(config, headDim, ['yarn', 'linear']),
    scale: headDim ** -0.5,
    sinks: true,
  };
}

/** The softmax over the chosen experts' logits is that over all, divided by its sum over the chosen. */
function parseExperts(config: ConfigReader): ExpertsConfig {
  const numExperts = config.integer('num_local_experts', { min: 1, max: 1024 });
  const packed = config.optionalObject('quantization_config') !== undefined;
  return {
    kind: 'experts',
    numExperts,
    expertsPerToken: config.integer(
      config.has('experts_per_token') && !config.has('num_experts_per_tok')
        ? 'experts_per_token'
        : 'num_experts_per_tok',
      { min: 1, max: numExperts },
    ),
    width: config.integer('intermediate_size', sizeRange),
    sharedWidth: 0,
    activation: parseActivation(config),
    clamped: {
      alpha: config.optionalPositive('swiglu_alpha') ?? 1.702,
      limit: config.optionalPositive('swiglu_limit') ?? 7,
    },
    bias: true,
    ...(packed && { packed: 'mxfp4' }),
    numGroups: 1,
    topkGroups: 1,
    scoring: 'softmax',
    method: 'greedy',
    normTopkProb: true,
    routedScalingFactor: 1,
    correctionBias: false,
  };
}

/** What is left out is the same in all of llama.cpp's. */
function ggufKeys(_gguf: GgufFile, metadata: GgufMetadata): Record<string, unknown> {
  const heads = metadata.integer('attention.head_count', countRange);
  return {
    model_type: 'gpt_oss',
    num_key_value_heads: metadata.optionalInteger('attention.head_count_kv', countRange) ?? heads,
    head_dim: metadata.optionalInteger('attention.key_length', sizeRange) ?? 64,
    num_local_experts: metadata.integer('expert_count', countRange),
    num_experts_per_tok: metadata.integer('expert_used_count', countRange),
    intermediate_size: metadata.integer('expert_feed_forward_length', sizeRange),
    sliding_window: metadata.optionalInteger('attention.sliding_window', sizeRange) ?? null,
    rope_scaling: null,
    eos_token_id: null,
  };
}
