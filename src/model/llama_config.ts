import {
  countRange,
  neutralKeys,
  parseDtype,
  parseTokenIds,
  refuseActivation,
  refuseForeign,
  refuseQuantized,
  sizeRange,
  type TorchDtype,
} from './config_parts.js';
import type { ConfigReader } from './config_reader.js';
import { parseRope, type RopeScaling } from './rope_config.js';

export type LlamaArchitecture = 'llama' | 'qwen2' | 'qwen3' | 'mistral';

/** A decoder of the Llama family: RMSNorm, rotary grouped-query attention, SwiGLU. Sizes are in elements. */
export interface LlamaConfig {
  architecture: LlamaArchitecture;
  hiddenSize: number;
  intermediateSize: number;
  numLayers: number;
  /** Query heads; a multiple of numKvHeads. */
  numHeads: number;
  numKvHeads: number;
  /** A multiple of 8, at most 256. Not always hiddenSize / numHeads. */
  headDim: number;
  vocabSize: number;
  maxPositions: number;
  rmsNormEps: number;
  ropeTheta: number;
  ropeScaling: RopeScaling;
  /** True: the output head is the embedding matrix, and there is no lm_head.weight. */
  tieWordEmbeddings: boolean;
  attentionBias: { q: boolean; k: boolean; v: boolean; o: boolean };
  /** Bias on gate_proj, up_proj and down_proj. */
  mlpBias: boolean;
  /** RMSNorm over each head of q and of k, before the rotary embedding (q_norm, k_norm: [headDim]). */
  qkNorm: boolean;
  /** Tokens that end generation; may be empty. */
  eosTokenIds: number[];
  bosTokenId: number | null;
  /** The dtype the folder says its weights have; the weight files decide. */
  torchDtype: TorchDtype;
}

/** Where the family's members differ, by what transformers' modelling files do with the same keys. */
interface Traits {
  /** Keys transformers would fill with a class default that is rarely what the weights have: they must be present. */
  required: ('num_key_value_heads' | 'head_dim')[];
  attentionBias: (flag: boolean) => LlamaConfig['attentionBias'];
  mlpBias: boolean;
  qkNorm: boolean;
}

const allBias = (flag: boolean) => ({ q: flag, k: flag, v: flag, o: flag });
const traits: Record<LlamaArchitecture, Traits> = {
  llama: { required: [], attentionBias: allBias, mlpBias: true, qkNorm: false },
  // Qwen2 has biases on q, k and v whatever attention_bias says.
  qwen2: {
    required: ['num_key_value_heads'],
    attentionBias: () => ({ q: true, k: true, v: true, o: false }),
    mlpBias: false,
    qkNorm: false,
  },
  qwen3: { required: ['num_key_value_heads', 'head_dim'], attentionBias: allBias, mlpBias: false, qkNorm: true },
  mistral: { required: ['num_key_value_heads'], attentionBias: () => allBias(false), mlpBias: false, qkNorm: false },
};

/** Reads a config.json of the Llama family; `generation` (generation_config.json) overrides its special token ids. */
export function parseLlamaConfig(
  architecture: LlamaArchitecture,
  config: ConfigReader,
  generation: ConfigReader | undefined,
): LlamaConfig {
  const trait = traits[architecture];
  refuseForeignFeatures(config);
  const hiddenSize = config.integer('hidden_size', sizeRange);
  const numHeads = config.integer('num_attention_heads', countRange);
  const vocabSize = config.integer('vocab_size', { min: 1, max: 1 << 24 });
  const maxPositions = config.integer('max_position_embeddings', { min: 1, max: 2 ** 30 });
  refuseSlidingWindow(architecture, config, maxPositions);
  const mlpBias = config.boolean('mlp_bias', false);
  if (mlpBias && !trait.mlpBias) {
    throw config.unsupported('mlp_bias', true, `${architecture} models have no bias in the MLP (llama has)`);
  }
  const attentionBias = config.boolean('attention_bias', false);
  if (attentionBias && architecture === 'mistral') {
    throw config.unsupported('attention_bias', true, 'mistral models have no bias in the attention (llama has)');
  }
  const result: LlamaConfig = {
    architecture,
    hiddenSize,
    intermediateSize: config.integer('intermediate_size', sizeRange),
    numLayers: config.integer('num_hidden_layers', countRange),
    numHeads,
    numKvHeads: parseKvHeads(config, trait, numHeads),
    headDim: parseHeadDim(config, trait, hiddenSize, numHeads),
    vocabSize,
    maxPositions,
    rmsNormEps: config.optionalPositive('rms_norm_eps') ?? 1e-6,
    ...parseRope(config),
    tieWordEmbeddings: config.boolean('tie_word_embeddings', false),
    attentionBias: trait.attentionBias(attentionBias),
    mlpBias,
    qkNorm: trait.qkNorm,
    ...parseTokenIds(config, generation, vocabSize),
    torchDtype: parseDtype(config),
  };
  config.refuseNearMisses();
  return result;
}

