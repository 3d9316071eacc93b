import type { LayerConfig } from '../config/model_config.js';
import { parseRope } from '../config/rope_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import { ggufHeads, parseGelu, parseGqa } from './common_keys.js';
import { defineFamily } from './family.js';

const { gated: _gated, ...names } = llamaNames;
const mlp = 'model.layers.{layer}.mlp';
const tensors: TensorNames = { ...names, plain: { up: `${mlp}.c_fc`, down: `${mlp}.c_proj` } };

/** StarCoder 2: LayerNorm, biases everywhere, an MLP without a gate, a window in all layers or none. */
export const starcoder2 = defineFamily({
  defaults: {
    starcoder2: {
      num_key_value_heads: 2,
      max_position_embeddings: 4096,
      tie_word_embeddings: true,
      bos_token_id: 50256,
      eos_token_id: 50256,
    },
  },
  neutral: [
    ['norm_type', 'layer_norm', 'norms take the mean off'],
    ['mlp_type', 'default', 'the MLP has no gate'],
  ],
  config(config, { hiddenSize, numLayers }) {
    const biased = config.boolean('use_bias', true);
    const attention = parseGqa(config, hiddenSize, biased);
    const window = config.optionalInteger('sliding_window');
    const width = config.integer('intermediate_size');
    const layer: LayerConfig = {
      attention: { ...attention, rope: parseRope(config, attention.headDim, ['linear']), window },
      mlp: { kind: 'plain', width, activation: parseGelu(config), bias: biased },
    };
    return {
      norm: { kind: 'layer', eps: config.optionalPositive('norm_epsilon') ?? 1e-5, bias: true },
      layers: Array.from({ length: numLayers }, () => layer),
      tensors,
    };
  },
  gguf: {
    keys: (metadata) => ({
      ...ggufHeads(metadata),
      model_type: 'starcoder2',
      norm_epsilon: metadata.positive('attention.layer_norm_epsilon'),
      // llama.cpp has no window, and its files don't say the one that every published model was trained with.
      sliding_window: 4096,
    }),
  },
});
