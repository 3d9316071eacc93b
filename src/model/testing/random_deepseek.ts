/** Small and odd on purpose: no width is a multiple of 32 but the latent, and there are three heads. */
const latent = {
  hidden_size: 72,
  intermediate_size: 104,
  num_hidden_layers: 3,
  num_attention_heads: 3,
  num_key_value_heads: undefined,
  head_dim: undefined,
  q_lora_rank: 40,
  kv_lora_rank: 32,
  qk_nope_head_dim: 24,
  qk_rope_head_dim: 16,
  v_head_dim: 40,
  rms_norm_eps: 1e-6,
};
const experts = {
  n_routed_experts: 8,
  num_experts_per_tok: 3,
  moe_intermediate_size: 40,
  n_shared_experts: 2,
  first_k_dense_replace: 1,
  moe_layer_freq: 1,
};
const byType: Record<string, Record<string, unknown>> = {
  // Like V2-Lite: softmax, greedy, no bottleneck of q.
  deepseek_v2: {
    ...latent,
    ...experts,
    q_lora_rank: null,
    scoring_func: 'softmax',
    topk_method: 'greedy',
    norm_topk_prob: false,
    routed_scaling_factor: 1,
  },
  deepseek_v3: {
    ...latent,
    ...experts,
    scoring_func: 'sigmoid',
    topk_method: 'noaux_tc',
    n_group: 4,
    topk_group: 2,
    norm_topk_prob: true,
    routed_scaling_factor: 2.5,
  },
  minicpm3: { ...latent, scale_emb: 12, scale_depth: 1.4, dim_model_base: 36, tie_word_embeddings: true },
};

/** Keys of config.json of a small model; none for other model types. */
export function deepseekDefaults(modelType: unknown): Record<string, unknown> {
  return typeof modelType === 'string' && Object.hasOwn(byType, modelType) ? byType[modelType]! : {};
}
