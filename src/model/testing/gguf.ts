import { alignUp } from '../../base/math.js';
import type { LlamaConfig } from '../config.js';
import type { WeightMap } from './reference.js';

/** A metadata value of a GGUF file. */
export type GgufValue =
  | { type: 'u32' | 'f32'; value: number }
  | { type: 'string'; value: string }
  | { type: 'i32[]' | 'f32[]'; value: readonly number[] }
  | { type: 'string[]'; value: readonly string[] };

export interface GgufTensor {
  name: string;
  /** Row-major, outermost axis first, as in a checkpoint (the file has them the other way round). */
  shape: readonly number[];
  data: Float32Array;
}

const alignment = 32;
const typeIds = { u32: 4, i32: 5, f32: 6, string: 8, array: 9 } as const;

/** A GGUF file, version 3, of F32 tensors. */
export function writeGguf(
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: readonly GgufTensor[],
): Uint8Array<ArrayBuffer> {
  const header = new ByteWriter();
  header.ascii('GGUF');
  header.u32(3);
  header.u64(tensors.length);
  header.u64(Object.keys(metadata).length);
  for (const [key, entry] of Object.entries(metadata)) {
    header.string(key);
    writeValue(header, entry);
  }
  let offset = 0;
  const offsets = tensors.map(({ name, shape, data }) => {
    header.string(name);
    header.u32(shape.length);
    for (const size of shape.toReversed()) header.u64(size);
    header.u32(0); // GGML_TYPE_F32
    header.u64(offset);
    const at = offset;
    offset = alignUp(offset + data.byteLength, alignment);
    return at;
  });
  const start = alignUp(header.length, alignment);
  const out = new Uint8Array(start + offset);
  header.copyTo(out);
  tensors.forEach(({ data }, i) => {
    out.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), start + offsets[i]!);
  });
  return out;
}

function writeValue(out: ByteWriter, entry: GgufValue): void {
  switch (entry.type) {
    case 'u32':
    case 'f32':
      out.u32(typeIds[entry.type]);
      return out[entry.type](entry.value);
    case 'string':
      out.u32(typeIds.string);
      return out.string(entry.value);
    default: {
      const element = entry.type.slice(0, -2) as 'i32' | 'f32' | 'string';
      out.u32(typeIds.array);
      out.u32(typeIds[element]);
      out.u64(entry.value.length);
      for (const value of entry.value) (out[element] as (value: number | string) => void).call(out, value);
    }
  }
}

class ByteWriter {
  #bytes = new Uint8Array(1 << 16);
  length = 0;

