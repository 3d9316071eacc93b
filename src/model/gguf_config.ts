import { didYouMean, formatError, unsupportedError } from '../base/errors.js';
import { show } from '../base/json.js';
import type { GgufFile, Source } from '../loader/index.js';
import { type ModelConfig, parseModelConfig } from './config.js';
import { countRange, sizeRange } from './config_parts.js';
import { GgufMetadata } from './gguf_metadata.js';
import { ggufRopeScaling } from './gguf_rope.js';
import { yarnMscale } from './rope_config.js';

const positions = { min: 1, max: 2 ** 30 };

/** What llama.cpp calls a model, and the keys of config.json that say the same as its metadata. */
const architectures: Readonly<Record<string, (gguf: GgufFile, metadata: GgufMetadata) => Record<string, unknown>>> = {
  llama: groupedQuery,
  qwen2: groupedQuery,
  qwen3: groupedQuery,
  deepseek2: latent,
  minicpm3: latent,
};

/** `general.architecture`. Throws `unsupported` for one that isn't known, and for files that hold no language model. */
export function ggufArchitecture({ metadata, what }: GgufFile): string {
  const kind = metadata.get('general.type') ?? 'model';
  if (kind !== 'model') throw unsupportedError(`${what}: general.type is ${show(kind)}; expected a 'model'`);
  const arch = metadata.get('general.architecture');
  if (typeof arch !== 'string')
    throw formatError(`${what}: general.architecture is ${show(arch ?? null)}; expected a name`);
  if (Object.hasOwn(architectures, arch)) return arch;
  const known = Object.keys(architectures);
  throw unsupportedError(
    `${what}: general.architecture '${arch}' is not supported; supported are ${known.join(', ')}.${didYouMean(arch, known)}`,
  );
}

/**
 * The configuration that a GGUF file's metadata and tensors say, as config.json would.
 *
 * @param generation special token ids, as in generation_config.json
 * @throws SplitkvError `config` for a missing key or an impossible value, `unsupported`, `format`
 */
export async function ggufConfig(
  source: Source,
  gguf: GgufFile,
  generation: unknown,
  signal?: AbortSignal,
): Promise<ModelConfig> {
  const arch = ggufArchitecture(gguf);
  const metadata = new GgufMetadata(gguf, arch);
  const embedding = gguf.tensors.get('token_embd.weight');
  if (!embedding) throw formatError(`${gguf.what} has no tensor 'token_embd.weight'; expected a whole model`);
  const keys = {
    hidden_size: metadata.integer('embedding_length', sizeRange),
    num_hidden_layers:
      metadata.integer('block_count', countRange) -
      (metadata.optionalInteger('nextn_predict_layers', { min: 0, max: 64 }) ?? 0),
    num_attention_heads: metadata.integer('attention.head_count', countRange),
    intermediate_size: metadata.integer('feed_forward_length', sizeRange),
    vocab_size: embedding.shape[0],
    max_position_embeddings: metadata.integer('context_length', positions),
    rms_norm_eps: metadata.positive('attention.layer_norm_rms_epsilon'),
    rope_theta: metadata.optionalPositive('rope.freq_base') ?? 10000,
    tie_word_embeddings: !gguf.tensors.has('output.weight'),
    ...architectures[arch]!(gguf, metadata),
  };
  refuseVariants(metadata, keys.max_position_embeddings);
  const config = parseModelConfig(keys, generation, gguf.what);
  const isLatent = 'kvLoraRank' in config;
  const dims = isLatent ? config.qkRopeHeadDim : config.headDim;
  const ropeScaling = await ggufRopeScaling(source, gguf, metadata, dims, arch === 'deepseek2', signal);
  if (isLatent) {
    const mscale = ropeScaling?.type === 'yarn' ? yarnMscale(ropeScaling.factor, ropeScaling.mscaleAllDim) : 1;
    return { ...config, ropeScaling, softmaxScale: config.softmaxScale * mscale * mscale };
  }
  const has = (part: string): boolean => gguf.tensors.has(`blk.0.${part}.bias`);
  const attentionBias = { q: has('attn_q'), k: has('attn_k'), v: has('attn_v'), o: has('attn_output') };
  return { ...config, ropeScaling, attentionBias, mlpBias: has('ffn_gate') };
}

