import type { GgufMetadata } from '../config/config_reader.js';
import type { GgufFile } from '../../loader/index.js';
import type { LayerConfig } from '../config/model_config.js';
import type { TensorNames } from '../config/tensor_names.js';
import { parseErfGelu, parseGqa } from './common_keys.js';
import { defineFamily } from './family.js';

const layer = 'encoder.layer.{layer}';
const tensors: TensorNames = {
  embedding: 'embeddings.word_embeddings',
  head: 'embeddings.word_embeddings',
  inputs: {
    positions: 'embeddings.position_embeddings',
    types: 'embeddings.token_type_embeddings',
    norm: 'embeddings.LayerNorm',
  },
  gqa: {
    q: `${layer}.attention.self.query`,
    k: `${layer}.attention.self.key`,
    v: `${layer}.attention.self.value`,
    o: `${layer}.attention.output.dense`,
  },
  attentionOutNorm: `${layer}.attention.output.LayerNorm`,
  plain: { up: `${layer}.intermediate.dense`, down: `${layer}.output.dense` },
  mlpOutNorm: `${layer}.output.LayerNorm`,
};

const defaults = {
  vocab_size: 30522,
  hidden_size: 768,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  intermediate_size: 3072,
  max_position_embeddings: 512,
  type_vocab_size: 2,
  layer_norm_eps: 1e-12,
  pad_token_id: 0,
  tie_word_embeddings: true,
};
const roberta = { ...defaults, vocab_size: 50265, pad_token_id: 1, bos_token_id: 0, eos_token_id: 2 };

/** BERT, RoBERTa and XLM-RoBERTa: encoders with norms of sums, biases everywhere, and learned positions and token types. */
export const bert = defineFamily({
  defaults: { bert: defaults, roberta, 'xlm-roberta': roberta },
  neutral: [
    ['position_embedding_type', 'absolute', 'positions have embeddings'],
    ['is_decoder', false, 'tokens see those behind them'],
    ['add_cross_attention', false, 'there is no decoder'],
  ],
  config(config, { architecture, hiddenSize, numLayers }) {
    // RoBERTa's positions begin behind that of padding. A GGUF file has no rows before them.
    const first = architecture === 'bert' ? 0 : config.integer('pad_token_id', { min: -1, max: 2 ** 20 }) + 1;
    const rows = config.integer('max_position_embeddings');
    const types = config.integer('type_vocab_size', { min: 0, max: 128 });
    const layerConfig: LayerConfig = {
      attention: { ...parseGqa(config, hiddenSize, true), rope: null, bothWays: true },
      mlp: {
        kind: 'plain',
        width: config.integer('intermediate_size'),
        activation: parseErfGelu(config),
        bias: true,
      },
      norms: 'after',
    };
    return {
      tieWordEmbeddings: true,
      maxPositions: rows - first,
      norm: { kind: 'layer', eps: config.positive('layer_norm_eps'), bias: true },
      inputs: { positions: { rows, first }, ...(types > 0 && { types }), norm: true },
      layers: Array.from({ length: numLayers }, () => layerConfig),
      tensors,
    };
  },
  gguf: { keys: ggufKeys, parts: { attentionOutNorm: 'attn_output_norm', mlpOutNorm: 'layer_output_norm' } },
});

function ggufKeys(metadata: GgufMetadata, { tensors: stored }: GgufFile): Record<string, unknown> {
  return {
    model_type: 'bert',
    layer_norm_eps: metadata.positive('attention.layer_norm_epsilon'),
    max_position_embeddings: stored.get('position_embd.weight')?.shape[0] ?? null,
    type_vocab_size: stored.get('token_types.weight')?.shape[0] ?? 0,
    hidden_act: 'gelu',
    tie_word_embeddings: true,
  };
}
