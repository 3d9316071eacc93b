import {
  countRange,
  neutralKeys,
  parseDtype,
  parseTokenIds,
  refuseActivation,
  refuseForeign,
  refuseQuantized,
  sizeRange,
  type TorchDtype,
} from './config_parts.js';
import type { ConfigReader } from './config_reader.js';
import { parseMoe, type MoeConfig } from './moe_config.js';
import { parseRope, type RopeScaling, yarnMscale } from './rope_config.js';

export type { MoeConfig } from './moe_config.js';
export type DeepseekArchitecture = 'deepseek_v2' | 'deepseek_v3' | 'minicpm3';

/**
 * A decoder with multi-head latent attention: RMSNorm, a latent of kvLoraRank and a rotary key of qkRopeHeadDim a token shared by
 * all heads, SwiGLU or a mixture of experts. Sizes are in elements.
 */
export interface DeepseekConfig {
  architecture: DeepseekArchitecture;
  hiddenSize: number;
  /** Of the dense layers; experts have moe.intermediateSize. */
  intermediateSize: number;
  numLayers: number;
  numHeads: number;
  /** Width of q's bottleneck (q_a_proj, q_a_layernorm, q_b_proj); null: one q_proj. */
  qLoraRank: number | null;
  /** A multiple of 32, at most 1024. */
  kvLoraRank: number;
  /** A multiple of 8, at most 256, as the next two. */
  qkNopeHeadDim: number;
  qkRopeHeadDim: number;
  vHeadDim: number;
  vocabSize: number;
  maxPositions: number;
  rmsNormEps: number;
  /** Of q_a_layernorm and kv_a_layernorm: transformers leaves them at its default, whatever rms_norm_eps says. */
  loraNormEps: number;
  ropeTheta: number;
  ropeScaling: RopeScaling;
  /**
   * True: the checkpoint's rotary rows (of q and of the shared key) come in pairs (2i, 2i + 1). transformers puts the even ones
   * first, then turns halves (i, i + qkRopeHeadDim / 2). False: they are in halves already.
   */
  ropeInterleaved: boolean;
  /** Scores are q.k times this: (nope + rope)^-0.5, times mscale^2 with YaRN. */
  softmaxScale: number;
  /** Bias on q_a_proj, kv_a_proj_with_mqa and o_proj (none on q_proj, q_b_proj and kv_b_proj). */
  attentionBias: boolean;
  /** null: every layer is dense. */
  moe: MoeConfig | null;
  /** Layers before this one are dense; numLayers without experts. */
  firstKDenseReplace: number;
  /** Of the others, those whose index is a multiple of this have experts. */
  moeLayerFreq: number;
  /** Embeddings are multiplied by this. */
  scaleEmb: number;
  /** What attention and MLP add to the residual stream is multiplied by this. */
  residualScale: number;
  /** The last hidden state, after its norm, is multiplied by this before the output head. */
  logitScale: number;
  /** True: the output head is the embedding matrix, and there is no lm_head.weight. */
  tieWordEmbeddings: boolean;
  /** Tokens that end generation; may be empty. */
  eosTokenIds: number[];
  bosTokenId: number | null;
  /** The dtype the folder says its weights have; the weight files decide. */
  torchDtype: TorchDtype;
}

/** True where a layer's MLP is a mixture of experts, by the rule of DeepSeek's own code. */
export function isMoeLayer({ firstKDenseReplace, moeLayerFreq }: DeepseekConfig, layer: number): boolean {
  return layer >= firstKDenseReplace && layer % moeLayerFreq === 0;
}

/**
 * Reads a config.json of the DeepSeek family; `generation` (generation_config.json) overrides its special token ids. Layers for
 * predicting further tokens (num_nextn_predict_layers) come after num_hidden_layers and are ignored, as in transformers.
 */
export function parseDeepseekConfig(
  architecture: DeepseekArchitecture,
  config: ConfigReader,
  generation: ConfigReader | undefined,
): DeepseekConfig {
  const minicpm = architecture === 'minicpm3';
  refuseQuantized(config);
  refuseActivation(config);
  refuseForeign(config, neutral);
  const hiddenSize = config.integer('hidden_size', sizeRange);
  const numHeads = config.integer('num_attention_heads', countRange);
  const numLayers = config.integer('num_hidden_layers', countRange);
  const vocabSize = config.integer('vocab_size', { min: 1, max: 1 << 24 });
  refuseGroupedHeads(config, numHeads);
  const qkNopeHeadDim = headWidth(config, 'qk_nope_head_dim');
  const qkRopeHeadDim = headWidth(config, 'qk_rope_head_dim');
  const rope = parseRope(config, minicpm ? ['linear', 'longrope'] : ['linear', 'yarn']);
  checkLongRope(config, rope.ropeScaling, qkRopeHeadDim);
  checkHeadDim(config, qkNopeHeadDim, qkRopeHeadDim);
  const result: DeepseekConfig = {
    architecture,
    hiddenSize,
    intermediateSize: config.integer('intermediate_size', sizeRange),
    numLayers,
    numHeads,
    qLoraRank: parseQLoraRank(config),
    kvLoraRank: multiple(config, 'kv_lora_rank', 32, 1024),
    qkNopeHeadDim,
    qkRopeHeadDim,
    vHeadDim: minicpm ? minicpmVHeadDim(config, qkNopeHeadDim, hiddenSize / numHeads) : headWidth(config, 'v_head_dim'),
    vocabSize,
    maxPositions: config.integer('max_position_embeddings', { min: 1, max: 2 ** 30 }),
    rmsNormEps: config.optionalPositive('rms_norm_eps') ?? (minicpm ? 1e-5 : 1e-6),
    loraNormEps: 1e-6,
    ...rope,
    ropeInterleaved: architecture === 'deepseek_v3' ? config.boolean('rope_interleave', true) : !minicpm,
    softmaxScale: softmaxScale(qkNopeHeadDim + qkRopeHeadDim, rope.ropeScaling),
    attentionBias: config.boolean('attention_bias', false),
    ...parseExperts(architecture, config, numLayers),
    ...(minicpm ? minicpmScales(config, hiddenSize, numLayers) : { scaleEmb: 1, residualScale: 1, logitScale: 1 }),
    tieWordEmbeddings: config.boolean('tie_word_embeddings', minicpm),
    ...parseTokenIds(config, generation, vocabSize),
    torchDtype: parseDtype(config),
  };
  config.refuseNearMisses();
  return result;
}

