import { known } from '../../base/errors.js';
import type { GqaConfig, LayerConfig } from '../config/model_config.js';
import type { ConfigReader, GgufMetadata } from '../config/config_reader.js';
import { parseRope, parseTemperature } from '../config/rope_config.js';
import { expertNames, llamaNames, type TensorNames } from '../config/tensor_names.js';
import {
  countRange,
  ggufHeads,
  type NeutralKey,
  parseExperts,
  parseGated,
  parseGqa,
  parseLayerTypes,
  refuseForeign,
} from './common_keys.js';
import { type CommonConfig, defineFamily } from './family.js';

/** Keys of relatives of this family that would change the computation. */
export const llamaNeutral: readonly NeutralKey[] = [
  ['num_experts', 0, 'a mixture of experts is another architecture'],
  ['partial_rotary_factor', 1, 'the whole head is rotated'],
];
export const noExperts: readonly NeutralKey[] = [
  ['num_local_experts', 0, 'a mixture of experts is another architecture'],
];

const moe = 'model.layers.{layer}.block_sparse_moe.';
const mixtralNames: TensorNames = {
  ...llamaNames,
  experts: {
    ...expertNames(),
    gate: `${moe}experts.{expert}.w1`,
    up: `${moe}experts.{expert}.w3`,
    down: `${moe}experts.{expert}.w2`,
    router: `${moe}gate`,
  },
};

/**
 * Llama, Mistral, Mixtral, Ministral, Ministral 3, Qwen2, Qwen3 and SmolLM3: RMSNorm, rotary grouped-query attention, SwiGLU (Mixtral's by
 * experts). Where they differ, it is by what transformers' modelling files do with the same keys.
 */
export const llama = defineFamily({
  defaults: {
    smollm3: {
      vocab_size: 128256,
      hidden_size: 2048,
      intermediate_size: 11008,
      num_hidden_layers: 36,
      num_attention_heads: 16,
      num_key_value_heads: 4,
      max_position_embeddings: 32768,
      rope_theta: 2e6,
      tie_word_embeddings: true,
      bos_token_id: 128000,
      eos_token_id: 128001,
    },
    ministral3: {
      vocab_size: 131072,
      hidden_size: 4096,
      intermediate_size: 14336,
      num_hidden_layers: 34,
      num_attention_heads: 32,
      num_key_value_heads: 8,
      head_dim: 128,
      max_position_embeddings: 262144,
      rms_norm_eps: 1e-5,
      rope_parameters: {
        rope_type: 'yarn',
        rope_theta: 1e6,
        factor: 16,
        original_max_position_embeddings: 16384,
        mscale: 1,
        mscale_all_dim: 1,
        llama_4_scaling_beta: 0.1,
      },
      bos_token_id: 1,
      eos_token_id: 2,
    },
  },
  neutral: llamaNeutral,
  config(config, common) {
    const trait = traitOf(common.architecture);
    if (!trait.experts) refuseForeign(config, noExperts);
    const attention = parseAttention(config, common);
    const rotates = trait.skipsRope ? parseRotatedLayers(config, common) : () => true;
    const windows = parseWindows(config, common, rotates);
    const mlp = trait.experts
      ? { ...parseExperts(config, 'num_local_experts', undefined, 'intermediate_size'), normTopkProb: true }
      : { ...parseGated(config), bias: parseBias(config, 'mlp_bias', common.architecture, trait.mlpBias) };
    const stretch = attention.rope?.scaling;
    return {
      // Configurations that YaRN was written into often keep the trained length.
      ...(stretch?.type === 'yarn' && {
        maxPositions: Math.max(common.maxPositions, Math.floor(stretch.factor * stretch.originalMaxPositions)),
      }),
      layers: windows.map((window, layer): LayerConfig => {
        const rope = rotates(layer) ? attention.rope : null;
        return { attention: { ...attention, rope, window }, mlp };
      }),
      tensors: trait.experts ? mixtralNames : llamaNames,
    };
  },
  gguf: { keys: ggufKeys, pairedRows: ['llama', 'smollm3', 'mistral3'] },
});

