import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { FastPath } from '../../../gpu/index.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn } from '../../../gpu/testing/draw.js';
import { expertsOf } from '../../../model/config/model_config.js';
import { modelToGguf } from '../../../model/testing/gguf/model.js';
import { findLlamaCpp, llamaCppLogits } from '../../../model/testing/llama_cpp.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import { STATE_SPACE } from '../../../model/testing/small_configs.js';
import { familyLogits } from '../../../model/testing/reference/families.js';
import type { LoadOptions, Model } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { KV_TYPES } from '../../../model/layers/attention/cache.js';
import { openRunner } from '../open_runner.js';
import { randomFiles } from '../random_source.js';
import { firstDifference, runAlone } from '../run_bits.js';

interface FamilyCase {
  readonly options: RandomModelOptions & { readonly config: Record<string, unknown> };
  readonly tokens: number;
  /** Has layers with a state: it runs on these plans only. */
  readonly recurrent?: true;
  /** All its layers are of one stage. */
  readonly whole?: true;
  /** How far from llama.cpp's logits, relative to the largest, where it runs the same model. */
  readonly llamaCpp?: number;
}

const gemma = {
  model_type: 'gemma3_text',
  hidden_act: undefined,
  query_pre_attn_scalar: 24,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
};

/** s: with a window. */
const layerTypes = (each: string): string[] =>
  each.split('').map((type) => (type === 's' ? 'sliding_attention' : 'full_attention'));

const gemma4 = {
  model_type: 'gemma4_text',
  hidden_act: undefined,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
  hidden_size_per_layer_input: 0,
  // llama.cpp caps them so where nothing says.
  final_logit_softcapping: 30,
};

/**
 * Of a head's pairs all from the middle on are stretched whole, the first not at all: the blend begins before the first pair and ends a
 * 500,000th of a pair before a whole one, so that rounding its bounds, as llama.cpp does, changes nearly nothing.
 */
const gptOss = {
  model_type: 'gpt_oss',
  attention_bias: true,
  rope_theta: undefined,
  rope_parameters: {
    rope_type: 'yarn',
    rope_theta: 415.013,
    factor: 32,
    beta_fast: 32,
    beta_slow: 1,
    truncate: false,
    original_max_position_embeddings: 128,
  },
};

const granite4 = {
  model_type: 'granitemoehybrid',
  head_dim: undefined,
  num_local_experts: 0,
  shared_intermediate_size: 100,
  embedding_multiplier: 12,
  attention_multiplier: 0.3,
  residual_multiplier: 0.22,
  logits_scaling: 4,
};

const graniteHybrid = { ...granite4, ...STATE_SPACE };

