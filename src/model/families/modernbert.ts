import type { GgufMetadata } from '../config/config_reader.js';
import type { LayerConfig } from '../config/model_config.js';
import { type LayerType, parseLayerRope, type RopeConfig } from '../config/rope_config.js';
import type { TensorNames } from '../config/tensor_names.js';
import { attentionByType, countRange, parseErfGelu, parseGated, parseGqa, parseLayerTypes } from './common_keys.js';
import { defineFamily } from './family.js';

const layer = 'model.layers.{layer}';
const tensors: TensorNames = {
  embedding: 'model.embeddings.tok_embeddings',
  head: 'model.embeddings.tok_embeddings',
  inputs: { norm: 'model.embeddings.norm' },
  norm: 'model.final_norm',
  inputNorm: `${layer}.attn_norm`,
  // One matrix of the three.
  gqa: {
    q: `${layer}.attn.Wqkv`,
    k: `${layer}.attn.Wqkv`,
    v: `${layer}.attn.Wqkv`,
    qkv: `${layer}.attn.Wqkv`,
    o: `${layer}.attn.Wo`,
  },
  postNorm: `${layer}.mlp_norm`,
  gated: { gate: '', up: '', gateUp: `${layer}.mlp.Wi`, down: `${layer}.mlp.Wo` },
};

/** ModernBERT: an encoder of Llama's kind, with LayerNorm and GeGLU; layers but every so many'th see their neighbourhood alone. */
export const modernbert = defineFamily({
  defaults: {
    modernbert: {
      vocab_size: 50368,
      hidden_size: 768,
      intermediate_size: 1152,
      num_hidden_layers: 22,
      num_attention_heads: 12,
      max_position_embeddings: 8192,
      norm_eps: 1e-5,
      local_attention: 128,
      global_attn_every_n_layers: 3,
      tie_word_embeddings: true,
    },
  },
  config(config, { hiddenSize, numLayers }) {
    const heads = parseGqa(config, hiddenSize);
    // Once of one key each, now by kind of layer.
    const bases = {
      full_attention: ['global_rope_theta', 160_000],
      sliding_attention: ['local_rope_theta', 10_000],
    } as const;
    const rope = (type: LayerType): RopeConfig => {
      const [key, otherwise] = bases[type];
      const theta = config.optionalPositive(key) ?? otherwise;
      const { headDim: dims } = heads;
      return parseLayerRope(config, type, dims, theta, []) ?? { theta, scaling: null, dims, interleaved: false };
    };
    const ropes = { full_attention: rope('full_attention'), sliding_attention: rope('sliding_attention') };
    const every = config.integer('global_attn_every_n_layers', countRange);
    const window = Math.floor(config.integer('local_attention') / 2) + 1;
    const mlp = { ...parseGated(config, parseErfGelu(config)), bias: config.boolean('mlp_bias', false) };
    const attentionOf = attentionByType({ ...heads, bothWays: true }, ropes, window);
    const types = parseLayerTypes(config, numLayers, (index) =>
      index % every === 0 ? 'full_attention' : 'sliding_attention',
    );
    return {
      tieWordEmbeddings: true,
      norm: { kind: 'layer', eps: config.positive('norm_eps'), bias: config.boolean('norm_bias', false) },
      inputs: { norm: true },
      layers: types.map((type, index): LayerConfig => ({
        attention: attentionOf(type),
        mlp,
        ...(index === 0 && { bare: true }),
      })),
      tensors,
    };
  },
  gguf: {
    keys: (metadata: GgufMetadata) => ({
      model_type: 'modernbert',
      norm_eps: metadata.positive('attention.layer_norm_epsilon'),
      local_attention: metadata.integer('attention.sliding_window'),
      global_attn_every_n_layers: metadata.optionalInteger('attention.sliding_window_pattern', countRange) ?? 3,
      global_rope_theta: metadata.positive('rope.freq_base'),
      local_rope_theta: metadata.optionalPositive('rope.freq_base_swa') ?? 10_000,
      tie_word_embeddings: true,
      hidden_act: metadata.optionalString('hidden_activation') ?? 'gelu',
    }),
    plainWindows: ['modern-bert'],
  },
});
