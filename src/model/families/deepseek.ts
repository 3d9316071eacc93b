import type { GgufFile } from '../../loader/index.js';
import type { ExpertsConfig, LayerConfig, MlaConfig } from '../config/model_config.js';
import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import { latentScale, parseRope } from '../config/rope_config.js';
import { expertNames, headNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import { countRange, furtherRange, ggufExperts, parseExperts, parseGated } from './common_keys.js';
import { type CommonConfig, defineFamily } from './family.js';

const attention = 'model.layers.{layer}.self_attn.';
const tensors: TensorNames = {
  ...llamaNames,
  mla: {
    q: `${attention}q_proj`,
    qDown: `${attention}q_a_proj`,
    qNorm: `${attention}q_a_layernorm`,
    qUp: `${attention}q_b_proj`,
    kvDown: `${attention}kv_a_proj_with_mqa`,
    kvNorm: `${attention}kv_a_layernorm`,
    kvUp: `${attention}kv_b_proj`,
    o: `${attention}o_proj`,
  },
  experts: expertNames(),
};

/**
 * DeepSeek-V2, V3 and MiniCPM3: RMSNorm, latent attention, SwiGLU or a mixture of experts. Layers for predicting further tokens
 * (num_nextn_predict_layers) come after num_hidden_layers.
 */
export const deepseek = defineFamily({
  neutral: [
    ['mlp_bias', false, 'there is no bias in the MLP'],
    ['sliding_window', undefined, 'attention sees all positions'],
    ['index_topk', undefined, 'attention is not sparse'],
  ],
  config(config, common) {
    const { architecture, numLayers } = common;
    const minicpm = architecture === 'minicpm3';
    const latent = parseAttention(config, common);
    const dense = parseGated(config);
    const experts = minicpm ? undefined : parseRouted(architecture, config);
    const hasExperts = experts ? parseExpertLayers(config) : () => false;
    const layerAt = (layer: number): LayerConfig => ({
      attention: latent,
      mlp: (hasExperts(layer) ? experts : undefined) ?? dense,
    });
    const further = minicpm ? 0 : (config.optionalInteger('num_nextn_predict_layers', furtherRange) ?? 0);
    return {
      ...(minicpm && {
        norm: { kind: 'rms', eps: config.optionalPositive('rms_norm_eps') ?? 1e-5 },
        tieWordEmbeddings: config.boolean('tie_word_embeddings', true),
        ...minicpmScales(config, common),
      }),
      layers: Array.from({ length: numLayers }, (_, layer) => layerAt(layer)),
      tensors,
      ...(further > 0 && {
        mtp: { layer: layerAt(numLayers), tensors: mtpNames(`model.layers.${numLayers}`) },
      }),
    };
  },
  gguf: { keys: ggufKeys, yarnScalesSoftmax: ['deepseek2'] },
});

const mtpNames = (at: string): TensorNames =>
  headNames(tensors, at, {
    norm: `${at}.shared_head.norm`,
    embeddingNorm: `${at}.enorm`,
    hiddenNorm: `${at}.hnorm`,
    project: `${at}.eh_proj`,
  });

function parseAttention(config: ConfigReader, { architecture, hiddenSize }: CommonConfig): MlaConfig {
  const minicpm = architecture === 'minicpm3';
  const heads = config.integer('num_attention_heads', countRange);
  const kvHeads = config.optionalInteger('num_key_value_heads', countRange) ?? heads;
  if (kvHeads !== heads) {
    const expected = `num_attention_heads (${heads}): with latent attention every head has its own keys and values`;
    throw config.invalid('num_key_value_heads', kvHeads, expected);
  }
  const qkNopeHeadDim = config.integer('qk_nope_head_dim');
  const qkRopeHeadDim = config.integer('qk_rope_head_dim');
  // Pairs are the rule; transformers' DeepSeek-V3 may have halves, MiniCPM3 has.
  const interleaved = architecture === 'deepseek_v3' ? config.boolean('rope_interleave', true) : !minicpm;
  const rope = parseRope(config, qkRopeHeadDim, minicpm ? ['linear', 'longrope'] : ['linear', 'yarn'], interleaved);
  const width = qkNopeHeadDim + qkRopeHeadDim;
  // Redundant keys must not contradict the others. head_dim is the rotary part to some, the whole to others: not needed.
  config.raw('head_dim');
  const stated = config.optionalInteger('qk_head_dim') ?? width;
  if (stated !== width) throw config.invalid('qk_head_dim', stated, `qk_nope_head_dim + qk_rope_head_dim (${width})`);
  // null must be written: where the key is absent, transformers takes a class default that is rarely what the weights have.
  if (!config.has('q_lora_rank')) return config.missing('q_lora_rank');
  return {
    kind: 'mla',
    heads,
    qLoraRank: config.optionalInteger('q_lora_rank') ?? null,
    kvLoraRank: config.integer('kv_lora_rank'),
    qkNopeHeadDim,
    qkRopeHeadDim,
    vHeadDim: parseValueWidth(config, minicpm && qkNopeHeadDim === hiddenSize / heads ? qkNopeHeadDim : undefined),
    bias: config.boolean('attention_bias', false),
    rope,
    scale: latentScale(width, rope.scaling),
    // transformers leaves these norms at its default, whatever rms_norm_eps says.
    loraNormEps: 1e-6,
  };
}

/**
 * Absent, it means hidden_size / num_attention_heads to transformers' MiniCPM3 and qk_nope_head_dim to MiniCPM's own code.
 * @param agreed where both are the same
 */
const parseValueWidth = (config: ConfigReader, agreed: number | undefined): number =>
  config.optionalInteger('v_head_dim') ?? agreed ?? config.missing('v_head_dim');

/** transformers and MiniCPM's own code disagree on the defaults of two of the three keys: they must be present. */
function minicpmScales(config: ConfigReader, { hiddenSize, numLayers }: CommonConfig) {
  return {
    embeddingScale: config.optionalPositive('scale_emb') ?? 1,
    residualScale: config.positive('scale_depth') / Math.sqrt(numLayers),
    logitScale: config.positive('dim_model_base') / hiddenSize,
  };
}

/** Which layers have experts, by the rule of DeepSeek's own code. */
function parseExpertLayers(config: ConfigReader): (layer: number) => boolean {
  // More than there are layers means that all are dense, as in a model cut to its first layers.
  const first = config.integer('first_k_dense_replace', { min: 0, max: countRange.max });
  const every = config.optionalInteger('moe_layer_freq', countRange) ?? 1;
  return (layer) => layer >= first && layer % every === 0;
}

/**
 * Undefined where n_routed_experts is written as null. DeepSeek-V2 follows DeepSeek's later code, vLLM and llama.cpp: normalised
 * weights are scaled too (its first code left that out, and transformers ignores norm_topk_prob; published checkpoints don't
 * normalise). DeepSeek-V3 follows transformers.
 */
function parseRouted(architecture: string, config: ConfigReader): ExpertsConfig | undefined {
  const v3 = architecture === 'deepseek_v3';
  const numExperts = config.optionalInteger('n_routed_experts', { min: 1, max: 1024 });
  if (numExperts === undefined) {
    return config.has('n_routed_experts') ? undefined : config.missing('n_routed_experts');
  }
  const experts = parseExperts(config, 'n_routed_experts');
  // null means none; absent means a class default that is rarely what the weights have.
  if (!config.has('n_shared_experts')) return config.missing('n_shared_experts');
  const numShared = config.optionalInteger('n_shared_experts', { min: 0, max: 64 }) ?? 0;
  return {
    ...experts,
    sharedWidth: numShared * experts.width,
    ...parseMethod(architecture, config, experts),
    // DeepSeek-V2 leaves a single weight as it is.
    normTopkProb: config.boolean('norm_topk_prob', v3) && (v3 || experts.expertsPerToken > 1),
    routedScalingFactor: config.optionalPositive('routed_scaling_factor') ?? (v3 ? 2.5 : 1),
  };
}

function parseMethod(
  architecture: string,
  config: ConfigReader,
  experts: ExpertsConfig,
): Pick<ExpertsConfig, 'scoring' | 'method' | 'correctionBias' | 'numGroups' | 'topkGroups'> {
  const v3 = architecture === 'deepseek_v3';
  const scoring = v3 ? 'sigmoid' : 'softmax';
  const given = config.optionalString('scoring_func') ?? scoring;
  if (given !== scoring) throw config.unsupported('scoring_func', given, `${architecture} has '${scoring}'`);
  const method = config.optionalString('topk_method') ?? (v3 ? 'noaux_tc' : 'greedy');
  if (v3) {
    if (method !== 'noaux_tc') throw config.unsupported('topk_method', method, "deepseek_v3 has 'noaux_tc'");
    return { scoring, method, correctionBias: true, ...parseGroups(config, experts, 2) };
  }
  if (method === 'greedy') return { scoring, method, correctionBias: false, numGroups: 1, topkGroups: 1 };
  if (method === 'group_limited_greedy') {
    return { scoring, method, correctionBias: false, ...parseGroups(config, experts, 1) };
  }
  throw config.unsupported('topk_method', method, "deepseek_v2 has 'greedy' and 'group_limited_greedy'");
}

/** @param ranked how many experts of a group its score is made of. */
function parseGroups(config: ConfigReader, { numExperts, expertsPerToken }: ExpertsConfig, ranked: number) {
  const numGroups = config.integer('n_group', { min: 1, max: numExperts });
  const topkGroups = config.integer('topk_group', { min: 1, max: numGroups });
  const groupSize = numExperts / numGroups;
  if (!Number.isInteger(groupSize)) {
    throw config.invalid('n_group', numGroups, `a divisor of n_routed_experts (${numExperts})`);
  }
  if (groupSize < ranked) {
    const most = Math.floor(numExperts / ranked);
    throw config.invalid('n_group', numGroups, `at most ${most}: a group needs ${ranked} experts`);
  }
  if (expertsPerToken > topkGroups * groupSize) {
    const reachable = `at most ${topkGroups * groupSize}, the experts of topk_group (${topkGroups}) groups`;
    throw config.invalid('num_experts_per_tok', expertsPerToken, reachable);
  }
  return { numGroups, topkGroups };
}

/** Older files have the heads' own widths in key_length and value_length, newer ones those of attention over the latent. */
function ggufKeys(metadata: GgufMetadata, gguf: GgufFile): Record<string, unknown> {
  const rope = metadata.integer('rope.dimension_count');
  const width = (name: string): number =>
    metadata.optionalInteger(`attention.${name}_mla`) ?? metadata.integer(`attention.${name}`);
  const common = {
    q_lora_rank: gguf.tensors.has('blk.0.attn_q.weight') ? null : metadata.integer('attention.q_lora_rank'),
    kv_lora_rank: metadata.integer('attention.kv_lora_rank'),
    qk_rope_head_dim: rope,
    qk_nope_head_dim: width('key_length') - rope,
    v_head_dim: width('value_length'),
  };
  // What llama.cpp knows by itself of the one MiniCPM3 there is.
  if (metadata.arch === 'minicpm3')
    return { ...common, model_type: 'minicpm3', scale_emb: 12, scale_depth: 1.4, dim_model_base: 256 };
  return { ...common, ...ggufRouted(metadata) };
}

const SOFTMAX = 1;
const SIGMOID = 2;

/** Sigmoid routing is what tells V3 from V2; files from before there was a choice don't say. */
function ggufRouted(metadata: GgufMetadata): Record<string, unknown> {
  const count = { min: 0, max: 4096 };
  const gating = metadata.optionalInteger('expert_gating_func', count) || SOFTMAX;
  if (gating !== SOFTMAX && gating !== SIGMOID)
    throw metadata.unsupported('expert_gating_func', gating, 'supported are 1 (softmax) and 2 (sigmoid)');
  const sigmoid = gating === SIGMOID;
  const numExperts = metadata.optionalInteger('expert_count', count) ?? 0;
  const model = { model_type: sigmoid ? 'deepseek_v3' : 'deepseek_v2' };
  if (numExperts === 0) return { ...model, n_routed_experts: null };
  const groups = metadata.optionalInteger('expert_group_count', count) || 1;
  return {
    ...model,
    ...ggufExperts(metadata),
    n_routed_experts: numExperts,
    n_shared_experts: metadata.optionalInteger('expert_shared_count', count) ?? 0,
    first_k_dense_replace: metadata.optionalInteger('leading_dense_block_count', count) ?? 0,
    norm_topk_prob: metadata.boolean('expert_weights_norm', false),
    routed_scaling_factor: metadata.optionalPositive('expert_weights_scale') ?? 1,
    topk_method: sigmoid ? 'noaux_tc' : groups > 1 ? 'group_limited_greedy' : 'greedy',
    n_group: groups,
    topk_group: metadata.optionalInteger('expert_group_used_count', count) || 1,
  };
}
