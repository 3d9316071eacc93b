import { type DeepseekConfig, isMoeLayer } from '../config.js';
import { startList, type TensorRecipe } from './random_llama.js';

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

/** Every tensor of the checkpoint. */
export function deepseekTensors(config: DeepseekConfig): TensorRecipe[] {
  const { hiddenSize, vocabSize, numHeads, qLoraRank, kvLoraRank, attentionBias: bias } = config;
  const { qkNopeHeadDim: nope, qkRopeHeadDim: rope, vHeadDim } = config;
  const { list, norm, linear } = startList();
  const mlp = (at: string, inner: number) => {
    linear(`${at}.gate_proj`, inner, hiddenSize, 1.5);
    linear(`${at}.up_proj`, inner, hiddenSize, 1);
    linear(`${at}.down_proj`, hiddenSize, inner, 1);
  };
  const headGain = 3 / config.logitScale;
  const embeddingGain = config.tieWordEmbeddings ? headGain : Math.sqrt(hiddenSize) / config.scaleEmb;
  linear('model.embed_tokens', vocabSize, hiddenSize, embeddingGain);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const at = `model.layers.${layer}`;
    norm(`${at}.input_layernorm`, hiddenSize);
    if (qLoraRank === null) {
      linear(`${at}.self_attn.q_proj`, numHeads * (nope + rope), hiddenSize, 1.5);
    } else {
      linear(`${at}.self_attn.q_a_proj`, qLoraRank, hiddenSize, 1, bias);
      norm(`${at}.self_attn.q_a_layernorm`, qLoraRank);
      linear(`${at}.self_attn.q_b_proj`, numHeads * (nope + rope), qLoraRank, 1.5);
    }
    linear(`${at}.self_attn.kv_a_proj_with_mqa`, kvLoraRank + rope, hiddenSize, 1.5, bias);
    norm(`${at}.self_attn.kv_a_layernorm`, kvLoraRank);
    linear(`${at}.self_attn.kv_b_proj`, numHeads * (nope + vHeadDim), kvLoraRank, 1.3);
    linear(`${at}.self_attn.o_proj`, hiddenSize, numHeads * vHeadDim, 1, bias);
    norm(`${at}.post_attention_layernorm`, hiddenSize);
    if (config.moe === null || !isMoeLayer(config, layer)) {
      mlp(`${at}.mlp`, config.intermediateSize);
      continue;
    }
    const { numExperts, intermediateSize, numShared, correctionBias } = config.moe;
    // Spreads scores out without crowding them at 0 or 1, so that the experts differ clearly.
    linear(`${at}.mlp.gate`, numExperts, hiddenSize, config.moe.scoring === 'sigmoid' ? 2 : 1);
    if (correctionBias) {
      const name = `${at}.mlp.gate.e_score_correction_bias`;
      list.push({ name, shape: [numExperts], mean: 0, deviation: 0.15, dtype: 'F32' }); // As in DeepSeek's checkpoints.
    }
    for (let expert = 0; expert < numExperts; expert++) mlp(`${at}.mlp.experts.${expert}`, intermediateSize);
    if (numShared > 0) mlp(`${at}.mlp.shared_experts`, numShared * intermediateSize);
  }
  norm('model.norm', hiddenSize);
  if (!config.tieWordEmbeddings) linear('lm_head', vocabSize, hiddenSize, headGain);
  return list;
}
