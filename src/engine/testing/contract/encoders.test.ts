import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { drawn } from '../../../gpu/testing/draw.js';
import { modelToGguf } from '../../../model/testing/gguf/model.js';
import { findLlamaCpp, llamaCppEmbedding } from '../../../model/testing/llama_cpp.js';
import { BERT, type RandomModelOptions } from '../../../model/testing/random_model.js';
import { familyStates } from '../../../model/testing/reference/families.js';
import type { LoadOptions, Model, Pooling } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { serve } from '../../faces/serving_model.js';
import { randomFiles } from '../random_source.js';
import { somePrompt } from '../run_bits.js';

interface EncoderCase {
  readonly options: RandomModelOptions & { readonly config: Record<string, unknown> };
  /** How far from llama.cpp's vectors of length 1, where it runs the same model. */
  readonly llamaCpp?: number;
}

const bert = { ...BERT, max_position_embeddings: 600 };
const gemma = {
  model_type: 'gemma3_text',
  use_bidirectional_attention: true,
  hidden_act: undefined,
  query_pre_attn_scalar: 16,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
};

const cases: Record<string, EncoderCase> = {
  // llama.cpp's GELU is by tanh.
  bert: { options: { seed: 31, config: { ...bert, type_vocab_size: 2 } }, llamaCpp: 3e-3 },
  'bert, odd widths': {
    options: {
      seed: 32,
      config: { ...bert, hidden_size: 72, num_attention_heads: 9, intermediate_size: 100, num_hidden_layers: 3 },
    },
    llamaCpp: 3e-3,
  },
  'xlm-roberta': {
    options: { seed: 33, config: { ...bert, model_type: 'xlm-roberta', type_vocab_size: 1, pad_token_id: 1 } },
    llamaCpp: 3e-3,
  },
  modernbert: {
    options: {
      seed: 34,
      config: {
        ...bert,
        model_type: 'modernbert',
        num_hidden_layers: 5,
        local_attention: 14,
        hidden_size: 96,
        num_attention_heads: 6,
      },
    },
    llamaCpp: 3e-3,
  },
  'modernbert, windows over chunk ends': {
    options: { seed: 35, config: { ...bert, model_type: 'modernbert', num_hidden_layers: 4, local_attention: 300 } },
  },
  embeddinggemma: {
    options: {
      seed: 36,
      config: {
        ...gemma,
        num_hidden_layers: 7,
        sliding_window: 18,
        hidden_size: 72,
        head_dim: 24,
        query_pre_attn_scalar: 24,
        num_attention_heads: 6,
      },
    },
    llamaCpp: 3e-3,
  },
  'embeddinggemma, a window over chunk ends': {
    options: {
      seed: 37,
      config: {
        ...gemma,
        num_hidden_layers: 3,
        sliding_window: 310,
        sliding_window_pattern: 3,
        num_key_value_heads: 1,
      },
    },
  },
};

const adapter = (await testAdapters()).at(-1)!.name;
const llama = await findLlamaCpp();
if (typeof llama === 'string') console.warn(`skipped: encoders against llama.cpp (${llama})`);
const folder = await mkdtemp(join(tmpdir(), 'splitkv-'));
afterAll(async () => {
  if (typeof llama !== 'string') await llama.dispose();
  await rm(folder, { recursive: true });
});

const pooledBy: Readonly<Record<Pooling, (states: readonly Float64Array[]) => readonly Float64Array[]>> = {
  mean: (states) => states,
  cls: (states) => states.slice(0, 1),
  last: (states) => states.slice(-1),
};

const ofLengthOne = (vector: readonly number[]): number[] => {
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
};

function pooled(states: readonly Float64Array[], pooling: Pooling): number[] {
  const rows = pooledBy[pooling](states);
  return ofLengthOne(Array.from(rows[0]!, (_, i) => rows.reduce((sum, row) => sum + row[i]!, 0)));
}

const rawOf = ({ files }: { files: ReadonlyMap<string, Uint8Array> }): Record<string, unknown> =>
  JSON.parse(new TextDecoder().decode(files.get('config.json'))) as Record<string, unknown>;
const open = (options: RandomModelOptions, more: LoadOptions = {}): Promise<Model> =>
  load(randomFiles(options).files, { adapter, weights: 'f32', kv: 'f32', ...more });
const bits = ({ embeddings }: { readonly embeddings: readonly Float32Array[] }): Buffer[] =>
  embeddings.map((vector) => Buffer.from(vector.slice().buffer));

