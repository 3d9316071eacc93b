import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Random } from '../../base/random.js';
import { converter } from '../../loader/convert.js';
import { DTYPE_BYTES } from '../../loader/dtype.js';
import { encode } from '../../loader/testing/encode.js';
import { writeSafetensors, type TensorToWrite } from '../../loader/testing/write_safetensors.js';
import { byteLevelTokenizer } from '../../tokenizer/testing/tiny_tokenizers.js';
import { parseModelConfig, type LlamaConfig } from '../config.js';
import type { ReferenceTensor, WeightMap } from './reference.js';

export interface RandomModelOptions {
  /** Keys of config.json, over the small defaults below; null removes one. `model_type` picks the architecture. */
  config?: Record<string, unknown>;
  seed?: number;
  dtype?: 'F32' | 'F16' | 'BF16';
  /** More than 1: that many files and an index. */
  shards?: number;
}

export interface RandomModel {
  config: LlamaConfig;
  /** The files of a Hugging Face model folder, by name. Without tokenizer where vocab_size is under 260. */
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /** The values as stored, that is, rounded to the dtype. */
  weights: WeightMap;
}

const classNames: Record<string, string> = {
  llama: 'LlamaForCausalLM',
  qwen2: 'Qwen2ForCausalLM',
  qwen3: 'Qwen3ForCausalLM',
  mistral: 'MistralForCausalLM',
};

const defaults = {
  model_type: 'llama',
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  vocab_size: 320,
  max_position_embeddings: 1024,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  hidden_act: 'silu',
  tie_word_embeddings: false,
  sliding_window: null,
  bos_token_id: 1,
  eos_token_id: 2,
};

const torchDtype = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' };

/**
 * A model of random weights. Their scales keep logits at about +-3 standard deviation and let attention prefer some keys, so
 * that a wrong position, head or mask shows.
 */
export function makeRandomModel({
  config: changes = {},
  seed = 1,
  dtype = 'F32',
  shards = 1,
}: RandomModelOptions = {}): RandomModel {
  const merged = Object.entries({ ...defaults, torch_dtype: torchDtype[dtype], ...changes });
  const raw: Record<string, unknown> = Object.fromEntries(
    merged.filter(([key, value]) => value !== null || key === 'sliding_window'),
  );
  raw.architectures ??= [classNames[raw.model_type as string]];
  const config = parseModelConfig(raw);
  const random = new Random(seed);
  const tensors = tensorList(config).map(({ name, shape, mean, deviation }): TensorToWrite => {
    const values = random.normals(
      shape.reduce((a, b) => a * b),
      deviation,
    );
    if (mean !== 0) values.forEach((value, i) => (values[i] = mean + value));
    const data = new Uint8Array(values.length * DTYPE_BYTES[dtype]);
    encode(dtype, values, data);
    return { name, dtype, shape, data };
  });
  const weights = new Map(
    tensors.map(({ name, shape, data }): [string, ReferenceTensor] => {
      const stored = new Float32Array(shape.reduce((a, b) => a * b));
      converter(dtype, data as Uint8Array<ArrayBuffer>)(0, stored.length, stored, 0);
      return [name, { shape, data: stored }];
    }),
  );
  const files = new Map<string, Uint8Array<ArrayBuffer>>([['config.json', json(raw)], ...weightFiles(tensors, shards)]);
  files.set('generation_config.json', json({ bos_token_id: raw.bos_token_id, eos_token_id: raw.eos_token_id }));
  if (config.vocabSize >= 260) {
    const tokenizer = byteLevelTokenizer(Math.min(config.vocabSize, 320));
    files.set('tokenizer.json', json(tokenizer.json));
    files.set('tokenizer_config.json', json(tokenizer.config));
  }
  return { config, files, weights };
}

/** Writes the files of a model folder, which is made where it doesn't exist. */
export async function writeModelFolder(folder: string, files: ReadonlyMap<string, Uint8Array>): Promise<void> {
  await mkdir(folder, { recursive: true });
  await Promise.all([...files].map(([name, bytes]) => writeFile(join(folder, name), bytes)));
}

