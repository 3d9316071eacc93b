/**
 * Room: models for tests: small random ones of any family as the files of a folder, and configs that were published.
 * `reference` computes them in float64, llama_cpp.ts by another program.
 */

import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Random } from '../../base/random.js';
import { converter } from '../../loader/convert.js';
import { DTYPE_BYTES } from '../../loader/dtype.js';
import { encode } from '../../loader/testing/encode.js';
import { writeSafetensors, type TensorToWrite } from '../../loader/testing/write_safetensors.js';
import { byteLevelTokenizer } from '../../tokenizer/testing/tiny_tokenizers.js';
import { roundWeights } from '../../../shaders/linear/pack.js';
import { expertsOf, type ModelConfig } from '../config/model_config.js';
import { loadFamilies, parseModelConfig } from '../families/registry.js';
import { deepseekDefaults } from './random_deepseek.js';
import { gptOssTensors } from './gpt_oss_files.js';
import { modelTensors, type TensorRecipe } from './random_tensors.js';
import type { ReferenceTensor, WeightMap } from './reference/reference.js';

/** Of a BERT, in place of what a random model has otherwise. */
export const BERT = {
  model_type: 'bert',
  hidden_act: 'gelu',
  num_key_value_heads: undefined,
  head_dim: undefined,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
};

export interface RandomModelOptions {
  /** Keys of config.json, over the small defaults below; null removes one. `model_type` picks the architecture. */
  config?: Record<string, unknown>;
  seed?: number;
  dtype?: 'F32' | 'F16' | 'BF16';
  /** More than 1: that many files and an index. */
  shards?: number;
  /** What the files call a tensor; transformers' names are the default. */
  rename?: (name: string) => string;
}

export interface RandomModel {
  config: ModelConfig;
  /** The files of a Hugging Face model folder, by name. Without tokenizer where vocab_size is under 260. */
  files: Map<string, Uint8Array<ArrayBuffer>>;
  /** The values as stored, that is, rounded to the dtype, under transformers' names. */
  weights: WeightMap;
}

await loadFamilies();

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

/** Keys whose null means something. */
const nullable = [
  'sliding_window',
  'attn_logit_softcapping',
  'final_logit_softcapping',
  'q_lora_rank',
  'n_routed_experts',
  'n_shared_experts',
];

/**
 * A model of random weights. Their scales keep logits at about +-3 standard deviation and let attention prefer some keys and
 * routers some experts, so that a wrong position, head, mask or expert shows.
 */
export function makeRandomModel({
  config: changes = {},
  seed = 1,
  dtype: stored = 'F32',
  shards = 1,
  rename = (name) => name,
}: RandomModelOptions = {}): RandomModel {
  const modelDefaults = { ...defaults, ...deepseekDefaults(changes.model_type) };
  const merged = Object.entries({ ...modelDefaults, torch_dtype: torchDtype[stored], ...changes });
  const raw: Record<string, unknown> = Object.fromEntries(
    merged.filter(([key, value]) => value !== undefined && (value !== null || nullable.includes(key))),
  );
  const config = parseModelConfig(raw);
  const random = new Random(seed);
  const packed = expertsOf(config)?.packed;
  const tensors = modelTensors(config).map((recipe: TensorRecipe): TensorToWrite => {
    const { name, shape, mean, deviation } = recipe;
    const dtype = recipe.dtype ?? stored;
    let values = random.normals(
      shape.reduce((a, b) => a * b),
      deviation,
    );
    if (packed && /\.experts\.\d+\..*weight$/.test(name)) values = roundWeights(packed, values, shape[0]!, shape[1]!);
    if (mean !== 0) values.forEach((value, i) => (values[i] = mean + value));
    const data = new Uint8Array(values.length * DTYPE_BYTES[dtype]);
    encode(dtype, values, data);
    return { name, dtype, shape, data };
  });
  const weights = new Map(
    tensors.map(({ name, dtype, shape, data }): [string, ReferenceTensor] => {
      const stored = new Float32Array(shape.reduce((a, b) => a * b));
      converter(dtype as 'F32' | 'F16' | 'BF16', data as Uint8Array<ArrayBuffer>)(0, stored.length, stored, 0);
      return [name, { shape, data: stored }];
    }),
  );
  const files = new Map<string, Uint8Array<ArrayBuffer>>([
    ['config.json', json(raw)],
    ...weightFiles(
      (config.architecture === 'gpt_oss' ? gptOssTensors(config, tensors) : tensors).map((tensor) => ({
        ...tensor,
        name: rename(tensor.name),
      })),
      shards,
    ),
  ]);
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
