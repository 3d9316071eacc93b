/**
 * Room: the same random models as GGUF files, written by rules of their own: tensors, metadata, vocabulary. file.ts
 * writes the bytes.
 */

import {
  attentionOf,
  expertsOf,
  type GqaConfig,
  hasState,
  type ModelConfig,
  type RopeConfig,
  type RopeScaling,
} from '../../config/model_config.js';
import { deepseekParts } from './deepseek.js';
import { familyParts, sectionsValue } from './families.js';
import type { WritableType } from '../../../loader/gguf/testing/quantise.js';
import { f32, type GgufTensor, type GgufValue, text, u32, writeGguf } from './file.js';
import { graniteKeys, hybridParts, pairedRows, sharedMlpApart } from './granite.js';
import { dummyVocabulary } from './vocabulary.js';
import type { WeightMap } from '../reference/reference.js';

/** What differs between architectures: metadata (keys after `<arch>.`) and tensors. */
export interface GgufParts {
  arch: string;
  metadata: Record<string, GgufValue>;
  tensors: GgufTensor[];
  /** Where it isn't as in other architectures. */
  rename?: (name: string) => string | undefined;
  /** Of a vocabulary of segments. */
  types?: number | undefined;
}

export interface GgufOptions {
  /** What a tensor is stored as, by its name in the file; F32. */
  readonly typeOf?: ((name: string, shape: readonly number[]) => WritableType | undefined) | undefined;
  /** Of an NVFP4 tensor: what its numbers are divided by, which is a tensor beside it: one, or of a stack one each. */
  readonly factorsOf?: ((name: string, shape: readonly number[]) => readonly number[] | undefined) | undefined;
  /** More metadata, or other: a tokenizer instead of one that only counts. */
  readonly metadata?: Readonly<Record<string, GgufValue>> | undefined;
}

/** A model as llama.cpp reads it. Throws for what llama.cpp doesn't have. */
export function modelToGguf(
  config: ModelConfig,
  weights: WeightMap,
  options: GgufOptions = {},
): Uint8Array<ArrayBuffer> {
  const { metadata, tensors } = ggufContents(config, weights, options);
  return writeGguf(metadata, tensors);
}

