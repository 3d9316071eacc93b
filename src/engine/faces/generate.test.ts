import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { drawn } from '../../gpu/testing/draw.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { ChatCompletionChunk, GenerateOptions, GenerateResult, LoadOptions, Model } from '../contracts/api.js';
import { load } from './load.js';
import type { LoadedModel } from './model.js';
import { randomFiles } from '../testing/random_source.js';

// The last is the quicker one to compile for, where there are two software adapters.
const adapter = (await testAdapters()).at(-1);
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: 1024 } });
const open = (options: LoadOptions = {}): Promise<Model> => load(files, { adapter: adapter!.name, ...options });
const run = (model: Model, length: number, options = {}): Promise<GenerateResult> =>
  model.generate(
    Array.from({ length }, (_, i) => (i * 31) % 320),
    { ignoreEos: true, ...options },
  ).result;

describe('token loop', () => {
  let model: Model;
  beforeAll(async () => {
    model = await open();
  });
  afterAll(() => model.dispose());

  test('greedy tokens are the same for every number of steps in flight and every prefill chunk', async () => {
    const expected = await run(model, 300, { maxTokens: 24 });
    expect(expected.tokens).toHaveLength(24);
    for (const options of [
      { stepsInFlight: 1, prefillChunk: 1 },
      { stepsInFlight: 8, prefillChunk: 100 },
    ]) {
      const other = await open(options);
      const result = await run(other, 300, { maxTokens: 24 });
      await other.dispose();
      expect(result.tokens, JSON.stringify(options)).toEqual(expected.tokens);
    }
  });

  test('greedy decoding follows the argmax of recomputed logits', async () => {
    const { tokens } = await run(model, 10, { maxTokens: 6 });
    const context = Array.from({ length: 10 }, (_, i) => (i * 31) % 320);
    for (const token of tokens) {
      const { rows } = await model.logits(context);
      expect(rows).toHaveLength(1);
      const best = rows[0]!.reduce((top, value, id, row) => (value > row[top]! ? id : top), 0);
      expect(token).toBe(best);
      context.push(token);
    }
  });

  test('the same seed gives the same tokens, another seed other ones', async () => {
    const sampling = { maxTokens: 20, temperature: 1, topK: 50, topP: 0.95 };
    const first = await run(model, 5, { ...sampling, seed: 7 });
    expect((await run(model, 5, { ...sampling, seed: 7 })).tokens).toEqual(first.tokens);
    expect((await run(model, 5, { ...sampling, seed: 8 })).tokens).not.toEqual(first.tokens);
    const unseeded = await run(model, 5, sampling);
    expect((await run(model, 5, { ...sampling, seed: unseeded.seed })).tokens).toEqual(unseeded.tokens);
  });

  test('a large repetition penalty never repeats a token', async () => {
    const { tokens } = await run(model, 3, { maxTokens: 30, repetitionPenalty: 1e6 });
    expect(new Set(tokens).size).toBe(30);
    expect(tokens.some((id) => [0, 31, 62].includes(id))).toBe(false);
  });

  const controls: GenerateOptions = {
    frequencyPenalty: 0.8,
    presencePenalty: 0.25,
    repetitionPenalty: 1.1,
    logitBias: { 3: 1.5, 77: 1.5, 201: 1.5, 319: -100 },
    minTokens: 9,
    stopTokenIds: [77, 100],
  };

  test('biases and penalties: the argmax of recomputed logits, changed by hand', async () => {
    const { tokens } = await run(model, 10, { ...controls, maxTokens: 12 });
    expect(tokens.length).toBeGreaterThan(8);
    const context = Array.from({ length: 10 }, (_, i) => (i * 31) % 320);
    for (const [step, token] of tokens.entries()) {
      const { rows } = await model.logits(context);
      const changed = [...rows[0]!].map((logit, id) => {
        if (step < 9 && [2, 77, 100].includes(id)) return Number.NEGATIVE_INFINITY;
        const biased = logit + ({ 3: 1.5, 77: 1.5, 201: 1.5, 319: -100 }[id] ?? 0);
        const count = tokens.slice(0, step).filter((other) => other === id).length;
        const penalised = !context.includes(id) ? biased : biased > 0 ? biased / 1.1 : biased * 1.1;
        return penalised - 0.8 * count - (count > 0 ? 0.25 : 0);
      });
      expect(changed[token], `step ${step}`).toBeCloseTo(Math.max(...changed), 4);
      context.push(token);
    }
  });

  test.each<[string, LoadOptions]>([
    ['one step in flight', { stepsInFlight: 1, prefillChunk: 3 }],
    ['three ranks', { ranks: 3, plan: 'token', virtualRanks: true }],
    ['two ranks, each in a worker', { ranks: 2, plan: 'tp', workers: true }],
  ])('controls, drawn: the same tokens with %s', { timeout: 120_000 }, async (_name, options) => {
    const drawn = { ...controls, temperature: 0.9, minP: 0.02, seed: 3, maxTokens: 24, stopTokenIds: [] };
    const kinds = [drawn, { ...drawn, minP: 0, topK: 30 }, { ...controls, maxTokens: 24, stopTokenIds: [77] }];
    const other = await open(options);
    for (const kind of kinds) {
      const { tokens } = await run(model, 20, kind);
      expect(tokens.length).toBeGreaterThan(8);
      expect((await run(other, 20, kind)).tokens).toEqual(tokens);
    }
    await other.dispose();
  });

  test('proposals, on ranks in workers: the same tokens, counted; none where a generation or the load wants none', async () => {
    const other = await open({ speculate: 'ngram', stepsInFlight: 2, ranks: 2, plan: 'tp', workers: true });
    const { speculation } = (other as LoadedModel).how;
    speculation!.tries = 4;
    for (const kind of [{}, { temperature: 0.8, seed: 4, repetitionPenalty: 1.1 }]) {
      const expected = await run(model, 30, { ...kind, maxTokens: 60, speculate: 'off' });
      expect(expected.stats.speculation).toEqual({ drafted: 0, accepted: 0, steps: 0 });
      const { tokens, stats } = await run(other, 30, { ...kind, maxTokens: 60 });
      expect(tokens).toEqual(expected.tokens);
      const none = await run(other, 30, { ...kind, maxTokens: 60, speculate: 'off' });
      expect(none.tokens).toEqual(tokens);
      expect(none.stats.speculation).toEqual({ drafted: 0, accepted: 0, steps: 0 });
      if (kind.temperature) continue;
      expect(stats.speculation!.steps).toBeGreaterThan(0);
      expect(stats.speculation!.drafted).toBeLessThanOrEqual(4 * stats.speculation!.steps);
    }
    await other.dispose();
    const without = await open({ speculate: 'off' });
    expect((await run(without, 5)).stats.speculation).toBeUndefined();
    await expect(run(without, 5, { speculate: 'ngram' })).rejects.toMatchObject({ code: 'usage' });
    await without.dispose();
    await expect(run(model, 5, { speculate: 'often' })).rejects.toMatchObject({ code: 'usage' });
    expect((await run(model, 5, { speculate: 'auto', maxTokens: 1 })).tokens).toHaveLength(1);
  });

  test('proposals of a model with states, which nothing else keeps', async () => {
    const lfm2 = randomFiles({
      seed: 33,
      config: { model_type: 'lfm2', num_hidden_layers: 3, full_attn_idxs: [1], block_auto_adjust_ff_dim: false },
    });
    const options: LoadOptions = { adapter: adapter!.name, prefixCaching: false, contextLength: 128 };
    // Of few tokens, so that some follow each other again.
    const few = { maxTokens: 50, logitBias: { 5: 50, 6: 50, 90: 50 } };
    const plain = await load(lfm2.files, options);
    const expected = await run(plain, 20, few);
    await plain.dispose();
    const other = await load(lfm2.files, { ...options, speculate: 'auto' });
    (other as LoadedModel).how.speculation!.tries = 5;
    const { tokens, stats } = await run(other, 20, few);
    await other.dispose();
    expect(tokens).toEqual(expected.tokens);
    expect(stats.speculation!.accepted).toBeGreaterThan(0);
  });

  test("the makers' sampling is told, and generate stays greedy", async () => {
    const generation = new File(
      [JSON.stringify({ eos_token_id: 2, temperature: 2, top_k: 30 })],
      'generation_config.json',
    );
    const told = await load([...files.filter(({ name }) => name !== generation.name), generation], {
      adapter: adapter!.name,
    });
    expect(told.info.sampling).toEqual({ temperature: 2, topK: 30 });
    expect((await run(told, 5, { maxTokens: 8 })).tokens).toEqual((await run(model, 5, { maxTokens: 8 })).tokens);
    expect(model.info.sampling).toEqual({});
    await told.dispose();
  });

  test('stop tokens end the text, not before minTokens', async () => {
    const { tokens, text } = await run(model, 4, { maxTokens: 12 });
    const [, , , stop] = tokens;
    const first = tokens.indexOf(stop!);
    const stopped = await run(model, 4, { maxTokens: 12, stopTokenIds: [319, stop!] });
    expect(stopped).toMatchObject({ finish_reason: 'stop', finish_detail: 'stop_token' });
    expect(stopped.tokens).toEqual(tokens.slice(0, first));
    expect(text.startsWith(stopped.text)).toBe(true);
    const longer = await run(model, 4, { maxTokens: 12, stopTokenIds: [stop!], minTokens: first + 3 });
    expect(longer.tokens.length).toBeGreaterThanOrEqual(first + 3);
    expect(longer.tokens.slice(0, first)).toEqual(tokens.slice(0, first));
    expect(longer.tokens).not.toContain(stop);
    // Nor is a stop text looked for before.
    const pieces = tokens.map((_, i) => model.detokenize(tokens.slice(0, i + 1)));
    const [early] = text;
    const later = await run(model, 4, { maxTokens: 12, stop: early!, minTokens: 5 });
    expect(later.tokens.length).toBeGreaterThan(5);
    expect(later.tokens).toEqual(tokens.slice(0, later.tokens.length));
    expect(later.text.startsWith(pieces[4]!)).toBe(true);
    // The model's own eos is held back too, where it is ignored as well.
    const biased = { logitBias: { 2: 100 }, maxTokens: 7, minTokens: 5 };
    expect((await run(model, 4, biased)).tokens.slice(4)).toEqual([expect.not.closeTo(2, 0), 2, 2]);
    expect(await run(model, 4, { ...biased, ignoreEos: false })).toMatchObject({ finish_detail: 'eos' });
    expect((await run(model, 4, { ...biased, ignoreEos: false })).tokens).toHaveLength(5);
  });

  test.each<[GenerateOptions, string]>([
    [{ minP: 1.5 }, 'min_p 1.5: use a number from 0 to 1, or leave it out (0)'],
    [{ minP: Number.NaN }, 'min_p NaN'],
    [{ frequencyPenalty: 2.1 }, 'frequency_penalty 2.1: use a number from -2 to 2'],
    [{ presencePenalty: -3 }, 'presence_penalty -3'],
    [{ logitBias: { 320: 1 } }, 'logit_bias: token 320; this model'],
    [{ logitBias: { cat: 1 } as never }, 'logit_bias: token NaN'],
    [{ logitBias: { 3: Number.POSITIVE_INFINITY } }, 'logit_bias of token 3: Infinity'],
    [{ logitBias: 4 as never }, 'logit_bias 4: use an object'],
    [{ stopTokenIds: [-1] }, 'stop_token_ids: token -1; this model'],
    [{ stopTokenIds: 7 as never }, 'stop_token_ids 7: use a list'],
    [{ minTokens: 2.5 }, 'min_tokens 2.5'],
    [{ minTokens: 300 }, 'min_tokens 300: more than the 256 of max_tokens'],
  ])('refuses %o', async (options, message) => {
    await expect(model.generate([1], options).result).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining(message),
    });
  });

  test('ends at maxTokens, at a stop string, at eos, and says why', async () => {
    const whole = await run(model, 4, { maxTokens: 12 });
    expect(whole).toMatchObject({ finish_reason: 'length', finish_detail: 'max_tokens', prompt_tokens: 4 });
    expect(whole.text).toBe(model.detokenize(whole.tokens));
    const stop = whole.text.slice(3, 5);
    const stopped = await run(model, 4, { maxTokens: 12, stop: ['not there', stop] });
    expect(stopped).toMatchObject({ finish_reason: 'stop', finish_detail: 'stop_string' });
    expect(stopped.text).toBe(whole.text.slice(0, whole.text.indexOf(stop)));
    // The model's eos id is 2: a prompt whose continuation reaches it would be luck, so make another id the eos.
    const eos = whole.tokens[3]!;
    const { files: eosFiles } = randomFiles({ seed: 11, config: { eos_token_id: eos } });
    const ending = await load(eosFiles, { adapter: adapter!.name });
    const ended = await ending.generate([0, 31, 62, 93], { maxTokens: 12 }).result;
    await ending.dispose();
    expect(ended).toMatchObject({ finish_reason: 'stop', finish_detail: 'eos' });
    expect(ended.tokens).toEqual(whole.tokens.slice(0, whole.tokens.indexOf(eos)));
  });

  test('a full context ends the generation and says so', async () => {
    const small = await open({ contextLength: 40 });
    const result = await run(small, 30, { maxTokens: 100 });
    expect(result).toMatchObject({ finish_reason: 'length', finish_detail: 'context_full' });
    // The last token needs no place in the cache.
    expect(result.tokens).toHaveLength(11);
    expect((await run(small, 40, { maxTokens: 5 })).tokens).toHaveLength(1);
    const same = await run(model, 30, { maxTokens: 11 });
    expect(result.tokens).toEqual(same.tokens);
    await expect(run(small, 41)).rejects.toMatchObject({
      code: 'context_full',
      message: expect.stringContaining('41 tokens'),
    });
    await small.dispose();
  });

  test('an abort ends it within the steps in flight, and the model stays usable', async () => {
    const controller = new AbortController();
    const generation = model.generate([1, 2, 3], { ignoreEos: true, maxTokens: 500, signal: controller.signal });
    let pieces = 0;
    for await (const _piece of generation) if (++pieces === 3) controller.abort();
    const result = await generation.result;
    expect(result.finish_reason).toBe('abort');
    expect(result.tokens.length).toBeLessThan(40);
    const left = model.generate([1, 2, 3], { ignoreEos: true, maxTokens: 500 });
    for await (const _piece of left) break;
    expect((await left.result).finish_reason).toBe('abort');
    const before = new AbortController();
    before.abort();
    expect((await model.generate([1], { signal: before.signal }).result).tokens).toEqual([]);
    expect((await run(model, 4, { maxTokens: 3 })).tokens).toHaveLength(3);
  });

  test('concurrent generations take turns and give what they give alone', async () => {
    const alone = await run(model, 6, { maxTokens: 8 });
    const both = await Promise.all([
      run(model, 6, { maxTokens: 8 }),
      run(model, 9, { maxTokens: 8 }),
      run(model, 6, { maxTokens: 8 }),
    ]);
    expect(both[0].tokens).toEqual(alone.tokens);
    expect(both[2].tokens).toEqual(alone.tokens);
  });

  test('streamed pieces add up to the text', async () => {
    const generation = model.generate('once upon a time', { maxTokens: 20, ignoreEos: true });
    let text = '';
    for await (const piece of generation) text += piece;
    expect(text).toBe((await generation.result).text);
    await expect(
      (async () => {
        for await (const _piece of generation) break;
      })(),
    ).rejects.toMatchObject({ code: 'usage' });
  });

  test('wrong prompts and options are refused with what to do', async () => {
    await expect(model.generate([]).result).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('empty'),
    });
    await expect(model.generate([320]).result).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('0 to 319'),
    });
    await expect(model.generate([1.5]).result).rejects.toMatchObject({ code: 'usage' });
    await expect(model.generate(undefined as never).result).rejects.toMatchObject({ code: 'usage' });
    await expect(model.logits(undefined as never)).rejects.toMatchObject({ code: 'usage' });
    await expect(model.logits([-1])).rejects.toMatchObject({ code: 'usage' });
    await expect(run(model, 3, { temperature: -1 })).rejects.toMatchObject({ code: 'usage' });
    await expect(run(model, 3, { topP: 0 })).rejects.toMatchObject({ code: 'usage' });
    await expect(run(model, 3, { maxTokens: 0 })).rejects.toMatchObject({ code: 'usage' });
    await expect(run(model, 3, { temprature: 1 })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('temprature'),
    });
    await expect(open({ prefillChunk: 0 })).rejects.toMatchObject({ code: 'usage' });
    await expect(open({ contextLength: 5000 })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('1024'),
    });
    await expect(open({ weights: 'q5' as 'q4' })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('q4'),
    });
    await expect(open({ wieghts: 'q4' } as LoadOptions)).rejects.toMatchObject({
      message: expect.stringContaining("'weights'"),
    });
  });

  test('the OpenAI shape', async () => {
    const { files: chatFiles } = randomFiles({ seed: 11 });
    const config = new File(
      [
        JSON.stringify({
          chat_template: "{% for m in messages %}{{ m['content'] }} {% endfor %}",
          tokenizer_class: 'PreTrainedTokenizerFast',
        }),
      ],
      'tokenizer_config.json',
    );
    const chat = await load([...chatFiles.filter((file) => file.name !== config.name), config], {
      adapter: adapter!.name,
    });
    const messages = [{ role: 'user' as const, content: 'hello there' }];
    const whole = await chat.chat.completions.create({ messages, max_tokens: 8 });
    expect(whole).toMatchObject({
      object: 'chat.completion',
      choices: [{ message: { role: 'assistant' } }],
      usage: { completion_tokens: expect.any(Number) },
    });
    let streamed = '';
    let last: string | null | undefined;
    for await (const chunk of await chat.chat.completions.create({ messages, max_tokens: 8, stream: true })) {
      streamed += chunk.choices[0]!.delta.content ?? '';
      last = chunk.choices[0]!.finish_reason;
    }
    expect(streamed).toBe(whole.choices[0]!.message.content);
    expect(last).toBe(whole.choices[0]!.finish_reason);
    const counting = { messages, max_tokens: 8, stream: true, stream_options: { include_usage: true } } as const;
    const counted: ChatCompletionChunk[] = [];
    for await (const chunk of await chat.chat.completions.create(counting)) counted.push(chunk);
    expect(counted.at(-1)).toMatchObject({ object: 'chat.completion.chunk', choices: [], usage: whole.usage });
    expect(counted.slice(0, -1).map(({ choices, usage }) => [choices.length, usage])).toEqual(
      counted.slice(1).map(() => [1, null]),
    );
    const { stream: _, ...unstreamed } = counting;
    await expect(chat.chat.completions.create(unstreamed)).rejects.toThrow(/stream_options go with stream: true/);
    const wrong = { ...counting, stream_options: { usage: true } as object };
    await expect(chat.chat.completions.create(wrong)).rejects.toThrow(/stream_options: unknown option 'usage'/);
    await chat.dispose();
  });
});

test("a token's time is told by rank, and adds up", async () => {
  for (const plan of drawn(['tp', 'sp', 'pp', 'token'], 1, 'token time')) {
    const two = await open({ ranks: 2, plan });
    // Few tokens: the steps that are dropped at the end weigh most.
    for (const maxTokens of [1, 3]) {
      const { stats } = await run(two, 40, { maxTokens });
      for (const {
        compute_ms_per_token: computes,
        exchange_ms_per_token: exchanges,
        wait_ms_per_token: waits,
      } of stats.ranks) {
        expect(Math.min(computes, exchanges, waits), plan).toBeGreaterThanOrEqual(0);
        const tokenMs = maxTokens > 1 ? 1000 / stats.tokens_per_second : 0;
        expect(computes + exchanges + waits, plan).toBeCloseTo(tokenMs, 6);
      }
      if (maxTokens > 1)
        expect(Math.max(...stats.ranks.map((rank) => rank.wait_ms_per_token)), plan).toBeGreaterThan(0);
    }
    await two.dispose();
  }
});
