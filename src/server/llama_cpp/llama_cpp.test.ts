import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { randomFiles } from '../../engine/testing/random_source.js';
import { serve, type ServingModel } from '../../index.js';
import type { ApiServer } from '../api_server.js';
import { startTestServer } from '../testing/test_server.js';
import { until } from '../testing/until.js';

/** Of Qwen2.5-Coder's, behind the test tokenizer's 320. */
const [PREFIX, SUFFIX, MIDDLE, FILE] = [320, 321, 322, 323];
const TOKENS = ['<|fim_prefix|>', '<|fim_suffix|>', '<|fim_middle|>', '<|file_sep|>'];

let files: File[];
let model: ServingModel;
let server: ApiServer;
beforeAll(async () => {
  const made = randomFiles({ seed: 11, config: { vocab_size: 324, max_position_embeddings: 512 } });
  const tokenizer = made.files.find(({ name }) => name === 'tokenizer.json')!;
  const json = JSON.parse(await tokenizer.text()) as { added_tokens: object[] };
  const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  json.added_tokens.push(...TOKENS.map((content, index) => ({ id: PREFIX + index, content, ...plain })));
  files = made.files.map((file) => (file === tokenizer ? new File([JSON.stringify(json)], 'tokenizer.json') : file));
  model = await serve(files, { adapter: (await testAdapters()).at(-1)!.name, slots: 4 });
  server = await startTestServer(model);
});
afterEach(() => until(() => model.metrics.unfinished === 0 && server.live === 0));
afterAll(async () => {
  await server.close();
  await model.dispose();
});

type Json = Record<string, unknown>;
const ask = async (
  path: string,
  body?: object,
  headers: Record<string, string> = {},
): Promise<{ status: number; json: Json }> => {
  const init = body === undefined ? { headers } : { method: 'POST', body: JSON.stringify(body), headers };
  const response = await fetch(`${server.url}${path}`, init);
  return { status: response.status, json: (await response.json()) as Json };
};
const drawn = { temperature: 0.8, seed: 4 };

async function expected(prompt: Parameters<ServingModel['complete']>[0], more: object = {}): Promise<string> {
  let all = '';
  for await (const { text } of model.complete(prompt, { ...drawn, maxTokens: 12, ...more })) all += text;
  return all;
}

