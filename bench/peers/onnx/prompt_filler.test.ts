import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { fileListSource, TensorReader } from '../../../src/loader/index.js';
import type { RandomModelOptions } from '../../../src/model/testing/random_model.js';
import { openRunner } from '../../../src/engine/testing/open_runner.js';
import { randomFiles } from '../../../src/engine/testing/random_source.js';
import { handedKv, PromptFiller } from './prompt_filler.js';

const adapter = (await testAdapters()).at(-1)!.name;
const models = {
  llama: { seed: 51, config: { num_attention_heads: 6, num_key_value_heads: 3, head_dim: 24, hidden_size: 72 } },
  qwen2: { seed: 52, config: { model_type: 'qwen2', tie_word_embeddings: true, intermediate_size: 100 } },
  qwen3: {
    seed: 53,
    config: {
      model_type: 'qwen3',
      rope_scaling: {
        rope_type: 'llama3',
        factor: 4,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 128,
      },
    },
  },
} as const satisfies Record<string, RandomModelOptions>;
const prompt = (length: number): number[] => Array.from({ length }, (_, i) => (i * 37 + 11 + ((i * i) % 53)) % 320);

describe('prompts by onnxruntime', () => {
  test.each([
    ['llama', 'f32', 'f32', 1e-4],
    ['qwen2', 'q4', 'f32', 1e-4],
    ['qwen3', 'f16', 'f16', 2e-2],
    // The graph's own prompt rows see exact keys: 2% of the largest logit.
    ['llama', 'f32', 'q8', 2e-1],
  ] as const)('%s, weights %s, kv %s: logits of the same tokens agree', async (name, weights, kv, tolerance) => {
    const shared = { adapter, model: models[name], weights, kv, contextLength: 400 };
    const { runner, group } = await openRunner(shared);
    const { model, files } = randomFiles(models[name]);
    const filler = await PromptFiller.open({
      config: model.config,
      reader: await TensorReader.open(fileListSource(files)),
      type: weights,
      runner: { contextLength: 400, prefillChunk: 128, kvType: kv },
    });
    for (const length of [1, 64, 300]) {
      const tokens = prompt(length);
      const rowsAfter = async (begin: Promise<void>): Promise<{ ids: number[]; rows: Float32Array[] }> => {
        await begin;
        const ids: number[] = [];
        const rows: Float32Array[] = [];
        for (let step = 0; step < 4; step++) {
          ids.push((await (step === 0 ? runner.sampleFirst() : runner.step()))[0]!);
          rows.push(await runner.slotLogits(0));
        }
        await runner.release();
        return { ids, rows };
      };
      const own = await rowsAfter(runner.prefill(tokens, 4, { seed: 0 }));
      const kv = handedKv(await filler.present(tokens), length, model.config, runner.options.kvType);
      const taken = await rowsAfter(runner.takeOver(tokens, 4, { seed: 0 }, kv));
      expect(taken.ids).toEqual(own.ids);
      for (const [step, row] of own.rows.entries()) {
        const worst = row.reduce((most, value, id) => Math.max(most, Math.abs(value - taken.rows[step]![id]!)), 0);
        expect(worst, `${length} tokens, step ${step}`).toBeLessThan(tolerance);
      }
    }
    await filler.dispose();
    group.dispose();
  });
});
