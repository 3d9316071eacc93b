import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Random } from '../../base/random.js';
import { drawn } from '../../gpu/testing/draw.js';
import { blockOf } from '../../loader/dtype.js';
import { blockTypes, type WritableType } from '../../loader/gguf/testing/quantise.js';
import { openGguf, openSource, TensorReader } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import type { ModelConfig } from '../config/model_config.js';
import { ggufArchitecture, ggufConfig } from './config.js';
import { ggufTensorIndex } from './tensors.js';
import { type GgufOptions, modelToGguf } from '../testing/gguf/model.js';
import { findLlamaCpp, llamaCppLogits } from '../testing/llama_cpp.js';
import { makeRandomModel } from '../testing/random_model.js';
import { referenceLogits, type ReferenceTensor, type WeightMap } from '../testing/reference/reference.js';

const llama = await findLlamaCpp();
if (typeof llama === 'string') console.warn(`skipped: quantised types against llama.cpp (${llama})`);
const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
afterAll(async () => {
  if (typeof llama !== 'string') await llama.dispose();
  await rm(folder, { recursive: true });
});

/** Rows of 256, as the K types need, and as little else as can be. */
const small = {
  hidden_size: 256,
  intermediate_size: 256,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
};

/** The configuration and every weight as this project reads the file. */
async function readBack(path: string): Promise<{ config: ModelConfig; weights: WeightMap }> {
  const source = await openSource(path);
  const gguf = await openGguf(source, source.gguf!);
  const config = await ggufConfig(source, gguf, undefined);
  const reader = new TensorReader(source, ggufTensorIndex(gguf, await ggufArchitecture(gguf), config));
  const weights = new Map<string, ReferenceTensor>();
  for (const [name, { shape }] of reader.index.tensors)
    weights.set(name, { shape: [...shape], data: await reader.readVector(name) });
  return { config, weights };
}

/**
 * Largest difference between llama.cpp's logits and those of the float64 reference on the weights as read here, and between
 * that and the reference on the weights before they were quantised, relative to the largest logit.
 */
async function differences(
  name: string,
  typeOf: (tensor: string, shape: readonly number[]) => WritableType | undefined,
  changes: Record<string, unknown> = small,
  factorsOf?: GgufOptions['factorsOf'],
): Promise<{ ours: number; rounding: number }> {
  const { config, weights } = makeRandomModel({ config: changes, seed: 3 });
  const path = join(folder, `${name}.gguf`);
  await writeFile(path, modelToGguf(config, weights, { typeOf, factorsOf }));
  const tokens = Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % config.vocabSize);
  if (typeof llama === 'string') throw new Error(llama);
  const oracle = await llamaCppLogits(llama, path, tokens);
  const read = await readBack(path);
  const reference = referenceLogits(read.config, read.weights, tokens);
  const before = referenceLogits(config, weights, tokens);
  let [largest, ours, rounding] = [0, 0, 0];
  for (const [position, row] of oracle.entries()) {
    for (const [id, logit] of row.entries()) {
      largest = Math.max(largest, Math.abs(logit));
      const difference = Math.abs(logit - reference[position]![id]!);
      if (!(difference <= ours)) ours = difference; // NaN counts
      rounding = Math.max(rounding, Math.abs(before[position]![id]! - reference[position]![id]!));
    }
  }
  expect(largest).toBeGreaterThan(5);
  return { ours: ours / largest, rounding: rounding / largest };
}

/** Whether this CPU has Intel's matrix extension, for which llama.cpp has kernels of its own. */
const hasAmx = (): boolean => existsSync('/proc/cpuinfo') && readFileSync('/proc/cpuinfo', 'utf8').includes('amx_tile');

