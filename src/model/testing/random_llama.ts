import type { LlamaConfig } from '../config.js';

/** One tensor of normally distributed values. */
export interface TensorRecipe {
  name: string;
  shape: number[];
  mean: number;
  deviation: number;
  /** Where it isn't the model's. */
  dtype?: 'F32';
}

/** An empty list of tensors, and how to add to it. */
export function startList() {
  const list: TensorRecipe[] = [];
  const norm = (name: string, size: number) =>
    list.push({ name: `${name}.weight`, shape: [size], mean: 1, deviation: 0.2 });
  /** A matrix of deviation gain / sqrt(in_features) gives outputs of deviation gain for inputs of 1. */
  const linear = (name: string, rows: number, columns: number, gain: number, bias = false) => {
    list.push({ name: `${name}.weight`, shape: [rows, columns], mean: 0, deviation: gain / Math.sqrt(columns) });
    if (bias) list.push({ name: `${name}.bias`, shape: [rows], mean: 0, deviation: 0.3 });
  };
  return { list, norm, linear };
}

/** Every tensor of a checkpoint of the Llama family. */
export function llamaTensors(config: LlamaConfig): TensorRecipe[] {
  const { hiddenSize, intermediateSize, vocabSize, numHeads, numKvHeads, headDim, attentionBias } = config;
  const { list, norm, linear } = startList();
  // A tied matrix also makes the logits.
  linear('model.embed_tokens', vocabSize, hiddenSize, config.tieWordEmbeddings ? 3 : Math.sqrt(hiddenSize));
  for (let layer = 0; layer < config.numLayers; layer++) {
    const at = `model.layers.${layer}`;
    norm(`${at}.input_layernorm`, hiddenSize);
    // Scores q.k / sqrt(headDim) then have a deviation of about 1.5^2.
    linear(`${at}.self_attn.q_proj`, numHeads * headDim, hiddenSize, 1.5, attentionBias.q);
    linear(`${at}.self_attn.k_proj`, numKvHeads * headDim, hiddenSize, 1.5, attentionBias.k);
    linear(`${at}.self_attn.v_proj`, numKvHeads * headDim, hiddenSize, 1, attentionBias.v);
    if (config.qkNorm) {
      norm(`${at}.self_attn.q_norm`, headDim);
      norm(`${at}.self_attn.k_norm`, headDim);
    }
    linear(`${at}.self_attn.o_proj`, hiddenSize, numHeads * headDim, 1, attentionBias.o);
    norm(`${at}.post_attention_layernorm`, hiddenSize);
    linear(`${at}.mlp.gate_proj`, intermediateSize, hiddenSize, 1.5, config.mlpBias);
    linear(`${at}.mlp.up_proj`, intermediateSize, hiddenSize, 1, config.mlpBias);
    linear(`${at}.mlp.down_proj`, hiddenSize, intermediateSize, 1, config.mlpBias);
  }
  norm('model.norm', hiddenSize);
  if (!config.tieWordEmbeddings) linear('lm_head', vocabSize, hiddenSize, 3);
  return list;
}