describe("llama.cpp's own routes", () => {
  test('/completion, whole, in a list and streamed', async () => {
    const asked = { ...drawn, prompt: 'the cat', n_predict: 12, repeat_penalty: 1.2, n_probs: 2 };
    const tokenize = vi.spyOn(model, 'tokenize');
    const { json } = await ask('/completion', asked);
    // What was run is told: nothing is tokenized for that.
    expect(tokenize).not.toHaveBeenCalled();
    tokenize.mockRestore();
    const content = await expected('the cat', { repetitionPenalty: 1.2 });
    expect(json).toMatchObject({
      index: 0,
      content,
      stop: true,
      model: 'tiny',
      tokens_predicted: 12,
      prompt: model.detokenize(model.tokenize('the cat')),
      stop_type: 'limit',
      stopping_word: '',
      truncated: false,
      generation_settings: { n_predict: 12, seed: 4, repeat_penalty: 1.2 },
      timings: { predicted_n: 12 },
    });
    expect(
      (json['completion_probabilities'] as { top_logprobs: unknown[] }[]).map((each) => each.top_logprobs.length),
    ).toEqual(Array<number>(12).fill(2));
    const list = await ask('/completion', { ...asked, n_probs: 0, prompt: ['the cat', [5, 6], 'x'] });
    expect(list.json).toMatchObject([{ content, index: 0, tokens: [] }, { index: 1 }, { index: 2 }]);
    const openAi = await ask('/v1/completions', { ...drawn, prompt: ['the cat', 'x'], n: 2, max_tokens: 12 });
    const texts = (openAi.json['choices'] as { text: string }[]).map((choice) => choice.text);
    for (const several of [{ n: 2 }, { n_cmpl: 2 }]) {
      const { json: two } = await ask('/completion', { ...drawn, prompt: ['the cat', 'x'], n_predict: 12, ...several });
      expect(two).toMatchObject(texts.map((each, index) => ({ content: each, index, stop: true })));
      const [a, b, c, d] = (two as unknown as { prompt: string }[]).map((answer) => answer.prompt);
      expect([b, d]).toEqual([a, c]);
      expect(a).not.toBe(c);
    }
    expect((await ask('/completion', { ...drawn, prompt: 'x', n: 2 })).json).toHaveLength(2);
    for (const n of ['2', 0, 1.5, {}])
      expect(await ask('/completion', { prompt: 'x', n })).toMatchObject({ status: 400 });
    const init = { method: 'POST', body: JSON.stringify({ ...asked, stream: true }) };
    const text = await (await fetch(`${server.url}/completion`, init)).text();
    const events = text
      .trim()
      .split('\n\n')
      .map((line) => JSON.parse(line.replace('data: ', '')) as Json);
    expect(events.map((event) => event['content']).join('')).toBe(content);
    // Its tokens come with the texts that they end; all of them with a whole answer that asks for them.
    const tokens = events.flatMap((event) => event['tokens'] as number[]);
    expect(tokens.length).toBeGreaterThan(0);
    const { json: told } = await ask('/completion', { ...asked, return_tokens: true });
    expect(told['tokens']).toHaveLength(12);
    expect((told['tokens'] as number[]).slice(0, tokens.length)).toEqual(tokens);
    expect(events.at(-1)).toMatchObject({ stop: true, stop_type: 'limit', tokens_predicted: 12 });
    expect(events.slice(0, -1).every((event) => event['stop'] === false)).toBe(true);
    // Biases in pairs: the token that is banned isn't drawn.
    const [first] = model.tokenize(content, { addSpecial: false });
    const other = await ask('/completion', { prompt: 'the cat', n_predict: 1, ...drawn, logit_bias: [[first, false]] });
    expect(model.tokenize(String(other.json['content']), { addSpecial: false })[0]).not.toBe(first);
  });

  test("biases of texts are those of each of a text's tokens", async () => {
    const word = 'the cat';
    const ids = model.tokenize(word, { addSpecial: false });
    expect(ids.length).toBeGreaterThan(1);
    const told = async (path: string, logit_bias: unknown, more: object = {}): Promise<unknown> => {
      const { json } = await ask(path, { ...drawn, prompt: 'x', max_tokens: 12, logit_bias, ...more });
      return json['content'] ?? (json['choices'] as { text: string }[])[0]!.text;
    };
    const plain = await told('/v1/completions', {});
    const biased = await told('/v1/completions', Object.fromEntries(ids.map((id) => [id, 4])));
    expect(biased).not.toBe(plain);
    for (const path of ['/completion', '/v1/completions']) {
      expect(await told(path, { [word]: 4 })).toBe(biased);
      expect(await told(path, [[word, 4]])).toBe(biased);
      // In the thread that reads large requests, too.
      expect(await told(path, [[word, 4]], { user: 'x'.repeat(5000) })).toBe(biased);
    }
    const { json } = await ask('/completion', {
      prompt: 'x',
      n_predict: 1,
      logit_bias: [
        [word, -1],
        [5, false],
      ],
    });
    expect(json).toMatchObject({
      generation_settings: {
        logit_bias: expect.arrayContaining([
          { token: word, bias: -1 },
          { token: 5, bias: -100 },
        ]),
      },
    });
    for (const logit_bias of [[[word]], [['', 1]], [[1.5, 1]], [[5, true]], { [word]: null }, 'x']) {
      expect(await ask('/completion', { prompt: 'x', logit_bias })).toMatchObject({
        status: 400,
        json: { error: { param: 'logit_bias' } },
      });
    }
  });

  test('texts among token ids, and in objects', async () => {
    const ids = model.tokenize('the cat');
    const behind = model.tokenize('the cat', { addSpecial: false });
    const mixed = [...ids, 'the cat', 7];
    expect(model.tokenize(mixed)).toEqual([...ids, ...behind, 7]);
    expect(model.tokenize(['the cat', 7])).toEqual([...ids, 7]);
    const told = async (prompt: unknown): Promise<unknown> => {
      const { json } = await ask('/completion', { ...drawn, prompt, n_predict: 4 });
      return [json].flat().map((each) => each['content']);
    };
    const [alone] = (await told([...ids, ...behind, 7])) as string[];
    expect(await told(mixed)).toEqual([alone]);
    expect(await told([mixed, { prompt_string: 'the cat' }])).toEqual([
      alone,
      ...((await told('the cat')) as string[]),
    ]);
    const embedded = async (input: unknown): Promise<unknown> =>
      ((await ask('/v1/embeddings', { input })).json['data'] as { embedding: number[] }[]).map(
        (each) => each.embedding,
      );
    expect(await embedded([mixed, ids])).toEqual(await embedded([[...ids, ...behind, 7], 'the cat']));
    // In the thread that reads large requests, too.
    const { json } = await ask('/v1/embeddings', { input: mixed, user: 'x'.repeat(5000) });
    expect([(json['data'] as { embedding: unknown }[])[0]!.embedding]).toEqual(await embedded([mixed]));
    // An empty text is the token that begins every text.
    expect(model.tokenize('')).toEqual([ids[0]]);
    expect(await embedded(['', [1, '']])).toEqual(await embedded([[ids[0]], [1]]));
    expect(await told('')).toEqual(await told([ids[0]]));
    expect((await ask('/tokenize', { content: '' })).json).toMatchObject({ tokens: [], count: 0 });
    for (const prompt of [[1, null], { prompt_string: 'x', multimodal_data: ['eA=='] }, {}, [1, -1]]) {
      expect(await ask('/completion', { prompt })).toMatchObject({ status: 400, json: { error: { param: 'prompt' } } });
    }
  });

  test('how much of a prompt is there, in streams', async () => {
    const small = await serve(files, {
      adapter: (await testAdapters()).at(-1)!.name,
      slots: 2,
      tokensPerIteration: 64,
    });
    const own = await startTestServer(small);
    try {
      const ids = Array.from({ length: 200 }, (_, at) => 5 + (at % 97));
      type Progress = { total: number; cache: number; processed: number };
      const progress = async (path: string, body: object): Promise<Progress[]> => {
        const text = await (
          await fetch(`${own.url}${path}`, {
            method: 'POST',
            body: JSON.stringify({ ...body, stream: true, return_progress: true }),
          })
        ).text();
        const events = [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, event]) => JSON.parse(event!) as Json);
        return events.flatMap((event) => (event['prompt_progress'] as Progress | undefined) ?? []);
      };
      const first = await progress('/completion', { prompt: ids, n_predict: 2 });
      const told = first.map(({ processed }) => processed);
      expect(first[0]).toMatchObject({ total: 200, cache: 0, processed: 0 });
      expect(told).toEqual([0, 64, 128, 192, 200]);
      const [again, ...rest] = await progress('/v1/completions', { prompt: ids, max_tokens: 2 });
      expect(again).toMatchObject({ total: 200, cache: 199, processed: 199 });
      expect(rest).toMatchObject([{ cache: 199, processed: 200 }]);
      const chat = { messages: [{ role: 'user', content: 'the cat' }], max_tokens: 2 };
      const last = (await progress('/v1/chat/completions', chat)).at(-1)!;
      expect(last.processed).toBe(last.total);
      const { json } = await ask('/v1/completions', { prompt: ids, max_tokens: 2, return_progress: true });
      expect(JSON.stringify(json)).not.toContain('prompt_progress');
    } finally {
      await own.close();
      await small.dispose();
    }
  });

  test('/completion tells biases, and fields that are asked for', async () => {
    const asked = { ...drawn, prompt: 'the cat', n_predict: 3, logit_bias: [[5, -2]] };
    const { json } = await ask('/completion', asked);
    expect(json).toMatchObject({ generation_settings: { logit_bias: [{ token: 5, bias: -2 }] } });
    const some = await ask('/completion', { ...asked, response_fields: ['content', 'timings/predicted_n', 'none'] });
    expect(some.json).toEqual({ content: json['content'], 'timings/predicted_n': 3 });
  });

  test('chats: the prompt, times, a count of tokens, and a stream that opens without a text', async () => {
    const messages = [{ role: 'user' as const, content: 'the cat' }];
    const chat = { ...drawn, messages, max_tokens: 3 };
    const ids = model.tokenize({ messages });
    const { json } = await ask('/chat/completions', { ...chat, verbose: true, timings_per_token: true });
    expect(json).toMatchObject({ __verbose: { prompt: model.detokenize(ids) }, timings: { predicted_n: 3 } });
    const plain = await ask('/chat/completions', chat);
    expect(Object.keys(plain.json)).not.toEqual(expect.arrayContaining(['__verbose']));
    expect((await ask('/chat/completions/input_tokens', { messages })).json).toEqual({ input_tokens: ids.length });
    const usage = { stream: true, stream_options: { include_usage: true }, timings_per_token: true };
    const body = JSON.stringify({ ...chat, ...usage });
    const text = await (await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body })).text();
    const events = [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, event]) => JSON.parse(event!) as Json);
    expect(events[0]).toMatchObject({ choices: [{ delta: { role: 'assistant', content: null } }] });
    expect(events[0]).not.toHaveProperty('timings');
    expect(events.at(-1)).toMatchObject({
      choices: [],
      timings: { predicted_n: 3, cache_n: expect.any(Number) as number },
    });
  });

  test('a prompt beyond the context, and the pieces of a text', async () => {
    const { status, json } = await ask('/completion', { prompt: 'the cat '.repeat(400) });
    const error = { type: 'exceed_context_size_error', n_ctx: 512, code: 'context_length_exceeded' };
    expect([status, json]).toMatchObject([400, { error }]);
    const { message, n_prompt_tokens: tokens } = json['error'] as { message: string; n_prompt_tokens: number };
    expect(message).toContain(`${tokens} tokens > 512 maximum, which exceeds the available context size`);
    const text = 'the cat \u{1F917}';
    const pieces = (await ask('/tokenize', { content: text, with_pieces: true })).json['tokens'];
    const all = pieces as { id: number; piece: string | number[] }[];
    expect(all.map(({ id }) => id)).toEqual(model.tokenize(text, { addSpecial: false }));
    const bytes = all.flatMap(({ piece }) => (typeof piece === 'string' ? [...Buffer.from(piece)] : piece));
    expect(Buffer.from(bytes).toString().trim()).toBe(text);
    expect(all.some(({ piece }) => typeof piece === 'string') && all.every(({ piece }) => piece.length > 0)).toBe(true);
  });

  test('/embedding, /apply-template, /props, /slots', async () => {
    const [vector] = (await model.embed(['the cat'])).embeddings;
    expect((await ask('/embedding', { content: 'the cat' })).json).toEqual([{ index: 0, embedding: [[...vector!]] }]);
    const messages = [{ role: 'user', content: 'a <|user|> b' }];
    const { json } = await ask('/apply-template', { messages });
    const asTokens = { messages: messages as never, special: 'token' as const };
    expect(model.tokenize(String(json['prompt']), { addSpecial: false })).toEqual(model.tokenize(asTokens));
    expect(json['prompt']).toContain('a <|user|> b');
    expect((await ask('/props')).json).toMatchObject({
      total_slots: 4,
      default_generation_settings: { n_ctx: 512 },
      chat_template: model.texts.template,
    });
    const { json: slots } = await ask('/slots');
    expect(slots).toHaveLength(4);
    expect(slots).toMatchObject([{ id: 0, n_ctx: 512, is_processing: false }, {}, {}, {}]);
    const under = model.complete('the cat sat', { ...drawn, maxTokens: 400, ignoreEos: true });
    let seen: Json[] = [];
    for await (const { tokens } of under) {
      if (!tokens) continue;
      seen = ((await ask('/slots')).json as unknown as Json[]).filter((slot) => slot['is_processing']);
      break;
    }
    const length = model.tokenize('the cat sat').length;
    expect(seen).toMatchObject([{ n_prompt_tokens: length, n_prompt_tokens_processed: length }]);
    expect(seen[0]!['n_prompt_tokens_cache']).toBeLessThan(length);
    const [{ n_decoded: decoded }] = seen[0]!['next_token'] as [{ n_decoded: number }];
    expect(decoded).toBeGreaterThan(0);
    expect(JSON.stringify(seen)).not.toContain('cat');
  });

  test("routes without /v1, with OpenAI's client", async () => {
    const client = new OpenAI({ baseURL: server.url, apiKey: 'x' });
    const messages = [{ role: 'user' as const, content: 'the cat' }];
    const chat = await client.chat.completions.create({ ...drawn, model: 'tiny', messages, max_tokens: 4 });
    expect(chat.object).toBe('chat.completion');
    expect((await client.completions.create({ model: 'tiny', prompt: 'x', max_tokens: 2 })).object).toBe(
      'text_completion',
    );
    expect((await client.embeddings.create({ model: 'tiny', input: 'x' })).data).toHaveLength(1);
    expect((await client.models.list()).data).toMatchObject([{ id: 'tiny', max_model_len: 512 }]);
    expect((await client.models.retrieve('tiny')).id).toBe('tiny');
    const { input_tokens } = await client.responses.inputTokens.count({ model: 'tiny', input: 'the cat' });
    expect(input_tokens).toBe(model.tokenize({ messages }).length);
  });
});

