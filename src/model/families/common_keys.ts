import type { Activation, ExpertsConfig, DenseMlpConfig, GqaConfig } from '../config/model_config.js';
import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { LayerType } from '../config/rope_config.js';

/** Keys that mean the same to every family. */

export const countRange = { min: 1, max: 4096 };
/** Layers for further tokens. */
export const furtherRange = { min: 0, max: 64 };

/** What a config.json says of special tokens; generation_config.json wins. */
export function parseTokenIds(config: ConfigReader, generation: ConfigReader | undefined, vocabSize: number) {
  const ids = (key: string) => generation?.optionalTokenIds(key, vocabSize) ?? config.optionalTokenIds(key, vocabSize);
  return { eosTokenIds: ids('eos_token_id') ?? [], bosTokenId: ids('bos_token_id')?.[0] ?? null };
}

/** The weight files decide; this is only what the folder says of them. */
export function refuseFloat8(config: ConfigReader): void {
  const key = config.raw('dtype') === undefined ? 'torch_dtype' : 'dtype';
  const dtype = config.optionalString(key)?.replace(/^torch\./, '');
  if (dtype?.startsWith('float8'))
    throw config.unsupported(key, dtype, "this runtime reads 'float32', 'float16' and 'bfloat16'");
}

/** @param read methods whose files are read */
export function refuseQuantized(config: ConfigReader, read: readonly string[] = []): void {
  const quantization = config.optionalObject('quantization_config');
  if (quantization === undefined) return;
  const method = quantization.optionalString('quant_method');
  if (method !== undefined && read.includes(method)) return;
  // ModelOpt's files name what was done by `quant_algo`, and itself, where there is no method, as the producer.
  const producer = quantization.optionalObject('producer')?.optionalString('name');
  const algorithm = quantization.optionalString('quant_algo');
  const names = [method ?? producer, algorithm].filter((name) => name !== undefined);
  const advice =
    method === 'fp8' || algorithm === 'FP8'
      ? 'FP8 checkpoints are refused: use the BF16 one of the same model, or convert the weights to bfloat16 (multiply each block by its scale)'
      : 'give float32, float16 or bfloat16 weights; --weights q8 or q4 packs them';
  throw config.unsupported('quantization_config', names.join(', ') || 'of an unnamed method', advice);
}

export function parseActivation(config: ConfigReader): 'silu' {
  const activation = config.optionalString('hidden_act') ?? 'silu';
  if (activation !== 'silu' && activation !== 'swish')
    throw config.unsupported('hidden_act', activation, "only 'silu' (SwiGLU)");
  return 'silu';
}

export function parseGelu(config: ConfigReader): Activation {
  const key = config.has('hidden_activation') ? 'hidden_activation' : 'hidden_act';
  const activation = config.optionalString(key) ?? 'gelu_pytorch_tanh';
  if (activation !== 'gelu_pytorch_tanh') throw config.unsupported(key, activation, "only 'gelu_pytorch_tanh'");
  return 'gelu_tanh';
}

/** By erf, as encoders have it. */
export function parseErfGelu(config: ConfigReader): Activation {
  const key = config.has('hidden_activation') ? 'hidden_activation' : 'hidden_act';
  const activation = config.optionalString(key) ?? 'gelu';
  if (activation === 'gelu_pytorch_tanh' || activation === 'gelu_new') return 'gelu_tanh';
  if (activation !== 'gelu') throw config.unsupported(key, activation, "'gelu' or 'gelu_pytorch_tanh'");
  return 'gelu';
}

/**
 * Grouped-query attention, all but its rotary embedding; a head's width is hidden_size / num_attention_heads where `head_dim` doesn't
 * say. Families replace what they have otherwise.
 * @param biased whether q, k, v and o have a bias
 */
export function parseGqa(
  config: ConfigReader,
  hiddenSize: number,
  biased = config.boolean('attention_bias', false),
): Omit<GqaConfig, 'rope'> {
  const heads = config.integer('num_attention_heads', countRange);
  const kvHeads = config.optionalInteger('num_key_value_heads', { min: 1, max: heads }) ?? heads;
  if (heads % kvHeads !== 0)
    throw config.invalid('num_key_value_heads', kvHeads, `a divisor of num_attention_heads (${heads})`);
  const headDim = config.optionalInteger('head_dim') ?? hiddenSize / heads;
  if (!Number.isInteger(headDim))
    throw config.invalid('hidden_size', hiddenSize, `a multiple of num_attention_heads (${heads}), or a head_dim`);
  const bias = { q: biased, k: biased, v: biased, o: biased };
  return { kind: 'gqa', heads, kvHeads, headDim, bias, qkNorm: false, scale: headDim ** -0.5 };
}

/** down(activation(gate x) * up x), without biases. */
export const parseGated = (
  config: ConfigReader,
  activation: Activation = parseActivation(config),
  key = 'intermediate_size',
): DenseMlpConfig => ({ kind: 'gated', width: config.integer(key), activation, bias: false });

/**
 * Experts that are chosen by softmax over all, without shared ones.
 * @param all key of their number; transformers 5 writes `num_local_experts` in place of any
 * @param chosen key of how many a token has
 * @param width key of the width of one
 */
