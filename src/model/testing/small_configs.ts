/** Keys of config.json, for `makeRandomModel`: of layers that several tests run, each small. */

/** Linear attention, three layers of it before one of heads. */
export const LINEAR_ATTENTION = {
  model_type: 'qwen3_5_text',
  num_hidden_layers: 4,
  head_dim: 32,
  linear_num_key_heads: 2,
  linear_num_value_heads: 4,
  linear_key_head_dim: 16,
  linear_value_head_dim: 24,
};

/** Mamba-2, three layers of it and one of heads. */
export const STATE_SPACE = {
  model_type: 'granitemoehybrid',
  num_hidden_layers: 4,
  layer_types: ['mamba', 'attention', 'mamba', 'mamba'],
  head_dim: undefined,
  num_local_experts: 0,
  shared_intermediate_size: 100,
  attention_multiplier: 0.3,
  mamba_n_heads: 8,
  mamba_d_state: 24,
};

/** Experts with kv heads; a dense layer among them. */
export const EXPERTS = {
  model_type: 'qwen3_moe',
  num_hidden_layers: 3,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  num_experts: 6,
  num_experts_per_tok: 3,
  moe_intermediate_size: 24,
  norm_topk_prob: true,
  mlp_only_layers: [1],
};

/** Windows, sinks, and experts. */
export const SINKS = {
  model_type: 'gpt_oss',
  attention_bias: true,
  num_hidden_layers: 4,
  sliding_window: 20,
  num_local_experts: 4,
  num_experts_per_tok: 2,
};

/** Short convolutions, and a layer of heads. */
export const CONVOLUTIONS = {
  model_type: 'lfm2',
  num_hidden_layers: 4,
  full_attn_idxs: [2],
  block_auto_adjust_ff_dim: false,
};