function groupedQuery(_gguf: GgufFile, metadata: GgufMetadata): Record<string, unknown> {
  const { arch } = metadata;
  const experts = metadata.optionalInteger('expert_count', { min: 0, max: 4096 }) ?? 0;
  if (experts > 0) throw metadata.unsupported('expert_count', experts, `${arch} runs without experts`);
  const heads = metadata.integer('attention.head_count', countRange);
  const keyLength = metadata.optionalInteger('attention.key_length', sizeRange);
  const headDim = keyLength ?? metadata.integer('embedding_length', sizeRange) / heads;
  const rest = { valueLength: 'attention.value_length', rotated: 'rope.dimension_count' };
  for (const name of Object.values(rest)) {
    const width = metadata.optionalInteger(name, { min: 0, max: sizeRange.max }) ?? headDim;
    if (width !== headDim) throw metadata.unsupported(name, width, `it must be the width of a head (${headDim})`);
  }
  return {
    model_type: arch,
    num_key_value_heads: metadata.optionalInteger('attention.head_count_kv', countRange) ?? heads,
    head_dim: headDim,
  };
}

/** Older files have the heads' own widths in key_length and value_length, newer ones those of attention over the latent. */
function latent(gguf: GgufFile, metadata: GgufMetadata): Record<string, unknown> {
  const rope = metadata.integer('rope.dimension_count', sizeRange);
  const width = (name: string): number =>
    metadata.optionalInteger(`attention.${name}_mla`, sizeRange) ?? metadata.integer(`attention.${name}`, sizeRange);
  const common = {
    q_lora_rank: gguf.tensors.has('blk.0.attn_q.weight') ? null : metadata.integer('attention.q_lora_rank', sizeRange),
    kv_lora_rank: metadata.integer('attention.kv_lora_rank', sizeRange),
    qk_rope_head_dim: rope,
    qk_nope_head_dim: width('key_length') - rope,
    v_head_dim: width('value_length'),
  };
  // What llama.cpp knows by itself of the one MiniCPM3 there is.
  if (metadata.arch === 'minicpm3')
    return { ...common, model_type: 'minicpm3', scale_emb: 12, scale_depth: 1.4, dim_model_base: 256 };
  return { ...common, ...experts(metadata) };
}

const SOFTMAX = 1;
const SIGMOID = 2;

/** Sigmoid routing is what tells V3 from V2; files from before there was a choice don't say. */
function experts(metadata: GgufMetadata): Record<string, unknown> {
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
    n_routed_experts: numExperts,
    num_experts_per_tok: metadata.integer('expert_used_count', countRange),
    moe_intermediate_size: metadata.integer('expert_feed_forward_length', sizeRange),
    n_shared_experts: metadata.optionalInteger('expert_shared_count', count) ?? 0,
    first_k_dense_replace: metadata.optionalInteger('leading_dense_block_count', count) ?? 0,
    norm_topk_prob: metadata.boolean('expert_weights_norm', false),
    routed_scaling_factor: metadata.optionalPositive('expert_weights_scale') ?? 1,
    topk_method: sigmoid ? 'noaux_tc' : groups > 1 ? 'group_limited_greedy' : 'greedy',
    n_group: groups,
    topk_group: metadata.optionalInteger('expert_group_used_count', count) || 1,
  };
}

/** Keys by which relatives of these models change the computation. */
function refuseVariants(metadata: GgufMetadata, contextLength: number): void {
  const window = metadata.optionalInteger('attention.sliding_window', { min: 0, max: 2 ** 30 }) ?? 0;
  if (window > 0 && window < contextLength)
    throw metadata.unsupported('attention.sliding_window', window, `attention sees all ${contextLength} positions`);
  const scales = ['attention.temperature_scale', 'attention.scale', 'logit_scale', 'embedding_scale', 'residual_scale'];
  for (const name of scales) {
    const scale = metadata.optionalPositive(name) ?? 1;
    if (scale !== 1) throw metadata.unsupported(name, scale, 'these models have no such scale');
  }
}