/** Odd shapes, windows that are no multiples of anything, contexts beyond windows, chunks and prompt steps. */
const cases: Record<string, FamilyCase> = {
  'gemma3, window 5': {
    options: {
      seed: 61,
      config: {
        ...gemma,
        num_hidden_layers: 7,
        hidden_size: 72,
        head_dim: 24,
        num_attention_heads: 6,
        intermediate_size: 100,
        sliding_window: 5,
      },
    },
    tokens: 40,
    // Its GELU is a table in f16.
    llamaCpp: 2e-3,
  },
  'gemma3, window 300, rope by type': {
    options: {
      seed: 62,
      config: {
        ...gemma,
        num_hidden_layers: 3,
        num_key_value_heads: 1,
        sliding_window: 300,
        layer_types: ['sliding_attention', 'full_attention', 'sliding_attention'],
        rope_parameters: {
          full_attention: { rope_type: 'linear', factor: 8, rope_theta: 1e6 },
          sliding_attention: { rope_type: 'default', rope_theta: 1e4 },
        },
        hidden_activation: 'gelu_pytorch_tanh',
        query_pre_attn_scalar: 40,
      },
    },
    tokens: 610,
  },
  'gemma3, window 1, linear rope': {
    options: {
      seed: 63,
      config: {
        ...gemma,
        num_hidden_layers: 4,
        sliding_window_pattern: 2,
        sliding_window: 1,
        rope_scaling: { rope_type: 'linear', factor: 4 },
        rope_local_base_freq: 500,
        head_dim: 8,
        query_pre_attn_scalar: 8,
      },
    },
    tokens: 30,
    llamaCpp: 2e-3,
  },
  'gemma3, heads of 512': {
    options: {
      seed: 79,
      config: {
        ...gemma,
        num_hidden_layers: 3,
        num_attention_heads: 6,
        head_dim: 512,
        sliding_window: 19,
        sliding_window_pattern: 3,
        query_pre_attn_scalar: 512,
      },
    },
    tokens: 60,
    llamaCpp: 2e-3,
  },
  'gemma4, window 5, keys that are values': {
    options: {
      seed: 101,
      config: {
        ...gemma4,
        num_hidden_layers: 7,
        hidden_size: 72,
        head_dim: 24,
        global_head_dim: 48,
        num_attention_heads: 6,
        num_key_value_heads: 6,
        num_global_key_value_heads: 2,
        attention_k_eq_v: true,
        intermediate_size: 100,
        sliding_window: 5,
        final_logit_softcapping: 4,
      },
    },
    tokens: 40,
    // Its GELU is a table in f16.
    llamaCpp: 4e-3,
  },
  'gemma4, heads of 512 and 256, window 300': {
    options: {
      seed: 102,
      config: {
        ...gemma4,
        num_hidden_layers: 3,
        head_dim: 256,
        global_head_dim: 512,
        layer_types: ['full_attention', 'sliding_attention', 'sliding_attention'],
        sliding_window: 300,
      },
    },
    tokens: 340,
  },
  'gemma4, layers that share keys and values, wider MLPs': {
    options: {
      seed: 103,
      config: {
        ...gemma4,
        num_hidden_layers: 8,
        head_dim: 16,
        global_head_dim: 32,
        // The last two before those that share are of both kinds.
        layer_types: layerTypes('sfsfsssf'),
        num_kv_shared_layers: 4,
        use_double_wide_mlp: true,
        intermediate_size: 72,
        sliding_window: 270,
      },
    },
    tokens: 300,
    llamaCpp: 4e-3,
  },
  'gemma4, inputs for each layer': {
    options: {
      seed: 104,
      config: {
        ...gemma4,
        num_hidden_layers: 5,
        hidden_size: 72,
        head_dim: 16,
        global_head_dim: 32,
        layer_types: layerTypes('sfssf'),
        num_kv_shared_layers: 3,
        sliding_window: 9,
        hidden_size_per_layer_input: 64,
        vocab_size_per_layer_input: 320,
      },
    },
    tokens: 40,
    whole: true,
    llamaCpp: 4e-3,
  },
  'gemma4, experts': {
    options: {
      seed: 105,
      config: {
        ...gemma4,
        num_hidden_layers: 4,
        hidden_size: 72,
        head_dim: 16,
        global_head_dim: 32,
        num_attention_heads: 6,
        num_key_value_heads: 6,
        num_global_key_value_heads: 2,
        attention_k_eq_v: true,
        layer_types: layerTypes('sfsf'),
        sliding_window: 9,
        intermediate_size: 100,
        enable_moe_block: true,
        num_experts: 16,
        top_k_experts: 3,
        moe_intermediate_size: 40,
      },
    },
    tokens: 40,
    llamaCpp: 4e-3,
  },
  smollm3: {
    options: {
      seed: 64,
      config: {
        model_type: 'smollm3',
        num_hidden_layers: 5,
        hidden_size: 72,
        head_dim: undefined,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        intermediate_size: 100,
        rope_theta: undefined,
        tie_word_embeddings: undefined,
      },
    },
    tokens: 300,
    llamaCpp: 1e-5,
  },
  'smollm3, other layers without rope, with windows': {
    options: {
      seed: 65,
      config: {
        model_type: 'smollm3',
        num_hidden_layers: 3,
        no_rope_layers: [0, 1, 0],
        use_sliding_window: true,
        sliding_window: 9,
        head_dim: undefined,
      },
    },
    tokens: 40,
  },
  granite: {
    options: {
      seed: 66,
      config: {
        model_type: 'granite',
        num_hidden_layers: 3,
        head_dim: undefined,
        embedding_multiplier: 12,
        attention_multiplier: 0.3,
        residual_multiplier: 0.22,
        logits_scaling: 4,
      },
    },
    tokens: 40,
    llamaCpp: 1e-5,
  },
  'granite 4, dense, without positions': {
    options: {
      seed: 71,
      config: {
        ...granite4,
        num_hidden_layers: 3,
        layer_types: ['attention', 'attention', 'attention'],
        position_embedding_type: 'nope',
      },
    },
    tokens: 300,
    llamaCpp: 1e-5,
  },
  'granite 4, dense': {
    options: {
      seed: 72,
      config: {
        ...granite4,
        layers_block_type: ['attention', 'attention'],
        position_embedding_type: 'rope',
        num_key_value_heads: 1,
        rope_theta: 500,
        tie_word_embeddings: true,
      },
    },
    tokens: 40,
    llamaCpp: 1e-5,
  },
  'granite 3, experts': {
    options: {
      seed: 84,
      config: {
        ...granite4,
        model_type: 'granitemoe',
        shared_intermediate_size: undefined,
        num_local_experts: 5,
        num_experts_per_tok: 2,
        intermediate_size: 40,
      },
    },
    tokens: 40,
    llamaCpp: 1e-5,
  },
  'granite 3, experts, one shared': {
    options: {
      seed: 85,
      config: {
        ...granite4,
        model_type: 'granitemoeshared',
        num_local_experts: 8,
        num_experts_per_tok: 3,
        intermediate_size: 24,
        tie_word_embeddings: true,
      },
    },
    tokens: 300,
    llamaCpp: 1e-5,
  },
  'granite 4, hybrid': {
    options: { seed: 81, config: graniteHybrid },
    tokens: 300,
    recurrent: true,
    llamaCpp: 1e-5,
  },
  'granite 4, hybrid, with positions and experts, tied': {
    options: {
      seed: 82,
      config: {
        ...graniteHybrid,
        layer_types: ['mamba', 'mamba', 'attention'],
        num_hidden_layers: 3,
        position_embedding_type: 'rope',
        num_key_value_heads: 1,
        mamba_n_heads: 4,
        mamba_d_state: 16,
        mamba_d_conv: 3,
        num_local_experts: 6,
        num_experts_per_tok: 2,
        intermediate_size: 40,
        tie_word_embeddings: true,
      },
    },
    tokens: 60,
    recurrent: true,
    llamaCpp: 1e-5,
  },
  // llama.cpp normalises each group by itself.
  'granite 4, hybrid of 3 groups, uneven heads, without a bias': {
    options: {
      seed: 83,
      config: {
        ...graniteHybrid,
        layers_block_type: ['attention', 'mamba', 'mamba'],
        layer_types: undefined,
        num_hidden_layers: 3,
        hidden_size: 72,
        num_attention_heads: 9,
        num_key_value_heads: 9,
        mamba_n_groups: 3,
        mamba_n_heads: 6,
        mamba_d_head: 'auto',
        mamba_conv_bias: false,
      },
    },
    tokens: 60,
    recurrent: true,
  },
  'ministral3, a temperature from position 16 on': {
    options: {
      seed: 75,
      config: {
        model_type: 'ministral3',
        num_hidden_layers: 3,
        hidden_size: 72,
        num_attention_heads: 6,
        head_dim: 24,
        num_key_value_heads: 3,
        intermediate_size: 100,
        rope_theta: undefined,
        rope_parameters: {
          type: 'yarn',
          rope_theta: 10000,
          factor: 4,
          original_max_position_embeddings: 16,
          mscale: 1,
          mscale_all_dim: 1,
          llama_4_scaling_beta: 0.3,
        },
      },
    },
    tokens: 300,
    llamaCpp: 1e-5,
  },
  'ministral3, a window': {
    options: {
      seed: 76,
      config: {
        model_type: 'ministral3',
        num_key_value_heads: 1,
        sliding_window: 265,
        rope_theta: undefined,
        rope_parameters: {
          rope_type: 'yarn',
          rope_theta: 1000,
          factor: 8,
          original_max_position_embeddings: 64,
          mscale_all_dim: 0.5,
          llama_4_scaling_beta: 0.1,
        },
      },
    },
    tokens: 560,
  },
  'gemma, tied': {
    options: {
      seed: 75,
      config: {
        ...gemma,
        model_type: 'gemma',
        // As the first files had it.
        hidden_act: 'gelu',
        num_hidden_layers: 3,
        hidden_size: 72,
        head_dim: 24,
        num_attention_heads: 6,
        num_key_value_heads: 1,
        intermediate_size: 100,
      },
    },
    tokens: 40,
    llamaCpp: 2e-3,
  },
  'gemma2, window 9': {
    options: {
      seed: 73,
      config: {
        ...gemma,
        model_type: 'gemma2',
        num_hidden_layers: 5,
        hidden_size: 72,
        head_dim: 24,
        num_attention_heads: 6,
        intermediate_size: 100,
        sliding_window: 9,
        // So low that they bite.
        attn_logit_softcapping: 2.5,
        final_logit_softcapping: 4,
      },
    },
    tokens: 40,
    llamaCpp: 2e-3,
  },
  'gemma2, window 260, the caps of its files': {
    options: {
      seed: 74,
      config: {
        ...gemma,
        model_type: 'gemma2',
        num_hidden_layers: 3,
        num_key_value_heads: 1,
        sliding_window: 260,
        query_pre_attn_scalar: 40,
        layer_types: ['sliding_attention', 'full_attention', 'sliding_attention'],
      },
    },
    tokens: 560,
  },
  'phi3, LongRoPE in a part of each head': {
    options: {
      seed: 67,
      config: {
        model_type: 'phi3',
        num_hidden_layers: 3,
        hidden_size: 96,
        head_dim: undefined,
        num_attention_heads: 3,
        num_key_value_heads: 3,
        intermediate_size: 100,
        partial_rotary_factor: 0.75,
        original_max_position_embeddings: 64,
        rope_scaling: {
          type: 'longrope',
          short_factor: Array.from({ length: 12 }, (_, i) => 1 + i / 10),
          long_factor: Array.from({ length: 12 }, (_, i) => 1 + i),
        },
      },
    },
    tokens: 100,
    llamaCpp: 1e-5,
  },
  'phi3, a window': {
    options: {
      seed: 68,
      config: { model_type: 'phi3', head_dim: undefined, sliding_window: 270, num_key_value_heads: 1 },
    },
    tokens: 560,
  },
  qwen3_moe: {
    options: {
      seed: 69,
      config: {
        model_type: 'qwen3_moe',
        num_hidden_layers: 3,
        num_experts: 16,
        num_experts_per_tok: 3,
        moe_intermediate_size: 40,
        norm_topk_prob: true,
      },
    },
    tokens: 40,
    llamaCpp: 1e-5,
  },
  qwen3_vl_moe: {
    options: {
      seed: 101,
      config: {
        model_type: 'qwen3_vl_moe_text',
        num_experts: 8,
        num_experts_per_tok: 2,
        moe_intermediate_size: 40,
        // llama.cpp doesn't turn the pairs that no section has.
        rope_scaling: { mrope_section: [3, 3, 2], mrope_interleaved: true, rope_type: 'default' },
      },
    },
    tokens: 40,
    llamaCpp: 1e-5,
  },
  qwen2_5_vl: {
    options: {
      seed: 102,
      config: {
        model_type: 'qwen2_5_vl_text',
        head_dim: undefined,
        rope_scaling: { type: 'mrope', mrope_section: [3, 3, 2] },
      },
    },
    tokens: 40,
    llamaCpp: 2e-5,
  },
  mixtral: {
    options: {
      seed: 76,
      config: {
        model_type: 'mixtral',
        num_hidden_layers: 3,
        num_local_experts: 5,
        num_experts_per_tok: 2,
        intermediate_size: 40,
      },
    },
    tokens: 40,
    llamaCpp: 1e-5,
  },
  'qwen3, YaRN as its makers write it': {
    options: {
      seed: 77,
      config: {
        model_type: 'qwen3',
        head_dim: 32,
        num_hidden_layers: 3,
        rope_parameters: { rope_theta: 5000, rope_type: 'yarn', factor: 4, original_max_position_embeddings: 128 },
      },
    },
    tokens: 300,
  },
  'qwen3_moe, dense layers, weights as they are': {
    options: {
      seed: 70,
      config: {
        model_type: 'qwen3_moe',
        num_hidden_layers: 4,
        num_experts: 8,
        num_experts_per_tok: 2,
        moe_intermediate_size: 24,
        decoder_sparse_step: 2,
        mlp_only_layers: [3],
      },
    },
    tokens: 40,
  },
  'gpt_oss, window 9': {
    options: {
      seed: 81,
      config: {
        ...gptOss,
        num_hidden_layers: 3,
        hidden_size: 72,
        head_dim: 24,
        num_attention_heads: 6,
        num_key_value_heads: 3,
        intermediate_size: 40,
        sliding_window: 9,
        num_local_experts: 6,
        num_experts_per_tok: 3,
      },
    },
    tokens: 300,
    llamaCpp: 1e-5,
  },
  'gpt_oss, other bounds and layers, no biases in attention': {
    options: {
      seed: 83,
      config: {
        ...gptOss,
        attention_bias: false,
        num_hidden_layers: 3,
        num_key_value_heads: 2,
        layer_types: ['full_attention', 'sliding_attention', 'sliding_attention'],
        sliding_window: 270,
        num_local_experts: 5,
        num_experts_per_tok: 1,
        swiglu_limit: 1.2,
        swiglu_alpha: 1.3,
        rope_parameters: {
          ...gptOss.rope_parameters,
          beta_fast: 8,
          rope_theta: 5000,
          original_max_position_embeddings: 512,
        },
      },
    },
    tokens: 560,
  },
  'gpt_oss, MXFP4, window 128': {
    options: {
      seed: 82,
      config: {
        ...gptOss,
        num_hidden_layers: 2,
        hidden_size: 96,
        num_attention_heads: 8,
        num_key_value_heads: 1,
        intermediate_size: 64,
        sliding_window: 128,
        num_local_experts: 8,
        num_experts_per_tok: 4,
        quantization_config: { quant_method: 'mxfp4' },
      },
    },
    tokens: 610,
    // What is left of the rounded bound, 600 tokens apart.
    llamaCpp: 5e-5,
  },
  olmo2: {
    options: {
      seed: 91,
      config: {
        model_type: 'olmo2',
        num_hidden_layers: 3,
        hidden_size: 72,
        head_dim: undefined,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        intermediate_size: 100,
      },
    },
    tokens: 300,
    llamaCpp: 1e-5,
  },
  'olmo2, as many kv heads as heads, biases': {
    options: {
      seed: 92,
      config: { model_type: 'olmo2', num_key_value_heads: 4, attention_bias: true, tie_word_embeddings: true },
    },
    tokens: 40,
  },
  'olmo3, window 8': {
    options: {
      seed: 93,
      config: {
        model_type: 'olmo3',
        num_hidden_layers: 5,
        hidden_size: 144,
        head_dim: undefined,
        num_attention_heads: 6,
        num_key_value_heads: 3,
        sliding_window: 8,
        rope_theta: 500,
        rope_scaling: {
          rope_type: 'yarn',
          factor: 8,
          attention_factor: 1.2079441541679836,
          beta_fast: 32,
          beta_slow: 1,
          original_max_position_embeddings: 128,
        },
      },
    },
    tokens: 100,
    llamaCpp: 1e-5,
  },
  'olmo3, other layers, windows over chunks': {
    options: {
      seed: 94,
      config: {
        model_type: 'olmo3',
        num_hidden_layers: 3,
        sliding_window: 270,
        layer_types: ['full_attention', 'sliding_attention', 'sliding_attention'],
        rope_theta: undefined,
        rope_parameters: {
          sliding_attention: { rope_type: 'default', rope_theta: 800 },
          full_attention: { rope_type: 'default', rope_theta: 5000 },
        },
      },
    },
    tokens: 560,
  },
  starcoder2: {
    options: {
      seed: 95,
      config: {
        model_type: 'starcoder2',
        num_hidden_layers: 3,
        hidden_size: 96,
        head_dim: undefined,
        num_attention_heads: 12,
        num_key_value_heads: 2,
        intermediate_size: 200,
        hidden_act: 'gelu_pytorch_tanh',
        tie_word_embeddings: undefined,
      },
    },
    tokens: 300,
    // Its GELU is a table in f16.
    llamaCpp: 1e-3,
  },
  'starcoder2, window 9, no biases, a head': {
    options: {
      seed: 96,
      config: {
        model_type: 'starcoder2',
        num_key_value_heads: 4,
        sliding_window: 9,
        use_bias: false,
        hidden_act: undefined,
        tie_word_embeddings: false,
      },
    },
    tokens: 40,
  },
  glm4: {
    options: {
      seed: 97,
      config: {
        model_type: 'glm4',
        num_hidden_layers: 3,
        hidden_size: 72,
        head_dim: 16,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        intermediate_size: 100,
        attention_bias: true,
      },
    },
    tokens: 300,
    llamaCpp: 1e-5,
  },
  'glm4, three quarters rotated': {
    options: {
      seed: 98,
      config: { model_type: 'glm4', head_dim: 32, num_key_value_heads: 4, partial_rotary_factor: 0.75 },
    },
    tokens: 40,
  },
  'cohere2, window 8': {
    options: {
      seed: 99,
      config: {
        model_type: 'cohere2',
        num_hidden_layers: 5,
        hidden_size: 72,
        head_dim: undefined,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        intermediate_size: 100,
        sliding_window: 8,
        logit_scale: 0.25,
        tie_word_embeddings: undefined,
      },
    },
    tokens: 100,
    llamaCpp: 1e-5,
  },
  'cohere2, other layers, biases, a head': {
    options: {
      seed: 100,
      config: {
        model_type: 'cohere2',
        num_hidden_layers: 3,
        attention_bias: true,
        sliding_window: 270,
        sliding_window_pattern: 2,
        tie_word_embeddings: false,
      },
    },
    tokens: 300,
  },
  lfm2: {
    options: {
      seed: 71,
      config: {
        model_type: 'lfm2',
        num_hidden_layers: 5,
        hidden_size: 72,
        head_dim: undefined,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        intermediate_size: 150,
        block_multiple_of: 20,
        full_attn_idxs: [1, 3],
        norm_eps: 1e-5,
        rope_theta: 1e6,
        tie_word_embeddings: undefined,
      },
    },
    tokens: 300,
    recurrent: true,
    llamaCpp: 1e-5,
  },
  'lfm2, 5 taps, attention first': {
    options: {
      seed: 72,
      config: {
        model_type: 'lfm2',
        num_hidden_layers: 4,
        conv_L_cache: 5,
        block_auto_adjust_ff_dim: false,
        layer_types: ['full_attention', 'conv', 'conv', 'full_attention'],
        tie_word_embeddings: false,
      },
    },
    tokens: 40,
    recurrent: true,
  },
  lfm2_moe: {
    options: {
      seed: 73,
      config: {
        model_type: 'lfm2_moe',
        num_hidden_layers: 4,
        full_attn_idxs: [1],
        num_dense_layers: 1,
        num_experts: 8,
        num_experts_per_tok: 3,
        moe_intermediate_size: 40,
        tie_word_embeddings: undefined,
      },
    },
    tokens: 40,
    recurrent: true,
    llamaCpp: 1e-5,
  },
  'qwen3_5, 2 key heads, 6 value heads': {
    options: {
      seed: 74,
      config: {
        model_type: 'qwen3_5_text',
        num_hidden_layers: 4,
        head_dim: 32,
        linear_num_key_heads: 2,
        linear_num_value_heads: 6,
        linear_key_head_dim: 16,
        linear_value_head_dim: 16,
        linear_conv_kernel_dim: 4,
      },
    },
    tokens: 300,
    recurrent: true,
    llamaCpp: 1e-5,
  },
  'qwen3_5, 3 key heads, wider values, tied': {
    options: {
      seed: 75,
      config: {
        model_type: 'qwen3_5_text',
        num_hidden_layers: 5,
        hidden_size: 72,
        head_dim: 48,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        intermediate_size: 100,
        partial_rotary_factor: 0.5,
        layer_types: ['linear_attention', 'full_attention', 'linear_attention', 'linear_attention', 'full_attention'],
        linear_num_key_heads: 3,
        linear_num_value_heads: 3,
        linear_key_head_dim: 24,
        linear_value_head_dim: 40,
        linear_conv_kernel_dim: 3,
        tie_word_embeddings: true,
      },
    },
    tokens: 60,
    recurrent: true,
  },
  'qwen3_5_moe, 2 key heads, 4 value heads': {
    options: {
      seed: 76,
      config: {
        model_type: 'qwen3_5_moe_text',
        num_hidden_layers: 4,
        intermediate_size: undefined,
        head_dim: 32,
        linear_num_key_heads: 2,
        linear_num_value_heads: 4,
        linear_key_head_dim: 16,
        linear_value_head_dim: 16,
        num_experts: 16,
        num_experts_per_tok: 3,
        moe_intermediate_size: 40,
        shared_expert_intermediate_size: 72,
      },
    },
    tokens: 300,
    recurrent: true,
    llamaCpp: 1e-5,
  },
  'qwen3_next, 2 key heads, 6 value heads': {
    options: {
      seed: 77,
      config: {
        model_type: 'qwen3_next',
        num_hidden_layers: 5,
        hidden_size: 72,
        head_dim: 24,
        num_attention_heads: 6,
        full_attention_interval: 2,
        partial_rotary_factor: 1 / 3,
        linear_num_key_heads: 2,
        linear_num_value_heads: 6,
        linear_key_head_dim: 24,
        linear_value_head_dim: 24,
        linear_conv_kernel_dim: 4,
        num_experts: 8,
        num_experts_per_tok: 3,
        moe_intermediate_size: 24,
        shared_expert_intermediate_size: 40,
      },
    },
    tokens: 60,
    recurrent: true,
    llamaCpp: 1e-5,
  },
  'qwen3_next, dense layers, weights as they are': {
    options: {
      seed: 78,
      config: {
        model_type: 'qwen3_next',
        num_hidden_layers: 4,
        layer_types: ['linear_attention', 'full_attention', 'linear_attention', 'full_attention'],
        head_dim: 32,
        num_key_value_heads: 4,
        linear_num_key_heads: 4,
        linear_num_value_heads: 8,
        linear_key_head_dim: 8,
        linear_value_head_dim: 16,
        num_experts: 8,
        num_experts_per_tok: 2,
        moe_intermediate_size: 40,
        shared_expert_intermediate_size: 24,
        norm_topk_prob: false,
        decoder_sparse_step: 2,
        mlp_only_layers: [3],
      },
    },
    tokens: 40,
    recurrent: true,
  },
};

