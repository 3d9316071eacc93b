import { Ollama } from 'ollama';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ServingModel } from '../../index.js';
import type { ApiServer } from '../api_server.js';
import { CONTEXT, openTestModel, startTestServer } from '../testing/test_server.js';
import { until } from '../testing/until.js';
import type { PullProgress } from './pull.js';

let model: ServingModel;
let server: ApiServer;
let client: Ollama;
beforeAll(async () => {
  model = await openTestModel();
  server = await startTestServer(model, {
    pull: async (name, onProgress: (progress: PullProgress) => void) => {
      onProgress({ file: 'model.safetensors', loadedBytes: 5, totalBytes: 10 });
      if (name === 'broken') throw new Error('secret');
    },
  });
  client = new Ollama({ host: server.url });
});
afterEach(() => until(() => model.metrics.unfinished === 0 && server.live === 0));
afterAll(async () => {
  await server.close();
  await model.dispose();
});

const messages = [{ role: 'user', content: 'the cat sat' }];
const options = { temperature: 0.8, seed: 4, num_predict: 20, repeat_penalty: 1.1, top_k: 40, num_ctx: 512 };
const TIMES = ['total_duration', 'load_duration', 'prompt_eval_duration', 'eval_duration'] as const;
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const ask = (path: string, body?: unknown, init: RequestInit = {}): Promise<Response> =>
  fetch(`${server.url}${path}`, body === undefined ? init : { method: 'POST', body: JSON.stringify(body), ...init });

/** What the model says without HTTP. */
async function expected(prompt: Parameters<ServingModel['complete']>[0]): Promise<string> {
  const asked = { temperature: 0.8, seed: 4, maxTokens: 20, repetitionPenalty: 1.1, topK: 40, separateReasoning: true };
  let all = '';
  for await (const { text } of model.complete(prompt, asked)) all += text;
  return all;
}

