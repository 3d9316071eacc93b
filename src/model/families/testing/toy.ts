import type { LayerConfig } from '../../config/model_config.js';
import { parseRope } from '../../config/rope_config.js';
import type { TensorNames } from '../../config/tensor_names.js';
import { countRange, parseActivation } from '../common_keys.js';
import { defineFamily } from '../family.js';

const block = 'transformer.h.{layer}.';

const toyNames: TensorNames = {
  embedding: 'transformer.wte',
  norm: 'transformer.ln_f',
  head: 'output_layer',
  inputNorm: `${block}ln_1`,
  postNorm: `${block}ln_2`,
  gqa: { q: `${block}attn.query`, k: `${block}attn.key`, v: `${block}attn.value`, o: `${block}attn.dense` },
  gated: { gate: `${block}mlp.w1`, up: `${block}mlp.w3`, down: `${block}mlp.w2` },
};

/** A family that nothing else knows: Llama's layers under other names, with the multipliers that Granite has. */
export const toy = defineFamily({
  config(config, { hiddenSize, numLayers }) {
    const heads = config.integer('num_attention_heads', countRange);
    const headDim = hiddenSize / heads;
    const layer: LayerConfig = {
      attention: {
        kind: 'gqa',
        heads,
        kvHeads: config.integer('num_key_value_heads', { min: 1, max: heads }),
        headDim,
        bias: { q: false, k: false, v: false, o: false },
        qkNorm: false,
        rope: parseRope(config, headDim),
        scale: config.positive('attention_multiplier'),
      },
      mlp: {
        kind: 'gated',
        width: config.integer('intermediate_size'),
        activation: parseActivation(config),
        bias: false,
      },
    };
    return {
      embeddingScale: config.positive('embedding_multiplier'),
      residualScale: config.positive('residual_multiplier'),
      logitScale: 1 / config.positive('logits_scaling'),
      layers: Array.from({ length: numLayers }, () => layer),
      tensors: toyNames,
    };
  },
});