const somePrompt = (length: number): number[] => Array.from({ length }, (_, i) => (i * 53 + 7 + ((i * i) % 91)) % 320);

/** Largest difference, relative to the largest logit. */
function relative(rows: readonly Float32Array[], expected: readonly ArrayLike<number>[]): number {
  let [worst, largest] = [0, 0];
  for (const [position, row] of rows.entries()) {
    for (const [id, value] of row.entries()) {
      largest = Math.max(largest, Math.abs(expected[position]![id]!));
      const error = Math.abs(value - expected[position]![id]!);
      if (!(error <= worst)) worst = error; // NaN counts
    }
  }
  return worst / largest;
}

/** The same model with each expert chosen in each row: a rounded prompt's router can't choose others. */
function withAllExperts({ config, ...options }: FamilyCase['options']): RandomModelOptions {
  const experts = config['num_experts'] ?? config['num_local_experts'];
  return {
    ...options,
    config: {
      ...config,
      ...(experts !== undefined && {
        [config['top_k_experts'] === undefined ? 'num_experts_per_tok' : 'top_k_experts']: experts,
      }),
    },
  };
}

/** Of the largest logit, what prompts that are rounded may be off by, after few layers of random weights. */
const ROUNDED: Partial<Record<FastPath, number>> = { f16: 0.02, dot4: 0.2 };

