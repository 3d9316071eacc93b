import type { GgufFile } from '../../loader/index.js';
import type { LayerConfig } from '../config/model_config.js';
import { parseRope } from '../config/rope_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import type { GgufMetadata } from '../gguf/metadata.js';
import {
  countRange,
  ggufHeads,
  neutralKeys,
  parseActivation,
  parseHeads,
  refuseForeign,
  sizeRange,
} from './common_keys.js';
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
    refuseForeign(config, neutralKeys);
    const shape = parseHeads(config, hiddenSize);
    const { headDim } = shape;
    const biased = config.boolean('attention_bias', false);
    const part =
      config.optionalPositive('partial_rotary_factor') ??
      config.optionalObject('rope_parameters')?.optionalPositive('partial_rotary_factor') ??
      0.5;
    const layer: LayerConfig = {
      attention: {
        kind: 'gqa',
        ...shape,
        bias: { q: biased, k: biased, v: biased, o: false },
        qkNorm: false,
        rope: { ...parseRope(config, headDim, ['linear', 'yarn'], true), dims: Math.floor(headDim * part) },
        scale: headDim ** -0.5,
      },
      mlp: {
        kind: 'gated',
        width: config.integer('intermediate_size', sizeRange),
        activation: parseActivation(config),
        bias: false,
      },
      norms: 'both',
    };
    return { layers: Array.from({ length: numLayers }, () => layer), tensors };
  },
  gguf: { keys: ggufKeys },
});

/** Rows of models of text and images are in halves, turned by positions on several axes. */
function ggufKeys(_gguf: GgufFile, metadata: GgufMetadata): Record<string, unknown> {
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