const neutral = [
  ...neutralKeys,
  ['mlp_bias', false, 'there is no bias in the MLP'],
  ['sliding_window', undefined, 'attention sees all positions'],
  ['index_topk', undefined, 'attention is not sparse'],
] as const;

/**
 * DeepSeek's own code and transformers' DeepSeek-V3 multiply by mscale^2; transformers' DeepSeek-V2 leaves it out, against what
 * its checkpoints were trained with.
 */
function softmaxScale(width: number, scaling: RopeScaling): number {
  const mscale = scaling?.type === 'yarn' ? yarnMscale(scaling.factor, scaling.mscaleAllDim) : 1;
  return (mscale * mscale) / Math.sqrt(width);
}

function refuseGroupedHeads(config: ConfigReader, numHeads: number): void {
  const numKvHeads = config.optionalInteger('num_key_value_heads', countRange) ?? numHeads;
  if (numKvHeads !== numHeads) {
    const expected = `num_attention_heads (${numHeads}): with latent attention every head has its own keys and values`;
    throw config.invalid('num_key_value_heads', numKvHeads, expected);
  }
}

const headWidth = (config: ConfigReader, key: string) => multiple(config, key, 8, 256);

function multiple(config: ConfigReader, key: string, step: number, max: number): number {
  return checkMultiple(config, key, config.integer(key, sizeRange), step, max);
}

function checkMultiple(config: ConfigReader, key: string, value: number, step: number, max: number): number {
  if (value % step !== 0 || value > max)
    throw config.unsupported(key, value, `the attention kernels take multiples of ${step} up to ${max}`);
  return value;
}

/** null must be written: where the key is absent, transformers takes a class default that is rarely what the weights have. */
function parseQLoraRank(config: ConfigReader): number | null {
  if (!config.has('q_lora_rank')) return config.missing('q_lora_rank');
  return config.optionalInteger('q_lora_rank', sizeRange) ?? null;
}

function parseExperts(architecture: DeepseekArchitecture, config: ConfigReader, numLayers: number) {
  const moe = architecture === 'minicpm3' ? null : parseMoe(architecture, config);
  if (moe === null) return { moe, firstKDenseReplace: numLayers, moeLayerFreq: 1 };
  return {
    moe,
    // More than there are layers means that all are dense, as in a model cut to its first layers.
    firstKDenseReplace: Math.min(config.integer('first_k_dense_replace', { min: 0, max: countRange.max }), numLayers),
    moeLayerFreq: config.optionalInteger('moe_layer_freq', countRange) ?? 1,
  };
}

/** Redundant keys that say something about the width of a head must not contradict the others. */
function checkHeadDim(config: ConfigReader, nope: number, rope: number): void {
  const whole = config.optionalInteger('qk_head_dim', sizeRange) ?? nope + rope;
  if (whole !== nope + rope)
    throw config.invalid('qk_head_dim', whole, `qk_nope_head_dim + qk_rope_head_dim (${nope + rope})`);
  config.raw('head_dim'); // Some write the rotary part here, some the whole: known, and not needed.
}

/** Absent means hidden_size / num_attention_heads to transformers, and qk_nope_head_dim to MiniCPM's own code. */
function minicpmVHeadDim(config: ConfigReader, nope: number, even: number): number {
  const width =
    config.optionalInteger('v_head_dim', sizeRange) ?? (nope === even ? nope : config.missing('v_head_dim'));
  return checkMultiple(config, 'v_head_dim', width, 8, 256);
}

/** transformers and MiniCPM's own code disagree on the defaults of two of the three keys: they must be present. */
function minicpmScales(config: ConfigReader, hiddenSize: number, numLayers: number) {
  return {
    scaleEmb: config.optionalPositive('scale_emb') ?? 1,
    residualScale: config.positive('scale_depth') / Math.sqrt(numLayers),
    logitScale: config.positive('dim_model_base') / hiddenSize,
  };
}

function checkLongRope(config: ConfigReader, scaling: RopeScaling, dims: number): void {
  if (scaling?.type !== 'longrope') return;
  for (const [key, list] of [
    ['short_factor', scaling.shortFactor],
    ['long_factor', scaling.longFactor],
  ] as const) {
    if (list.length !== dims / 2)
      throw config.invalid(`rope_scaling.${key}`, list, `${dims / 2} numbers (qk_rope_head_dim ${dims} / 2)`);
  }
}
