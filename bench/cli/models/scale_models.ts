import { createHash } from 'node:crypto';
import { mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { throwIfAborted } from '../../../src/base/errors.js';
import { formatBytes } from '../../../src/base/math.js';
import { Random } from '../../../src/base/random.js';
import { bf16Bits } from '../../../src/loader/testing/encode.js';
import { safetensorsHeader } from '../../../src/loader/testing/write_safetensors.js';
import type { ModelConfig } from '../../../src/model/config/model_config.js';
import { patchesOf } from '../../../src/model/config/vision_config.js';
import { readModelConfig } from '../../../src/model/families/registry.js';
import {
  idefics3Connector,
  modelTensors,
  siglipTensors,
  type TensorRecipe,
} from '../../../src/model/testing/random_tensors.js';
import type { ScaleModel } from './scale_names.js';

/** Of models that take images, in tiles. */
const smolvlm = {
  architectures: ['SmolVLMForConditionalGeneration'],
  model_type: 'smolvlm',
  scale_factor: 4,
  tie_word_embeddings: false,
};

const common = { hidden_act: 'silu', tie_word_embeddings: true, torch_dtype: 'bfloat16', initializer_range: 0.02 };

const random = {
  ...common,
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  num_key_value_heads: 4,
  head_dim: 64,
  max_position_embeddings: 32768,
  rope_theta: 10000,
  rms_norm_eps: 1e-5,
  attention_bias: false,
  mlp_bias: false,
  bos_token_id: 0,
  eos_token_id: 0,
};

const random14m = {
  ...random,
  num_hidden_layers: 4,
  hidden_size: 512,
  intermediate_size: 1536,
  num_attention_heads: 8,
  vocab_size: 2048,
};

const smollm2 = {
  ...common,
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  num_hidden_layers: 30,
  hidden_size: 576,
  intermediate_size: 1536,
  num_attention_heads: 9,
  num_key_value_heads: 3,
  head_dim: 64,
  vocab_size: 49152,
  max_position_embeddings: 8192,
  rope_theta: 100000,
  rms_norm_eps: 1e-5,
  attention_bias: false,
  mlp_bias: false,
  bos_token_id: 0,
  eos_token_id: 0,
};

/** config.json of models whose size is what counts, as published; their weights are made here. */
export const SCALE_CONFIGS: Readonly<Record<ScaleModel, Record<string, unknown>>> = {
  'random-14m': random14m,
  'random-46m': {
    ...random,
    num_hidden_layers: 6,
    hidden_size: 768,
    intermediate_size: 2304,
    num_attention_heads: 12,
    vocab_size: 4096,
  },
  // DeepSeek's attention at an eighth of its width, with MLPs that aren't experts.
  'random-mla': {
    ...common,
    architectures: ['DeepseekV2ForCausalLM'],
    model_type: 'deepseek_v2',
    num_hidden_layers: 4,
    hidden_size: 512,
    intermediate_size: 1536,
    num_attention_heads: 8,
    num_key_value_heads: 8,
    q_lora_rank: null,
    kv_lora_rank: 128,
    qk_nope_head_dim: 64,
    qk_rope_head_dim: 32,
    v_head_dim: 64,
    n_routed_experts: null,
    vocab_size: 2048,
    max_position_embeddings: 32768,
    rope_theta: 10000,
    rms_norm_eps: 1e-6,
    attention_bias: false,
    tie_word_embeddings: false,
    bos_token_id: 0,
    eos_token_id: 0,
  },
  'random-vlm': {
    ...smolvlm,
    image_token_id: 2047,
    scale_factor: 2,
    text_config: { ...random14m, tie_word_embeddings: false },
    vision_config: {
      model_type: 'smolvlm_vision',
      hidden_size: 384,
      intermediate_size: 1536,
      num_hidden_layers: 6,
      num_attention_heads: 6,
      image_size: 224,
      patch_size: 16,
    },
  },
  'smolvlm-256m': {
    ...smolvlm,
    image_token_id: 49190,
    text_config: { ...smollm2, vocab_size: 49280, tie_word_embeddings: false },
    vision_config: {
      model_type: 'smolvlm_vision',
      hidden_size: 768,
      intermediate_size: 3072,
      num_hidden_layers: 12,
      num_attention_heads: 12,
      image_size: 512,
      patch_size: 16,
    },
  },
  'smollm2-135m': smollm2,
  'gemma3-270m': {
    ...common,
    architectures: ['Gemma3ForCausalLM'],
    model_type: 'gemma3_text',
    hidden_act: undefined,
    hidden_activation: 'gelu_pytorch_tanh',
    num_hidden_layers: 18,
    hidden_size: 640,
    intermediate_size: 2048,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 256,
    query_pre_attn_scalar: 256,
    vocab_size: 262144,
    max_position_embeddings: 32768,
    rope_theta: 1000000,
    rope_local_base_freq: 10000,
    sliding_window: 512,
    rms_norm_eps: 1e-6,
    bos_token_id: 2,
    eos_token_id: [1, 106],
  },
  'lfm2-350m': {
    ...common,
    architectures: ['Lfm2ForCausalLM'],
    model_type: 'lfm2',
    hidden_act: undefined,
    num_hidden_layers: 16,
    hidden_size: 1024,
    block_ff_dim: 6656,
    full_attn_idxs: [2, 5, 8, 10, 12, 14],
    num_attention_heads: 16,
    num_key_value_heads: 8,
    vocab_size: 65536,
    max_position_embeddings: 128000,
    rope_theta: 1000000,
    norm_eps: 1e-5,
    bos_token_id: 1,
    eos_token_id: 7,
  },
  'qwen3.5-0.8b': {
    ...common,
    architectures: ['Qwen3_5ForCausalLM'],
    model_type: 'qwen3_5_text',
    num_hidden_layers: 24,
    hidden_size: 1024,
    intermediate_size: 3584,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 256,
    linear_num_key_heads: 16,
    linear_num_value_heads: 16,
    vocab_size: 248320,
    max_position_embeddings: 262144,
    rms_norm_eps: 1e-6,
    bos_token_id: 248044,
    eos_token_id: 248044,
  },
  'qwen2.5-0.5b': {
    ...common,
    architectures: ['Qwen2ForCausalLM'],
    model_type: 'qwen2',
    num_hidden_layers: 24,
    hidden_size: 896,
    intermediate_size: 4864,
    num_attention_heads: 14,
    num_key_value_heads: 2,
    vocab_size: 151936,
    max_position_embeddings: 32768,
    rope_theta: 1000000,
    rms_norm_eps: 1e-6,
    use_sliding_window: false,
    bos_token_id: 151643,
    eos_token_id: 151643,
  },
};

/** A decoder's, as they are called beside an encoder. */
const inside = (tensors: readonly TensorRecipe[]): TensorRecipe[] =>
  tensors.map((recipe) => ({ ...recipe, name: recipe.name.replace(/^model\./, 'model.text_model.') }));

/** Of an encoder of tiles, and its projection. */
function tilesTensors({ vision, hiddenSize }: ModelConfig): TensorRecipe[] {
  const { tower, patch, merge } = vision!;
  const { hiddenSize: hidden, layers } = tower;
  const { mlp } = layers[0]!;
  const width = mlp.kind === 'plain' ? mlp.width : 0;
  const sizes = { hidden, layers: layers.length, width, patch, places: patchesOf(vision!) };
  return [...siglipTensors('model.vision_model', sizes), idefics3Connector(hiddenSize, hidden, merge)];
}

/** Pictures are one tile. */
const WHOLE = { do_image_splitting: false };

const PIECE_ELEMENTS = 2 ** 21;
const TABLE_SIZE = 2 ** 16;

/**
 * A model folder with that config and random bf16 weights, in the system's folder for temporary files; one made before is used
 * again. Weights are drawn from a table of 65536 normal numbers: half a billion of them in seconds.
 */
export async function scaleModelFolder(
  name: ScaleModel,
  signal: AbortSignal,
  onProgress: (line: string) => void,
): Promise<string> {
  const raw = SCALE_CONFIGS[name];
  const config = await readModelConfig(raw);
  const recipes = config.vision ? [...inside(modelTensors(config)), ...tilesTensors(config)] : modelTensors(config);
  const tensors = recipes.map((recipe) => ({ ...recipe, dtype: 'BF16' as const }));
  const header = safetensorsHeader(tensors, { format: 'pt' });
  const elements = tensors.map(({ shape }) => shape.reduce((product, extent) => product * extent, 1));
  const size = header.byteLength + 2 * elements.reduce((sum, count) => sum + count, 0);

  // Another config or another recipe makes another folder.
  const digest = createHash('sha256')
    .update(JSON.stringify([raw, tensors]))
    .digest('hex')
    .slice(0, 8);
  const folder = join(tmpdir(), 'splitkv-bench', `${name}-${digest}`);
  const file = join(folder, 'model.safetensors');
  const configFile = join(folder, 'config.json');
  const configText = `${JSON.stringify(raw, null, 2)}\n`;
  const found = await stat(file).catch(() => undefined);
  // The config is written last: with it the folder is complete.
  if (found?.size === size && (await readFile(configFile, 'utf8').catch(() => '')) === configText) return folder;

  onProgress(`writing ${formatBytes(size)} of random weights to ${folder}`);
  await mkdir(folder, { recursive: true });
  const partial = `${file}.${process.pid}`;
  try {
    const out = await open(partial, 'w');
    try {
      await out.writeFile(header);
      const normals = new Random(1).normals(TABLE_SIZE);
      const piece = new Uint16Array(PIECE_ELEMENTS);
      let state = 0x9e3779b9;
      for (const [index, { mean, deviation }] of tensors.entries()) {
        const table = Uint16Array.from(normals, (value) => bf16Bits(mean + value * deviation));
        for (let left = elements[index]!; left > 0; left -= PIECE_ELEMENTS) {
          throwIfAborted(signal, `writing ${folder}`);
          const count = Math.min(left, PIECE_ELEMENTS);
          for (let i = 0; i < count; i++) {
            state ^= state << 13; // xorshift32
            state ^= state >>> 17;
            state ^= state << 5;
            piece[i] = table[state >>> 16]!;
          }
          await out.writeFile(new Uint8Array(piece.buffer, 0, 2 * count));
        }
      }
    } finally {
      await out.close();
    }
    await rename(partial, file);
    if (config.vision) await writeFile(join(folder, 'preprocessor_config.json'), JSON.stringify(WHOLE));
    await writeFile(configFile, configText);
  } finally {
    await rm(partial, { force: true });
  }
  return folder;
}
