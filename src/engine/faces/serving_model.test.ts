import { isTurn } from '../../gpu/testing/draw.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { Model } from '../contracts/api.js';
import { openSource } from '../../loader/index.js';
import { modelShape } from '../../model/shape.js';
import { makePlan } from '../../placement/index.js';
import { load } from './load.js';
import { openModelFiles, openTokenizer } from '../files/model_files.js';
import { placeOf } from '../workers/model_place.js';
import { BreakableRanks } from '../testing/breakable_ranks.js';
import { openRunner } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';
import { WorkerGroup } from '../workers/worker_group.js';
import type { Completion, CompletionEvent, CompletionOptions, ServingModel } from '../serving/api.js';
import { EngineServingModel, serve } from './serving_model.js';

const adapter = (await testAdapters()).at(-1)!.name;
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: 512 } });
const prompts = ['the cat sat on the mat', 'Über die Brücke', '東京 の 猫 🐈', 'x'];

interface Collected {
  text: string;
  finish: CompletionEvent['finish'];
  logprobs: CompletionEvent['logprobs'];
  pieces: string[];
}

async function collect(completion: Completion): Promise<Collected[]> {
  const answers: Collected[] = [];
  for await (const { index, text, logprobs, finish } of completion) {
    const answer = (answers[index] ??= { text: '', finish: undefined, logprobs: [], pieces: [] });
    expect(answer.finish).toBeUndefined();
    answer.text += text;
    answer.pieces.push(text);
    answer.logprobs = [...answer.logprobs, ...logprobs];
    answer.finish = finish;
  }
  return answers;
}

const noneLeft = (model: ServingModel): void => {
  const { metrics } = model;
  expect(metrics).toMatchObject({ running: 0, waiting: 0, unfinished: 0, kvBlocksFree: metrics.kvBlocks });
};

