import { afterEach, expect, test } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import type { Completion, CompletionEvent, ServingModel } from '../index.js';
import { ApiServer } from './api_server.js';

/** A model of which only the answers exist. */
function modelOf(
  answer: () => AsyncGenerator<CompletionEvent>,
  failure?: unknown,
  hasChatTemplate = false,
): ServingModel {
  const completeAll = (): Completion => ({
    prompts: [[1]],
    promptTokens: 1,
    cachedTokens: 0,
    reasoningTokens: 0,
    completionTokens: 1,
    seed: 0,
    abort: () => {},
    [Symbol.asyncIterator]: answer,
  });
  return {
    info: { name: 'fake', slots: 1, contextLength: 64, hasChatTemplate },
    metrics: { unfinished: 0 },
    adapters: { list: [] },
    failure,
    prepare: () => Promise.resolve(),
    completeAll,
  } as unknown as ServingModel;
}

const errors: unknown[] = [];
let server: ApiServer;
async function start(model: ServingModel): Promise<string> {
  errors.length = 0;
  server = await new ApiServer({ onError: (error) => errors.push(error) }).listen();
  server.open(model);
  return server.url;
}
afterEach(() => server.close());

const ask = (url: string, body: object, path = '/v1/completions'): Promise<Response> =>
  fetch(`${url}${path}`, { method: 'POST', body: JSON.stringify(body) });

const SECRET = 'reading /home/someone/model.safetensors failed';
async function* breaking(error: Error): AsyncGenerator<CompletionEvent> {
  yield { index: 0, text: 'so far', logprobs: [] };
  throw error;
}

test('an unexpected error: 500 without a word of it, and the server hears it all', async () => {
  const url = await start(modelOf(() => breaking(new TypeError(SECRET))));
  const response = await ask(url, { prompt: 'x' });
  expect(response.status).toBe(500);
  const text = await response.text();
  expect(JSON.parse(text)).toEqual({
    error: {
      message: 'internal error; the server knows more by this request id',
      type: 'server_error',
      param: null,
      code: null,
    },
  });
  expect(errors).toEqual([expect.objectContaining({ message: SECRET })]);
});

test('in a stream the error is its last event', async () => {
  const url = await start(modelOf(() => breaking(new TypeError(SECRET))));
  const response = await ask(url, { prompt: 'x', stream: true });
  expect(response.status).toBe(200);
  const events = (await response.text()).trim().split('\n\n');
  expect(events).toHaveLength(2);
  expect(events[0]).toContain('so far');
  expect(events[1]).toMatch(/^data: \{"error":\{"message":"internal error/);
  expect(errors).toHaveLength(1);
});

test('a model that lost its GPU: 503, and health says that it failed', async () => {
  const lost = new SplitkvError('device_lost', 'the GPU device of NVIDIA something was lost');
  const url = await start(modelOf(() => breaking(lost), lost));
  const response = await ask(url, { prompt: 'x' });
  expect(response.status).toBe(503);
  expect(await response.json()).toMatchObject({ error: { type: 'server_error', code: 'device_lost' } });
  expect(errors).toEqual([lost]);
  const health = await fetch(`${url}/health`);
  expect([health.status, await health.json()]).toEqual([503, { status: 'failed' }]);
});

test('a chat with a model that has no template', async () => {
  const url = await start(modelOf(() => breaking(new Error('never'))));
  const response = await ask(url, { messages: [{ role: 'user', content: 'x' }] }, '/v1/chat/completions');
  expect(response.status).toBe(400);
  expect(await response.text()).toContain('this model has no chat template; send a prompt to /v1/completions');
});

test('a model that is closed under its answers: they are not told as whole', async () => {
  const url = await start(
    modelOf(async function* () {
      yield { index: 0, text: 'so far', logprobs: [] };
      yield { index: 0, text: '', logprobs: [], finish: 'aborted' };
    }),
  );
  const response = await ask(url, { prompt: 'x' });
  expect(response.status).toBe(503);
  expect(await response.json()).toMatchObject({ error: { code: 'shutting_down' } });
  const stream = await (await ask(url, { prompt: 'x', stream: true })).text();
  expect(stream).toContain('"code":"shutting_down"');
  expect(stream).not.toContain('finish_reason":"stop"');
  expect(errors).toEqual([]);
});

test('reasoning stands beside the answer in chat, and nowhere else', async () => {
  async function* thinking(): AsyncGenerator<CompletionEvent> {
    yield { index: 0, text: '', reasoning: 'Hm, ', logprobs: [] };
    yield { index: 0, text: '', reasoning: 'yes?', logprobs: [] };
    yield { index: 0, text: 'Yes.', logprobs: [] };
    yield { index: 0, text: '', logprobs: [], finish: 'eos' };
  }
  const url = await start(modelOf(thinking, undefined, true));
  const chat = { messages: [{ role: 'user', content: 'x' }] };
  const whole = await (await ask(url, chat, '/v1/chat/completions')).json();
  expect(whole).toMatchObject({
    choices: [{ message: { content: 'Yes.', reasoning_content: 'Hm, yes?' }, finish_reason: 'stop' }],
  });
  const stream = await (await ask(url, { ...chat, stream: true }, '/v1/chat/completions')).text();
  const deltas = [...stream.matchAll(/^data: (\{.*\})$/gm)].map(
    ([, json]) => (JSON.parse(json!) as { choices: { delta: object }[] }).choices[0]!.delta,
  );
  expect(deltas.slice(1)).toEqual([
    { reasoning_content: 'Hm, ' },
    { reasoning_content: 'yes?' },
    { content: 'Yes.' },
    {},
  ]);
  const text = await (await ask(url, { prompt: 'x', stream: true })).text();
  expect(text).toContain('Yes.');
  expect(text).not.toContain('Hm');
});
