import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { matrixShape, openSource, TensorReader } from '../../../loader/index.js';
import type { ModelConfig } from '../../../model/config/model_config.js';
import { parseModelConfig } from '../../../model/families/registry.js';
import { modelToGguf } from '../../../model/testing/gguf/model.js';
import { findLlamaCpp, llamaCppLogits } from '../../../model/testing/llama_cpp.js';
import { makeRandomModel } from '../../../model/testing/random_model.js';
import {
  clearlyRoutedTokens,
  type ReferenceTensor,
  type WeightMap,
} from '../../../model/testing/reference/reference.js';
import { load } from '../../faces/load.js';

const llama = await findLlamaCpp();
const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
afterAll(async () => {
  if (typeof llama !== 'string') await llama.dispose();
  await rm(folder, { recursive: true });
});

/** Largest difference of the runtime's f32 logits from llama.cpp's on the same weights, relative to the largest logit. */
async function difference(
  where: string | readonly File[],
  config: ModelConfig,
  weights: WeightMap,
  tokens: readonly number[],
): Promise<number> {
  const adapter = (await testAdapters()).at(-1)!;
  const gguf = join(folder, `${config.architecture}.gguf`);
  await writeFile(gguf, modelToGguf(config, weights));
  const model = await load(where, { weights: 'f32', adapter: adapter.name });
  try {
    if (typeof llama === 'string') throw new Error(llama);
    const expected = await llamaCppLogits(llama, gguf, tokens);
    const { rows } = await model.logits(tokens, { all: true });
    let worst = 0;
    let largest = 0;
    for (const [position, row] of rows.entries()) {
      for (const [id, value] of row.entries()) {
        largest = Math.max(largest, Math.abs(expected[position]![id]!));
        const error = Math.abs(value - expected[position]![id]!);
        if (!(error <= worst)) worst = error;
      }
    }
    return worst / largest;
  } finally {
    await model.dispose();
  }
}

describe.skipIf(typeof llama === 'string')(
  'logits agree with llama.cpp on the same weights',
  { timeout: 120_000 },
  () => {
    test('models/tiny-gqa', async () => {
      const where = 'models/tiny-gqa';
      const config = parseModelConfig(await readFile(`${where}/config.json`, 'utf8'));
      const reader = await TensorReader.open(await openSource(where));
      const weights = new Map<string, ReferenceTensor>();
      for (const [tensor, { shape }] of reader.index.tensors) {
        weights.set(tensor, { shape: [...shape], data: await reader.readRows(tensor, 0, matrixShape({ shape }).rows) });
      }
      // Token ids of a story question would do as well; these reach all of the vocabulary.
      const tokens = Array.from({ length: 120 }, (_, i) => (i * 389 + 5) % config.vocabSize);
      expect(await difference(where, config, weights, tokens)).toBeLessThan(1e-3);
    });

    // llama.cpp can't read models/tiny-mla: it takes models without q_lora only with V2-Lite's 27 layers.
    test('a random deepseek_v3', async () => {
      const { config, files, weights } = makeRandomModel({
        seed: 9,
        config: { model_type: 'deepseek_v3' },
      });
      const tokens = clearlyRoutedTokens(config, weights, 40);
      const where = [...files].map(([name, data]) => new File([data], name));
      expect(await difference(where, config, weights, tokens)).toBeLessThan(1e-3);
    });
  },
);