describe('a model that answers many at once', () => {
  let single: Model;
  let model: ServingModel;
  beforeAll(async () => {
    single = await load(files, { adapter });
    model = await serve(files, { adapter, slots: 4, kvBlocks: 24 });
  });
  afterAll(async () => {
    noneLeft(model);
    await model.dispose();
    await single.dispose();
  });

  const sampled: CompletionOptions = { maxTokens: 40, temperature: 0.8, topP: 0.9, ignoreEos: true };

  test('texts are those of generate, side by side, whatever the stop texts', async () => {
    const requests = prompts.flatMap((prompt, at): { prompt: string; options: CompletionOptions }[] => [
      { prompt, options: { ...sampled, seed: at } },
      { prompt, options: { maxTokens: 30, seed: 0, repetitionPenalty: 1.2 } },
      {
        prompt,
        options: {
          ...sampled,
          seed: at,
          minP: 0.02,
          frequencyPenalty: 1,
          presencePenalty: -0.5,
          logitBias: { 40: 4, 41: 4, 42: 4 },
          stopTokenIds: [40, 42],
          minTokens: 10,
        },
      },
    ]);
    const expected = [];
    for (const { prompt, options } of requests) {
      expected.push(await single.generate(prompt, options).result);
    }
    const answers = await Promise.all(
      requests.map(async ({ prompt, options }) => (await collect(model.complete(prompt, options)))[0]!),
    );
    for (const [at, { text, finish }] of answers.entries()) {
      expect(text).toBe(expected[at]!.text);
      expect(finish).toBe(expected[at]!.finish_detail);
    }
    const stops = expected.map(({ text }) => [Array.from(text).slice(4, 7).join(''), 'never']);
    const stopped = await Promise.all(
      requests.map(async ({ prompt, options }, at) => {
        const whole = await collect(model.complete(prompt, { ...options, stop: stops[at]! }));
        return whole[0]!;
      }),
    );
    for (const [at, { text, finish }] of stopped.entries()) {
      // Below minTokens nothing is looked for.
      if (requests[at]!.options.minTokens !== undefined) continue;
      expect(finish).toBe('stop_string');
      expect(text).toBe(expected[at]!.text.slice(0, expected[at]!.text.indexOf(stops[at]![0]!)));
    }
  });

  test('chat messages go through the template, ids go as they are, prompts may be many', async () => {
    const messages = [{ role: 'user' as const, content: prompts[0]! }];
    const expected = await single.generate({ messages }, { maxTokens: 10 }).result;
    const ids = single.tokenize(prompts[1]!);
    const other = await single.generate(ids, { maxTokens: 10 }).result;
    const completion = model.completeAll([{ messages }, ids, prompts[1]!], { maxTokens: 10 });
    const answers = await collect(completion);
    expect(answers.map(({ text }) => text)).toEqual([expected.text, other.text, other.text]);
    expect(completion.promptTokens).toBe(expected.prompt_tokens + 2 * other.prompt_tokens);
    expect(completion.completionTokens).toBe(expected.tokens.length + 2 * other.tokens.length);
  });

  test('n answers: seeds of their own that follow from the seed, and a prompt computed once', async () => {
    const prompt = 'the river runs under an old stone bridge and the dog saw the cat run to the other side of the town';
    const { cachedTokensTotal } = model.metrics;
    const options = { ...sampled, seed: 5, n: 3 };
    const answers = await collect(model.complete(prompt, options));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(3);
    expect(answers[0]!.text).toBe((await single.generate(prompt, { ...sampled, seed: 5 }).result).text);
    expect((await collect(model.complete(prompt, options))).map(({ text }) => text)).toEqual(
      answers.map(({ text }) => text),
    );
    const shared = model.metrics.cachedTokensTotal - cachedTokensTotal;
    // All answers but the very first find all of the prompt but its last token; that one may know the first words.
    const most = single.tokenize(prompt).length - 1;
    expect(shared).toBeGreaterThanOrEqual(5 * most);
    expect(shared).toBeLessThan(5 * most + 5);
    const unseeded = model.complete('x', { ...sampled });
    const [first] = await collect(unseeded);
    expect((await collect(model.complete('x', { ...sampled, seed: unseeded.seed })))[0]).toEqual(first);
  });

  test("probabilities are the model's own, whatever the sampling, and come with the text", async () => {
    const ids = single.tokenize(prompts[0]!);
    const completion = model.complete(ids, { ...sampled, maxTokens: 8, seed: 3, repetitionPenalty: 1.5, logprobs: 3 });
    const [{ logprobs, text }] = (await collect(completion)) as [Collected];
    expect(logprobs).toHaveLength(8);
    const { tokens } = await single.generate(ids, { ...sampled, maxTokens: 8, seed: 3, repetitionPenalty: 1.5 }).result;
    expect(logprobs.map(({ id }) => id)).toEqual(tokens);
    for (const [at, { logprob, top, id, offset }] of logprobs.entries()) {
      const { rows } = await single.logits([...ids, ...tokens.slice(0, at)]);
      const row = [...rows[0]!];
      const total = Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0));
      // The reference runs generated tokens as prompt rows, which rounds otherwise.
      expect(logprob).toBeCloseTo(row[id]! - total, 3);
      const best = [...row.keys()].sort((a, b) => row[b]! - row[a]!).slice(0, 3);
      expect(top.map((other) => other.id)).toEqual(best);
      expect(offset).toBeLessThanOrEqual(text.length);
    }
    expect(new TextDecoder().decode(Uint8Array.from(logprobs.flatMap(({ bytes }) => bytes)))).toBe(text);
  });

  test("echo: the prompt's own probabilities, by its own logits, before each of n answers", async () => {
    const ids = single.tokenize('the cat sat on the mat, and the cat sat');
    const { rows } = await single.logits(ids, { all: true });
    const options = { ...sampled, maxTokens: 4, seed: 3, logprobs: 2 };
    const plain = await collect(model.complete(ids, { ...options, n: 2 }));
    const echoed = await collect(model.complete(ids, { ...options, n: 2, echo: true }));
    for (const [answer, { text, logprobs }] of echoed.entries()) {
      const given = logprobs.slice(0, ids.length);
      expect(given.map(({ id }) => id)).toEqual(ids);
      expect([given[0]!.logprob, given[0]!.top]).toEqual([NaN, []]);
      for (const [at, row] of rows.slice(0, -1).entries()) {
        const total = Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0));
        expect(given[at + 1]!.logprob).toBeCloseTo(row[ids[at + 1]!]! - total, 4);
        expect(row[given[at + 1]!.top[0]!.id]).toBe(Math.max(...row));
      }
      const length = text.length - plain[answer]!.text.length;
      expect(text.slice(length)).toBe(plain[answer]!.text);
      expect(logprobs.slice(ids.length)).toEqual(
        plain[answer]!.logprobs.map((token) => ({ ...token, offset: token.offset + length })),
      );
    }
    const [alone] = await collect(model.complete(ids, { maxTokens: 0, echo: true }));
    expect(alone).toMatchObject({ finish: 'max_tokens', logprobs: [] });
    expect(echoed[0]!.text.startsWith(alone!.text)).toBe(true);
    expect(() => model.complete(ids, { maxTokens: 0 })).toThrow('echo: true');
  });

  test('an abort ends answers where they are and frees what they held at once', async () => {
    const completion = model.complete(prompts[0]!, { ...sampled, maxTokens: 400, n: 2 });
    const finishes: unknown[] = [];
    for await (const { finish } of completion) {
      if (finish) finishes.push(finish);
      if (completion.completionTokens > 6 && finishes.length === 0) {
        completion.abort();
        noneLeft(model);
      }
    }
    expect(finishes).toEqual(['aborted', 'aborted']);
    expect(completion.completionTokens).toBeLessThan(100);

    for await (const event of model.complete('x', { ...sampled, maxTokens: 400, n: 3 })) {
      expect(event.index).toBe(0); // the others wait for the first
      break;
    }
    noneLeft(model);

    const leaving = new AbortController();
    const signalled = model.complete('x', { ...sampled, maxTokens: 400, signal: leaving.signal });
    setTimeout(() => leaving.abort(), 20);
    expect((await collect(signalled))[0]).toMatchObject({ finish: 'aborted' });
    noneLeft(model);
    expect(() => model.complete('x', { signal: leaving.signal })).toThrow('complete was aborted');
    await expect(collect(signalled)).rejects.toThrow('iterated already');
  });

  test.each<[string, () => Completion, string, string]>([
    ['no prompt', () => model.completeAll([]), 'usage', 'there is no prompt'],
    ['an empty prompt', () => model.complete([]), 'usage', 'the prompt is empty'],
    ['an id out of range', () => model.completeAll(['x', [320]]), 'usage', 'token 0 of the prompt is 320'],
    ['a long prompt', () => model.complete('x '.repeat(600)), 'context_full', '> 512 maximum'],
    ['n', () => model.complete('x', { n: 0 }), 'usage', 'n 0: expected an integer from 1 to 128'],
    ['logprobs', () => model.complete('x', { logprobs: 21 }), 'usage', 'logprobs 21: expected an integer from 0 to 20'],
    ['maxTokens', () => model.complete('x', { maxTokens: 1.5 }), 'usage', 'maxTokens 1.5: expected an integer of'],
    ['temperature', () => model.complete('x', { temperature: -1 }), 'usage', 'temperature -1'],
    ['an empty stop', () => model.complete('x', { stop: ['a', ''] }), 'usage', 'a stop string is empty'],
    ['priority', () => model.complete('x', { priority: 101 }), 'usage', 'priority 101'],
    ['a deadline', () => model.complete('x', { firstTokenSeconds: -1 }), 'usage', 'firstTokenSeconds -1: expected'],
    ['an unknown option', () => model.complete('x', { topp: 1 } as never), 'usage', "Did you mean 'topP'?"],
  ])('refuses %s, and nothing runs', (_what, ask, code, message) => {
    expect(ask).toThrow(expect.objectContaining({ code, message: expect.stringContaining(message) as string }));
    noneLeft(model);
    expect(model.failure).toBeUndefined();
  });

  test('the context ends an answer', async () => {
    const [answer] = await collect(model.complete('x', { maxTokens: 10_000, ignoreEos: true }));
    expect(answer).toMatchObject({ finish: 'context_full' });
  }, 300_000);

  test('counts and times', () => {
    const { firstToken, nextToken, generatedTokensTotal } = model.metrics;
    expect(firstToken.count + nextToken.count).toBe(generatedTokensTotal);
    expect(firstToken.counts.at(-1)).toBeLessThanOrEqual(firstToken.count);
    expect(model.info).toMatchObject({ slots: 4, kvBlocks: 24, prefixCaching: true, contextLength: 512 });
  });
});

