/**
 * What the catalog's models say of themselves in config.json and generation_config.json, by the catalog's names: the keys that
 * matter here, as published at the catalog's revisions.
 */

type Raw = Readonly<Record<string, unknown>>;

export interface PublishedModel {
  readonly config: Raw;
  readonly generation: Raw;
  /** The files hold the head's matrix, though it is the embedding's. */
  readonly storesHead?: boolean;
}

const llama = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  hidden_act: 'silu',
  attention_bias: false,
  torch_dtype: 'bfloat16',
};
const smollm2 = {
  ...llama,
  vocab_size: 49152,
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-5,
  rope_scaling: null,
  tie_word_embeddings: true,
  bos_token_id: 1,
  eos_token_id: 2,
  pad_token_id: 2,
};
const smollm2Generation = { bos_token_id: 1, eos_token_id: 2, pad_token_id: 2 };
const qwen = {
  hidden_act: 'silu',
  vocab_size: 151936,
  rms_norm_eps: 1e-6,
  rope_theta: 1000000,
  tie_word_embeddings: true,
  use_sliding_window: false,
  torch_dtype: 'bfloat16',
  bos_token_id: 151643,
  eos_token_id: 151645,
};
const qwen2 = {
  ...qwen,
  architectures: ['Qwen2ForCausalLM'],
  model_type: 'qwen2',
  max_position_embeddings: 32768,
  sliding_window: 32768,
};
const qwen2Generation = {
  bos_token_id: 151643,
  pad_token_id: 151643,
  do_sample: true,
  eos_token_id: [151645, 151643],
  repetition_penalty: 1.1,
  temperature: 0.7,
  top_p: 0.8,
  top_k: 20,
};
const qwen3 = {
  ...qwen,
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  attention_bias: false,
  head_dim: 128,
  max_position_embeddings: 40960,
  max_window_layers: 28,
  rope_scaling: null,
  sliding_window: null,
};
const qwen3Generation = {
  bos_token_id: 151643,
  pad_token_id: 151643,
  do_sample: true,
  eos_token_id: [151645, 151643],
  temperature: 0.6,
  top_k: 20,
  top_p: 0.95,
};
const llama32 = {
  ...llama,
  mlp_bias: false,
  vocab_size: 128256,
  max_position_embeddings: 131072,
  rms_norm_eps: 1e-5,
  rope_theta: 500000.0,
  rope_scaling: {
    factor: 32.0,
    high_freq_factor: 4.0,
    low_freq_factor: 1.0,
    original_max_position_embeddings: 8192,
    rope_type: 'llama3',
  },
  tie_word_embeddings: true,
  bos_token_id: 128000,
  eos_token_id: [128001, 128008, 128009],
};
const llama32Generation = {
  bos_token_id: 128000,
  do_sample: true,
  eos_token_id: [128001, 128008, 128009],
  temperature: 0.6,
  top_p: 0.9,
};