const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value, null, 1));

function weightFiles(tensors: TensorToWrite[], shards: number): [string, Uint8Array<ArrayBuffer>][] {
  if (shards === 1) return [['model.safetensors', writeSafetensors(tensors, { format: 'pt' })]];
  const perShard = Math.ceil(tensors.length / shards);
  const nameOf = (shard: number) =>
    `model-${String(shard + 1).padStart(5, '0')}-of-${String(shards).padStart(5, '0')}.safetensors`;
  const weightMap = Object.fromEntries(tensors.map(({ name }, i) => [name, nameOf(Math.floor(i / perShard))]));
  const totalSize = tensors.reduce((sum, { data }) => sum + (data as Uint8Array).byteLength, 0);
  return [
    ...Array.from({ length: shards }, (_, shard): [string, Uint8Array<ArrayBuffer>] => [
      nameOf(shard),
      writeSafetensors(tensors.slice(shard * perShard, (shard + 1) * perShard), { format: 'pt' }),
    ]),
    ['model.safetensors.index.json', json({ metadata: { total_size: totalSize }, weight_map: weightMap })],
  ];
}

interface TensorRecipe {
  name: string;
  shape: number[];
  mean: number;
  deviation: number;
}

/** Every tensor of the checkpoint. A matrix of deviation g / sqrt(in_features) gives outputs of deviation g for inputs of 1. */
function tensorList(config: LlamaConfig): TensorRecipe[] {
  const { hiddenSize, intermediateSize, vocabSize, numHeads, numKvHeads, headDim, attentionBias } = config;
  const list: TensorRecipe[] = [];
  const norm = (name: string, size: number) =>
    list.push({ name: `${name}.weight`, shape: [size], mean: 1, deviation: 0.2 });
  const linear = (name: string, rows: number, columns: number, gain: number, bias = false) => {
    list.push({ name: `${name}.weight`, shape: [rows, columns], mean: 0, deviation: gain / Math.sqrt(columns) });
    if (bias) list.push({ name: `${name}.bias`, shape: [rows], mean: 0, deviation: 0.3 });
  };
  // A tied matrix also makes the logits.
  linear('model.embed_tokens', vocabSize, hiddenSize, config.tieWordEmbeddings ? 3 : Math.sqrt(hiddenSize));
  for (let layer = 0; layer < config.numLayers; layer++) {
    const at = `model.layers.${layer}`;
    norm(`${at}.input_layernorm`, hiddenSize);
    // Scores q.k / sqrt(headDim) then have a deviation of about 1.5^2.
    linear(`${at}.self_attn.q_proj`, numHeads * headDim, hiddenSize, 1.5, attentionBias.q);
    linear(`${at}.self_attn.k_proj`, numKvHeads * headDim, hiddenSize, 1.5, attentionBias.k);
    linear(`${at}.self_attn.v_proj`, numKvHeads * headDim, hiddenSize, 1, attentionBias.v);
    if (config.qkNorm) {
      norm(`${at}.self_attn.q_norm`, headDim);
      norm(`${at}.self_attn.k_norm`, headDim);
    }
    linear(`${at}.self_attn.o_proj`, hiddenSize, numHeads * headDim, 1, attentionBias.o);
    norm(`${at}.post_attention_layernorm`, hiddenSize);
    linear(`${at}.mlp.gate_proj`, intermediateSize, hiddenSize, 1.5, config.mlpBias);
    linear(`${at}.mlp.up_proj`, intermediateSize, hiddenSize, 1, config.mlpBias);
    linear(`${at}.mlp.down_proj`, hiddenSize, intermediateSize, 1, config.mlpBias);
  }
  norm('model.norm', hiddenSize);
  if (!config.tieWordEmbeddings) linear('lm_head', vocabSize, hiddenSize, 3);
  return list;
}
