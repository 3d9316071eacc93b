import type { LayerConfig } from '../config/model_config.js';
import { parseRope } from '../config/rope_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import {
  countRange,
  fullEvery,
  ggufHeads,
  ggufLayerTypes,
  parseGated,
  parseGqa,
  parseLayerTypes,
} from './common_keys.js';
import { defineFamily } from './family.js';

const { postNorm: _post, ...tensors } = llamaNames;

/**
 * Cohere 2 (Command R7B, Command A, Tiny Aya): attention and MLP side by side behind one LayerNorm, three of four layers with a window and
 * rotated in pairs, the fourth with neither, scaled logits.
 */
export const cohere2 = defineFamily({
  defaults: {
    cohere2: {
      max_position_embeddings: 8192,
      tie_word_embeddings: true,
      logit_scale: 0.0625,
      sliding_window: 4096,
      bos_token_id: 5,
      eos_token_id: 255001,
    },
  },
  neutral: [
    ['use_qk_norm', false, 'q and k are not normalised'],
    ['use_parallel_block', true, 'attention and MLP stand side by side'],
    ['use_gated_activation', true, 'the MLP has a gate'],
    ['rotary_pct', 1, 'the whole head is rotated'],
    ['position_embedding_type', 'rope_gptj', 'heads are rotated in pairs'],
  ],
  config(config, { hiddenSize, numLayers }) {
    const attention = parseGqa(config, hiddenSize);
    const window = config.integer('sliding_window');
    const pattern =
      config.optionalInteger('sliding_window_pattern', countRange) ??
      config.optionalInteger('_sliding_window_pattern', countRange) ??
      4;
    const rope = parseRope(config, attention.headDim, ['linear'], true);
    const mlp = parseGated(config);
    return {
      norm: { kind: 'layer', eps: config.optionalPositive('layer_norm_eps') ?? 1e-5 },
      logitScale: config.positive('logit_scale'),
      layers: parseLayerTypes(config, numLayers, fullEvery(pattern)).map((type): LayerConfig => ({
        attention: { ...attention, ...(type === 'sliding_attention' ? { rope, window } : { rope: null }) },
        mlp,
        norms: 'shared',
      })),
      tensors: tensors as TensorNames,
    };
  },
  gguf: {
    keys: (metadata) => ({
      ...ggufHeads(metadata),
      model_type: 'cohere2',
      layer_norm_eps: metadata.positive('attention.layer_norm_epsilon'),
      logit_scale: metadata.positive('logit_scale'),
      sliding_window: metadata.integer('attention.sliding_window'),
      ...ggufLayerTypes(metadata, 4),
    }),
  },
});