interface Trait {
  /** Keys transformers would fill with a class default that is rarely what the weights have: they must be present. */
  readonly required: readonly string[];
  /** 'flag': on q, k, v and o where attention_bias is true. 'qkv': always, but not on o. */
  readonly attentionBias: 'flag' | 'qkv' | 'none';
  readonly mlpBias: boolean;
  readonly qkNorm: GqaConfig['qkNorm'];
  /** Some layers don't encode positions. */
  readonly skipsRope?: true;
  /** A window counts wherever it is written; where the key is absent, it is this one (null: none). */
  readonly slides?: number | null;
  readonly experts?: true;
  /** Queries at far positions are multiplied by more. */
  readonly temperature?: true;
}

const traits: Readonly<Record<string, Trait>> = {
  llama: { required: [], attentionBias: 'flag', mlpBias: true, qkNorm: false },
  qwen2: { required: ['num_key_value_heads'], attentionBias: 'qkv', mlpBias: false, qkNorm: false },
  qwen3: {
    required: ['num_key_value_heads', 'head_dim'],
    attentionBias: 'flag',
    mlpBias: false,
    qkNorm: 'head',
  },
  mistral: { required: ['num_key_value_heads'], attentionBias: 'none', mlpBias: false, qkNorm: false, slides: 4096 },
  mixtral: {
    required: ['num_key_value_heads'],
    attentionBias: 'none',
    mlpBias: false,
    qkNorm: false,
    slides: null,
    experts: true,
  },
  ministral: { required: ['num_key_value_heads'], attentionBias: 'none', mlpBias: false, qkNorm: false, slides: 4096 },
  ministral3: { required: [], attentionBias: 'none', mlpBias: false, qkNorm: false, slides: null, temperature: true },
  smollm3: { required: [], attentionBias: 'flag', mlpBias: true, qkNorm: false, skipsRope: true },
  // For their attention (granite.ts, qwen3_5.ts, qwen3_moe.ts).
  granite: { required: [], attentionBias: 'flag', mlpBias: true, qkNorm: false },
  granitemoe: { required: ['num_key_value_heads'], attentionBias: 'flag', mlpBias: false, qkNorm: false },
  granitemoeshared: { required: ['num_key_value_heads'], attentionBias: 'flag', mlpBias: false, qkNorm: false },
  granitemoehybrid: { required: ['num_key_value_heads'], attentionBias: 'flag', mlpBias: false, qkNorm: false },
  qwen3_vl_text: { required: ['num_key_value_heads'], attentionBias: 'flag', mlpBias: false, qkNorm: 'head' },
  qwen3_vl_moe_text: { required: ['num_key_value_heads'], attentionBias: 'flag', mlpBias: false, qkNorm: 'head' },
  qwen3_moe: { required: ['num_key_value_heads'], attentionBias: 'flag', mlpBias: false, qkNorm: 'head' },
  qwen2_5_vl_text: { required: ['num_key_value_heads'], attentionBias: 'qkv', mlpBias: false, qkNorm: false },
};

const stretches = ['linear', 'llama3', 'yarn'] as const;

const traitOf = (architecture: string): Trait => known(traits[architecture], `trait of ${architecture}`);

/** Of every layer, without a window. */
export function parseAttention(config: ConfigReader, { architecture, hiddenSize }: CommonConfig): GqaConfig {
  const trait = traitOf(architecture);
  for (const key of trait.required) if (config.raw(key) === undefined) return config.missing(key);
  const flag = parseBias(config, 'attention_bias', architecture, trait.attentionBias !== 'none');
  const qkv = flag || trait.attentionBias === 'qkv';
  const attention = parseGqa(config, hiddenSize, qkv);
  return {
    ...attention,
    bias: { ...attention.bias, o: flag && trait.attentionBias === 'flag' },
    qkNorm: trait.qkNorm,
    rope: {
      ...parseRope(config, attention.headDim, stretches, config.boolean('rope_interleaved', false)),
      ...(trait.temperature && parseTemperature(config)),
    },
  };
}

