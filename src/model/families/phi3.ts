import type { ConfigReader } from '../config/config_reader.js';
import type { LayerConfig } from '../config/model_config.js';
import { longRope, parseRope, parseTurns, type RopeConfig } from '../config/rope_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import { ggufHeads, parseGated, parseGqa } from './common_keys.js';
import { defineFamily } from './family.js';

const tensors: TensorNames = {
  ...llamaNames,
  gqa: { ...llamaNames.gqa, qkv: 'model.layers.{layer}.self_attn.qkv_proj' },
  gated: { ...llamaNames.gated, gateUp: 'model.layers.{layer}.mlp.gate_up_proj' },
};

const positions = { min: 2, max: 2 ** 30 };

/**
 * Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama with q, k and v in one matrix, gate and up in one, a part of each head rotated, LongRoPE, and
 * a window in all layers or none.
 */
export const phi3 = defineFamily({
  defaults: { phi3: { rms_norm_eps: 1e-5, max_position_embeddings: 4096 } },
  config(config, { maxPositions, hiddenSize, numLayers }) {
    const attention = parseGqa(config, hiddenSize, false);
    const window = config.optionalInteger('sliding_window');
    const layer: LayerConfig = {
      attention: { ...attention, rope: parseRotary(config, attention.headDim, maxPositions), window },
      mlp: parseGated(config),
    };
    return { layers: Array.from({ length: numLayers }, () => layer), tensors };
  },
  gguf: {
    keys(metadata) {
      const { num_key_value_heads, head_dim } = ggufHeads(metadata);
      return {
        model_type: 'phi3',
        num_key_value_heads,
        partial_rotary_factor: (metadata.optionalInteger('rope.dimension_count') ?? head_dim) / head_dim,
        // llama.cpp keeps the window and doesn't run it.
        sliding_window: metadata.optionalInteger('attention.sliding_window', { min: 0, max: 2 ** 30 }) || null,
      };
    },
  },
});

/** LongRoPE under any of its names; the context that it began with stands beside rope_scaling. */
function parseRotary(config: ConfigReader, headDim: number, maxPositions: number): RopeConfig {
  const rope = config.optionalObject('rope_parameters') ?? config.optionalObject('rope_scaling');
  const type = rope && (rope.optionalString('rope_type') ?? rope.optionalString('type') ?? 'default');
  const turns = parseTurns(config, rope, headDim);
  if (!rope || type === 'default') return { ...parseRope(config, headDim, ['longrope']), ...turns };
  if (type !== 'longrope' && type !== 'su' && type !== 'yarn')
    throw rope.unsupported('rope_type', type, "this model can have 'default' and 'longrope'");
  const originalMaxPositions =
    config.optionalInteger('original_max_position_embeddings', positions) ??
    rope.optionalInteger('original_max_position_embeddings', positions) ??
    4096;
  const scaling = longRope(rope, turns.dims, maxPositions / originalMaxPositions, originalMaxPositions);
  return { ...turns, scaling, interleaved: false };
}