test('ranks that fail for good end every answer, and later requests are refused with the reason', async () => {
  const { group } = await openRunner({ adapter, model: { seed: 11 }, slots: 2, kvBlocks: 8, contextLength: 512 });
  const { config } = group.options;
  const model = new EngineServingModel(
    { config, group, tokenizer: undefined, name: 'test', sampling: {}, loadSeconds: 0 },
    { slots: 2, tokensPerIteration: 64, recover: false, prefixCaching: true },
  );
  const running = model.complete([1, 2, 3], { maxTokens: 400, ignoreEos: true, n: 2 });
  const other = model.complete([5], { maxTokens: 400, ignoreEos: true });
  let seen = 0;
  await expect(async () => {
    // Without a tokenizer there is no text; the probabilities are the events.
    for await (const _event of model.complete([7], { maxTokens: 400, ignoreEos: true, logprobs: 0 })) {
      if (++seen === 3) group.devices[0]!.gpu.destroy();
    }
  }).rejects.toMatchObject({ code: 'device_lost' });
  await expect(collect(running)).rejects.toMatchObject({ code: 'device_lost' });
  await expect(collect(other)).rejects.toMatchObject({ code: 'device_lost' });
  expect(model.failure).toMatchObject({ code: 'device_lost' });
  expect(() => model.complete([1])).toThrow(expect.objectContaining({ code: 'device_lost' }));
  expect(model.metrics.unfinished).toBe(0);
  await model.dispose();
});