/** `no_rope_layers` has a 1 for each layer that rotates; without it every no_rope_layer_interval'th doesn't. */
function parseRotatedLayers(config: ConfigReader, { numLayers }: CommonConfig): (layer: number) => boolean {
  const interval = config.optionalInteger('no_rope_layer_interval', countRange) ?? 4;
  const list = config.raw('no_rope_layers');
  if (list === undefined) return (layer) => (layer + 1) % interval !== 0;
  if (!Array.isArray(list) || list.length !== numLayers || list.some((one) => one !== 0 && one !== 1))
    throw config.invalid('no_rope_layers', list, `a list of ${numLayers} ones and zeros (num_hidden_layers)`);
  return (layer) => list[layer] === 1;
}

export function parseBias(config: ConfigReader, key: string, architecture: string, known: boolean): boolean {
  const bias = config.boolean(key, false);
  if (bias && !known) {
    const where = key === 'mlp_bias' ? 'MLP' : 'attention';
    throw config.unsupported(key, true, `${architecture} models have no bias in the ${where} (llama has)`);
  }
  return bias;
}

/**
 * Each layer's window; undefined: none. Qwen needs `use_sliding_window` true for its window to count, and has it in layers from
 * `max_window_layers` (28) on where no `layer_types` say, SmolLM3 in those that don't rotate; Mistral's and its relatives' count always.
 */
function parseWindows(
  config: ConfigReader,
  { architecture, numLayers }: CommonConfig,
  rotates: (layer: number) => boolean = () => true,
): (number | undefined)[] {
  const { slides: always, skipsRope } = traitOf(architecture);
  const enabled = config.boolean('use_sliding_window', always !== undefined);
  const first = config.optionalInteger('max_window_layers', { min: 0, max: 4096 }) ?? 28;
  const given = config.optionalInteger('sliding_window', { min: 1, max: 2 ** 30 });
  const window = config.has('sliding_window') ? given : (always ?? given);
  const slides = (layer: number): boolean => always !== undefined || (skipsRope ? !rotates(layer) : layer >= first);
  const types = parseLayerTypes(config, numLayers, (layer) =>
    enabled && window !== undefined && slides(layer) ? 'sliding_attention' : 'full_attention',
  );
  if (types.includes('sliding_attention') && (!enabled || window === undefined)) {
    throw config.unsupported('layer_types', 'sliding_attention', 'without a window every layer is full_attention');
  }
  return types.map((type) => (type === 'sliding_attention' ? window : undefined));
}

export function ggufKeys(metadata: GgufMetadata): Record<string, unknown> {
  const { arch } = metadata;
  const experts = metadata.optionalInteger('expert_count', { min: 0, max: 4096 }) ?? 0;
  if (experts > 0 && arch !== 'llama')
    throw metadata.unsupported('expert_count', experts, `${arch} runs without experts`);
  const heads = ggufHeads(metadata);
  const headDim = heads.head_dim;
  for (const name of ['attention.value_length', 'rope.dimension_count']) {
    const width = metadata.optionalInteger(name, { min: 0, max: 2 ** 20 }) ?? headDim;
    if (width !== headDim) throw metadata.unsupported(name, width, `it must be the width of a head (${headDim})`);
  }
  if (arch === 'mistral3') return { ...ggufMistral(metadata), ...heads };
  if (experts === 0) return { model_type: arch, ...heads };
  const chosen = metadata.integer('expert_used_count', countRange);
  return { model_type: 'mixtral', ...heads, num_local_experts: experts, num_experts_per_tok: chosen };
}

/** Mistral's models of text and images: Ministral 3 where queries have a temperature. The stretch is read elsewhere. */
function ggufMistral(metadata: GgufMetadata): Record<string, unknown> {
  const beta = metadata.optionalPositive('attention.temperature_scale');
  if (beta === undefined) return { model_type: 'mistral', sliding_window: null };
  const length = metadata.integer('rope.scaling.original_context_length', { min: 1, max: 2 ** 30 });
  const rope = { rope_type: 'default', llama_4_scaling_beta: beta, original_max_position_embeddings: length };
  return { model_type: 'ministral3', rope_parameters: rope };
}