describe('texts with a gap', () => {
  test('/infill and suffix by the tokens of the model', async () => {
    const behind = model.tokenize(' the mat', { addSpecial: false });
    // Control tokens in code are text.
    const ids = model.tokenize({ prefix: 'the cat <|end|>', suffix: ' the mat' }, { addSpecial: false });
    expect(ids.filter((id) => id < 4)).toEqual([]);
    expect(ids[0]).toBe(PREFIX);
    expect(ids.at(-1)).toBe(MIDDLE);
    expect(ids.slice(ids.indexOf(SUFFIX) + 1, -1)).toEqual(behind);
    const fill = { prefix: 'the cat', suffix: ' the mat' };
    const stopTokenIds = [PREFIX, SUFFIX, MIDDLE, FILE];
    const wanted = await expected(model.tokenize(fill), { stopTokenIds });
    const native = await ask('/infill', {
      ...drawn,
      input_prefix: 'the ',
      prompt: 'cat',
      input_suffix: ' the mat',
      n_predict: 12,
    });
    expect(native.json['content']).toBe(wanted);
    const open = await ask('/v1/completions', { ...drawn, prompt: 'the cat', suffix: ' the mat', max_tokens: 12 });
    expect((open.json['choices'] as { text: string }[])[0]!.text).toBe(wanted);
    const long = await ask('/v1/completions', {
      ...drawn,
      prompt: 'the cat',
      suffix: ' the mat',
      max_tokens: 12,
      user: 'x'.repeat(5000),
    });
    expect((long.json['choices'] as { text: string }[])[0]!.text).toBe(wanted);
    const ollama = await ask('/api/generate', {
      prompt: 'the cat',
      suffix: ' the mat',
      stream: false,
      options: { ...drawn, num_predict: 12 },
    });
    expect(ollama.json['response']).toBe(wanted);
    const files = model.tokenize({ ...fill, files: [{ name: 'a.py', text: 'x' }] }, { addSpecial: false });
    expect(files.filter((id) => id === FILE)).toHaveLength(2);
    expect(files.slice(-model.tokenize(fill, { addSpecial: false }).length)).toEqual(
      model.tokenize(fill, { addSpecial: false }),
    );
    expect((await ask('/api/show', { model: 'tiny' })).json['capabilities']).toContain('insert');
    expect((await ask('/v1/completions', { prompt: '', suffix: 'x', max_tokens: 1 })).status).toBe(200);
    expect((await ask('/infill', { input_prefix: 'x' })).json).toMatchObject({ error: { param: 'input_suffix' } });
  });

  test('best_of tells the likeliest', async () => {
    const asked = { ...drawn, prompt: 'the cat', max_tokens: 8, logprobs: 0 };
    type Choice = { text: string; logprobs: { token_logprobs: number[] } };
    const all = (await ask('/v1/completions', { ...asked, n: 4 })).json['choices'] as Choice[];
    const mean = ({ logprobs: { token_logprobs: each } }: Choice): number => each.reduce((a, b) => a + b) / each.length;
    const best = all.toSorted((a, b) => mean(b) - mean(a)).slice(0, 2);
    const { json } = await ask('/v1/completions', { ...asked, logprobs: undefined, n: 2, best_of: 4 });
    expect(json['choices']).toMatchObject(best.map(({ text }, index) => ({ index, text, logprobs: null })));
    expect(json['usage']).toMatchObject({ completion_tokens: 32 });
  });
});

