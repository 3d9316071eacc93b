import type { GgufFile } from '../../loader/index.js';
import type { GqaConfig, LayerConfig } from '../config/model_config.js';
import type { ConfigReader } from '../config/config_reader.js';
import type { GgufMetadata } from '../gguf/metadata.js';
import { parseRope } from '../config/rope_config.js';
import { llamaNames } from '../config/tensor_names.js';
import { countRange, neutralKeys, parseActivation, refuseForeign, sizeRange } from './common_keys.js';
import { type CommonConfig, defineFamily } from './family.js';

/**
 * Llama, Mistral, Qwen2 and Qwen3: RMSNorm, rotary grouped-query attention, SwiGLU. Where they differ, it is by what transformers'
 * modelling files do with the same keys.
 */
export const llama = defineFamily({
  config(config, common) {
    const trait = traits[common.architecture]!;
    refuseForeign(config, neutral);
    const attention = parseAttention(config, trait, common);
    const windows = parseWindows(config, common);
    const mlp = {
      kind: 'gated',
      width: config.integer('intermediate_size', sizeRange),
      activation: parseActivation(config),
      bias: parseBias(config, 'mlp_bias', common.architecture, trait.mlpBias),
    } as const;
    return {
      layers: windows.map((window): LayerConfig => {
        return { attention: window === undefined ? attention : { ...attention, window }, mlp };
      }),
      tensors: llamaNames,
    };
  },
  gguf: { keys: ggufKeys, pairedRows: ['llama'] },
});

interface Trait {
  /** Keys transformers would fill with a class default that is rarely what the weights have: they must be present. */
  readonly required: readonly string[];
  /** 'flag': on q, k, v and o where attention_bias is true. 'qkv': always, but not on o. */
  readonly attentionBias: 'flag' | 'qkv' | 'none';
  readonly mlpBias: boolean;
  readonly qkNorm: boolean;
}

const traits: Readonly<Record<string, Trait>> = {
  llama: { required: [], attentionBias: 'flag', mlpBias: true, qkNorm: false },
  qwen2: { required: ['num_key_value_heads'], attentionBias: 'qkv', mlpBias: false, qkNorm: false },
  qwen3: {
    required: ['num_key_value_heads', 'head_dim'],
    attentionBias: 'flag',
    mlpBias: false,
    qkNorm: true,
  },
  mistral: { required: ['num_key_value_heads'], attentionBias: 'none', mlpBias: false, qkNorm: false },
};

/** Keys of relatives of this family that would change the computation. */
const neutral = [
  ...neutralKeys,
  ['num_experts', 0, 'a mixture of experts is another architecture'],
  ['num_local_experts', 0, 'a mixture of experts is another architecture'],
] as const;

function parseAttention(config: ConfigReader, trait: Trait, { architecture, hiddenSize }: CommonConfig): GqaConfig {
  const heads = config.integer('num_attention_heads', countRange);
  const kvHeads = parseKvHeads(config, trait, heads);
  const headDim = parseHeadDim(config, trait, hiddenSize, heads);
  const flag = parseBias(config, 'attention_bias', architecture, trait.attentionBias !== 'none');
  const qkv = flag || trait.attentionBias === 'qkv';
  return {
    kind: 'gqa',
    heads,
    kvHeads,
    headDim,
    bias: { q: qkv, k: qkv, v: qkv, o: flag && trait.attentionBias === 'flag' },
    qkNorm: trait.qkNorm,
    rope: parseRope(config, headDim, ['linear', 'llama3'], config.boolean('rope_interleaved', false)),
    scale: headDim ** -0.5,
  };
}

function parseBias(config: ConfigReader, key: string, architecture: string, known: boolean): boolean {
  const bias = config.boolean(key, false);
  if (bias && !known) {
    const where = key === 'mlp_bias' ? 'MLP' : 'attention';
    throw config.unsupported(key, true, `${architecture} models have no bias in the ${where} (llama has)`);
  }
  return bias;
}

function parseKvHeads(config: ConfigReader, { required }: Trait, heads: number): number {
  const given = config.optionalInteger('num_key_value_heads', { min: 1, max: heads });
  if (given === undefined && required.includes('num_key_value_heads')) return config.missing('num_key_value_heads');
  const kvHeads = given ?? heads;
  if (heads % kvHeads !== 0) {
    throw config.invalid('num_key_value_heads', kvHeads, `a divisor of num_attention_heads (${heads})`);
  }
  return kvHeads;
}

function parseHeadDim(config: ConfigReader, { required }: Trait, hiddenSize: number, heads: number): number {
  const given = config.optionalInteger('head_dim', sizeRange);
  if (given === undefined && required.includes('head_dim')) return config.missing('head_dim');
  const headDim = given ?? hiddenSize / heads;
  if (!Number.isInteger(headDim)) {
    throw config.invalid('hidden_size', hiddenSize, `a multiple of num_attention_heads (${heads}), or a head_dim`);
  }
  return headDim;
}

/**
 * Each layer's window; undefined: none. Qwen needs `use_sliding_window` true for its window to count, and has it in layers from
 * `max_window_layers` on where no `layer_types` say; Mistral's counts always.
 */
function parseWindows(
  config: ConfigReader,
  { architecture, numLayers, maxPositions }: CommonConfig,
): (number | undefined)[] {
  const mistral = architecture === 'mistral';
  const enabled = config.boolean('use_sliding_window', mistral);
  const types = config.raw('layer_types');
  const first = config.optionalInteger('max_window_layers', { min: 0, max: 4096 }) ?? 0;
  const window = config.optionalInteger('sliding_window', { min: 0, max: 2 ** 30 });
  // transformers takes 4096 where the key is absent.
  if (mistral && enabled && !config.has('sliding_window') && maxPositions > 4096) {
    throw config.unsupported('sliding_window', undefined, 'absent means 4096 to mistral; write null for no window');
  }
  const known = enabled && window !== undefined ? ['full_attention', 'sliding_attention'] : ['full_attention'];
  const other = Array.isArray(types) ? types.find((type) => !known.includes(type)) : undefined;
  if (other !== undefined) {
    throw config.unsupported(
      'layer_types',
      other,
      `every layer must be ${known.map((type) => `'${type}'`).join(' or ')}`,
    );
  }
  const slides = (layer: number): boolean =>
    Array.isArray(types) ? types[layer] === 'sliding_attention' : mistral || layer >= first;
  return Array.from({ length: numLayers }, (_, layer) => (enabled && slides(layer) ? window : undefined));
}

function ggufKeys(_gguf: GgufFile, metadata: GgufMetadata): Record<string, unknown> {
  const { arch } = metadata;
  const experts = metadata.optionalInteger('expert_count', { min: 0, max: 4096 }) ?? 0;
  if (experts > 0) throw metadata.unsupported('expert_count', experts, `${arch} runs without experts`);
  const heads = metadata.integer('attention.head_count', countRange);
  const keyLength = metadata.optionalInteger('attention.key_length', sizeRange);
  const headDim = keyLength ?? metadata.integer('embedding_length', sizeRange) / heads;
  for (const name of ['attention.value_length', 'rope.dimension_count']) {
    const width = metadata.optionalInteger(name, { min: 0, max: sizeRange.max }) ?? headDim;
    if (width !== headDim) throw metadata.unsupported(name, width, `it must be the width of a head (${headDim})`);
  }
  return {
    model_type: arch,
    num_key_value_heads: metadata.optionalInteger('attention.head_count_kv', countRange) ?? heads,
    head_dim: headDim,
  };
}
