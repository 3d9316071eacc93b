import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { fileListSource, TensorReader } from '../../../loader/index.js';
import type { RandomModelOptions } from '../../../model/testing/random_model.js';
import type { LoadOptions } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { openRunner } from '../../testing/open_runner.js';
import { randomFiles } from '../../testing/random_source.js';
import { serve } from '../../faces/serving_model.js';
import { OnnxPrefill } from './onnx_prefill.js';

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

describe('prefill worker of onnxruntime', () => {
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
    const worker = await OnnxPrefill.open({
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
      const taken = await rowsAfter(runner.takeOver(tokens, 4, { seed: 0 }, await worker.prefill(tokens)));
      expect(taken.ids).toEqual(own.ids);
      for (const [step, row] of own.rows.entries()) {
        const worst = row.reduce((most, value, id) => Math.max(most, Math.abs(value - taken.rows[step]![id]!)), 0);
        expect(worst, `${length} tokens, step ${step}`).toBeLessThan(tolerance);
      }
    }
    await worker.dispose();
    group.dispose();
  });

  test('the embedded model: the same greedy text as our own kernels give', async () => {
    const [question] = readFileSync('models/eval.jsonl', 'utf8').split('\n', 1);
    const { prompt: text } = JSON.parse(question!) as { readonly prompt: string };
    const answer = async (options: LoadOptions): Promise<string> => {
      const model = await load('models/tiny-gqa', { adapter, contextLength: 512, ...options });
      const result = await model.generate(text, { maxTokens: 24, ignoreEos: true }).result;
      await model.dispose();
      return result.text;
    };
    const own = await answer({});
    expect(own.length).toBeGreaterThan(10);
    expect(await answer({ prefill: { kind: 'onnxruntime' } })).toBe(own);
    expect(
      await answer({ prefill: { kind: 'onnxruntime' }, ranks: 2, plan: 'token', virtualRanks: true, prefillChunk: 64 }),
    ).toBe(own);
  });

  test('a served model takes prompts over, and shares no prefixes', async () => {
    const { files } = randomFiles(models.llama);
    const options = { adapter, contextLength: 200, slots: 2, prefill: { kind: 'onnxruntime' } } as const;
    await expect(serve(files, { ...options, prefixCaching: true })).rejects.toThrow(
      "its keys and values may depend on a prompt's length",
    );
    const model = await serve(files, options);
    expect(model.info).toMatchObject({ prefixCaching: false, prefill: { kind: 'onnxruntime' } });
    const answers = await Promise.all(
      [prompt(90), prompt(20), prompt(90)].map(async (tokens) => {
        let text = '';
        for await (const event of model.complete(tokens, { maxTokens: 6, ignoreEos: true })) text += event.text;
        return text;
      }),
    );
    expect(answers[2]).toBe(answers[0]);
    expect(model.metrics.cachedTokensTotal).toBe(0);
    await model.dispose();
  });

  test('a latent cache has no graph', async () => {
    const { files } = randomFiles({ seed: 54, config: { model_type: 'deepseek_v3' } });
    await expect(load(files, { adapter, prefill: { kind: 'onnxruntime' } })).rejects.toMatchObject({
      code: 'unsupported',
      message: expect.stringContaining("use prefill kind 'splitkv'") as string,
    });
    await expect(load(files, { adapter, prefill: { kind: 'onnxruntime', adapter: 'x' } })).rejects.toThrow(
      'chooses its own',
    );
  });
});