test.each<[string, Record<string, string>, object]>([
  ['/v1/nothing', {}, { error: { type: 'invalid_request_error', code: null } }],
  ['/v1/messages/nothing', {}, { type: 'error', error: { type: 'not_found_error' } }],
  ['/v1/nothing', { 'anthropic-version': '2023-06-01' }, { type: 'error', error: { type: 'not_found_error' } }],
  ['/v1/models/other', { 'anthropic-version': '2023-06-01' }, { type: 'error', error: { type: 'not_found_error' } }],
  ['/api/tag', {}, { error: 'there is no /api/tag here; docs/serving.md lists the routes' }],
])('404 of %s with %o in the shape of its family', async (path, headers, body) => {
  expect(await ask(path, undefined, headers)).toMatchObject({ status: 404, json: body });
});

test("Anthropic's list of models", async () => {
  const headers = { 'anthropic-version': '2023-06-01' };
  const entry = { type: 'model', id: 'tiny', display_name: 'tiny', created_at: expect.stringMatching(/Z$/) as string };
  const { json } = await ask('/v1/models', undefined, headers);
  expect(json).toMatchObject({ data: [entry], has_more: false, first_id: 'tiny', last_id: 'tiny' });
  expect((await ask('/v1/models/tiny', undefined, headers)).json).toMatchObject(entry);
});
