import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { VERSION } from '../base/version.js';
import type { ServingModel } from '../index.js';
import { ApiServer, type ServerOptions } from './api_server.js';
import type { RequestRecord } from './front.js';
import { RawConnection } from './testing/raw_connection.js';
import { CONTEXT, openTestModel, startTestServer } from './testing/test_server.js';
import { until } from './testing/until.js';

interface ErrorBody {
  readonly error: { message: string; type: string; param: string | null; code: string | null };
}

let model: ServingModel;
let server: ApiServer | undefined;
const records: RequestRecord[] = [];
const errors: unknown[] = [];
beforeAll(async () => {
  model = await openTestModel({ speculate: 'ngram' });
});
afterAll(() => model.dispose());

async function start(options: ServerOptions = {}): Promise<string> {
  records.length = 0;
  errors.length = 0;
  server = await startTestServer(model, {
    onRequest: (record) => records.push(record),
    onError: (error) => errors.push(error),
    ...options,
  });
  return server.url;
}

/** Whatever a test did, nothing of it is left. */
afterEach(async () => {
  await until(() => model.metrics.unfinished === 0);
  await server?.close();
  expect(server?.live ?? 0).toBe(0);
  const { metrics } = model;
  expect(metrics).toMatchObject({ running: 0, waiting: 0, kvBlocksFree: metrics.kvBlocks });
  server = undefined;
});

type Init = Omit<RequestInit, 'headers'> & { readonly headers?: Record<string, string> };
const post = (url: string, path: string, body: unknown, init: Init = {}): Promise<Response> =>
  fetch(`${url}${path}`, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    ...init,
    headers: { 'Content-Type': 'application/json', ...init.headers },
  });
const CHAT = '/v1/chat/completions';
const TEXT = '/v1/completions';
const user = (content: unknown): object[] => [{ role: 'user', content }];

/** An answer that takes long enough to do something meanwhile. */
const long = { prompt: 'the cat', max_tokens: CONTEXT - 32, ignore_eos: true, stream: true };

async function expectError(response: Response, status: number, part: Partial<ErrorBody['error']>): Promise<string> {
  const text = await response.text();
  expect(response.status, text).toBe(status);
  const { error } = JSON.parse(text) as ErrorBody;
  expect(error).toMatchObject(part);
  const lengths = error.code === 'context_length_exceeded' ? ['n_ctx', 'n_prompt_tokens'] : [];
  expect(Object.keys(error).sort()).toEqual(['code', 'message', ...lengths, 'param', 'type']);
  expect(text).not.toMatch(/\.ts|node_modules|\n\s+at /);
  expect(response.headers.get('x-request-id')).toMatch(/^req_/);
  expect(response.headers.get('request-id')).toBe(response.headers.get('x-request-id'));
  return error.message;
}

