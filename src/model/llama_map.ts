import type { LlamaConfig } from './llama_config.js';
import type { MatrixSpec, VectorSpec } from './weight_map.js';

/** Gate and up tiles must not share a 32-row tile: the fused SwiGLU reads tile t of each. */
const GATE_UP_PAD = 32;

export interface LlamaLayerMap {
  readonly inputNorm: VectorSpec;
  readonly qkv: MatrixSpec;
  readonly qkvBias: VectorSpec | undefined;
  readonly qNorm: VectorSpec | undefined;
  readonly kNorm: VectorSpec | undefined;
  readonly o: MatrixSpec;
  readonly oBias: VectorSpec | undefined;
  readonly postNorm: VectorSpec;
  /** Gate rows, then up rows, each padded to 32. */
  readonly gateUp: MatrixSpec;
  readonly gateUpBias: VectorSpec | undefined;
  readonly down: MatrixSpec;
  readonly downBias: VectorSpec | undefined;
}

export interface LlamaMap {
  readonly embedding: MatrixSpec;
  readonly layers: readonly LlamaLayerMap[];
  readonly norm: VectorSpec;
  /** Undefined when the embedding is tied: the head then uses the embedding's buffers. */
  readonly head: MatrixSpec | undefined;
}

/** Hugging Face tensor names and shapes of the Llama family (Llama, Qwen2, Qwen3, Mistral). */
export function llamaMap(config: LlamaConfig): LlamaMap {
  const { hiddenSize, intermediateSize, vocabSize, headDim, numHeads, numKvHeads } = config;
  const embedding: MatrixSpec = {
    name: 'embed_tokens',
    inFeatures: hiddenSize,
    parts: [{ tensor: 'model.embed_tokens.weight', rows: vocabSize }],
  };
  return {
    embedding,
    layers: Array.from({ length: config.numLayers }, (_, layer) => layerMap(layer)),
    norm: vector('norm', 'model.norm.weight', hiddenSize),
    head: config.tieWordEmbeddings
      ? undefined
      : { name: 'lm_head', inFeatures: hiddenSize, parts: [{ tensor: 'lm_head.weight', rows: vocabSize }] },
  };

  function layerMap(layer: number): LlamaLayerMap {
    const prefix = `model.layers.${layer}.`;
    const attention = `${prefix}self_attn.`;
    const mlp = `${prefix}mlp.`;
    const qkv = [
      { tensor: `${attention}q_proj`, rows: numHeads * headDim },
      { tensor: `${attention}k_proj`, rows: numKvHeads * headDim },
      { tensor: `${attention}v_proj`, rows: numKvHeads * headDim },
    ];
    const name = (what: string): string => `layers.${layer}.${what}`;
    const { attentionBias, mlpBias, qkNorm } = config;
    return {
      inputNorm: vector(name('input_norm'), `${prefix}input_layernorm.weight`, hiddenSize),
      qkv: {
        name: name('qkv'),
        inFeatures: hiddenSize,
        parts: qkv.map(({ tensor, rows }) => ({ tensor: `${tensor}.weight`, rows })),
      },
      qkvBias: attentionBias.q
        ? { name: name('qkv_bias'), parts: qkv.map(({ tensor, rows }) => ({ tensor: `${tensor}.bias`, length: rows })) }
        : undefined,
      qNorm: qkNorm ? vector(name('q_norm'), `${attention}q_norm.weight`, headDim) : undefined,
      kNorm: qkNorm ? vector(name('k_norm'), `${attention}k_norm.weight`, headDim) : undefined,
      o: {
        name: name('o'),
        inFeatures: numHeads * headDim,
        parts: [{ tensor: `${attention}o_proj.weight`, rows: hiddenSize }],
      },
      oBias: attentionBias.o ? vector(name('o_bias'), `${attention}o_proj.bias`, hiddenSize) : undefined,
      postNorm: vector(name('post_norm'), `${prefix}post_attention_layernorm.weight`, hiddenSize),
      gateUp: {
        name: name('gate_up'),
        inFeatures: hiddenSize,
        parts: ['gate', 'up'].map((half) => ({
          tensor: `${mlp}${half}_proj.weight`,
          rows: intermediateSize,
          padTo: GATE_UP_PAD,
        })),
      },
      gateUpBias: mlpBias
        ? {
            name: name('gate_up_bias'),
            parts: ['gate', 'up'].map((half) => ({
              tensor: `${mlp}${half}_proj.bias`,
              length: intermediateSize,
              padTo: GATE_UP_PAD,
            })),
          }
        : undefined,
      down: {
        name: name('down'),
        inFeatures: intermediateSize,
        parts: [{ tensor: `${mlp}down_proj.weight`, rows: hiddenSize }],
      },
      downBias: mlpBias ? vector(name('down_bias'), `${mlp}down_proj.bias`, hiddenSize) : undefined,
    };
  }
}

const vector = (name: string, tensor: string, length: number): VectorSpec => ({ name, parts: [{ tensor, length }] });
