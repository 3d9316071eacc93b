import type { LayerConfig } from '../config/model_config.js';
import { parseRope } from '../config/rope_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import type { GgufMetadata } from '../config/config_reader.js';
import { countRange, ggufHeads, parseGated, parseGqa } from './common_keys.js';
import { defineFamily } from './family.js';

const tensors: TensorNames = {
  ...llamaNames,
  attentionOutNorm: 'model.layers.{layer}.post_self_attn_layernorm',
  mlpOutNorm: 'model.layers.{layer}.post_mlp_layernorm',
  gated: { ...llamaNames.gated, gateUp: 'model.layers.{layer}.mlp.gate_up_proj' },
};

/** GLM-4-0414: norms before and behind each half, half of each head rotated in pairs, gate and up in one matrix. */
export const glm4 = defineFamily({
  defaults: {
    glm4: {
      num_key_value_heads: 2,
      head_dim: 128,
      rms_norm_eps: 1.5625e-7,
      max_position_embeddings: 131072,
      eos_token_id: [151329, 151336, 151338],
    },
  },
  config(config, { hiddenSize, numLayers }) {
    const attention = parseGqa(config, hiddenSize);
    const layer: LayerConfig = {
      attention: {
        ...attention,
        bias: { ...attention.bias, o: false },
        rope: parseRope(config, attention.headDim, ['linear', 'yarn'], true, 0.5),
      },
      mlp: parseGated(config),
      norms: 'both',
    };
    return { layers: Array.from({ length: numLayers }, () => layer), tensors };
  },
  gguf: { keys: ggufKeys },
});

/** Rows of models of text and images are in halves, turned by positions on several axes. */
function ggufKeys(metadata: GgufMetadata): Record<string, unknown> {
  const sections = metadata.raw('rope.dimension_sections');
  if (Array.isArray(sections) && sections.some((section) => section !== 0))
    throw metadata.unsupported('rope.dimension_sections', sections, 'glm4 runs for text alone');
  const heads = ggufHeads(metadata);
  const dims = metadata.optionalInteger('rope.dimension_count', countRange);
  return {
    ...heads,
    model_type: 'glm4',
    ...(dims !== undefined && { partial_rotary_factor: dims / heads.head_dim }),
  };
}