describe('encoders', () => {
  const texts = [3, 280, 17, 1, 64, 300].map((length, seed) => somePrompt(length, seed));

  for (const name of drawn(Object.keys(cases), 3, 'encoders')) {
    const { options, llamaCpp } = cases[name]!;

    test(`${name}: as in float64, and the same bits alone, together, in any order`, { timeout: 240_000 }, async () => {
      const { model: random } = randomFiles(options);
      const model = await open(options);
      try {
        for (const pooling of ['mean', 'cls', 'last'] as const) {
          const together = await model.embed(texts, { pooling });
          for (const [at, text] of texts.entries()) {
            if (text.length > 70 && pooling !== 'mean') continue;
            const expected = pooled(familyStates(rawOf(random), random.weights, text), pooling);
            for (const [i, value] of expected.entries()) expect(together.embeddings[at]![i]).toBeCloseTo(value, 4);
            expect(bits(await model.embed([text], { pooling }))).toEqual([bits(together)[at]]);
          }
          expect(bits(await model.embed(texts.toReversed(), { pooling }))).toEqual(bits(together).toReversed());
        }
      } finally {
        await model.dispose();
      }
    });

    test.runIf(typeof llama !== 'string' && llamaCpp !== undefined)(
      `${name}: as in llama.cpp, and from its file`,
      { timeout: 120_000 },
      async () => {
        const { model: random } = randomFiles(options);
        const path = join(folder, `${options.seed}.gguf`);
        const gguf = modelToGguf(random.config, random.weights);
        await writeFile(path, gguf);
        const model = await load([new File([gguf], 'model.gguf')], { adapter, weights: 'f32', kv: 'f32' });
        const same = await open(options);
        const text = somePrompt(40, 5);
        if (typeof llama === 'string') throw new Error(llama);
        const theirs = ofLengthOne(await llamaCppEmbedding(llama, path, text));
        const [ours] = (await model.embed([text])).embeddings;
        for (const [i, value] of theirs.entries()) expect(Math.abs(ours![i]! - value)).toBeLessThan(llamaCpp!);
        expect(bits(await same.embed([text]))).toEqual([Buffer.from(ours!.slice().buffer)]);
        await model.dispose();
        await same.dispose();
      },
    );
  }

  test(
    'the same bits on plans that cut heads or layers; others are refused by name',
    { timeout: 240_000 },
    async () => {
      for (const name of drawn(['bert', 'modernbert', 'embeddinggemma'], 1, 'plans of encoders')) {
        const { options } = cases[name]!;
        const one = await open(options);
        const expected = bits(await one.embed(texts));
        await one.dispose();
        for (const plan of ['tp', 'pp'] as const) {
          const many = await open(options, { plan, ranks: 2, virtualRanks: true });
          expect(bits(await many.embed(texts)), plan).toEqual(expected);
          await many.dispose();
        }
        const served = await serve(randomFiles(options).files, {
          adapter,
          weights: 'f32',
          kv: 'f32',
          slots: 3,
          tokensPerIteration: 32,
        });
        expect(bits(await served.embed(texts))).toEqual(expected);
        expect(() => served.complete(texts[0]!)).toThrow('is an encoder');
        await served.dispose();
        for (const plan of ['sp', 'token', 'adp'] as const)
          await expect(open(options, { plan, ranks: 2, virtualRanks: true })).rejects.toThrow('an encoder');
        await expect(open(options, { kvBudget: 0.5 })).rejects.toThrow("can't be had");
        await expect(open(options, { prefixCaching: true })).rejects.toThrow('an encoder');
      }
    },
  );

  test('what an encoder does not do is told', { timeout: 120_000 }, async () => {
    const model = await open(cases['bert']!.options, { contextLength: 100 });
    await expect(model.generate([1, 2]).result).rejects.toThrow('is an encoder');
    await expect(model.logits([1, 2])).rejects.toThrow('is an encoder');
    await expect(model.embed([somePrompt(101)])).rejects.toMatchObject({ code: 'context_full' });
    await expect(model.embed([[]])).rejects.toMatchObject({ code: 'usage' });
    // What begins every text.
    await expect(model.embed([''])).resolves.toMatchObject({ prompt_tokens: 1 });
    await expect(model.embed(['a'], { pooling: 'max' as never })).rejects.toThrow('use mean, last, cls');
    await expect(model.rerank('a', ['b'])).rejects.toThrow('gives no score');
    await expect(model.embed([[5 + 2 ** 24, 3]])).resolves.toMatchObject({ prompt_tokens: 2 });
    for (const id of [5 + 2 ** 25, 5 + 2 ** 32])
      await expect(model.embed([[id]])).rejects.toMatchObject({ code: 'usage' });
    await model.dispose();
  });

  test('segments of a pair', { timeout: 120_000 }, async () => {
    const { options } = cases['bert']!;
    const { model: random } = randomFiles(options);
    const model = await open(options);
    const text = somePrompt(20).map((id, at) => id + (at < 8 ? 0 : 2 ** 24));
    const [vector] = (await model.embed([text], { pooling: 'cls' })).embeddings;
    const expected = pooled(familyStates(rawOf(random), random.weights, text), 'cls');
    for (const [i, value] of expected.entries()) expect(vector![i]).toBeCloseTo(value, 4);
    await model.dispose();
  });
});
