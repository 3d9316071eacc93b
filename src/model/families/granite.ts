import { range } from '../../base/lists.js';
import type { GgufFile } from '../../loader/index.js';
import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { AttentionConfig, LayerConfig, MambaConfig, MlpConfig } from '../config/model_config.js';
import { gatedNames, type GatedMlpNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import { countRange, parseExperts, parseGated, parseLayerTypes, refuseForeign } from './common_keys.js';
import { type CommonConfig, defineFamily } from './family.js';
import { ggufKeys, llamaNeutral, noExperts, parseAttention, parseBias } from './llama.js';
import { ggufMixers } from './mixers.js';

const MAMBA = 'mamba';
type LayerType = typeof MAMBA | 'attention';

const at = 'model.layers.{layer}.';
const moe = `${at}block_sparse_moe.`;
const shared: GatedMlpNames = {
  ...llamaNames.gated,
  gateUp: `${at}shared_mlp.input_linear`,
  down: `${at}shared_mlp.output_linear`,
};
const moeNames: TensorNames = {
  ...llamaNames,
  gated: shared,
  experts: {
    ...gatedNames(`${moe}experts.{expert}`),
    stacks: { gateUp: `${moe}input_linear.weight`, down: `${moe}output_linear.weight` },
    router: `${moe}router.layer`,
    // There is none.
    correctionBias: `${moe}router.bias`,
    shared,
  },
  mamba: {
    input: `${at}mamba.in_proj`,
    taps: `${at}mamba.conv1d`,
    rates: `${at}mamba.A_log`,
    dtBias: `${at}mamba.dt_bias`,
    skip: `${at}mamba.D`,
    norm: `${at}mamba.norm`,
    output: `${at}mamba.out_proj`,
  },
};

/** What transformers takes for absent keys. */
const experts = { num_local_experts: 8, num_experts_per_tok: 2, intermediate_size: 11008 };

/**
 * Granite: Llama with embeddings, scores, what halves add, and logits scaled by keys; Granite 3's with experts (granitemoe, and with a
 * shared one, granitemoeshared). Also Granite 4 (granitemoehybrid), whose positions are encoded only where a key says so: the hybrids
 * (`h`) have Mamba-2 in most layers, and the larger of them experts.
 */
export const granite = defineFamily({
  defaults: {
    granitemoe: experts,
    granitemoeshared: { ...experts, shared_intermediate_size: 0 },
    granitemoehybrid: {
      ...experts,
      shared_intermediate_size: 1024,
      mamba_n_heads: 128,
      mamba_n_groups: 1,
      mamba_d_state: 256,
      mamba_d_conv: 4,
      mamba_expand: 2,
    },
  },
  neutral: llamaNeutral,
  config(config, common) {
    const { architecture } = common;
    const hybrid = architecture === 'granitemoehybrid';
    const plain = architecture === 'granite';
    if (plain) refuseForeign(config, noExperts);
    const { rope, ...attention } = parseAttention(config, common);
    const positions = config.optionalString('position_embedding_type') ?? (hybrid ? 'nope' : 'rope');
    const paged: AttentionConfig = {
      ...attention,
      rope: positions === 'rope' ? rope : null,
      scale: config.optionalPositive('attention_multiplier') ?? 1,
    };
    const types = hybrid ? parseTypes(config, common) : range(0, common.numLayers).map(() => 'attention' as const);
    const mamba = types.includes(MAMBA) ? parseMamba(config, common.hiddenSize, attention.kvHeads) : paged;
    const mlp = parseMlp(config, architecture);
    return {
      embeddingScale: config.optionalPositive('embedding_multiplier') ?? 1,
      residualScale: config.optionalPositive('residual_multiplier') ?? 1,
      logitScale: 1 / (config.optionalPositive('logits_scaling') ?? 1),
      layers: types.map((type): LayerConfig => ({ attention: type === MAMBA ? mamba : paged, mlp })),
      tensors: plain ? llamaNames : moeNames,
    };
  },
  gguf: {
    keys: (metadata, gguf) => ({
      ...(metadata.arch === 'granite' ? ggufKeys(metadata) : moeKeys(metadata, gguf)),
      embedding_multiplier: metadata.optionalPositive('embedding_scale') ?? 1,
      attention_multiplier: metadata.optionalPositive('attention.scale') ?? 1,
      residual_multiplier: metadata.optionalPositive('residual_scale') ?? 1,
      logits_scaling: metadata.optionalPositive('logit_scale') ?? 1,
      // llama.cpp's switch; Granite 4's files have another model_type in config.json.
      position_embedding_type: metadata.boolean('rope.scaling.finetuned', true) ? 'rope' : 'nope',
    }),
    pairedRows: ['granite', 'granitemoe', 'granitehybrid'],
  },
});

/** Transformers 5's words for them. */
const renamed: Readonly<Record<string, LayerType>> = { linear_attention: MAMBA, full_attention: 'attention' };

/** `layers_block_type` is the older name; without either all layers are Mamba's. */
function parseTypes(config: ConfigReader, { numLayers }: CommonConfig): LayerType[] {
  const key = ['layer_types', 'layers_block_type'].find((name) => config.raw(name) !== undefined);
  const known = ['attention', MAMBA, ...Object.keys(renamed)];
  return parseLayerTypes<string>(config, numLayers, () => MAMBA, known, key).map(
    (type) => renamed[type] ?? (type as LayerType),
  );
}

function parseMamba(config: ConfigReader, hiddenSize: number, segments: number): MambaConfig {
  refuseForeign(config, [['mamba_proj_bias', false, 'projections of Mamba have no bias']]);
  const limit = config.raw('time_step_limit') ?? [0, Infinity];
  if (!Array.isArray(limit) || limit[0] !== 0 || limit[1] !== Infinity)
    throw config.unsupported('time_step_limit', limit, 'time steps are not clamped');
  const keyHeads = config.integer('mamba_n_groups', countRange);
  const valueHeads = config.integer('mamba_n_heads', countRange);
  if (valueHeads % keyHeads !== 0)
    throw config.invalid('mamba_n_heads', valueHeads, `a multiple of mamba_n_groups (${keyHeads})`);
  const isAuto = (config.raw('mamba_d_head') ?? 'auto') === 'auto';
  const valueDim = isAuto ? (config.integer('mamba_expand') * hiddenSize) / valueHeads : config.integer('mamba_d_head');
  if (!Number.isInteger(valueDim))
    throw config.invalid('mamba_n_heads', valueHeads, `a divisor of mamba_expand * hidden_size (${hiddenSize})`);
  return {
    kind: 'mamba',
    keyHeads,
    valueHeads,
    keyDim: config.integer('mamba_d_state'),
    valueDim,
    taps: config.integer('mamba_d_conv', { min: 2, max: 64 }),
    convBias: config.boolean('mamba_conv_bias', true),
    rates: 'log',
    segments,
  };
}

/** One MLP for all tokens, experts, or both side by side: softmax over the logits of the chosen. */
function parseMlp(config: ConfigReader, architecture: string): MlpConfig {
  if (architecture === 'granite')
    return { ...parseGated(config), bias: parseBias(config, 'mlp_bias', architecture, true) };
  if (architecture === 'granitemoehybrid' && config.raw('num_local_experts') === 0)
    return parseGated(config, undefined, 'shared_intermediate_size');
  const own = parseExperts(config, 'num_local_experts', undefined, 'intermediate_size');
  const sharedWidth =
    architecture === 'granitemoe' ? 0 : config.integer('shared_intermediate_size', { min: 0, max: 2 ** 24 });
  return { ...own, normTopkProb: true, sharedWidth };
}

function moeKeys(metadata: GgufMetadata, gguf: GgufFile): Record<string, unknown> {
  const { kvHeads, types } = ggufMixers<LayerType>(metadata, MAMBA, 'attention');
  const count = metadata.optionalInteger('expert_count', { min: 0, max: 1024 }) ?? 0;
  const width = metadata.optionalInteger('expert_feed_forward_length') ?? metadata.integer('feed_forward_length');
  return {
    model_type: metadata.arch === 'granitehybrid' ? 'granitemoehybrid' : 'granitemoeshared',
    num_key_value_heads: kvHeads,
    head_dim: metadata.optionalInteger('attention.key_length') ?? null,
    layer_types: types,
    ...(types.includes(MAMBA) && mambaKeys(metadata, gguf)),
    num_local_experts: count,
    intermediate_size: width,
    shared_intermediate_size:
      count > 0
        ? (metadata.optionalInteger('expert_shared_feed_forward_length') ?? 0)
        : metadata.integer('feed_forward_length'),
    ...(count > 0 && { num_experts_per_tok: metadata.integer('expert_used_count', countRange) }),
  };
}

function mambaKeys(metadata: GgufMetadata, gguf: GgufFile): Record<string, unknown> {
  const heads = metadata.integer('ssm.time_step_rank', countRange);
  return {
    mamba_n_heads: heads,
    mamba_d_head: metadata.integer('ssm.inner_size') / heads,
    mamba_n_groups: metadata.integer('ssm.group_count', countRange),
    mamba_d_state: metadata.integer('ssm.state_size'),
    mamba_d_conv: metadata.integer('ssm.conv_kernel', countRange),
    mamba_conv_bias: [...gguf.tensors.keys()].some((name) => name.endsWith('.ssm_conv1d.bias')),
  };
}