describe('requests that are wrong', () => {
  test.each<[string, string, unknown, string, string | null]>([
    ['no object', CHAT, [1], 'the body is [1]; expected a JSON object', null],
    ['malformed JSON', CHAT, '{"messages": [', 'the body is not valid JSON', null],
    ['nothing', TEXT, '', 'the body is empty', null],
    ['no messages', CHAT, {}, 'messages is missing; expected a list of messages', 'messages'],
    ['empty messages', CHAT, { messages: [] }, 'messages is []; expected a list', 'messages'],
    ['a message that is none', CHAT, { messages: ['x'] }, 'messages[0] is "x"; expected a message', 'messages[0]'],
    ['no role', CHAT, { messages: [{ content: 'x' }] }, 'messages[0].role is missing', 'messages[0].role'],
    [
      'an unknown role',
      CHAT,
      { messages: [{ role: 'function', content: 'x' }] },
      'messages[0].role is "function"; expected system, developer, user, assistant, tool',
      'messages[0].role',
    ],
    ['content of another type', CHAT, { messages: user(5) }, 'messages[0].content is 5', 'messages[0].content'],
    [
      'an image',
      CHAT,
      { messages: user([{ type: 'image_url', image_url: { url: 'x' } }]) },
      'is an image at "x"; expected a data: URL',
      'messages[0].content[0]',
    ],
    [
      'a tool call',
      CHAT,
      { messages: [{ role: 'assistant', content: 'x', tool_calls: [{}] }] },
      'messages[0].tool_calls[0].id',
      'messages[0].tool_calls[0].id',
    ],
    ['no prompt', TEXT, { model: 'tiny' }, 'prompt is missing', 'prompt'],
    ['an empty prompt', TEXT, { prompt: [] }, 'prompt is []; expected', 'prompt'],
    ['a prompt of fractions', TEXT, { prompt: [1.5] }, 'prompt is [1.5]; expected', 'prompt'],
    ['an id out of range', TEXT, { prompt: [320] }, 'token 0 of the prompt is 320', null],
    ['n', TEXT, { prompt: 'x', n: 0 }, 'n is 0; expected an integer from 1 to 128', 'n'],
    ['max_tokens', TEXT, { prompt: 'x', max_tokens: '5' }, 'max_tokens is "5"; expected an integer', 'max_tokens'],
    ['temperature', TEXT, { prompt: 'x', temperature: 2.5 }, 'temperature is 2.5; expected a number', 'temperature'],
    ['top_p', TEXT, { prompt: 'x', top_p: 0 }, 'top_p is 0; expected a number above 0', 'top_p'],
    ['seed', TEXT, { prompt: 'x', seed: -2 }, 'seed is -2; expected an integer of at least 0', 'seed'],
    ['no tokens', TEXT, { prompt: 'x', max_tokens: 0 }, 'max_tokens is 0; expected at least 1', 'max_tokens'],
    ['stop', TEXT, { prompt: 'x', stop: 5 }, 'stop is 5; expected a text, or a list', 'stop'],
    ['an empty stop', TEXT, { prompt: 'x', stop: ['a', ''] }, 'stop[1] is ""; expected a text of at least', 'stop[1]'],
    ['stream', TEXT, { prompt: 'x', stream: 'yes' }, 'stream is "yes"; expected true or false', 'stream'],
    [
      'stream_options',
      TEXT,
      { prompt: 'x', stream_options: { include_usage: 1 } },
      'stream_options.include_usage is 1',
      'stream_options.include_usage',
    ],
    ['logprobs', TEXT, { prompt: 'x', logprobs: 21 }, 'logprobs is 21; expected an integer from 0 to 20', 'logprobs'],
    ['logprobs in a chat', CHAT, { messages: user('x'), logprobs: 2 }, 'logprobs is 2; expected true or', 'logprobs'],
    ['top_logprobs alone', CHAT, { messages: user('x'), top_logprobs: 2 }, 'needs logprobs', 'top_logprobs'],
    [
      'two limits',
      CHAT,
      { messages: user('x'), max_tokens: 1, max_completion_tokens: 2 },
      'give one of them',
      'max_tokens',
    ],
    ['tools', CHAT, { messages: user('x'), tools: [{}] }, "tools[0]: expected {type: 'function'", 'tools'],
    ['a tool that is none', CHAT, { messages: user('x'), tool_choice: 'required' }, 'tool', 'tool_choice'],
    [
      'response_format',
      CHAT,
      { messages: user('x'), response_format: { type: 'xml' } },
      'response_format: type "xml": use text, json_object, json_schema.',
      'response_format',
    ],
    ['best_of', TEXT, { prompt: 'x', best_of: 2, stream: true }, 'best_of needs whole answers', 'best_of'],
    [
      'logit_bias',
      TEXT,
      { prompt: 'x', logit_bias: { cat: 'x' } },
      'logit_bias is {"cat":"x"}; expected',
      'logit_bias',
    ],
    [
      'a bias of no id',
      TEXT,
      { prompt: 'x', logit_bias: { '-1': 1 } },
      'logit_bias is {"-1":1}; expected',
      'logit_bias',
    ],
    ['a bias of no token', TEXT, { prompt: 'x', logit_bias: { 320: 1 } }, 'logit_bias: token 320; this model', null],
    ['min_p', TEXT, { prompt: 'x', min_p: 1.1 }, 'min_p is 1.1; expected a number from 0 to 1', 'min_p'],
    [
      'frequency_penalty',
      TEXT,
      { prompt: 'x', frequency_penalty: -2.5 },
      'frequency_penalty is -2.5; expected a number from -2 to 2',
      'frequency_penalty',
    ],
    ['stop_token_ids', TEXT, { prompt: 'x', stop_token_ids: [-1] }, 'expected a list of token ids', 'stop_token_ids'],
    ['min_tokens', TEXT, { prompt: 'x', min_tokens: 17 }, 'min_tokens 17: more than the 16 of max_tokens', null],
  ])('%s: 400 that says where and what', async (_what, path, body, message, param) => {
    const url = await start();
    const told = await expectError(await post(url, path, body), 400, { type: 'invalid_request_error', param });
    expect(told).toContain(message);
    expect(errors).toEqual([]);
  });

  test('unknown fields are ignored and named, and refused by a strict server', async () => {
    const url = await start({ origins: ['https://app.example'] });
    const asked = { messages: [{ role: 'user', content: 'hello', id: 'm1' }], max_tokens: 3, seed: 1 };
    const named = { ...asked, temprature: 1, chat_id: 'c', 'a\nb, é': 1, '\ud800': 1, user: 'ann' };
    const headers = { Origin: 'https://app.example' };
    const answer = await post(url, CHAT, named, { headers });
    expect(answer.headers.get('x-splitkv-ignored')).toBe(
      'temprature, chat_id, a%0Ab%2C%20%C3%A9, %EF%BF%BD, messages[0].id',
    );
    expect(answer.headers.get('access-control-expose-headers')).toContain('x-splitkv-ignored');
    const content = async (response: Response): Promise<unknown> =>
      ((await response.json()) as { choices: { message: unknown }[] }).choices[0]!.message;
    expect(await content(answer)).toEqual(await content(await post(url, CHAT, asked)));
    const stream = await post(url, CHAT, { ...named, stream: true });
    expect(stream.headers.get('x-splitkv-ignored')).toContain('chat_id');
    expect(await stream.text()).toContain('[DONE]');
    expect((await post(url, TEXT, { prompt: 'x', max_tokens: 1 })).headers.get('x-splitkv-ignored')).toBeNull();

    await server!.close();
    const strict = await start({ strict: true });
    const told = await expectError(await post(strict, TEXT, { prompt: 'x', temprature: 1 }), 400, {
      param: 'temprature',
    });
    expect(told).toContain("Did you mean 'temperature'?");
    await expectError(await post(strict, CHAT, asked), 400, { param: 'messages[0].id' });
  });

  test('fields that ask for nothing, null for what is left out, and what clients send back are taken', async () => {
    const url = await start();
    const response = await post(url, CHAT, {
      model: 'tiny',
      messages: [
        { role: 'developer', content: 'be brief' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'hello ' },
            { type: 'text', text: 'there' },
          ],
          name: 'ann',
        },
        { role: 'assistant', content: 'hi', refusal: null, annotations: [], tool_calls: null },
        { role: 'user', content: 'more' },
      ],
      max_tokens: 3,
      temperature: null,
      stop: null,
      tools: [],
      response_format: { type: 'text' },
      frequency_penalty: 0,
      logit_bias: {},
      user: 'u',
      metadata: { a: 'b' },
    });
    expect(response.status, await response.clone().text()).toBe(200);
    const same = await post(url, CHAT, {
      messages: [
        { role: 'system', content: 'be brief' },
        ...user('hello \nthere'),
        { role: 'assistant', content: 'hi' },
        ...user('more'),
      ],
      max_completion_tokens: 3,
    });
    const text = async (answer: Response): Promise<unknown> =>
      ((await answer.json()) as { choices: unknown[] }).choices[0];
    expect(await text(response)).toEqual(await text(same));
  });

  test('controls of what is sampled are those of the library', async () => {
    const url = await start();
    const response = await post(url, TEXT, {
      prompt: [5, 6, 7],
      max_tokens: 20,
      temperature: 0.9,
      seed: 4,
      min_p: 0.02,
      frequency_penalty: 1,
      presence_penalty: 0.5,
      logit_bias: { 40: 4, 41: 4, 42: 4 },
      stop_token_ids: [40, 42],
      min_tokens: 6,
    });
    const { choices, usage } = (await response.json()) as {
      choices: { text: string; finish_reason: string }[];
      usage: { completion_tokens: number };
    };
    const options = { minP: 0.02, frequencyPenalty: 1, presencePenalty: 0.5, logitBias: { 40: 4, 41: 4, 42: 4 } };
    let expected = '';
    for await (const { text } of model.complete([5, 6, 7], {
      ...options,
      maxTokens: 20,
      temperature: 0.9,
      seed: 4,
      stopTokenIds: [40, 42],
      minTokens: 6,
    })) {
      expected += text;
    }
    expect(choices).toMatchObject([{ text: expected, finish_reason: 'stop' }]);
    expect(usage.completion_tokens).toBeGreaterThanOrEqual(6);
    expect(usage.completion_tokens).toBeLessThan(20);
  });

  test('echo with logprobs scores a prompt, as lm-eval asks', async () => {
    const url = await start();
    interface Scored {
      choices: {
        text: string;
        finish_reason: string;
        logprobs: {
          tokens: string[];
          token_logprobs: (number | null)[];
          top_logprobs: (Record<string, number> | null)[];
          text_offset: number[];
        };
      }[];
      usage: { completion_tokens: number };
    }
    const prompt = 'the cat sat on the mat';
    const ids = model.tokenize(prompt);
    const ask = { prompt: [ids, ids.slice(0, 4)], echo: true, logprobs: 2 };
    const { choices, usage } = (await (await post(url, TEXT, { ...ask, max_tokens: 0 })).json()) as Scored;
    expect(usage.completion_tokens).toBe(0);
    for (const [index, { text, logprobs }] of choices.entries()) {
      const length = ask.prompt[index]!.length;
      expect(logprobs.tokens).toHaveLength(length);
      expect(logprobs.token_logprobs[0]).toBeNull();
      expect(logprobs.top_logprobs[0]).toBeNull();
      expect(logprobs.token_logprobs.slice(1).every((value) => value! < 0)).toBe(true);
      expect(Object.values(logprobs.top_logprobs[1]!).length).toBeGreaterThanOrEqual(2);
      // The first is special: it has no text of its own.
      const pieces = logprobs.text_offset.map((at, token) => text.slice(at, logprobs.text_offset[token + 1]));
      expect(pieces).toEqual(['', ...logprobs.tokens.slice(1)]);
    }
    expect(choices[0]!.text).toBe(prompt);
    // What a prompt says of its beginning doesn't depend on its end.
    expect(choices[0]!.logprobs.token_logprobs.slice(0, 4)).toEqual(choices[1]!.logprobs.token_logprobs);

    const one = (await (await post(url, TEXT, { ...ask, prompt, max_tokens: 1 })).json()) as Scored;
    const answered = one.choices[0]!;
    expect(answered.logprobs.token_logprobs.slice(0, -1)).toEqual(choices[0]!.logprobs.token_logprobs);
    expect(answered.text.startsWith(prompt)).toBe(true);
    expect(answered.logprobs.text_offset.at(-1)).toBe(prompt.length);
  });

  test('tokens of a text, of a chat, and back; version and fingerprint', async () => {
    const url = await start({ apiKeys: ['key'] });
    const headers = { Authorization: 'Bearer key' };
    const ask = async (path: string, body: object): Promise<Record<string, unknown>> =>
      (await (await post(url, path, body, { headers })).json()) as Record<string, unknown>;
    const text = 'Über die Brücke, 🐈';
    const tokens = model.tokenize(text);
    expect(await ask('/tokenize', { model: 'tiny', prompt: text })).toEqual({
      count: tokens.length,
      max_model_len: CONTEXT,
      tokens,
    });
    expect(await ask('/tokenize', { content: text, add_special: false })).toMatchObject({
      tokens: model.tokenize(text, { addSpecial: false }),
    });
    const chat = await ask('/tokenize', { messages: user(text) });
    expect(chat.tokens).toEqual(model.tokenize({ messages: [{ role: 'user', content: text }] }));
    const bare = await ask('/tokenize', { messages: user(text), add_generation_prompt: false });
    expect((bare.tokens as number[]).length).toBeLessThan((chat.tokens as number[]).length);
    // Longer than the context, and read in a thread.
    const long = 'the cat '.repeat(4000);
    expect(await ask('/tokenize', { prompt: long })).toMatchObject({ tokens: model.tokenize(long) });
    const back = await ask('/detokenize', { tokens });
    expect(back).toEqual({ prompt: model.detokenize(tokens), content: model.detokenize(tokens) });
    expect(back.content).toContain(text);
    const many = model.tokenize(long);
    expect((await ask('/detokenize', { tokens: many })).content).toBe(model.detokenize(many));
    for (const [path, body] of [
      ['/tokenize', {}],
      ['/tokenize', { prompt: 'x', messages: user('x') }],
      ['/detokenize', { tokens: [-1] }],
    ] as const) {
      await expectError(await post(url, path, body, { headers }), 400, {});
    }
    await expectError(await post(url, '/tokenize', { prompt: 'x' }), 401, {});
    expect(await (await fetch(`${url}/version`)).json()).toEqual({ version: VERSION });
    const { system_fingerprint: fingerprint } = await ask(TEXT, { prompt: 'x', max_tokens: 1 });
    expect(fingerprint).toMatch(new RegExp(`^b${VERSION.replaceAll('.', '\\.')}-[0-9a-f]{12}$`));
    expect((await ask(CHAT, { messages: user('x'), max_tokens: 1 })).system_fingerprint).toBe(fingerprint);
  });

  test('unknown model, path and method', async () => {
    const url = await start();
    const missing = { type: 'invalid_request_error', code: 'model_not_found', param: 'model' };
    const told = await expectError(await post(url, TEXT, { model: 'other', prompt: 'x' }), 404, missing);
    expect(told).toBe("model 'other' not found; the model is 'tiny'");
    await expectError(await fetch(`${url}/v1/models/other%2Fmodel`), 404, missing);
    await expectError(await post(url, '/v1/images/generations', {}), 404, { type: 'invalid_request_error' });
    await expectError(await fetch(`${url}/v1/models/%ff`), 404, {});
    const wrong = await fetch(`${url}${CHAT}`);
    expect(wrong.headers.get('allow')).toBe('POST');
    await expectError(wrong, 405, { message: `GET is not for ${CHAT}; use POST` });
    await expectError(await post(url, '/health', {}), 405, {});
    expect((await fetch(`${url}/v1/models/tiny?x=1`, { method: 'HEAD' })).status).toBe(200);
  });

  test('a prompt beyond the context', async () => {
    const url = await start();
    const body = { prompt: 'x '.repeat(CONTEXT) };
    const told = await expectError(await post(url, TEXT, body), 400, {
      code: 'context_length_exceeded',
      param: 'prompt',
    });
    expect(told).toMatch(/^prompt is too long: \d+ tokens > 2048 maximum/);
    const chat = { messages: user('x '.repeat(CONTEXT)), stream: true };
    await expectError(await post(url, CHAT, chat), 400, { code: 'context_length_exceeded', param: 'messages' });
  });

  test('a body that is too large: refused by its length, or as soon as it is too long', async () => {
    const url = await start({ maxBodyBytes: 2000 });
    const large = JSON.stringify({ prompt: 'x'.repeat(100_000) });
    await expectError(await post(url, TEXT, large), 413, { type: 'invalid_request_error' });
    const chunks = new ReadableStream({
      pull(controller) {
        controller.enqueue(new TextEncoder().encode(large.slice(0, 1500)));
        controller.enqueue(new TextEncoder().encode(large.slice(1500)));
        controller.close();
      },
    });
    await expectError(await post(url, TEXT, '', { body: chunks, duplex: 'half' } as Init), 413, {});
    const asking = await RawConnection.open(url);
    asking.send(`POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9999\r\n\r\n`);
    await until(() => asking.received.includes('}}'));
    expect(asking.received).toMatch(/^HTTP\/1\.1 413 /);
    const allowed = await RawConnection.open(url);
    allowed.send(`POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 31\r\n\r\n`);
    await until(() => allowed.received.includes('100 Continue'));
    allowed.send('{"prompt": "x", "max_tokens":1}');
    await until(() => allowed.received.includes('text_completion'));
    await expectError(await post(url, TEXT, { prompt: 'x' }, { headers: { 'Content-Encoding': 'gzip' } }), 415, {});
    asking.vanish();
    allowed.vanish();
  });

  test('who is refused before the body is there is told that the connection ends', async () => {
    const url = await start({ apiKeys: ['one'] });
    const early = await RawConnection.open(url);
    early.send(`POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n{`);
    await until(() => early.closed);
    expect(early.received).toMatch(/^HTTP\/1\.1 401 [^]*Connection: close\r\n/);
    // Where the whole request was there, the next one may follow.
    const whole = await RawConnection.open(url);
    whole.post(TEXT, { prompt: 'x' });
    await until(() => whole.received.includes('}}'));
    expect(whole.received).toMatch(/^HTTP\/1\.1 401 [^]*Connection: keep-alive\r\n/);
    whole.vanish();
  });

  test('control tokens in messages are text unless asked for', async () => {
    const url = await start();
    const count = async (content: string, more: object = {}): Promise<number> => {
      const body = { messages: user(content), max_tokens: 1, ...more };
      const { usage } = (await (await post(url, CHAT, body)).json()) as { usage: { prompt_tokens: number } };
      return usage.prompt_tokens;
    };
    const without = await count('');
    expect(await count('<|user|>', { special: 'token' })).toBe(without + 1);
    expect(await count('<|user|>')).toBeGreaterThan(without + 1);
    await expectError(await post(url, CHAT, { messages: user('x'), special: 'both' }), 400, { param: 'special' });
  });

  test('trace ids of W3C pass through', async () => {
    const url = await start();
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const ask = async (traceparent: string): Promise<[string | null, string | undefined]> => {
      const response = await fetch(`${url}/version`, { headers: { traceparent } });
      await response.text();
      await until(() => server!.live === 0);
      return [response.headers.get('traceparent'), records.at(-1)!.trace];
    };
    for (const given of [`00-${trace}-00f067aa0ba902b7-01`, `cc-${trace}-00f067aa0ba902b7-00-more`]) {
      expect(await ask(given)).toEqual([given, trace]);
    }
    for (const given of [
      trace,
      `00-${trace}-0000000000000000-01`,
      `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`,
      `ff-${trace}-00f067aa0ba902b7-01`,
      `00-${trace}-00f067aa0ba902b7-01-more`,
      `00-${trace.toUpperCase()}-00f067aa0ba902b7-01`,
    ]) {
      expect(await ask(given), given).toEqual([null, undefined]);
    }
  });

  test('bytes that are no UTF-8, and what is no HTTP', async () => {
    const url = await start();
    const bad = await post(url, TEXT, '', { body: new Uint8Array([0x7b, 0xff, 0x7d]) });
    await expectError(bad, 400, { message: 'the body is not valid JSON: it is not UTF-8' });
    const raw = await RawConnection.open(url);
    raw.send('HELLO\r\n\r\n');
    await until(() => raw.closed);
    expect(raw.received).toMatch(/^HTTP\/1\.1 400 [^]*"this is not a valid HTTP request"/);
    const large = await RawConnection.open(url);
    large.send(`GET / HTTP/1.1\r\nX: ${'y'.repeat(20_000)}\r\n\r\n`);
    await until(() => large.closed);
    expect(large.received).toMatch(/^HTTP\/1\.1 431 /);
  });
});