export const PUBLISHED: Readonly<Record<string, PublishedModel>> = {
  'smollm2-135m-instruct': {
    config: {
      ...smollm2,
      hidden_size: 576,
      intermediate_size: 1536,
      num_attention_heads: 9,
      num_hidden_layers: 30,
      num_key_value_heads: 3,
      rope_theta: 100000,
    },
    generation: smollm2Generation,
  },
  'smollm2-360m-instruct': {
    config: {
      ...smollm2,
      hidden_size: 960,
      intermediate_size: 2560,
      num_attention_heads: 15,
      num_hidden_layers: 32,
      num_key_value_heads: 5,
      rope_theta: 100000,
    },
    generation: smollm2Generation,
  },
  'qwen2.5-0.5b-instruct': {
    config: {
      ...qwen2,
      hidden_size: 896,
      intermediate_size: 4864,
      max_window_layers: 21,
      num_attention_heads: 14,
      num_hidden_layers: 24,
      num_key_value_heads: 2,
    },
    generation: qwen2Generation,
  },
  'qwen3-0.6b': {
    config: {
      ...qwen3,
      hidden_size: 1024,
      intermediate_size: 3072,
      num_attention_heads: 16,
      num_hidden_layers: 28,
      num_key_value_heads: 8,
    },
    generation: qwen3Generation,
    storesHead: true,
  },
  'tinyllama-1.1b-chat': {
    config: {
      ...llama,
      hidden_size: 2048,
      intermediate_size: 5632,
      max_position_embeddings: 2048,
      num_attention_heads: 32,
      num_hidden_layers: 22,
      num_key_value_heads: 4,
      rms_norm_eps: 1e-5,
      rope_scaling: null,
      rope_theta: 10000.0,
      tie_word_embeddings: false,
      vocab_size: 32000,
      bos_token_id: 1,
      eos_token_id: 2,
    },
    generation: { bos_token_id: 1, eos_token_id: 2, max_length: 2048, pad_token_id: 0 },
  },
  'llama-3.2-1b-instruct': {
    config: {
      ...llama32,
      head_dim: 64,
      hidden_size: 2048,
      intermediate_size: 8192,
      num_attention_heads: 32,
      num_hidden_layers: 16,
      num_key_value_heads: 8,
    },
    generation: llama32Generation,
  },
  'qwen2.5-1.5b-instruct': {
    config: {
      ...qwen2,
      hidden_size: 1536,
      intermediate_size: 8960,
      max_window_layers: 21,
      num_attention_heads: 12,
      num_hidden_layers: 28,
      num_key_value_heads: 2,
    },
    generation: qwen2Generation,
  },
  'smollm2-1.7b-instruct': {
    config: {
      ...smollm2,
      hidden_size: 2048,
      intermediate_size: 8192,
      num_attention_heads: 32,
      num_hidden_layers: 24,
      num_key_value_heads: 32,
      rope_theta: 130000,
    },
    generation: smollm2Generation,
  },
  'qwen3-1.7b': {
    config: {
      ...qwen3,
      hidden_size: 2048,
      intermediate_size: 6144,
      num_attention_heads: 16,
      num_hidden_layers: 28,
      num_key_value_heads: 8,
    },
    generation: qwen3Generation,
    storesHead: true,
  },
  'llama-3.2-3b-instruct': {
    config: {
      ...llama32,
      head_dim: 128,
      hidden_size: 3072,
      intermediate_size: 8192,
      num_attention_heads: 24,
      num_hidden_layers: 28,
      num_key_value_heads: 8,
    },
    generation: llama32Generation,
  },
  'minicpm3-4b': {
    config: {
      architectures: ['MiniCPM3ForCausalLM'],
      model_type: 'minicpm3',
      bos_token_id: 1,
      eos_token_id: [2, 73440],
      dim_model_base: 256,
      hidden_act: 'silu',
      hidden_size: 2560,
      intermediate_size: 6400,
      kv_lora_rank: 256,
      max_position_embeddings: 32768,
      num_attention_heads: 40,
      num_hidden_layers: 62,
      num_key_value_heads: 40,
      q_lora_rank: 768,
      qk_nope_head_dim: 64,
      qk_rope_head_dim: 32,
      rms_norm_eps: 1e-5,
      // The factors themselves change no size; those published are not at hand.
      rope_scaling: {
        type: 'longrope',
        long_factor: Array.from({ length: 16 }, () => 1),
        short_factor: Array.from({ length: 16 }, () => 1),
        original_max_position_embeddings: 32768,
      },
      scale_depth: 1.4,
      scale_emb: 12,
      vocab_size: 73448,
    },
    generation: { bos_token_id: 1, do_sample: true, eos_token_id: [2, 73440], temperature: 0.8, top_p: 0.8 },
  },
  'deepseek-v2-lite-chat': {
    config: {
      architectures: ['DeepseekV2ForCausalLM'],
      model_type: 'deepseek_v2',
      attention_bias: false,
      aux_loss_alpha: 0.001,
      bos_token_id: 100000,
      eos_token_id: 100001,
      first_k_dense_replace: 1,
      hidden_act: 'silu',
      hidden_size: 2048,
      intermediate_size: 10944,
      kv_lora_rank: 512,
      max_position_embeddings: 163840,
      moe_intermediate_size: 1408,
      moe_layer_freq: 1,
      n_group: 1,
      n_routed_experts: 64,
      n_shared_experts: 2,
      norm_topk_prob: false,
      num_attention_heads: 16,
      num_experts_per_tok: 6,
      num_hidden_layers: 27,
      num_key_value_heads: 16,
      q_lora_rank: null,
      qk_nope_head_dim: 128,
      qk_rope_head_dim: 64,
      rms_norm_eps: 1e-6,
      rope_scaling: {
        beta_fast: 32,
        beta_slow: 1,
        factor: 40,
        mscale: 0.707,
        mscale_all_dim: 0.707,
        original_max_position_embeddings: 4096,
        type: 'yarn',
      },
      rope_theta: 10000,
      routed_scaling_factor: 1.0,
      scoring_func: 'softmax',
      tie_word_embeddings: false,
      topk_group: 1,
      topk_method: 'greedy',
      torch_dtype: 'bfloat16',
      v_head_dim: 128,
      vocab_size: 102400,
    },
    generation: { bos_token_id: 100000, do_sample: true, eos_token_id: 100001, temperature: 0.3, top_p: 0.95 },
  },
};