const rawOf = (files: readonly File[]): Promise<Record<string, unknown>> =>
  files
    .find(({ name }) => name === 'config.json')!
    .text()
    .then((text) => JSON.parse(text) as Record<string, unknown>);

const llama = await findLlamaCpp();
const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
afterAll(async () => {
  if (typeof llama !== 'string') await llama.dispose();
  await rm(folder, { recursive: true });
});

describe('model families', { timeout: 300_000 }, async () => {
  const adapter = (await testAdapters()).at(-1)!;
  const device = await adapter.open();
  const { software } = device.traits;
  device.dispose();
  const open = (where: string | readonly File[], options: LoadOptions = {}): Promise<Model> => {
    const chosen = {
      weights: 'f32',
      kv: 'f32',
      contextLength: 1024,
      prefillChunk: 208,
      adapter: adapter.name,
    } as const;
    return load(where, { ...chosen, ...options });
  };
  const logits = async (where: string | readonly File[], prompt: readonly number[], options: LoadOptions = {}) => {
    const model = await open(where, options);
    try {
      return (await model.logits(prompt, { all: true })).rows;
    } finally {
      await model.dispose();
    }
  };

  const some = drawn(Object.keys(cases), 1, 'definitions');
  test.each(some)('%s: logits of the definition, from a folder and from GGUF', async (name) => {
    const { options, tokens, llamaCpp } = cases[name]!;
    const { model, files } = randomFiles(options);
    const prompt = somePrompt(tokens);
    const expected = familyLogits(await rawOf(files), model.weights, prompt);
    const rows = await logits(files, prompt);
    expect(relative(rows, expected)).toBeLessThan(1e-5);
    const variants = software ? 'hardware' : 'software';
    expect(relative(await logits(files, prompt, { variants }), expected), variants).toBeLessThan(1e-5);
    if (llamaCpp === undefined) return;
    const path = join(folder, `${options.seed}.gguf`);
    const type = expertsOf(model.config)?.packed && 'MXFP4';
    const typeOf = (tensor: string): typeof type => (tensor.endsWith('_exps.weight') ? type : undefined);
    await writeFile(path, modelToGguf(model.config, model.weights, { typeOf }));
    const ggufModel = await open(path);
    const stored = (await ggufModel.logits(prompt, { all: true })).rows;
    const { tokens: answer } = await ggufModel.generate(prompt, { maxTokens: 64, ignoreEos: true }).result;
    await ggufModel.dispose();
    // The same bits from both kinds of files, but for LongRoPE's factors, which GGUF has in f32.
    if (!name.includes('LongRoPE')) {
      const bytes = (list: readonly Float32Array[]): Buffer[] => list.map((row) => Buffer.from(row.slice().buffer));
      expect(firstDifference(bytes(rows), bytes(stored)), 'GGUF').toBe(-1);
    }
    expect(relative(stored, expected), 'GGUF').toBeLessThan(1e-5);
    if (typeof llama !== 'string') {
      // What MXFP4 experts read llama.cpp would round to 8 bits: it gets their weights in f32.
      if (type) await writeFile(path, modelToGguf(model.config, model.weights));
      const theirs = await llamaCppLogits(llama, path, [...prompt, ...answer.slice(0, -1)]);
      expect(relative(rows, theirs.slice(0, rows.length))).toBeLessThan(llamaCpp);
      // Each of 64 tokens is the best one by its logits, too.
      const best = (row: Float32Array): number => row.indexOf(Math.max(...row));
      expect(answer).toHaveLength(64);
      expect(theirs.slice(rows.length - 1).map(best), 'greedy tokens').toEqual(answer);
    }
  });

  const plans = ['tp 2', 'tp 3', 'sp 2', 'sp 4', 'tp x sp 4', 'pp 2', 'token 2', 'token x sp 3', 'adp 2'];
  const recurrentPlans = ['tp 2', 'tp 3', 'pp 2', 'pp x tp 4', 'token 2', 'adp 2'];
  test.each(drawn(Object.keys(cases), 1, 'families'))(
    '%s: the same bits on every plan, in every chunking',
    async (name) => {
      const { options, recurrent, whole } = cases[name]!;
      const lengths = [1, 257, 620];
      const kv = drawn(KV_TYPES, 1, name)[0]!;
      const given = { adapter: adapter.name, model: options, weights: 'q8', kv } as const;
      const one = await runAlone(lengths, { ...given, prefillChunk: 208 });
      expect(firstDifference(one, await runAlone(lengths, { ...given, prefillChunk: 32 })), 'chunks of 32').toBe(-1);
      const hasExperts = options.config['num_experts'] !== undefined || options.config['num_local_experts'];
      const own = [...(recurrent ? recurrentPlans : plans), ...(hasExperts && !recurrent ? ['ep 2'] : [])];
      const possible = own.filter((plan) => !(whole && plan.startsWith('pp')));
      for (const plan of drawn(possible, 1, name)) {
        const [, policy, ranks] = /^(.+) (\d)$/.exec(plan)!;
        const many = await runAlone(lengths, {
          ...given,
          prefillChunk: 208,
          plan: policy!,
          ranks: Number(ranks),
          virtual: true,
        });
        expect(firstDifference(one, many), plan).toBe(-1);
      }
    },
  );

  // SPLITKV_SWEEP=all with SPLITKV_PRINT=1 prints them all.
  test.each(drawn(Object.keys(cases), 1, 'rounded prompts'))("%s: logits with precision 'fast'", async (name) => {
    const { options, tokens } = cases[name]!;
    const contextLength = Math.max(600, tokens + 1);
    const given = {
      adapter: adapter.name,
      model: withAllExperts(options),
      weights: 'q8',
      variants: 'hardware',
      contextLength,
    } as const;
    const prompt = somePrompt(tokens);
    const rowsBy = async (fast?: FastPath): Promise<Float32Array[]> => {
      const { runner, group } = await openRunner({ ...given, ...(fast && { fast: [fast] }) });
      const rows: Float32Array[] = [];
      await runner.logits(prompt, true, (_position, row) => rows.push(row.slice()));
      group.dispose();
      return rows;
    };
    const exact = await rowsBy();
    for (const [path, most] of Object.entries(ROUNDED) as [FastPath, number][]) {
      const error = relative(await rowsBy(path), exact);
      if (process.env['SPLITKV_PRINT']) console.log(`${name} | ${path} | ${error.toExponential(1)}`);
      expect(error, path).toBeLessThan(most);
      expect(error, path).toBeGreaterThan(0);
    }
  });

  // Few models have a kernel of their own for lone rows: that one is always there.
  test.each([...new Set(['lfm2_moe', ...drawn(Object.keys(cases), 1, 'lone rows')])])(
    "%s: a GPU's lone row has the bits of one in a batch",
    async (name) => {
      const { options } = cases[name]!;
      const [kv] = drawn(KV_TYPES, 1, `lone ${name}`);
      const given = { adapter: adapter.name, model: options, weights: 'q8', kv: kv!, variants: 'hardware' } as const;
      const lone = await runAlone([1, 257, 310], { ...given, slots: 1 });
      expect(firstDifference(lone, await runAlone([1, 257, 310], { ...given, slots: 2 }))).toBe(-1);
    },
  );
});