describe('access', () => {
  test('keys', async () => {
    const url = await start({ apiKeys: ['one', 'two'] });
    const ask = (key?: string): Promise<Response> =>
      fetch(`${url}/v1/models`, key === undefined ? {} : { headers: { Authorization: key } });
    const missing = await ask();
    expect(missing.headers.get('www-authenticate')).toBe('Bearer');
    await expectError(missing, 401, { type: 'authentication_error', code: 'missing_api_key' });
    await expectError(await ask('Bearer three'), 401, { code: 'invalid_api_key' });
    await expectError(await ask('Basic one'), 401, { code: 'missing_api_key' });
    expect((await ask('Bearer two')).status).toBe(200);
    expect((await fetch(`${url}/health`)).status).toBe(200);
    await expectError(await post(url, '/v1/other', {}), 404, {});
  });

  test('pages of other origins are kept out unless they were named', async () => {
    const url = await start({ origins: ['https://a.example'] });
    const ask = (Origin: string, init: Init = {}): Promise<Response> =>
      fetch(`${url}/v1/models`, { ...init, headers: { Origin, ...init.headers } });
    await expectError(await ask('https://b.example'), 403, {
      type: 'permission_error',
      code: 'origin_not_allowed',
    });
    const allowed = await ask('https://a.example');
    expect(allowed.status).toBe(200);
    expect(allowed.headers.get('access-control-allow-origin')).toBe('https://a.example');
    const preflight = await ask('https://a.example', {
      method: 'OPTIONS',
      headers: { 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'authorization' },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get('access-control-allow-headers')).toBe('authorization');
    await expectError(await fetch(`${url}/v1/models`, { method: 'OPTIONS' }), 405, {});
  });

  test('names of other hosts are kept out of a server for this machine', async () => {
    const url = await start();
    const ask = async (host: string): Promise<string> => {
      const raw = await RawConnection.open(server!.url);
      raw.send(`GET /v1/models HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      await until(() => raw.closed);
      return raw.received;
    };
    for (const host of ['127.0.0.1', new URL(url).host, 'LOCALHOST:1', '[::1]:80']) {
      expect(await ask(host)).toMatch(/^HTTP\/1\.1 200 /);
    }
    for (const host of ['rebound.example', 'localhost.rebound.example:80', '']) {
      expect(await ask(host)).toMatch(/^HTTP\/1\.1 403 [^]*host_not_allowed/);
    }
    await server!.close();
    await start({ allowedHosts: ['models.example'] });
    expect(await ask('models.example:8000')).toMatch(/^HTTP\/1\.1 200 /);
    expect(await ask('rebound.example')).toMatch(/^HTTP\/1\.1 403 /);
    await server!.close();
    await start({ allowedHosts: ['*'] });
    expect(await ask('rebound.example')).toMatch(/^HTTP\/1\.1 200 /);
  });

  test('metrics behind a key', async () => {
    const url = await start({ apiKeys: ['one'], protectMetrics: true });
    await expectError(await fetch(`${url}/metrics`), 401, {});
    expect((await fetch(`${url}/metrics`, { headers: { Authorization: 'Bearer one' } })).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });

  test.each([
    ['with keys', { apiKeys: ['one', 'two'], priorityKeys: ['two'] }, ['one'], ['two']],
    ['without keys', {}, ['', 'two'], []],
    ['allowed to all', { priorityKeys: 'all' as const }, [], ['', 'one']],
    ['allowed to all, with keys', { apiKeys: ['one'], priorityKeys: 'all' as const }, [], ['one']],
  ])('a priority is refused by name unless it is allowed: %s', async (_what, options, refused, allowed) => {
    const url = await start(options);
    const ask = (key: string, priority: number | null, path = TEXT): Promise<Response> => {
      const body = path === TEXT ? { prompt: 'x' } : { messages: [{ role: 'user', content: 'x' }] };
      const headers = key === '' ? {} : { Authorization: `Bearer ${key}` };
      return post(url, path, { ...body, max_tokens: 1, priority }, { headers });
    };
    for (const key of refused) {
      for (const path of [TEXT, '/v1/chat/completions']) {
        const response = await ask(key, 100, path);
        await expectError(response, 403, { code: 'priority_not_allowed', param: 'priority', type: 'permission_error' });
      }
      await expectError(await ask(key, -1), 403, { code: 'priority_not_allowed' });
      // It asks for nothing.
      expect((await ask(key, 0)).status).toBe(200);
      expect((await ask(key, null)).status).toBe(200);
    }
    for (const key of allowed) expect((await ask(key, 100)).status).toBe(200);
  });

  test('long answers of one key on all slots: others are answered, and its own go on', async () => {
    const url = await start({ apiKeys: ['greedy', 'polite'] });
    const as = (key: string): Init => ({ headers: { Authorization: `Bearer ${key}` } });
    const leaving = new AbortController();
    const { slots } = model.info;
    const body = { prompt: 'the cat', max_tokens: 1500, ignore_eos: true, n: 3 * slots };
    const running = post(url, TEXT, body, { ...as('greedy'), signal: leaving.signal });
    await until(() => model.metrics.running === slots);
    const { preemptionsTotal } = model.metrics;
    for (let i = 0; i < 3; i++) {
      const answer = await post(url, TEXT, { prompt: 'x', max_tokens: 4, ignore_eos: true }, as('polite'));
      expect(answer.status).toBe(200);
    }
    expect(model.metrics.preemptionsTotal).toBeGreaterThan(preemptionsTotal);
    // None of the greedy one's ended for it.
    expect(model.metrics.unfinished).toBe(3 * slots);
    leaving.abort();
    await expect(running.then((response) => response.text())).rejects.toThrow();
    await until(() => model.metrics.unfinished === 0 && server!.live === 0);
  });

  test('one client has no more than its share of the places', async () => {
    const url = await start({ apiKeys: ['one', 'two'], maxPerClient: 3, maxQueue: 2 });
    const as = (key: string): Init => ({ headers: { Authorization: `Bearer ${key}` } });
    const leaving = new AbortController();
    const running = post(url, TEXT, { ...long, n: 2 }, { ...as('one'), signal: leaving.signal });
    await until(() => model.metrics.unfinished === 2);
    const refused = await post(url, TEXT, { prompt: ['x', 'y'], max_tokens: 1 }, as('one'));
    expect(refused.headers.get('retry-after')).toBe('1');
    await expectError(refused, 429, { code: 'client_queue_full' });
    await expectError(await post(url, TEXT, { prompt: 'x', n: 4 }, as('one')), 400, { param: 'n' });
    expect((await post(url, TEXT, { prompt: 'x', n: 3, max_tokens: 1 }, as('two'))).status).toBe(200);
    leaving.abort();
    await expect(running.then((response) => response.text())).rejects.toThrow();
    await until(() => model.metrics.unfinished === 0 && server!.live === 0);
    expect((await post(url, TEXT, { prompt: 'x', n: 3, max_tokens: 1 }, as('one'))).status).toBe(200);
  });

  test('only this machine, unless told otherwise', async () => {
    expect(await start()).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    await expect(new ApiServer({ port: Number(new URL(server!.url).port) }).listen()).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('is in use on 127.0.0.1') as string,
    });
    await expect(new ApiServer({ host: '203.0.113.1' }).listen()).rejects.toThrow("can't listen on 203.0.113.1:0");
  });
});

describe('load', () => {
  test('a full queue: 429 with Retry-After, and room again afterwards', async () => {
    const url = await start({ maxQueue: 2 });
    const running = await Promise.all(Array.from({ length: 6 }, () => RawConnection.open(url)));
    for (const connection of running) connection.post(TEXT, long);
    await until(() => model.metrics.unfinished === 6);
    const full = await post(url, TEXT, { prompt: 'x', max_tokens: 1 });
    expect(Number(full.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    await expectError(full, 429, { type: 'rate_limit_error', code: 'queue_full' });
    await expectError(await post(url, TEXT, { prompt: 'x', n: 7 }), 400, { param: 'n' });
    await expectError(await post(url, TEXT, { prompt: Array(7).fill('x') }), 400, { param: 'prompt' });
    for (const connection of running) connection.vanish();
    await until(() => model.metrics.unfinished === 0);
    expect((await post(url, TEXT, { prompt: 'x', max_tokens: 1 })).status).toBe(200);
    const { requestsTotal } = model.metrics;
    expect(requestsTotal.aborted).toBeGreaterThanOrEqual(6);
    await until(() => server!.live === 0);
    expect(records.filter(({ outcome }) => outcome === 'vanished')).toHaveLength(6);
  });

  test('clients that vanish: waiting for a whole answer, in a stream, in the middle of their request', async () => {
    const url = await start();
    const whole = await RawConnection.open(url);
    whole.post(TEXT, { ...long, stream: false });
    const stream = await RawConnection.open(url);
    stream.post(CHAT, { messages: user('x'), stream: true, ignore_eos: true, n: 2 });
    const half = await RawConnection.open(url);
    half.send(`POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"prompt"`);
    await until(() => model.metrics.unfinished === 3 && server!.live === 3 && stream.received.includes('delta'));
    for (const connection of [whole, stream, half]) connection.vanish();
    await until(() => server!.live === 0);
    expect(records.map(({ outcome }) => outcome)).toEqual(['vanished', 'vanished', 'vanished']);
    expect(errors).toEqual([]);
  });

  test('requests that come too slowly: 408', async () => {
    const url = await start({ headersMs: 100, requestMs: 300 });
    const headers = await RawConnection.open(url);
    headers.send('GET /health HTTP/1.1\r\nHo');
    const body = await RawConnection.open(url);
    body.send(`POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"prompt"`);
    await until(() => headers.closed && body.closed);
    expect(headers.received).toMatch(/^HTTP\/1\.1 408 /);
    expect(body.received).toMatch(/^HTTP\/1\.1 408 /);
  });

  test('a stream that waits in the queue says that it lives', async () => {
    const url = await start({ heartbeatMs: 20 });
    const others = await Promise.all(Array.from({ length: 4 }, () => RawConnection.open(url)));
    for (const connection of others) connection.post(TEXT, { ...long, logprobs: 5 });
    await until(() => model.metrics.running === 4);
    const waiting = await RawConnection.open(url);
    waiting.post(TEXT, { ...long, max_tokens: 2 });
    await until(() => waiting.received.includes(': waiting\n\n'));
    for (const connection of others) connection.vanish();
    await until(() => waiting.received.includes('[DONE]'));
    waiting.vanish();
  });
});

describe('state', () => {
  test('while the model loads: 503, and health says so', async () => {
    server = await new ApiServer().listen();
    const health = await fetch(`${server.url}/health`);
    expect([health.status, await health.json()]).toEqual([503, { status: 'loading' }]);
    expect((await fetch(`${server!.url}/readyz`)).status).toBe(503);
    expect((await fetch(`${server!.url}/livez`)).status).toBe(200);
    const early = await post(server.url, TEXT, { prompt: 'x' });
    expect(early.headers.get('retry-after')).toBe('2');
    await expectError(early, 503, { type: 'server_error', code: 'loading' });
    server.open(model);
    expect(await (await fetch(`${server.url}/health`)).json()).toEqual({ status: 'ok' });
    expect((await fetch(`${server.url}/metrics`)).status).toBe(200);
  });

  test('before a shutdown it is no longer ready, and answers on', async () => {
    const url = await start();
    const drained = server!.drain(300);
    const ready = await fetch(`${url}/readyz`);
    expect([ready.status, await ready.json()]).toEqual([503, { status: 'shutting down' }]);
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    const answer = await post(url, TEXT, { prompt: 'x', max_tokens: 1 });
    expect([answer.status, answer.headers.get('connection')]).toEqual([200, 'close']);
    await drained;
    expect((await post(url, TEXT, { prompt: 'x', max_tokens: 1 })).status).toBe(200);
  });

  test('a shutdown lets requests finish that take no longer than its time', async () => {
    const url = await start();
    const answer = post(url, TEXT, { prompt: 'x', max_tokens: 100, ignore_eos: true });
    await until(() => model.metrics.running === 1);
    const closing = server!.close(60_000);
    const finished = (await (await answer).json()) as { usage: { completion_tokens: number } };
    expect(finished.usage.completion_tokens).toBe(100);
    await closing;
    await expect(fetch(`${url}/health`)).rejects.toThrow();
  });

  test('a shutdown tells those it cuts off', async () => {
    const url = await start();
    const stream = await post(url, TEXT, long);
    const whole = post(url, TEXT, { ...long, stream: false });
    await until(() => model.metrics.running === 2);
    const closing = server!.close(10);
    const text = await stream.text();
    expect(text).toContain('"code":"shutting_down"');
    expect(text).not.toContain('[DONE]');
    await expectError(await whole, 503, { code: 'shutting_down' });
    await closing;
    expect(records.map(({ outcome }) => outcome)).toEqual(['shut_down', 'shut_down']);
  });

  test('metrics are what happened', async () => {
    const url = await start();
    const before = model.metrics;
    await (await post(url, TEXT, { prompt: 'the cat', max_tokens: 5, ignore_eos: true })).text();
    await (await post(url, TEXT, {})).text();
    await (await fetch(`${url}/nowhere"`)).text();
    await until(() => server!.live === 0);
    const text = await (await fetch(`${url}/metrics`)).text();
    const value = (name: string): number =>
      Number(new RegExp(`^${name.replace(/[{}]/g, '\\$&')} (.*)$`, 'm').exec(text)?.[1]);
    expect(value('splitkv_requests_total{route="/v1/completions",outcome="completed",code="200"}')).toBe(1);
    expect(value('splitkv_requests_total{route="/v1/completions",outcome="refused",code="400"}')).toBe(1);
    expect(value('splitkv_requests_total{route="other",outcome="refused",code="404"}')).toBe(1);
    expect(value('splitkv_request_seconds_count{route="/v1/completions"}')).toBe(2);
    expect(value('splitkv_request_seconds_bucket{route="/v1/completions",le="\\+Inf"}')).toBe(2);
    expect(value('splitkv_queue_seconds_count')).toBe(before.queued.count + 1);
    expect(value('splitkv_recovering')).toBe(0);
    expect(value('nodejs_eventloop_lag_max_seconds')).toBeGreaterThanOrEqual(value('nodejs_eventloop_lag_p50_seconds'));
    expect(Math.abs(Date.now() / 1000 - process.uptime() - value('process_start_time_seconds'))).toBeLessThan(60);
    expect(text).toMatch(/^splitkv_build_info\{version="\d[^"]*",node="[\d.]+",model="[^"]*",.*plan="single",.*\} 1$/m);
    expect(value('splitkv_requests_live')).toBe(1);
    expect(value('splitkv_generated_tokens_total')).toBe(before.generatedTokensTotal + 5);
    expect(value('splitkv_sequences_total{outcome="length"}')).toBe(before.requestsTotal.length + 1);
    expect(value('splitkv_kv_blocks')).toBe(model.info.kvBlocks);
    const { drafted, accepted, steps } = model.metrics.speculation!;
    expect(value('splitkv_drafted_tokens_total')).toBe(drafted);
    expect(value('splitkv_accepted_tokens_total')).toBe(accepted);
    expect(value('splitkv_verify_steps_total')).toBe(steps);
    expect(value('splitkv_kv_blocks_used')).toBe(0);
    expect(value('splitkv_time_to_first_token_seconds_count')).toBe(before.firstToken.count + 1);
    expect(value('splitkv_time_per_output_token_seconds_count')).toBe(before.nextToken.count + 4);
    expect(value('splitkv_time_per_output_token_seconds_bucket{le="\\+Inf"}')).toBe(before.nextToken.count + 4);
    // Every line is a comment or a sample, and every metric says what it is.
    for (const line of text.trimEnd().split('\n'))
      expect(line).toMatch(/^(# (HELP|TYPE) \S+ .+|[a-z_][a-z\d_]*(\{.*\})? [-+.\de]+)$/);
  });
});
