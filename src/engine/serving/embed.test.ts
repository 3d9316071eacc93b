import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn, sweepsAll } from '../../gpu/testing/draw.js';
import type { RandomModelOptions } from '../../model/testing/random_model.js';
import { familyStates } from '../../model/testing/reference/families.js';
import { referenceStates } from '../../model/testing/reference/reference.js';
import type { EmbedOptions, LoadOptions, Model } from '../contracts/api.js';
import { load } from '../faces/load.js';
import { randomFiles } from '../testing/random_source.js';
import { somePrompt } from '../testing/run_bits.js';
import { serve } from '../faces/serving_model.js';

const adapter = (await testAdapters()).at(-1)!.name;
const context = { max_position_embeddings: 1024 };
const llama: RandomModelOptions = { seed: 11, config: context };
const gemma = {
  hidden_act: undefined,
  query_pre_attn_scalar: 24,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
};
const models: Record<string, RandomModelOptions> = {
  llama,
  'width 100, tied': {
    seed: 2,
    config: {
      ...context,
      hidden_size: 100,
      num_attention_heads: 9,
      num_key_value_heads: 3,
      head_dim: 24,
      tie_word_embeddings: true,
    },
  },
  deepseek_v3: { seed: 23, config: { ...context, model_type: 'deepseek_v3' } },
  gemma3_text: {
    seed: 61,
    config: { ...context, ...gemma, model_type: 'gemma3_text', head_dim: 24, sliding_window: 5 },
  },
  lfm2: { seed: 71, config: { ...context, model_type: 'lfm2' } },
};
const byFamily = ['gemma3_text', 'lfm2'];

/** Pooled, and of length 1, in float64. */
function pooled(states: readonly Float64Array[], { pooling = 'mean', dimensions }: EmbedOptions): number[] {
  const rows = pooling === 'last' ? states.slice(-1) : states;
  const sum = Array.from(rows[0]!, (_, i) => rows.reduce((total, row) => total + row[i]!, 0)).slice(0, dimensions);
  const length = Math.hypot(...sum);
  return sum.map((value) => value / length);
}

const open = (options: LoadOptions = {}): Promise<Model> =>
  load(randomFiles(llama).files, { adapter, prefillChunk: 256, requests: 4, ...options });
const bits = ({ embeddings }: { readonly embeddings: readonly Float32Array[] }): Buffer[] =>
  embeddings.map((vector) => Buffer.from(vector.slice().buffer));
const texts = [somePrompt(1), somePrompt(300), somePrompt(64, 1), somePrompt(530, 2), somePrompt(7, 3)];

describe('embeddings', () => {
  for (const name of drawn(Object.keys(models), 1, 'embeddings')) {
    test(`${name}: as in float64`, { timeout: 120_000 }, async () => {
      const { model: random, files } = randomFiles(models[name]!);
      const raw = JSON.parse(new TextDecoder().decode(random.files.get('config.json'))) as Record<string, unknown>;
      const { config, weights } = random;
      const prompts = [70, 3].map((length) => somePrompt(length).map((id) => id % config.vocabSize));
      const model = await load(files, { adapter, weights: 'f32', kv: 'f32', prefillChunk: 64 });
      try {
        for (const options of [{}, { pooling: 'last' as const }, { pooling: 'last' as const, dimensions: 10 }]) {
          const { embeddings, prompt_tokens: tokens } = await model.embed(prompts, options);
          expect(tokens).toBe(73);
          for (const [at, prompt] of prompts.entries()) {
            const states = byFamily.includes(name)
              ? familyStates(raw, weights, prompt)
              : referenceStates(config, weights, prompt);
            const expected = pooled(states, options);
            expect(embeddings[at]).toHaveLength(expected.length);
            for (const [i, value] of expected.entries()) expect(embeddings[at]![i]).toBeCloseTo(value, 4);
          }
        }
      } finally {
        await model.dispose();
      }
    });
  }

  const plans: LoadOptions[] = [
    { plan: 'tp', ranks: 2 },
    { plan: 'sp', ranks: 2 },
    { plan: 'pp', ranks: 2 },
    { plan: 'token', ranks: 2 },
    { plan: 'adp', ranks: 2 },
    { plan: 'token x sp', ranks: 3 },
    { plan: 'pp x tp', ranks: 4 },
    { plan: 'tp', ranks: 2, workers: true },
    { kvBudget: 0.3 },
    { prefill: { kind: 'splitkv' } },
  ];
  test('the same bits on every plan, alone or in company, and beside answers', { timeout: 300_000 }, async () => {
    const one = await open();
    const expected: Buffer[][] = [];
    for (const pooling of ['mean', 'last'] as const) {
      expected.push(bits(await one.embed(texts, { pooling })));
      for (const [at, text] of texts.entries()) {
        expect(bits(await one.embed([text], { pooling }))).toEqual([expected.at(-1)![at]]);
      }
    }
    await one.dispose();
    // Chunks of a text on several ranks, whose rows come in any order.
    for (const plan of new Set([plans[1]!, ...drawn(plans, 1, 'plans of embeddings')])) {
      const many = await open({ virtualRanks: plan.ranks !== undefined && !plan.workers, ...plan });
      const answer = many.generate(somePrompt(40, 9), { maxTokens: 12, ignoreEos: true });
      const both = await Promise.all((['mean', 'last'] as const).map((pooling) => many.embed(texts, { pooling })));
      expect(both.map(bits), JSON.stringify(plan)).toEqual(expected);
      expect((await answer.result).tokens).toHaveLength(12);
      await many.dispose();
    }
  });

  test(
    'what is wrong is told; aborting frees what it held; a server gives the same',
    { timeout: 120_000 },
    async () => {
      const one = await open();
      const { info } = one;
      await expect(one.embed([])).rejects.toMatchObject({ code: 'usage' });
      await expect(one.embed([[]])).rejects.toMatchObject({ code: 'usage' });
      await expect(one.embed([[1, 9999]])).rejects.toMatchObject({ code: 'usage' });
      await expect(one.embed([[1], somePrompt(1025)])).rejects.toMatchObject({ code: 'context_full' });
      await expect(one.embed(['a'], { pooling: 'max' as never })).rejects.toThrow('use mean, last');
      await expect(one.embed(['a'], { dimensions: info.hiddenSize + 1 })).rejects.toThrow(`${info.hiddenSize}`);
      const leaving = new AbortController();
      const left = one.embed(
        Array.from({ length: 20 }, (_, at) => somePrompt(900, at)),
        { signal: leaving.signal },
      );
      leaving.abort();
      await expect(left).rejects.toMatchObject({ code: 'aborted' });
      const words = await one.embed('the cat sat');
      expect(words.prompt_tokens).toBe(one.tokenize('the cat sat').length);
      const served = await serve(randomFiles(llama).files, {
        adapter,
        slots: 2,
        ...(sweepsAll && { ranks: 2, virtualRanks: true }),
      });
      const [more, same] = await Promise.all([served.embed([...texts, 'the cat sat']), one.embed(texts)]);
      expect(bits(more)).toEqual([...bits(same), ...bits(words)]);
      const { metrics } = served;
      expect(metrics).toMatchObject({ unfinished: 0, running: 0, kvBlocksFree: metrics.kvBlocks });
      await served.dispose();
      await one.dispose();
    },
  );
});
