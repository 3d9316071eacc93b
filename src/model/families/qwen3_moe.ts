import type { GgufFile } from '../../loader/index.js';
import type { ConfigReader } from '../config/config_reader.js';
import type { ExpertsConfig, GatedMlpConfig, LayerConfig } from '../config/model_config.js';
import { gatedNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import type { GgufMetadata } from '../gguf/metadata.js';
import { countRange, neutralKeys, parseActivation, refuseForeign, sizeRange } from './common_keys.js';
import { defineFamily } from './family.js';
import { parseAttention } from './llama.js';

const mlp = 'model.layers.{layer}.mlp.';
const tensors: TensorNames = {
  ...llamaNames,
  experts: {
    ...gatedNames(`${mlp}experts.{expert}`),
    router: `${mlp}gate`,
    correctionBias: `${mlp}gate.e_score_correction_bias`,
    shared: gatedNames(`${mlp}shared_experts`),
  },
};

/** Qwen3-MoE: Qwen3's attention; experts by softmax without shared ones, in all layers but some. */
export const qwen3Moe = defineFamily({
  config(config, common) {
    refuseForeign(config, neutralKeys);
    const attention = parseAttention(config, common);
    const activation = parseActivation(config);
    const width = config.integer('intermediate_size', sizeRange);
    const dense: GatedMlpConfig = { kind: 'gated', width, activation, bias: false };
    const experts = parseSoftmaxExperts(config);
    const isDense = parseDenseLayers(config);
    // Of all layers, whatever max_window_layers says.
    const slides = config.boolean('use_sliding_window', false);
    const window = slides ? config.optionalInteger('sliding_window', sizeRange) : undefined;
    return {
      layers: Array.from({ length: common.numLayers }, (_, layer): LayerConfig => {
        return {
          attention: window === undefined ? attention : { ...attention, window },
          mlp: isDense(layer) ? dense : experts,
        };
      }),
      tensors,
    };
  },
  gguf: { keys: ggufKeys },
});

/** Chosen by softmax over all, without shared ones. */
export function parseSoftmaxExperts(config: ConfigReader): ExpertsConfig {
  const numExperts = config.integer('num_experts', { min: 1, max: 1024 });
  return {
    kind: 'experts',
    numExperts,
    expertsPerToken: config.integer('num_experts_per_tok', { min: 1, max: numExperts }),
    width: config.integer('moe_intermediate_size', sizeRange),
    sharedWidth: 0,
    activation: parseActivation(config),
    numGroups: 1,
    topkGroups: 1,
    scoring: 'softmax',
    method: 'greedy',
    normTopkProb: config.boolean('norm_topk_prob', false),
    routedScalingFactor: 1,
    correctionBias: false,
  };
}

/** Those that mlp_only_layers lists, and those that decoder_sparse_step passes over. */
export function parseDenseLayers(config: ConfigReader): (layer: number) => boolean {
  const step = config.optionalInteger('decoder_sparse_step', countRange) ?? 1;
  const listed = config.raw('mlp_only_layers') ?? [];
  if (!Array.isArray(listed) || !listed.every(Number.isInteger))
    throw config.invalid('mlp_only_layers', listed, "a list of layers' numbers");
  return (layer) => listed.includes(layer) || (layer + 1) % step !== 0;
}

/** llama.cpp always divides the weights of the chosen by their sum. */
function ggufKeys(_gguf: GgufFile, metadata: GgufMetadata): Record<string, unknown> {
  const heads = metadata.integer('attention.head_count', countRange);
  const hiddenSize = metadata.integer('embedding_length', sizeRange);
  return {
    model_type: 'qwen3_moe',
    num_key_value_heads: metadata.optionalInteger('attention.head_count_kv', countRange) ?? heads,
    head_dim: metadata.optionalInteger('attention.key_length', sizeRange) ?? hiddenSize / heads,
    num_experts: metadata.integer('expert_count', countRange),
    num_experts_per_tok: metadata.integer('expert_used_count', countRange),
    moe_intermediate_size: metadata.integer('expert_feed_forward_length', sizeRange),
    norm_topk_prob: true,
  };
}