test('a closed model ends its answers and takes no more', { timeout: 120_000 }, async () => {
  const model = await serve(files, { adapter, slots: 2 });
  expect(model.info.kvBlocks).toBe(16);
  const running = model.complete('x', { maxTokens: 400, ignoreEos: true });
  await model.dispose();
  expect((await collect(running))[0]).toMatchObject({ finish: 'aborted' });
  expect(() => model.complete('x')).toThrow('closed');
  noneLeft(model);
});

test.runIf(isTurn(2, 'serving by workers'))(
  'ranks in workers: the same texts, also of requests under way when a worker ends',
  { timeout: 120_000 },
  async () => {
    const { model: random, files: own } = randomFiles({ seed: 11, config: { max_position_embeddings: 512 } });
    const single = await load(own, { adapter });
    const options = { maxTokens: 200, temperature: 0.8, seed: 2, ignoreEos: true };
    const expected = await Promise.all(prompts.map((prompt) => single.generate(prompt, options).result));
    await single.dispose();
    const ranks = new BreakableRanks();
    const { config } = random;
    const group = await WorkerGroup.open({
      config,
      place: await placeOf(own),
      cache: true,
      oneByOne: false,
      type: 'f32',
      plan: makePlan('tp', 2, modelShape(config)),
      runner: { slots: 4, kvBlocks: 32, contextLength: 512, prefillChunk: 64, kvType: 'f32' },
      adapters: [{ adapterName: adapter }, { adapterName: adapter }],
      places: ranks.places,
    });
    const text = await openTokenizer(await openModelFiles(await openSource(own)));
    const model = new EngineServingModel(
      { config, group, ...text, name: 'test', sampling: {}, loadSeconds: 0 },
      { slots: 4, tokensPerIteration: 64 },
    );
    const all = prompts.map((prompt) => model.complete(prompt, options));
    const answers = Promise.all(all.map((completion) => collect(completion)));
    while (all[0]!.completionTokens < 20) await new Promise((resolve) => setTimeout(resolve, 5));
    ranks.break(1, 'exit');
    for (const [at, [answer]] of (await answers).entries()) expect(answer!.text).toBe(expected[at]!.text);
    expect(model.metrics.recoveriesTotal).toBe(1);
    expect(model.failure).toBeUndefined();
    await model.dispose();
    expect(ranks.live).toBe(0);
  },
);

test('options that make no sense are refused before anything is loaded', async () => {
  await expect(serve(files, { slots: 0 })).rejects.toThrow('slots 0: expected an integer from 1 to 256');
  await expect(serve(files, { tokensPerIteration: 0 })).rejects.toThrow('tokensPerIteration 0');
  await expect(serve(files, { requests: 2 } as never)).rejects.toThrow("option 'requests' is load's");
  await expect(serve(files, { slot: 2 } as never)).rejects.toThrow("unknown option 'slot'");
  await expect(serve(files, { adapter, kvMemory: 1 })).rejects.toMatchObject({ code: 'limit' });
});
