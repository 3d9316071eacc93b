import { range } from '../../base/lists.js';
import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { AttentionConfig, DeltaConfig, ExpertsConfig, LayerConfig } from '../config/model_config.js';
import { parseRope, parseSections } from '../config/rope_config.js';
import { parseQwen25Vision, parseQwenVision, tokensOf, type VisionConfig } from '../config/vision_config.js';
import { type DeltaNames, expertNames, headNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import {
  countRange,
  fullEvery,
  furtherRange,
  ggufExperts,
  ggufHeads,
  parseExperts,
  parseGated,
  parseGqa,
  parseLayerTypes,
  refuseForeign,
} from './common_keys.js';
import { defineFamily, type Family } from './family.js';
import { parseAttention } from './llama.js';
import { parseDenseLayers } from './qwen3_moe.js';

const LINEAR = 'linear_attention';

const mixer = 'model.layers.{layer}.linear_attn.';
const delta: DeltaNames = {
  qkv: `${mixer}in_proj_qkv`,
  z: `${mixer}in_proj_z`,
  b: `${mixer}in_proj_b`,
  a: `${mixer}in_proj_a`,
  taps: `${mixer}conv1d`,
  rates: `${mixer}A_log`,
  dtBias: `${mixer}dt_bias`,
  norm: `${mixer}norm`,
  output: `${mixer}out_proj`,
};
const tensors: TensorNames = {
  ...llamaNames,
  delta,
  experts: { ...expertNames('gate', 'shared_expert'), sharedGate: 'model.layers.{layer}.mlp.shared_expert_gate' },
};
const nextTensors: TensorNames = {
  ...tensors,
  delta: { ...delta, qkvz: `${mixer}in_proj_qkvz`, ba: `${mixer}in_proj_ba` },
};

const mtpNames = (names: TensorNames): TensorNames =>
  headNames(names, 'mtp.layers.0', {
    norm: 'mtp.norm',
    embeddingNorm: 'mtp.pre_fc_norm_embedding',
    hiddenNorm: 'mtp.pre_fc_norm_hidden',
    project: 'mtp.fc',
  });

const common = {
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_conv_kernel_dim: 4,
  vocab_size: 248320,
  num_attention_heads: 16,
  head_dim: 256,
  max_position_embeddings: 32768,
};

/**
 * Qwen3-Next and Qwen3.5 (text, dense and with experts; also Qwen3.6): Gated DeltaNet, and every so often grouped-query attention whose
 * output is gated and whose heads are rotated in part. Shared experts have a gate. All norms but linear attention's own multiply by
 * 1 + w.
 */
export const qwen35 = defineFamily({
  // Files leave out what equals transformers' defaults.
  defaults: {
    qwen3_5_text: {
      ...common,
      hidden_size: 4096,
      intermediate_size: 12288,
      num_hidden_layers: 32,
      num_key_value_heads: 4,
    },
    qwen3_5_moe_text: {
      ...common,
      hidden_size: 2048,
      num_hidden_layers: 40,
      num_key_value_heads: 2,
      num_experts: 256,
      num_experts_per_tok: 8,
      moe_intermediate_size: 512,
      shared_expert_intermediate_size: 512,
    },
    qwen3_next: {
      ...common,
      vocab_size: 151936,
      hidden_size: 2048,
      intermediate_size: 5632,
      num_hidden_layers: 48,
      num_key_value_heads: 2,
      num_experts: 512,
      num_experts_per_tok: 10,
      moe_intermediate_size: 512,
      shared_expert_intermediate_size: 512,
      norm_topk_prob: true,
    },
  },
  neutral: [
    ['attention_bias', false, 'projections have no bias'],
    ['attn_output_gate', true, "attention's output is gated"],
    ['output_gate_type', 'swish', "linear attention's output is gated by silu"],
    ['mamba_ssm_dtype', 'float32', 'the state of linear attention is f32'],
  ],
  config(config, { architecture, hiddenSize, numLayers, norm }) {
    const next = architecture === 'qwen3_next';
    const moe = architecture !== 'qwen3_5_text';
    if (!moe) refuseForeign(config, [['num_experts', 0, 'a mixture of experts is another architecture']]);
    const heads = parseGqa(config, hiddenSize, false);
    const rope = { ...parseRope(config, heads.headDim, [], false, 0.25), ...parseSections(config, [11, 11, 10]) };
    const attention: AttentionConfig = { ...heads, qkNorm: 'head', rope, gated: true };
    const linear = parseDelta(config, heads.kvHeads);
    const experts = moe ? parseSharedExperts(config, next) : undefined;
    const isDense = next ? parseDenseLayers(config) : () => !moe;
    const every = config.optionalInteger('full_attention_interval', countRange) ?? 4;
    const types = parseLayerTypes(config, numLayers, fullEvery(every, LINEAR), ['full_attention', LINEAR]);
    const layers = types.map((type, layer): LayerConfig => ({
      attention: type === LINEAR ? linear : attention,
      mlp: (isDense(layer) ? undefined : experts) ?? parseGated(config),
    }));
    const further =
      config.optionalInteger('mtp_num_hidden_layers', furtherRange) ??
      config.optionalInteger('num_nextn_predict_layers', furtherRange) ??
      0;
    const own = further > 0 && !config.boolean('mtp_use_dedicated_embeddings', false);
    const names = next ? nextTensors : tensors;
    return {
      norm: { ...norm, offset: 1 },
      layers,
      tensors: names,
      ...(own && { mtp: { layer: { attention, mlp: experts ?? parseGated(config) }, tensors: mtpNames(names) } }),
    };
  },
  vision: visionOf(248056),
  mmproj,
  gguf: { keys: ggufKeys, parts: { postNorm: 'post_attention_norm' }, tiledHeads: ['qwen35', 'qwen35moe'] },
});

/**
 * Qwen3-VL: Qwen3 or Qwen3-MoE beside such an encoder, of which rows behind some of its layers are added behind the first ones of the
 * text part.
 */
export const qwen3Vl = defineFamily({
  config(config, common) {
    const own = parseAttention(config, common);
    const attention = { ...own, rope: own.rope && { ...own.rope, ...parseSections(config, [24, 20, 20]) } };
    const moe = common.architecture === 'qwen3_vl_moe_text';
    // Whatever the file says.
    const experts = moe && ({ ...parseExperts(config), normTopkProb: true } as const);
    const isDense = parseDenseLayers(config);
    return {
      layers: Array.from({ length: common.numLayers }, (_, layer): LayerConfig => {
        return { attention, mlp: experts && !isDense(layer) ? experts : parseGated(config) };
      }),
      tensors: { ...llamaNames, experts: expertNames() },
    };
  },
  vision: visionOf(151655),
  mmproj,
  gguf: {
    keys: (metadata) => ({
      ...ggufHeads(metadata),
      ...ggufSections(metadata),
      ...(metadata.arch === 'qwen3vlmoe' && ggufExperts(metadata)),
      model_type: metadata.arch === 'qwen3vlmoe' ? 'qwen3_vl_moe_text' : 'qwen3_vl_text',
    }),
  },
});

/** Qwen2.5-VL: Qwen2 beside an encoder most of whose layers have windows. */
export const qwen25Vl = defineFamily({
  defaults: {
    qwen2_5_vl_text: { vocab_size: 152064, max_position_embeddings: 32768, rms_norm_eps: 1e-5, rope_theta: 1e6 },
  },
  neutral: [['use_sliding_window', false, 'a token sees all before it']],
  config(config, common) {
    const own = parseAttention(config, common);
    const attention = { ...own, rope: own.rope && { ...own.rope, ...parseSections(config, [16, 24, 24], false) } };
    const layer = { attention, mlp: parseGated(config) };
    return { layers: Array.from({ length: common.numLayers }, () => layer), tensors: llamaNames };
  },
  vision: visionOf(151655, parseQwen25Vision),
  mmproj(clip, idOf) {
    const every = clip.integer('n_wa_pattern', countRange);
    const depth = clip.integer('block_count', countRange);
    return {
      image_token_id: idOf('<|image_pad|>'),
      // As its processor has it, where the file doesn't say.
      min_pixels: 56 ** 2,
      vision_config: {
        depth,
        num_heads: clip.integer('attention.head_count'),
        spatial_merge_size: clip.optionalInteger('spatial_merge_size'),
        fullatt_block_indexes: range(0, depth).filter((layer) => (layer + 1) % every === 0),
        hidden_act: 'silu',
        window_size: clip.optionalInteger('window_size'),
      },
    };
  },
  gguf: { keys: (metadata) => ({ ...ggufHeads(metadata), ...ggufSections(metadata), model_type: 'qwen2_5_vl_text' }) },
});

function mmproj(clip: GgufMetadata, idOf: (token: string) => number): Record<string, unknown> {
  const taps = clip.raw('is_deepstack_layers') ?? [];
  return {
    image_token_id: idOf('<|image_pad|>'),
    vision_config: {
      depth: clip.integer('block_count'),
      num_heads: clip.integer('attention.head_count'),
      spatial_merge_size: clip.optionalInteger('spatial_merge_size'),
      num_position_embeddings: Math.floor(clip.integer('image_size') / clip.integer('patch_size')) ** 2,
      deepstack_visual_indexes: Array.isArray(taps) ? [...taps.keys()].filter((layer) => taps[layer] === true) : taps,
    },
  };
}

function ggufSections(metadata: GgufMetadata): Record<string, unknown> {
  const sections = metadata.raw('rope.dimension_sections');
  return Array.isArray(sections) ? { rope_parameters: { mrope_section: sections.slice(0, 3) } } : {};
}

/** @param token that stands for a picture's rows where the file doesn't say */
function visionOf(token: number, read = parseQwenVision): NonNullable<Family['vision']> {
  return (config): VisionConfig | undefined => {
    const vision = config.optionalObject('vision_config');
    if (!vision) return undefined;
    return { ...tokensOf(config, ['image_token_id'], token), ...read(vision) };
  };
}

/** Weights are always divided by their sum, but in Qwen3-Next, whose files say. */
function parseSharedExperts(config: ConfigReader, next: boolean): ExpertsConfig {
  if (!next)
    refuseForeign(config, [['norm_topk_prob', true, 'the weights of the chosen experts are divided by their sum']]);
  return {
    ...parseExperts(config),
    sharedWidth: config.integer('shared_expert_intermediate_size'),
    sharedGate: true,
    normTopkProb: config.boolean('norm_topk_prob', true),
  };
}

function parseDelta(config: ConfigReader, segments: number): DeltaConfig {
  const keyHeads = config.integer('linear_num_key_heads', countRange);
  const valueHeads = config.integer('linear_num_value_heads', countRange);
  if (valueHeads % keyHeads !== 0)
    throw config.invalid('linear_num_value_heads', valueHeads, `a multiple of linear_num_key_heads (${keyHeads})`);
  return {
    kind: 'delta',
    keyHeads,
    valueHeads,
    keyDim: config.integer('linear_key_head_dim'),
    valueDim: config.integer('linear_value_head_dim'),
    taps: config.integer('linear_conv_kernel_dim', { min: 2, max: 64 }),
    rates: 'log',
    segments,
  };
}

const modelTypes: Readonly<Record<string, string>> = { qwen35moe: 'qwen3_5_moe_text', qwen3next: 'qwen3_next' };

/** Layers that predict further tokens come last; the list of those with a state has them, too. */
function ggufKeys(metadata: GgufMetadata): Record<string, unknown> {
  const headDim = metadata.integer('attention.key_length');
  const valueHeads = metadata.integer('ssm.time_step_rank', countRange);
  const recurrent = metadata.raw('attention.recurrent_layers');
  const further = metadata.optionalInteger('nextn_predict_layers', furtherRange) ?? 0;
  const moe = metadata.arch in modelTypes;
  return {
    model_type: modelTypes[metadata.arch] ?? 'qwen3_5_text',
    ...ggufHeads(metadata),
    ...ggufSections(metadata),
    partial_rotary_factor: metadata.integer('rope.dimension_count') / headDim,
    linear_conv_kernel_dim: metadata.integer('ssm.conv_kernel', countRange),
    linear_key_head_dim: metadata.integer('ssm.state_size'),
    linear_value_head_dim: metadata.integer('ssm.inner_size') / valueHeads,
    linear_num_key_heads: metadata.integer('ssm.group_count', countRange),
    linear_num_value_heads: valueHeads,
    ...(Array.isArray(recurrent)
      ? {
          layer_types: recurrent.slice(0, recurrent.length - further).map((one) => (one ? LINEAR : 'full_attention')),
        }
      : { full_attention_interval: metadata.optionalInteger('full_attention_interval', countRange) ?? 4 }),
    ...(moe && {
      ...ggufExperts(metadata),
      shared_expert_intermediate_size:
        metadata.optionalInteger('expert_shared_feed_forward_length') ?? metadata.integer('feed_forward_length'),
    }),
  };
}
