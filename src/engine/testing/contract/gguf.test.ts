import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { WritableType } from '../../../loader/gguf/testing/quantise.js';
import { matrixShape, openSource, TensorReader } from '../../../loader/index.js';
import { startServer } from '../../../loader/testing/http_server.js';
import { parseModelConfig } from '../../../model/families/registry.js';
import { modelToGguf } from '../../../model/testing/gguf/model.js';
import { vocabularyMetadata } from '../../../model/testing/gguf/vocabulary.js';
import { findLlamaCpp, llamaCppLogits } from '../../../model/testing/llama_cpp.js';
import { makeRandomModel } from '../../../model/testing/random_model.js';
import type { ReferenceTensor } from '../../../model/testing/reference/reference.js';
import type { LoadOptions } from '../../contracts/api.js';
import { load } from '../../faces/load.js';

const llama = await findLlamaCpp();
const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
afterAll(async () => {
  if (typeof llama !== 'string') await llama.dispose();
  await rm(folder, { recursive: true });
});
const adapter = (await testAdapters()).at(-1)!.name;

/** Every row of logits, as bytes. */
async function logitBytes(
  where: Parameters<typeof load>[0],
  weights: 'f32' | 'auto',
  options: LoadOptions = {},
): Promise<{ bytes: Buffer; weights: string; name: string }> {
  const model = await load(where, { adapter, weights, ...options });
  try {
    const { rows } = await model.logits(
      Array.from({ length: 12 }, (_, i) => (i * 37 + 11) % model.info.vocabSize),
      { all: true },
    );
    return {
      bytes: Buffer.concat(rows.map((row) => Buffer.from(row.slice().buffer))),
      weights: model.info.weights,
      name: model.info.name,
    };
  } finally {
    await model.dispose();
  }
}

const small = {
  hidden_size: 256,
  intermediate_size: 256,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
};

describe.skipIf(typeof llama === 'string')(
  'logits agree with llama.cpp on the same quantised file',
  { timeout: 120_000 },
  () => {
    test.each<[type: WritableType, tolerance: number]>([
      // llama.cpp looks embeddings up exactly, and rounds the activations of a matrix product to 8 bits.
      ['Q4_K', 1e-3],
      ['Q6_K', 0.03],
    ])('%s', async (type, tolerance) => {
      const { config, weights } = makeRandomModel({ config: small, seed: 4 });
      const exact = type === 'Q4_K';
      const typeOf = (name: string, shape: readonly number[]): WritableType | undefined =>
        shape.length < 2 || (exact && !name.startsWith('token_embd')) ? undefined : type;
      const path = join(folder, `${type}.gguf`);
      await writeFile(path, modelToGguf(config, weights, { typeOf }));
      if (typeof llama === 'string') throw new Error(llama);
      const tokens = Array.from({ length: 40 }, (_, i) => (i * 37 + 11) % config.vocabSize);
      const expected = await llamaCppLogits(llama, path, tokens);
      const model = await load(path, { adapter, weights: 'f32' });
      const { rows } = await model.logits(tokens, { all: true });
      await model.dispose();
      let [worst, largest] = [0, 0];
      for (const [position, row] of rows.entries()) {
        for (const [id, logit] of row.entries()) {
          largest = Math.max(largest, Math.abs(logit));
          const error = Math.abs(logit - expected[position]![id]!);
          if (!(error <= worst)) worst = error;
        }
      }
      expect(rows).toHaveLength(tokens.length);
      expect(worst / largest).toBeLessThan(tolerance);
    });
  },
);

describe('the same bits as from the folder it was made from', { timeout: 120_000 }, () => {
  test('by path, by URL, as a File; kept as the file stores it', async () => {
    const random = makeRandomModel({ config: { num_hidden_layers: 1 }, seed: 6, dtype: 'F16' });
    const bytes = modelToGguf(random.config, random.weights, {
      typeOf: (_, shape) => (shape.length > 1 ? 'F16' : undefined),
    });
    const files = [...random.files].map(([name, data]) => new File([data], name));
    const original = await logitBytes(files, 'auto');
    const path = join(folder, 'small model.gguf');
    await writeFile(path, bytes);
    const server = await startServer({ 'm.gguf': bytes });
    try {
      for (const where of [path, `${server.url}m.gguf`, [new File([bytes], 'm.gguf')]]) {
        const read = await logitBytes(where, 'auto');
        expect(read).toMatchObject({ weights: 'f16', name: where === path ? 'small model.gguf' : 'm.gguf' });
        expect(read.bytes.equals(original.bytes)).toBe(true);
      }
    } finally {
      await server[Symbol.asyncDispose]();
    }
  });

  test.each<[WritableType, string]>([
    ['Q4_0', 'q4'],
    ['Q8_0', 'q8'],
    ['Q4_K', 'q4_k'],
    ['Q3_K', 'q3_k'],
  ])('%s is kept as %s', async (type, kept) => {
    const { config, weights } = makeRandomModel({ config: { ...small, vocab_size: 64 } });
    const bytes = modelToGguf(config, weights, { typeOf: (_, shape) => (shape.length > 1 ? type : undefined) });
    expect((await logitBytes([new File([bytes], 'm.gguf')], 'auto')).weights).toBe(kept);
  });
});

// A rank's columns begin and end within blocks of 256.
test('the same bits on two ranks', { timeout: 120_000 }, async () => {
  const { config, weights } = makeRandomModel({ config: small, seed: 8 });
  const bytes = modelToGguf(config, weights, { typeOf: (_, shape) => (shape.length > 1 ? 'Q4_K' : undefined) });
  const files = [new File([bytes], 'm.gguf')];
  const one = await logitBytes(files, 'f32');
  const two = await logitBytes(files, 'f32', { ranks: 2, virtualRanks: true, plan: 'tp' });
  expect(two.bytes.equals(one.bytes)).toBe(true);
});

test('models/tiny-gqa as a Q8_0 GGUF answers as it does', { timeout: 120_000 }, async () => {
  const where = 'models/tiny-gqa';
  const read = async (name: string): Promise<unknown> => JSON.parse(await readFile(`${where}/${name}`, 'utf8'));
  const config = parseModelConfig(await read('config.json'));
  const reader = await TensorReader.open(await openSource(where));
  const weights = new Map<string, ReferenceTensor>();
  for (const [name, { shape }] of reader.index.tensors)
    weights.set(name, { shape: [...shape], data: await reader.readRows(name, 0, matrixShape({ shape }).rows) });
  const metadata = vocabularyMetadata(
    (await read('tokenizer.json')) as never,
    (await read('tokenizer_config.json')) as never,
    {
      pre: 'gpt-2',
      vocabSize: config.vocabSize,
      addBos: true,
    },
  );
  const bytes = modelToGguf(config, weights, {
    metadata,
    typeOf: (_, shape) => (shape.length > 1 ? 'Q8_0' : undefined),
  });
  // A file of the catalog: what it doesn't say of sampling its makers do.
  const model = await load([new File([bytes], 'gemma-3-1b-it-Q4_K_M.gguf')], { adapter });
  try {
    expect(model.info).toMatchObject({ hasChatTemplate: true, weights: 'q8', vocabSize: config.vocabSize });
    expect(model.info.sampling).toEqual({ topP: 0.95, topK: 64 });
    const content = 'lena hid the red needle in the bag . where is the red needle ?';
    const { text, finish_reason } = await model.generate({ messages: [{ role: 'user', content }] }, { maxTokens: 20 })
      .result;
    expect(text.trim()).toMatch(/bag/);
    expect(finish_reason).toBe('stop');
  } finally {
    await model.dispose();
  }
});
