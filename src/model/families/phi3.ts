import type { GgufFile } from '../../loader/index.js';
import type { ConfigReader } from '../config/config_reader.js';
import { parseRope, type RopeConfig, type RopeScaling } from '../config/rope_config.js';
import { llamaNames, type TensorNames } from '../config/tensor_names.js';
import type { GgufMetadata } from '../gguf/metadata.js';
import { ggufHeads, neutralKeys, parseActivation, parseHeads, refuseForeign, sizeRange } from './common_keys.js';
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
    refuseForeign(config, neutralKeys);
    const shape = parseHeads(config, hiddenSize);
    const { headDim } = shape;
    const window = config.optionalInteger('sliding_window', sizeRange);
    const layer = {
      attention: {
        kind: 'gqa',
        ...shape,
        bias: { q: false, k: false, v: false, o: false },
        qkNorm: false,
        rope: parseRotary(config, headDim, maxPositions),
        scale: headDim ** -0.5,
        ...(window !== undefined && { window }),
      },
      mlp: {
        kind: 'gated',
        width: config.integer('intermediate_size', sizeRange),
        activation: parseActivation(config),
        bias: false,
      },
    } as const;
    return {
      layers: Array.from({ length: numLayers }, () => layer),
      tensors,
    };
  },
  gguf: { keys: ggufKeys },
});

/** LongRoPE under any of its names; the context that it began with stands beside rope_scaling. */
function parseRotary(config: ConfigReader, headDim: number, maxPositions: number): RopeConfig {
  const rope = config.optionalObject('rope_parameters') ?? config.optionalObject('rope_scaling');
  const type = rope && (rope.optionalString('rope_type') ?? rope.optionalString('type') ?? 'default');
  const part = config.optionalPositive('partial_rotary_factor') ?? rope?.optionalPositive('partial_rotary_factor') ?? 1;
  const dims = Math.floor(headDim * part);
  const theta = rope?.optionalPositive('rope_theta') ?? config.optionalPositive('rope_theta') ?? 10000;
  if (!rope || type === 'default') return { ...parseRope(config, headDim, ['longrope']), theta, dims };
  if (type !== 'longrope' && type !== 'su' && type !== 'yarn')
    throw rope.unsupported('rope_type', type, "this model can have 'default' and 'longrope'");
  const originalMaxPositions =
    config.optionalInteger('original_max_position_embeddings', positions) ??
    rope.optionalInteger('original_max_position_embeddings', positions) ??
    4096;
  const ratio = maxPositions / originalMaxPositions;
  const [shortFactor, longFactor] = ['short_factor', 'long_factor'].map((key) => {
    const list = rope.raw(key) ?? rope.missing(key);
    const known = Array.isArray(list) && list.every((one) => typeof one === 'number' && one > 0);
    if (!known || list.length !== dims / 2)
      throw rope.invalid(key, list, `${dims / 2} positive numbers (${dims} elements of a head are rotated)`);
    return list as number[];
  });
  const stretch = ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(originalMaxPositions));
  const scaling: RopeScaling = {
    type: 'longrope',
    shortFactor: shortFactor!,
    longFactor: longFactor!,
    originalMaxPositions,
    attentionFactor: rope.optionalPositive('attention_factor') ?? stretch,
  };
  return { theta, scaling, dims, interleaved: false };
}

/** llama.cpp keeps the window and doesn't run it. */
function ggufKeys(_gguf: GgufFile, metadata: GgufMetadata): Record<string, unknown> {
  const { num_key_value_heads, head_dim } = ggufHeads(metadata);
  return {
    model_type: 'phi3',
    num_key_value_heads,
    partial_rotary_factor: (metadata.optionalInteger('rope.dimension_count', sizeRange) ?? head_dim) / head_dim,
    sliding_window: metadata.optionalInteger('attention.sliding_window', { min: 0, max: 2 ** 30 }) || null,
  };
}