describe.skipIf(typeof llama === 'string')('llama.cpp reads the same numbers out of every type', () => {
  /** Where f16 scales and minimums lie in a block. */
  const halves: Partial<Record<WritableType, number[]>> = {
    ...Object.fromEntries(['F16', 'Q4_0', 'Q5_0', 'Q8_0', 'IQ4_NL', 'IQ4_XS'].map((type) => [type, [0]])),
    ...Object.fromEntries(['Q4_1', 'Q5_1', 'Q4_K', 'Q5_K'].map((type) => [type, [0, 2]])),
    Q2_K: [80, 82],
    Q3_K: [108],
    Q6_K: [208],
    ...Object.fromEntries(
      blockTypes.filter((type) => /^(IQ[123]_[XS]|IQ1_S|Q[12]_0)/.test(type)).map((type) => [type, [0]]),
    ),
    // The highest of four parts.
    IQ1_M: [54],
    TQ1_0: [52],
    TQ2_0: [64],
  };

  // llama.cpp looks embeddings up exactly; in a matrix product it would round the activations too. Here nothing else changes them:
  // halves add nothing, an epsilon of 2^80 makes the last norm a product with 2^-40 and its weights, and the head is the identity.
  it.each(drawn<WritableType>(['F16', 'BF16', ...blockTypes], 6, 'types'))('%s, bit for bit', async (type) => {
    const { config, weights } = makeRandomModel({
      config: { ...small, vocab_size: 256, max_position_embeddings: 512, rms_norm_eps: 2 ** 80 },
      seed: 3,
    });
    for (const [name, { data }] of weights) {
      if (/o_proj|down_proj/.test(name)) data.fill(0);
      if (name === 'model.norm.weight') data.fill(2 ** 40);
      if (name === 'lm_head.weight') data.forEach((_, i) => (data[i] = i % 257 === 0 ? 1 : 0));
    }
    const bytes = modelToGguf(config, weights, {
      typeOf: (name) => (name.startsWith('token_embd') ? type : undefined),
    });
    const { start, end } = (await openGguf(new MemorySource({ 'm.gguf': bytes }), 'm.gguf')).tensors.get(
      'token_embd.weight',
    )!;
    const blocks = bytes.subarray(start, end);
    const random = new Random(5);
    for (let i = 0; i < blocks.length; i++) blocks[i] = random.integer(256);
    for (let at = 0; at < blocks.length; at += blockOf(type).bytes) {
      for (const half of halves[type] ?? []) blocks[at + half + 1]! &= 0xbf; // below 2
      if (type === 'BF16') blocks[at + 1] = (blocks[at + 1]! & 0x83) | 0x3c;
      if (type === 'MXFP4') blocks[at] = 100 + random.integer(50);
    }
    const path = join(folder, `${type}.gguf`);
    await writeFile(path, bytes);
    if (typeof llama === 'string') throw new Error(llama);
    const oracle = await llamaCppLogits(
      llama,
      path,
      Array.from({ length: 256 }, (_, token) => token),
    );
    const table = (await readBack(path)).weights.get('model.embed_tokens.weight')!.data;
    expect(new Set(table).size).toBeGreaterThan(200);
    for (const [token, row] of oracle.entries()) {
      const wrong = [...row.keys()].find((i) => row[i] !== table[token * 256 + i]);
      expect(
        wrong === undefined ? undefined : { token, wrong, llama: row[wrong], ours: table[token * 256 + wrong] },
      ).toBe(undefined);
    }
  });

  it.each<WritableType>([
    'Q8_0',
    'Q4_0',
    'Q2_K',
    'Q3_K',
    'Q4_K',
    'Q5_K',
    'Q6_K',
    'IQ4_XS',
    'MXFP4',
    'IQ3_S',
    'IQ3_XXS',
    'IQ2_S',
    'IQ2_XS',
    'IQ2_XXS',
    'IQ1_S',
    'IQ1_M',
    'TQ1_0',
    'TQ2_0',
    'Q1_0',
    'Q2_0',
    'NVFP4',
  ])('in every matrix: %s', async (type) => {
    const { ours, rounding } = await differences(`all ${type}`, (_, shape) => (shape.length > 1 ? type : undefined));
    // llama.cpp rounds activations to 8 bits before such a product, so this shows a misplaced matrix, not a last bit.
    expect(ours).toBeLessThan(0.03);
    expect(rounding).toBeGreaterThan(0.01);
  });

  it('in every matrix: NVFP4, each with a factor', async () => {
    const of = (_: string, shape: readonly number[]) => (shape.length > 1 ? ('NVFP4' as const) : undefined);
    const factorsOf = (name: string) =>
      name.startsWith('blk') || name.startsWith('output') ? [0.01 + name.length / 900] : undefined;
    const { ours, rounding } = await differences('NVFP4 with factors', of, small, factorsOf);
    expect(ours).toBeLessThan(0.03);
    expect(rounding).toBeGreaterThan(0.01);
  });

  // llama.cpp rounds activations to f16, or to 8 bits. Its kernels for AMX end the process at experts of such types.
  it.skipIf(hasAmx()).each<[WritableType, number]>([
    ['F16', 3e-3],
    ['Q6_K', 0.06],
  ])('deepseek2, its experts and halves of kv_b_proj: %s', async (type, tolerance) => {
    // Every expert is chosen: rounded activations would choose others now and then.
    const deepseek = {
      n_routed_experts: 4,
      num_experts_per_tok: 4,
      n_group: 1,
      topk_group: 1,
      model_type: 'deepseek_v3',
      hidden_size: 256,
      intermediate_size: 256,
      moe_intermediate_size: 256,
      kv_lora_rank: 256,
      q_lora_rank: 256,
      qk_nope_head_dim: 32,
      v_head_dim: 64,
      num_attention_heads: 4,
      num_hidden_layers: 2,
    };
    const typeOf = (tensor: string, shape: readonly number[]): WritableType | undefined => {
      if (shape.length < 2 || tensor.includes('gate_inp')) return undefined;
      return shape.at(-1)! % 256 === 0 || type === 'F16' ? type : 'Q8_0';
    };
    const { ours } = await differences(`deepseek ${type}`, typeOf, deepseek);
    expect(ours).toBeLessThan(tolerance);
  });
});