describe('ollama-js', () => {
  test('chat, whole and in lines', async () => {
    const whole = await client.chat({ model: 'tiny', messages, options });
    expect(whole).toMatchObject({
      model: 'tiny',
      done: true,
      done_reason: 'length',
      eval_count: 20,
      message: { role: 'assistant', content: await expected({ messages: messages as never }) },
    });
    expect(String(whole.created_at)).toMatch(ISO);
    expect(whole.prompt_eval_count).toBeGreaterThan(3);
    for (const name of TIMES) expect(Number.isInteger(whole[name])).toBe(true);
    expect(whole.total_duration).toBeGreaterThanOrEqual(whole.prompt_eval_duration + whole.eval_duration);
    expect(whole.eval_duration).toBeGreaterThan(1e6);
    let text = '';
    let last;
    for await (const part of await client.chat({ model: 'tiny:latest', messages, options, stream: true })) {
      text += part.message.content;
      expect(part.done).toBe(part.done_reason !== undefined);
      last = part;
    }
    expect(text).toBe(whole.message.content);
    expect(last).toMatchObject({ model: 'tiny:latest', done: true, done_reason: 'length', eval_count: 20 });
  });

  test('generate: by the template with a system text, raw, and what stops it', async () => {
    const { response } = await client.generate({ model: 'tiny', prompt: 'the cat sat', system: 'be brief', options });
    expect(response).toBe(
      await expected({ messages: [{ role: 'system', content: 'be brief' }, ...(messages as never[])] }),
    );
    const raw = await client.generate({ model: 'tiny', prompt: 'the cat sat', raw: true, options });
    expect(raw.response).toBe(await expected('the cat sat'));
    const said = raw.response!;
    const stop = said.slice(4, 6);
    const cut = await client.generate({
      model: 'tiny',
      prompt: 'the cat sat',
      raw: true,
      options: { ...options, stop: [stop] },
    });
    expect(cut).toMatchObject({ response: said.slice(0, said.indexOf(stop)), done_reason: 'stop' });
  });

  test('formats, tools, embeddings', async () => {
    const schema = { type: 'object', properties: { age: { type: 'integer', maximum: 9 } }, required: ['age'] };
    const formed = await client.chat({ model: 'tiny', messages, format: schema, options: { num_predict: 200 } });
    expect(Object.keys(JSON.parse(formed.message.content) as object)).toEqual(['age']);
    const json = await client.generate({ model: 'tiny', prompt: 'x', format: 'json', options: { num_predict: 2 } });
    expect(json.response).toMatch(/^\{/);
    const { embeddings } = await client.embed({ model: 'tiny', input: ['the cat', 'the dog'] });
    const vectors = (await model.embed(['the cat', 'the dog'])).embeddings.map((vector) => [...vector]);
    expect(embeddings).toEqual(vectors);
    expect((await client.embeddings({ model: 'tiny', prompt: 'the cat' })).embedding).toEqual(vectors[0]);
  });

  test('lists, show, version, pull', async () => {
    const { models } = await client.list();
    expect(models).toMatchObject([{ name: 'tiny:latest', model: 'tiny:latest', size: model.info.weightBytes }]);
    expect(models[0]!.digest).toMatch(/^[0-9a-f]{64}$/);
    expect(String(models[0]!.modified_at)).toMatch(ISO);
    expect((await client.ps()).models).toMatchObject([{ name: 'tiny:latest', context_length: CONTEXT }]);
    const shown = await client.show({ model: 'tiny' });
    expect(shown).toMatchObject({ details: { family: model.info.architecture }, template: model.texts.template });
    expect(shown.model_info).toMatchObject({ [`${model.info.architecture}.context_length`]: CONTEXT });
    expect((shown as unknown as { capabilities: string[] }).capabilities).toContain('completion');
    expect((await (await ask('/api/version')).json()) as object).toEqual({
      version: expect.stringMatching(/^\d+\.\d+/) as string,
    });
    const lines: object[] = [];
    for await (const line of await client.pull({ model: 'org/other', stream: true })) lines.push(line);
    expect(lines[0]).toEqual({ status: 'pulling manifest' });
    expect(lines).toContainEqual({
      status: 'pulling model.safetensors',
      digest: 'model.safetensors',
      completed: 5,
      total: 10,
    });
    expect(lines.at(-1)).toEqual({ status: 'success' });
    expect(await client.pull({ model: 'tiny', stream: false })).toEqual({ status: 'success' });
    const broken = await (await ask('/api/pull', { model: 'broken' })).text();
    expect(broken).toMatch(/\{"error":"internal error[^\n]*\n$/);
    expect(broken).not.toContain('secret');
  });

  test('errors have its shape', async () => {
    await expect(client.chat({ model: 'other', messages })).rejects.toMatchObject({
      status_code: 404,
      message: expect.stringContaining("model 'other' not found") as string,
    });
    const image = client.chat({ model: 'tiny', messages: [{ role: 'user', content: 'x', images: ['aGk='] }] });
    await expect(image).rejects.toMatchObject({
      status_code: 400,
      message: expect.stringMatching(/loaded for text alone/) as string,
    });
  });
});

test.each<[string, string, unknown, number, string]>([
  ['an unknown path', '/api/nothing', {}, 404, 'there is no /api/nothing here'],
  ['what Ollama has and this server has not', '/api/create', { model: 'x' }, 404, 'there is no /api/create here'],
  [
    'a wrong number',
    '/api/chat',
    { messages, options: { temperature: -1 } },
    400,
    'options.temperature is -1; expected',
  ],
  ['a sampler', '/api/chat', { messages, options: { mirostat: 1 } }, 400, 'options.mirostat is not supported'],
  ['a template', '/api/generate', { prompt: 'x', template: '{{ .Prompt }}' }, 400, 'template is not supported'],
  [
    'raw with a system text',
    '/api/generate',
    { prompt: 'x', raw: true, system: 'x' },
    400,
    'raw mode does not support',
  ],
  ['a suffix', '/api/generate', { prompt: 'x', suffix: 'y' }, 400, "suffix: this model can't fill in"],
  ['an odd duration', '/api/chat', { messages, keep_alive: 'soon' }, 400, 'keep_alive is "soon"; expected seconds'],
  ['no JSON', '/api/chat', undefined, 405, 'GET is not for /api/chat'],
  [
    'a long prompt',
    '/api/chat',
    { messages: [{ role: 'user', content: 'the cat '.repeat(3000) }] },
    400,
    'prompt is too long',
  ],
  ['no name', '/api/show', {}, 400, 'model is null; expected a name'],
])('%s', async (_what, path, body, status, told) => {
  const response = await ask(path, body);
  const answer = (await response.json()) as { readonly error: string };
  expect(response.status).toBe(status);
  expect(Object.keys(answer)).toEqual(['error']);
  expect(answer.error).toContain(told);
});

test('nothing to say loads the model; fields that change nothing are named', async () => {
  expect((await (await ask('/api/chat', { model: 'tiny', keep_alive: -1 })).json()) as object).toMatchObject({
    message: { role: 'assistant', content: '' },
    done: true,
    done_reason: 'load',
  });
  expect((await (await ask('/api/generate', { model: 'tiny' })).json()) as object).toMatchObject({
    response: '',
    done_reason: 'load',
  });
  const response = await ask('/api/generate', {
    prompt: 'x',
    stream: false,
    options: { num_predict: 1, num_ctx: 1e6, num_gpu: 1 },
  });
  expect(response.headers.get('x-splitkv-ignored')).toBe('options.num_gpu, options.num_ctx');
  const lines = await ask('/api/generate', { prompt: 'x', options: { num_predict: 2 } });
  expect(lines.headers.get('content-type')).toBe('application/x-ndjson');
  await lines.text();
});
