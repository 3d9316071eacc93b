import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import type { GenerateOptions, LoadOptions, Model } from '../../index.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { randomFiles } from '../testing/random_source.js';
import { load } from './load.js';

const adapter = (await testAdapters()).at(-1)!.name;
const scratch = mkdtempSync(join(tmpdir(), 'splitkv-kept-'));
afterAll(() => rmSync(scratch, { recursive: true }));

const models: Record<string, RandomModelOptions> = {
  llama: { seed: 41, config: { num_attention_heads: 6, num_key_value_heads: 2, head_dim: 24, hidden_size: 72 } },
  deepseek: { seed: 42, config: { model_type: 'deepseek_v3' } },
  windows: {
    seed: 43,
    config: {
      model_type: 'gemma2',
      hidden_act: undefined,
      hidden_activation: 'gelu_pytorch_tanh',
      num_hidden_layers: 4,
      sliding_window: 70,
      query_pre_attn_scalar: 16,
    },
  },
  convolutions: {
    seed: 44,
    config: {
      model_type: 'lfm2',
      num_hidden_layers: 4,
      hidden_size: 72,
      head_dim: undefined,
      num_attention_heads: 9,
      num_key_value_heads: 3,
      full_attn_idxs: [1, 3],
    },
  },
  delta: {
    seed: 45,
    config: {
      model_type: 'qwen3_5_text',
      num_hidden_layers: 4,
      head_dim: 32,
      linear_num_key_heads: 3,
      linear_num_value_heads: 6,
      linear_key_head_dim: 16,
      linear_value_head_dim: 24,
    },
  },
};
const files = (name: string): File[] => randomFiles(models[name]!).files;
const prompt = (length: number): number[] => Array.from({ length }, (_, i) => (i * 37 + 11 + ((i * i) % 53)) % 320);
const plans: Record<string, LoadOptions> = {
  single: {},
  tp: { plan: 'tp', ranks: 2, virtualRanks: true },
  sp: { plan: 'sp', ranks: 2, virtualRanks: true },
  pp: { plan: 'pp', ranks: 2, virtualRanks: true },
  adp: { plan: 'adp', ranks: 2, virtualRanks: true },
  'token x sp': { plan: 'token x sp', ranks: 3, virtualRanks: true },
  'tp+sp': { plan: 'tp+sp', ranks: 4, virtualRanks: true },
};

interface Told {
  readonly tokens: readonly number[];
  readonly cached: number;
  readonly logits: Float32Array;
}

async function ask(model: Model, ids: readonly number[], options: GenerateOptions = {}): Promise<Told> {
  let logits = new Float32Array();
  const { tokens, stats } = await model.generate([...ids], {
    maxTokens: 6,
    temperature: 0.8,
    seed: 5,
    ignoreEos: true,
    onFirstLogits: (first) => (logits = first.slice()),
    ...options,
  }).result;
  return { tokens, cached: stats.cached_tokens!, logits };
}

let folders = 0;
const newFolder = (): string => join(scratch, String(folders++));
const warned: string[] = [];
const open = (name: string, plan: string, options: LoadOptions = {}): Promise<Model> =>
  load(files(name), {
    adapter,
    contextLength: 400,
    kv: 'f16',
    prefillChunk: 24,
    onWarning: (text) => warned.push(text),
    ...plans[plan],
    ...options,
  });

/** One answer of a model that is opened for it. */
async function alone(name: string, plan: string, ids: readonly number[], options?: LoadOptions): Promise<Told> {
  const model = await open(name, plan, options);
  try {
    return await ask(model, ids);
  } finally {
    await model.dispose();
  }
}

describe('keys and values that were kept', () => {
  const ways: [saved: string, read: string, model: string][] = [
    ['single', 'single', 'llama'],
    ['single', 'tp', 'llama'],
    ['tp', 'single', 'llama'],
    ['single', 'sp', 'llama'],
    ['sp', 'pp', 'llama'],
    ['pp', 'sp', 'llama'],
    ['single', 'adp', 'llama'],
    ['adp', 'single', 'llama'],
    ['token x sp', 'tp', 'llama'],
    ['single', 'tp+sp', 'deepseek'],
    ['sp', 'single', 'deepseek'],
    ['tp', 'pp', 'windows'],
    ['sp', 'single', 'windows'],
    ['single', 'tp', 'convolutions'],
    ['tp', 'adp', 'convolutions'],
    ['single', 'tp', 'delta'],
    ['tp', 'pp', 'delta'],
  ];
  test.each(drawn(ways, 3, 'kept keys and values'))('of %s, read by %s (%s): the same bits', async (saved, read, name) => {
    const kvDir = newFolder();
    const first = await alone(name, saved, prompt(330), { kvDir });
    expect(first.cached).toBe(0);
    // It goes on otherwise than what was kept.
    const ids = [...prompt(330), 7, 8, 9];
    const own = await alone(name, read, ids);
    const taken = await alone(name, read, ids, { kvDir });
    expect(taken.cached).toBe(320);
    expect(taken.tokens).toEqual(own.tokens);
    expect(taken.logits).toEqual(own.logits);
  });
});
