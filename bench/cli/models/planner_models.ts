import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeRandomModel, writeModelFolder } from '../../../src/model/testing/random_model.js';

/** Shapes that the embedded models don't have: few wide layers, and many narrow ones with a large vocabulary. */
const CONFIGS: Readonly<Record<string, Record<string, unknown>>> = {
  wide: {
    hidden_size: 512,
    intermediate_size: 1536,
    num_hidden_layers: 3,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    vocab_size: 1024,
    max_position_embeddings: 4096,
  },
  deep: {
    model_type: 'qwen3',
    hidden_size: 128,
    intermediate_size: 384,
    num_hidden_layers: 12,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    head_dim: 32,
    vocab_size: 8192,
    max_position_embeddings: 4096,
    tie_word_embeddings: true,
  },
};

export const PLANNER_MODELS: readonly string[] = Object.keys(CONFIGS);

/** Runs `body` with the folder of a random model of that name, which is deleted afterwards. */
export async function withPlannerModel<T>(name: string, body: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), `splitkv-${name}-`));
  try {
    await writeModelFolder(folder, makeRandomModel({ config: CONFIGS[name]! }).files);
    return await body(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