  u32(value: number): void {
    this.#view(4).setUint32(0, value, true);
  }
  i32(value: number): void {
    this.#view(4).setInt32(0, value, true);
  }
  f32(value: number): void {
    this.#view(4).setFloat32(0, value, true);
  }
  u64(value: number): void {
    this.#view(8).setBigUint64(0, BigInt(value), true);
  }
  ascii(text: string): void {
    this.#append(new TextEncoder().encode(text));
  }
  string(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.u64(bytes.length);
    this.#append(bytes);
  }
  copyTo(out: Uint8Array): void {
    out.set(this.#bytes.subarray(0, this.length));
  }

  #append(bytes: Uint8Array): void {
    this.#view(bytes.length);
    this.#bytes.set(bytes, this.length - bytes.length);
  }
  /** Room for `size` more bytes, as a view of them. */
  #view(size: number): DataView {
    const at = this.length;
    this.length += size;
    if (this.length > this.#bytes.length) {
      const larger = new Uint8Array(this.length * 2);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    return new DataView(this.#bytes.buffer, at, size);
  }
}

/**
 * A model as llama.cpp reads it. Its 'llama' architecture (also Mistral's) rotates neighbouring pairs, so the rows of q and k are
 * put in that order, as convert_hf_to_gguf.py does; qwen2 and qwen3 rotate halves, as the checkpoint does.
 */
export function modelToGguf(config: LlamaConfig, weights: WeightMap): Uint8Array<ArrayBuffer> {
  const arch = config.architecture === 'mistral' ? 'llama' : config.architecture;
  const { ropeScaling, headDim } = config;
  if (ropeScaling?.type === 'llama3' && arch !== 'llama')
    throw new Error(`llama.cpp has no llama3 rope scaling for ${arch}`);
  const u32 = (value: number): GgufValue => ({ type: 'u32', value });
  const metadata: Record<string, GgufValue> = {
    'general.architecture': { type: 'string', value: arch },
    'general.name': { type: 'string', value: 'test' },
    'general.file_type': u32(0),
    [`${arch}.vocab_size`]: u32(config.vocabSize),
    [`${arch}.context_length`]: u32(config.maxPositions),
    [`${arch}.embedding_length`]: u32(config.hiddenSize),
    [`${arch}.block_count`]: u32(config.numLayers),
    [`${arch}.feed_forward_length`]: u32(config.intermediateSize),
    [`${arch}.attention.head_count`]: u32(config.numHeads),
    [`${arch}.attention.head_count_kv`]: u32(config.numKvHeads),
    [`${arch}.attention.key_length`]: u32(headDim),
    [`${arch}.attention.value_length`]: u32(headDim),
    [`${arch}.attention.layer_norm_rms_epsilon`]: { type: 'f32', value: config.rmsNormEps },
    [`${arch}.rope.dimension_count`]: u32(headDim),
    [`${arch}.rope.freq_base`]: { type: 'f32', value: config.ropeTheta },
    ...dummyVocabulary(config.vocabSize),
  };
  if (ropeScaling?.type === 'linear') {
    metadata[`${arch}.rope.scaling.type`] = { type: 'string', value: 'linear' };
    metadata[`${arch}.rope.scaling.factor`] = { type: 'f32', value: ropeScaling.factor };
  }
  const tensors = [...weights].map(([name, { shape, data }]): GgufTensor => {
    const heads = name.includes('.q_proj.') ? config.numHeads : name.includes('.k_proj.') ? config.numKvHeads : 0;
    const interleave = arch === 'llama' && heads > 0;
    return { name: ggufName(name), shape, data: interleave ? interleavePairs(data, heads, headDim) : data };
  });
  if (ropeScaling?.type === 'llama3')
    tensors.push({ name: 'rope_freqs.weight', shape: [headDim / 2], data: llama3Divisors(config) });
  return writeGguf(metadata, tensors);
}

const renames: [RegExp, string][] = [
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
];
const ggufName = (name: string) => renames.reduce((text, [from, to]) => text.replace(from, to), name);

/** Rows of each head from halves (i, i + headDim / 2) to neighbours (2i, 2i + 1). */
function interleavePairs(data: Float32Array, heads: number, headDim: number): Float32Array {
  const columns = data.length / (heads * headDim);
  const out = new Float32Array(data.length);
  for (let row = 0; row < heads * headDim; row++) {
    const inHead = row % headDim;
    const to = row - inHead + (inHead % (headDim / 2)) * 2 + Math.floor(inHead / (headDim / 2));
    out.set(data.subarray(row * columns, (row + 1) * columns), to * columns);
  }
  return out;
}

/** What llama.cpp divides each frequency by, as convert_hf_to_gguf.py computes it. */
function llama3Divisors({ ropeScaling, ropeTheta, headDim }: LlamaConfig): Float32Array {
  if (ropeScaling?.type !== 'llama3') throw new Error('no llama3 rope scaling');
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = ropeScaling;
  return Float32Array.from({ length: headDim / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * ropeTheta ** ((2 * i) / headDim);
    if (wavelength < originalMaxPositions / highFreqFactor) return 1;
    if (wavelength > originalMaxPositions / lowFreqFactor) return factor;
    const smooth = (originalMaxPositions / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}

/** llama.cpp wants a vocabulary even where only ids are used: a BPE of names that mean nothing. */
function dummyVocabulary(vocabSize: number): Record<string, GgufValue> {
  const tokens = Array.from({ length: vocabSize }, (_, id) => `t${id}`);
  return {
    'tokenizer.ggml.model': { type: 'string', value: 'gpt2' },
    'tokenizer.ggml.pre': { type: 'string', value: 'gpt-2' },
    'tokenizer.ggml.tokens': { type: 'string[]', value: tokens },
    // All normal tokens (1) but for two control tokens (3).
    'tokenizer.ggml.token_type': { type: 'i32[]', value: tokens.map((_, id) => (id === 1 || id === 2 ? 3 : 1)) },
    'tokenizer.ggml.merges': { type: 'string[]', value: [] },
    'tokenizer.ggml.bos_token_id': { type: 'u32', value: 1 },
    'tokenizer.ggml.eos_token_id': { type: 'u32', value: 2 },
  };
}