function parseKvHeads(config: ConfigReader, trait: Traits, numHeads: number): number {
  const given = config.optionalInteger('num_key_value_heads', { min: 1, max: numHeads });
  if (given === undefined && trait.required.includes('num_key_value_heads'))
    return config.missing('num_key_value_heads');
  const numKvHeads = given ?? numHeads;
  if (numHeads % numKvHeads !== 0) {
    throw config.invalid('num_key_value_heads', numKvHeads, `a divisor of num_attention_heads (${numHeads})`);
  }
  return numKvHeads;
}

function parseHeadDim(config: ConfigReader, trait: Traits, hiddenSize: number, numHeads: number): number {
  const given = config.optionalInteger('head_dim', sizeRange);
  if (given === undefined && trait.required.includes('head_dim')) return config.missing('head_dim');
  const headDim = given ?? hiddenSize / numHeads;
  if (!Number.isInteger(headDim)) {
    throw config.invalid('hidden_size', hiddenSize, `a multiple of num_attention_heads (${numHeads}), or a head_dim`);
  }
  if (headDim % 8 !== 0 || headDim > 256) {
    const source = given === undefined ? ` (hidden_size ${hiddenSize} / num_attention_heads ${numHeads})` : '';
    throw config.unsupported('head_dim', headDim, `the attention kernels take multiples of 8 up to 256${source}`);
  }
  return headDim;
}

/**
 * A window that never cuts anything is accepted. Qwen needs `use_sliding_window` true for its window to count; Mistral's
 * counts always, and transformers takes 4096 where the key is absent.
 */
function refuseSlidingWindow(architecture: LlamaArchitecture, config: ConfigReader, maxPositions: number): void {
  const enabled = config.boolean('use_sliding_window', architecture === 'mistral');
  const layers = config.raw('layer_types');
  const windowed = Array.isArray(layers) ? layers.find((type) => type !== 'full_attention') : undefined;
  if (windowed !== undefined) throw config.unsupported('layer_types', windowed, "every layer must be 'full_attention'");
  if (config.raw('max_window_layers') !== undefined) config.optionalInteger('max_window_layers', { min: 0, max: 4096 });
  const window = config.optionalInteger('sliding_window', { min: 0, max: 2 ** 30 });
  if (!enabled) return;
  if (architecture === 'mistral' && !config.has('sliding_window') && maxPositions > 4096) {
    throw config.unsupported('sliding_window', undefined, 'absent means 4096 to mistral; write null for no window');
  }
  if (window !== undefined && window < maxPositions) {
    throw config.unsupported('sliding_window', window, `attention sees all ${maxPositions} positions (write null)`);
  }
}

/** Keys of relatives of this family that would change the computation. */
const neutral = [
  ...neutralKeys,
  ['rope_interleaved', false, 'the rotary embedding must be half-split'],
  ['num_experts', 0, 'a mixture of experts is another architecture'],
  ['num_local_experts', 0, 'a mixture of experts is another architecture'],
] as const;

function refuseForeignFeatures(config: ConfigReader): void {
  refuseQuantized(config);
  refuseActivation(config);
  refuseForeign(config, neutral);
}
