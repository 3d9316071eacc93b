import type { ConfigReader } from '../config/config_reader.js';
import type { LayerConfig } from '../config/model_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import { parseGated } from './common_keys.js';
import { type CommonConfig, defineFamily } from './family.js';
import { ggufKeys, llamaNeutral, parseAttention, parseBias } from './llama.js';

const sharedNames: TensorNames = {
  ...llamaNames,
  gated: {
    ...llamaNames.gated,
    gateUp: 'model.layers.{layer}.shared_mlp.input_linear',
    down: 'model.layers.{layer}.shared_mlp.output_linear',
  },
};

/**
 * Granite: Llama with embeddings, scores, what halves add, and logits scaled by keys. Also the dense ones of Granite 4
 * (granitemoehybrid), whose MLP has the names of experts that are shared, and whose positions are encoded only where a key says so.
 */
export const granite = defineFamily({
  defaults: { granitemoehybrid: { num_local_experts: 8, shared_intermediate_size: 1024 } },
  neutral: llamaNeutral,
  config(config, common) {
    const { architecture, numLayers } = common;
    const hybrid = architecture === 'granitemoehybrid';
    if (hybrid) refuseMamba(config, common);
    const { rope, ...attention } = parseAttention(config, common);
    const positions = config.optionalString('position_embedding_type') ?? (hybrid ? 'nope' : 'rope');
    const layer: LayerConfig = {
      attention: {
        ...attention,
        rope: positions === 'rope' ? rope : null,
        scale: config.optionalPositive('attention_multiplier') ?? 1,
      },
      mlp: {
        ...parseGated(config, undefined, hybrid ? 'shared_intermediate_size' : undefined),
        bias: parseBias(config, 'mlp_bias', architecture, !hybrid),
      },
    };
    return {
      embeddingScale: config.optionalPositive('embedding_multiplier') ?? 1,
      residualScale: config.optionalPositive('residual_multiplier') ?? 1,
      logitScale: 1 / (config.optionalPositive('logits_scaling') ?? 1),
      layers: Array.from({ length: numLayers }, () => layer),
      tensors: hybrid ? sharedNames : llamaNames,
    };
  },
  gguf: {
    keys: (metadata) => ({
      ...ggufKeys(metadata),
      embedding_multiplier: metadata.optionalPositive('embedding_scale') ?? 1,
      attention_multiplier: metadata.optionalPositive('attention.scale') ?? 1,
      residual_multiplier: metadata.optionalPositive('residual_scale') ?? 1,
      logits_scaling: metadata.optionalPositive('logit_scale') ?? 1,
      // llama.cpp's switch; Granite 4's files have another model_type in config.json.
      position_embedding_type: metadata.boolean('rope.scaling.finetuned', true) ? 'rope' : 'nope',
    }),
    pairedRows: ['granite'],
  },
});

/** Layers with a state space model instead of attention. `layers_block_type` is the older name; without either all are. */
function refuseMamba(config: ConfigReader, { numLayers }: CommonConfig): void {
  const key = ['layer_types', 'layers_block_type'].find((name) => config.raw(name) !== undefined) ?? 'layer_types';
  const types = config.raw(key) ?? Array.from({ length: numLayers }, () => 'mamba');
  if (!Array.isArray(types) || types.length !== numLayers)
    throw config.invalid(key, types, `a list of ${numLayers} (num_hidden_layers)`);
  const other: unknown = types.find((type) => type !== 'attention');
  if (other !== undefined)
    throw config.unsupported(
      key,
      other,
      "the state of Mamba's layers isn't kept; every layer must be 'attention', as in granite-4.0-350m and granite-4.0-1b",
    );
}
