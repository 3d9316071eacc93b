import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import type { LayerConfig } from '../config/model_config.js';
import { type LayerType, parseLayerRope, parseRope, type RopeConfig } from '../config/rope_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import {
  attentionByType,
  fullEvery,
  ggufHeads,
  ggufLayerTypes,
  parseGated,
  parseGqa,
  parseLayerTypes,
} from './common_keys.js';
import { defineFamily } from './family.js';

const { inputNorm: _before, postNorm: attentionOutNorm, ...names } = llamaNames;
const tensors: TensorNames = {
  ...names,
  attentionOutNorm,
  mlpOutNorm: 'model.layers.{layer}.post_feedforward_layernorm',
};

/** OLMo 2 and 3: norms only behind halves, and of q and k over all heads at once; of OLMo 3, windows in three of four layers. */
export const olmo2 = defineFamily({
  defaults: {
    olmo2: { rms_norm_eps: 1e-5, max_position_embeddings: 2048 },
    olmo3: { rms_norm_eps: 1e-5, max_position_embeddings: 2048, sliding_window: 4096 },
  },
  config(config, { architecture, hiddenSize, numLayers }) {
    const heads = parseGqa(config, hiddenSize);
    const windowed = architecture === 'olmo3';
    const window = windowed ? config.integer('sliding_window') : undefined;
    const types = parseLayerTypes(config, numLayers, fullEvery(windowed ? 4 : 1));
    if (!windowed && types.includes('sliding_attention'))
      throw config.unsupported('layer_types', 'sliding_attention', 'olmo2 models have full_attention (olmo3 has both)');
    const attentionOf = attentionByType({ ...heads, qkNorm: 'whole' }, parseRopes(config, heads.headDim), window);
    const mlp = parseGated(config);
    return {
      layers: types.map((type): LayerConfig => ({ attention: attentionOf(type), mlp, norms: 'behind' })),
      tensors,
    };
  },
  gguf: { keys: ggufKeys, plainWindows: ['olmo2'] },
});

/** Layers with a window are never stretched, wherever the file says how the others are. */
function parseRopes(config: ConfigReader, headDim: number): Readonly<Record<LayerType, RopeConfig>> {
  const types = ['linear', 'yarn'] as const;
  const full = parseLayerRope(config, 'full_attention', headDim, 10000, types) ?? parseRope(config, headDim, types);
  const sliding = parseLayerRope(config, 'sliding_attention', headDim, full.theta, []);
  return { full_attention: full, sliding_attention: sliding ?? { ...full, scaling: null } };
}

/** llama.cpp knows both by one name; windows tell them apart. */
function ggufKeys(metadata: GgufMetadata): Record<string, unknown> {
  const window = metadata.optionalInteger('attention.sliding_window', { min: 0, max: 2 ** 30 }) ?? 0;
  if (window === 0) return { ...ggufHeads(metadata), model_type: 'olmo2' };
  return {
    ...ggufHeads(metadata),
    model_type: 'olmo3',
    sliding_window: window,
    ...ggufLayerTypes(metadata, 4),
  };
}
