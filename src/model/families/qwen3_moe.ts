import type { ConfigReader } from '../config/config_reader.js';
import type { LayerConfig } from '../config/model_config.js';
import { expertNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import { countRange, ggufExperts, ggufHeads, parseExperts, parseGated } from './common_keys.js';
import { defineFamily } from './family.js';
import { parseAttention } from './llama.js';

const tensors: TensorNames = { ...llamaNames, experts: expertNames() };

/** Qwen3-MoE: Qwen3's attention; experts by softmax without shared ones, in all layers but some. */
export const qwen3Moe = defineFamily({
  config(config, common) {
    const dense = parseGated(config);
    const experts = parseExperts(config);
    const isDense = parseDenseLayers(config);
    // Of all layers, whatever max_window_layers says.
    const slides = config.boolean('use_sliding_window', false);
    const window = slides ? config.optionalInteger('sliding_window') : undefined;
    const attention = { ...parseAttention(config, common), window };
    return {
      layers: Array.from({ length: common.numLayers }, (_, layer): LayerConfig => {
        return { attention, mlp: isDense(layer) ? dense : experts };
      }),
      tensors,
    };
  },
  gguf: {
    keys: (metadata) => ({
      ...ggufHeads(metadata),
      ...ggufExperts(metadata),
      model_type: 'qwen3_moe',
      // llama.cpp always divides the weights of the chosen by their sum.
      norm_topk_prob: true,
    }),
  },
});

/** Those that mlp_only_layers lists, and those that decoder_sparse_step passes over. */
export function parseDenseLayers(config: ConfigReader): (layer: number) => boolean {
  const step = config.optionalInteger('decoder_sparse_step', countRange) ?? 1;
  const listed = config.raw('mlp_only_layers') ?? [];
  if (!Array.isArray(listed) || !listed.every(Number.isInteger))
    throw config.invalid('mlp_only_layers', listed, "a list of layers' numbers");
  return (layer) => listed.includes(layer) || (layer + 1) % step !== 0;
}