export function parseExperts(
  config: ConfigReader,
  all = 'num_experts',
  chosen = 'num_experts_per_tok',
  width = 'moe_intermediate_size',
  activation: Activation = parseActivation(config),
): ExpertsConfig {
  const renamed = config.raw(all) === undefined && config.raw('num_local_experts') !== undefined;
  const numExperts = config.integer(renamed ? 'num_local_experts' : all, { min: 1, max: 1024 });
  return {
    kind: 'experts',
    numExperts,
    expertsPerToken: config.integer(chosen, { min: 1, max: numExperts }),
    width: config.integer(width),
    sharedWidth: 0,
    activation,
    numGroups: 1,
    topkGroups: 1,
    scoring: 'softmax',
    method: 'greedy',
    normTopkProb: config.boolean('norm_topk_prob', false),
    routedScalingFactor: 1,
    correctionBias: false,
  };
}

/**
 * Heads by GGUF metadata, in the words of config.json.
 * @param headDim where the file doesn't say
 */
export function ggufHeads(metadata: GgufMetadata, headDim?: number) {
  const heads = metadata.integer('attention.head_count', countRange);
  return {
    num_key_value_heads: metadata.optionalInteger('attention.head_count_kv', countRange) ?? heads,
    head_dim:
      metadata.optionalInteger('attention.key_length') ?? headDim ?? metadata.integer('embedding_length') / heads,
  };
}

export const ggufExperts = (metadata: GgufMetadata) => ({
  num_experts: metadata.integer('expert_count', countRange),
  num_experts_per_tok: metadata.integer('expert_used_count', countRange),
  moe_intermediate_size: metadata.integer('expert_feed_forward_length'),
});

/**
 * Which layers have a window by GGUF metadata, in the words of config.json: a list, or every how many'th layer has none.
 * @param otherwise where the file doesn't say
 */
export function ggufLayerTypes(metadata: GgufMetadata, otherwise: number): { layer_types: LayerType[] } {
  const key = 'attention.sliding_window_pattern';
  const listed = metadata.raw(key);
  const every = Array.isArray(listed) ? 1 : (metadata.optionalInteger(key, countRange) ?? otherwise);
  return {
    layer_types: Array.isArray(listed)
      ? listed.map((slides) => (slides ? 'sliding_attention' : 'full_attention'))
      : Array.from({ length: metadata.integer('block_count', countRange) }, (_, layer) => fullEvery(every)(layer)),
  };
}

/** Every so many'th layer sees all positions, the others have a window, or what `others` says. */
export const fullEvery =
  <Others extends string = 'sliding_attention'>(every: number, others = 'sliding_attention' as Others) =>
  (layer: number): 'full_attention' | Others =>
    (layer + 1) % every === 0 ? 'full_attention' : others;

/** Attention by a layer's type: each has its rotary embedding, and one a window. */
export const attentionByType =
  (
    attention: Omit<GqaConfig, 'rope'>,
    ropes: Readonly<Record<LayerType, GqaConfig['rope']>>,
    window: number | undefined,
  ) =>
  (type: LayerType): GqaConfig => ({
    ...attention,
    rope: ropes[type],
    window: type === 'sliding_attention' ? window : undefined,
  });

/**
 * Each layer's type, by `layer_types`.
 * @param otherwise where the file doesn't say
 * @param known the types that its layers may have
 */
export function parseLayerTypes<Type extends string = LayerType>(
  config: ConfigReader,
  numLayers: number,
  otherwise: (layer: number) => Type,
  known: readonly string[] = ['full_attention', 'sliding_attention'],
  key = 'layer_types',
): Type[] {
  const types = config.raw(key);
  if (types === undefined) return Array.from({ length: numLayers }, (_, layer) => otherwise(layer));
  if (!Array.isArray(types) || types.length !== numLayers)
    throw config.invalid(key, types, `a list of ${numLayers} (num_hidden_layers)`);
  const other = types.find((type) => !known.includes(type));
  if (other !== undefined) throw config.unsupported(key, other, `every layer must be '${known.join("' or '")}'`);
  return types as Type[];
}

/** A key by which related models change the computation, with the value that changes nothing. */
export type NeutralKey = readonly [key: string, value: unknown, what: string];

/** Those of every architecture that doesn't read them. */
export const neutralKeys: readonly NeutralKey[] = [
  ['clip_qkv', undefined, 'q, k and v are not clipped'],
  ['attn_logit_softcapping', undefined, 'attention scores are not capped'],
  ['final_logit_softcapping', undefined, 'logits are not capped'],
  ['embedding_multiplier', 1, 'embeddings are not scaled by this key'],
  ['residual_multiplier', 1, 'the residual is not scaled by this key'],
  ['attention_multiplier', undefined, "scores are scaled by the head's width only"],
  ['logits_scaling', 1, 'logits are not scaled by this key'],
  ['logit_scale', 1, 'logits are not scaled by this key'],
  ['attn_output_gate', false, 'attention outputs are not gated'],
];

export function refuseForeign(config: ConfigReader, keys: readonly NeutralKey[]): void {
  for (const [key, value, what] of keys) {
    const given = config.raw(key);
    if (given !== undefined && given !== value) throw config.unsupported(key, given, what);
  }
}