/** The same as data. */
export function ggufContents(config: ModelConfig, weights: WeightMap, options: GgufOptions = {}) {
  const attention = attentionOf(config);
  const parts =
    attention.kind === 'mla'
      ? deepseekParts(config, attention, weights)
      : config.architecture.startsWith('granitemoe') && (expertsOf(config) || hasState(config))
        ? hybridParts(config, attention, weights)
        : (familyParts(config, attention, weights) ?? llamaParts(config, attention, weights));
  const { arch, metadata, tensors } = parts;
  // Of a layer without a window, where there are both kinds.
  const full = config.layers.find((layer) => layer.attention.kind === 'gqa' && layer.attention.window === undefined);
  const { rope } = (full?.attention ?? attention) as GqaConfig;
  const keys: Record<string, GgufValue> = {
    vocab_size: u32(config.vocabSize),
    context_length: u32(config.maxPositions),
    embedding_length: u32(config.hiddenSize),
    block_count: u32(config.layers.length),
    feed_forward_length: u32(config.layers.map(({ mlp }) => mlp).find(({ kind }) => kind !== 'experts')?.width ?? 1),
    'attention.head_count': u32(attention.heads),
    ...(config.norm.kind === 'rms' && { 'attention.layer_norm_rms_epsilon': f32(config.norm.eps) }),
    'rope.freq_base': f32(rope?.theta ?? 10000),
    ...metadata,
  };
  if (rope?.scaling?.type === 'linear') {
    keys['rope.scaling.type'] = text('linear');
    keys['rope.scaling.factor'] = f32(rope.scaling.factor);
  }
  const allMetadata: Record<string, GgufValue> = {
    'general.architecture': text(arch),
    'general.name': text('test'),
    'general.file_type': u32(0),
    ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${arch}.${key}`, value])),
    ...(options.metadata ?? dummyVocabulary(config.vocabSize)),
    ...(parts.types !== undefined && { 'tokenizer.ggml.token_type_count': u32(parts.types) }),
  };
  return {
    metadata: allMetadata,
    tensors: tensors.flatMap((tensor): GgufTensor[] => {
      const name = ggufName(parts.rename?.(tensor.name) ?? tensor.name);
      const stored = { ...tensor, name, type: options.typeOf?.(name, tensor.shape) };
      const factors = options.factorsOf?.(name, tensor.shape);
      if (!factors || stored.type !== 'NVFP4') return [stored];
      const each = tensor.data.length / factors.length;
      const data = tensor.data.map((value, i) => value / factors[Math.floor(i / each)]!);
      const scale = {
        name: name.replace(/weight$/, 'scale'),
        shape: [factors.length],
        data: Float32Array.from(factors),
      };
      return [{ ...stored, data }, scale];
    }),
  };
}

/**
 * llama.cpp's 'llama' architecture (also Mistral's) rotates neighbouring pairs, so the rows of q and k are put in that order, as
 * convert_hf_to_gguf.py does; qwen2 and qwen3 rotate halves, as the checkpoint does.
 */
function llamaParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const others: Readonly<Record<string, string>> = {
    mistral: 'llama',
    ministral3: 'mistral3',
    granitemoehybrid: 'granite',
    qwen3_vl_text: 'qwen3vl',
    qwen2_5_vl_text: 'qwen2vl',
  };
  const arch = others[config.architecture] ?? config.architecture;
  const { kvHeads, headDim } = attention;
  const { rope } = attention;
  if (rope?.scaling?.type === 'llama3' && arch !== 'llama')
    throw new Error(`llama.cpp has no llama3 rope scaling for ${arch}`);
  const metadata = {
    'attention.head_count_kv': u32(kvHeads),
    'attention.key_length': u32(headDim),
    'attention.value_length': u32(headDim),
    'rope.dimension_count': u32(headDim),
    ...(rope?.sections && { 'rope.dimension_sections': sectionsValue(rope) }),
    ...(rope?.temperature && rope.scaling?.type === 'yarn' && ministralKeys(rope.temperature.beta, rope.scaling)),
    ...(arch === 'granite' && graniteKeys(config, attention)),
  };
  const inPairs = ['llama', 'smollm3', 'granite', 'mistral3'].includes(arch);
  const tensors = [...(arch === 'granite' ? sharedMlpApart(weights) : weights)].map(
    ([name, { shape, data }]): GgufTensor => ({
      name,
      shape,
      data: inPairs ? pairedRows(name, data, attention) : data,
    }),
  );
  if (rope?.scaling?.type === 'llama3')
    tensors.push({ name: 'rope_freqs.weight', shape: [headDim / 2], data: llama3Divisors(rope) });
  return { arch, metadata, tensors };
}

const ministralKeys = (beta: number, scaling: Extract<RopeScaling, { type: 'yarn' }>): Record<string, GgufValue> => ({
  'attention.temperature_scale': f32(beta),
  'rope.scaling.type': text('yarn'),
  'rope.scaling.factor': f32(scaling.factor),
  'rope.scaling.original_context_length': u32(scaling.originalMaxPositions),
  'rope.scaling.yarn_beta_fast': f32(scaling.betaFast),
  'rope.scaling.yarn_beta_slow': f32(scaling.betaSlow),
  'rope.scaling.yarn_log_multiplier': f32(scaling.mscaleAllDim),
});

/** Parts that only some families have come first: they may take a name that means another part elsewhere. */
const renames: [RegExp, string][] = [
  [/self_attn\.qkv_proj\./, 'attn_qkv.'],
  [/mlp\.gate_up_proj\./, 'ffn_up.'],
  [/^model\.embed_tokens\./, 'token_embd.'],
  [/^model\.norm\./, 'output_norm.'],
  [/^lm_head\./, 'output.'],
  [/^model\.layers\.(\d+)\./, 'blk.$1.'],
  [/self_attn\.o_proj\./, 'attn_output.'],
  [/self_attn\.([qkv])_proj\./, 'attn_$1.'],
  [/self_attn\.([qk])_norm\./, 'attn_$1_norm.'],
  [/input_layernorm\./, 'attn_norm.'],
  [/post_attention_layernorm\./, 'ffn_norm.'],
  [/mlp\.(gate|up|down)_proj\./, 'ffn_$1.'],
  [/self_attn\.(q_a|q_b|kv_b)_proj\./, 'attn_$1.'],
  [/self_attn\.(q_a|kv_a)_layernorm\./, 'attn_$1_norm.'],
  [/self_attn\.kv_a_proj_with_mqa\./, 'attn_kv_a_mqa.'],
  [/mlp\.gate\.weight/, 'ffn_gate_inp.weight'],
  [/mlp\.gate\.e_score_correction_bias/, 'exp_probs_b.bias'],
  [/mlp\.shared_experts\.(gate|up|down)_proj\./, 'ffn_$1_shexp.'],
];
/** The name in a GGUF file of a tensor with a checkpoint's name; others stay. */
const ggufName = (name: string) => renames.reduce((text, [from, to]) => text.replace(from, to), name);

/** What llama.cpp divides each frequency by, as convert_hf_to_gguf.py computes it. */
function llama3Divisors({ scaling, theta, dims }: RopeConfig): Float32Array {
  if (scaling?.type !== 'llama3') throw new Error('no llama3 rope scaling');
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = scaling;
  return Float32Array.from({ length: dims / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * theta ** ((2 * i) / dims);
    if (wavelength < originalMaxPositions / highFreqFactor) return 1;
    if (wavelength > originalMaxPositions / lowFreqFactor) return factor;
    const smooth = (originalMaxPositions / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}
