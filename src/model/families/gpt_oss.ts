import type { GqaConfig, LayerConfig, MlpConfig } from '../config/model_config.js';
import { parseRope } from '../config/rope_config.js';
import { expertNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import { fullEvery, ggufExperts, ggufHeads, parseExperts, parseGqa, parseLayerTypes } from './common_keys.js';
import { defineFamily } from './family.js';

const tensors: TensorNames = {
  ...llamaNames,
  gqa: { ...llamaNames.gqa, sinks: 'model.layers.{layer}.self_attn.sinks' },
  experts: { ...expertNames('router'), alternating: true },
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
    const heads = parseGqa(config, common.hiddenSize, config.boolean('attention_bias', true));
    const attention: GqaConfig = { ...heads, rope: parseRope(config, heads.headDim, ['yarn', 'linear']), sinks: true };
    const chosen =
      config.has('experts_per_token') && !config.has('num_experts_per_tok') ? 'experts_per_token' : undefined;
    const experts: MlpConfig = {
      ...parseExperts(config, 'num_local_experts', chosen, 'intermediate_size'),
      clamped: {
        alpha: config.optionalPositive('swiglu_alpha') ?? 1.702,
        limit: config.optionalPositive('swiglu_limit') ?? 7,
      },
      bias: true,
      ...(config.optionalObject('quantization_config') !== undefined && { packed: 'mxfp4' }),
      // The softmax over the chosen experts' logits is that over all, divided by its sum over the chosen.
      normTopkProb: true,
    };
    const window = config.optionalInteger('sliding_window');
    return {
      layers: parseLayerTypes(config, common.numLayers, fullEvery(2)).map((type): LayerConfig => ({
        attention: type === 'sliding_attention' ? { ...attention, window } : attention,
        mlp: experts,
      })),
      tensors,
    };
  },
  gguf: {
    keys(metadata) {
      const { num_experts, num_experts_per_tok, moe_intermediate_size } = ggufExperts(metadata);
      // What is left out is the same in all of llama.cpp's.
      return {
        ...ggufHeads(metadata, 64),
        model_type: 'gpt_oss',
        num_local_experts: num_experts,
        num_experts_per_tok,
        intermediate_size: moe_intermediate_size,
        sliding_window: metadata.optionalInteger('attention.sliding_window') ?? null,
        rope_scaling: null,
        eos_token_id: null,
      };
    },
    parts: { postNorm: 'post_attention_norm' },
    unroundedYarn: ['gpt-oss'],
  },
});
