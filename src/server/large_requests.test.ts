import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { serve, type ServingModel } from '../index.js';
import { testAdapters } from '../gpu/testing/adapters.js';
import type { ApiServer, ServerOptions } from './api_server.js';
import { RequestThread } from './request_reader.js';
import { RawConnection } from './testing/raw_connection.js';
import { openTestModel, startTestServer } from './testing/test_server.js';
import { until } from './testing/until.js';

const CHAT = '/v1/chat/completions';
const TEXT = '/v1/completions';
const MUCH = 400_000;

let model: ServingModel;
let server: ApiServer;
const errors: unknown[] = [];
const read = vi.spyOn(RequestThread.prototype, 'read');
beforeAll(async () => {
  model = await openTestModel();
});
afterEach(async () => {
  await server.close();
  read.mockClear();
  errors.length = 0;
});
afterAll(() => model.dispose());

async function start(options: ServerOptions = {}): Promise<string> {
  server = await startTestServer(model, { onError: (error) => errors.push(error), ...options });
  return server.url;
}
const post = (url: string, path: string, body: object): Promise<Response> =>
  fetch(`${url}${path}`, { method: 'POST', body: JSON.stringify(body) });

/** Status, code and message of a refusal, which is short. */
async function refusal(response: Response): Promise<[number, string | null, string]> {
  const text = await response.text();
  expect(text.length).toBeLessThan(1500);
  const { error } = JSON.parse(text) as { error: { code: string | null; message: string; n_prompt_tokens?: number } };
  const said = /([\d]+) tokens >/.exec(error.message)?.[1];
  expect(error.n_prompt_tokens).toBe(said === undefined ? undefined : Number(said));
  return [response.status, error.code, error.message];
}

test(
  'what one client may send without end: refused in a few words by a thread of its own',
  { timeout: 120_000 },
  async () => {
    const url = await start({ maxBodyBytes: 4 * MUCH });
    const context = ['context_length_exceeded', /^prompt is too long: at least \d+ tokens/] as const;
    const cases: [string, object, string | null, RegExp][] = [
      [TEXT, { prompt: 'a'.repeat(MUCH) }, ...context],
      [TEXT, { prompt: ['x', 'the cat '.repeat(MUCH / 8)] }, ...context],
      [CHAT, { messages: [{ role: 'user', content: ' '.repeat(MUCH) }] }, ...context],
      [CHAT, { messages: Array(1000).fill({ role: 'user', content: 'x'.repeat(300) }) }, ...context],
      [CHAT, { messages: Array(150_000).fill(1) }, null, /^messages has 150,000 entries/],
      [CHAT, { messages: Array(99_000).fill(1) }, null, /^messages/],
      [TEXT, { prompt: Array(100_001).fill(1) }, 'context_length_exceeded', /^prompt is too long: 100001 tokens/],
      [TEXT, { prompt: 'x', stop: Array(100_001).fill('x') }, null, /^stop has 100,001 entries/],
    ];
    for (const [path, body, code, told] of cases) {
      expect(await refusal(await post(url, path, body))).toEqual([400, code, expect.stringMatching(told)]);
    }
    expect(read).toHaveBeenCalledTimes(cases.length);
    expect(errors).toEqual([]);
  },
);

test(
  'a long text has the same tokens in the thread: the answer is that of a short request with its ids',
  { timeout: 120_000 },
  async () => {
    const url = await start();
    const rest = { max_tokens: 4, seed: 1, ignore_eos: true };
    const answer = async (body: object, path = TEXT): Promise<unknown> => {
      const response = await post(url, path, { ...body, ...rest });
      const { choices, usage } = (await response.json()) as { choices: unknown; usage: Record<string, unknown> };
      // The second time its beginning is in the cache.
      return { status: response.status, choices, usage: { ...usage, prompt_tokens_details: undefined } };
    };
    const ids = Array.from({ length: 600 }, (_, at) => 10 + (at % 200));
    const short = await answer({ prompt: ids });
    expect(read).not.toHaveBeenCalled();
    expect(await answer({ prompt: ids, user: 'u'.repeat(5000) })).toEqual(short);
    expect(read).toHaveBeenCalledTimes(1);
    const messages = [{ role: 'user', content: 'the cat sat on the mat '.repeat(40) }];
    const chat = await answer({ messages }, CHAT);
    expect(read).toHaveBeenCalledTimes(1);
    expect(await answer({ messages, user: 'u'.repeat(100_000) }, CHAT)).toEqual(chat);
    expect(read).toHaveBeenCalledTimes(2);
  },
);

test('a thread that takes too long is ended, one that breaks is replaced', { timeout: 120_000 }, async () => {
  const url = await start({ readMs: 1 });
  const body = { prompt: 'x', metadata: Array(400_000).fill(1), max_tokens: 1 };
  expect(await refusal(await post(url, TEXT, body))).toEqual([
    400,
    null,
    expect.stringMatching(/takes longer than 0.001 s/),
  ]);
  await server.close();
  const again = await start();
  expect((await post(again, TEXT, body)).status).toBe(200);
});

test('a client that goes away while its request waits is forgotten', { timeout: 120_000 }, async () => {
  const url = await start();
  const all = await Promise.all(Array.from({ length: 6 }, () => RawConnection.open(url)));
  for (const connection of all) connection.post(TEXT, { prompt: 'x'.repeat(100_000) });
  await until(() => server.live === 6);
  for (const connection of all) connection.vanish();
  await until(() => server.live === 0);
  expect(errors).toEqual([]);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  expect(metrics).toMatch(/^splitkv_request_body_bytes 0$/m);
  expect(metrics).toMatch(/^splitkv_requests_unread 0$/m);
});

test('more bytes of bodies than there is room for: 429, and room again afterwards', { timeout: 120_000 }, async () => {
  const url = await start({ maxBodiesBytes: 400_000 });
  const half = await RawConnection.open(url);
  half.send(`POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n${' '.repeat(150_000)}`);
  await until(async () => /splitkv_request_body_bytes 150000/.test(await (await fetch(`${url}/metrics`)).text()));
  const large = await post(url, TEXT, { prompt: 'x', user: 'u'.repeat(100_000), max_tokens: 1 });
  expect(large.headers.get('retry-after')).toBe('1');
  expect(large.headers.get('connection')).toBe('close');
  expect(await refusal(large)).toEqual([429, 'busy', expect.stringContaining('too many large requests')]);
  expect((await post(url, TEXT, { prompt: 'x', max_tokens: 1 })).status).toBe(200);
  half.vanish();
  await until(() => server.live === 0);
  expect((await post(url, TEXT, { prompt: 'x', user: 'u'.repeat(100_000), max_tokens: 1 })).status).toBe(200);
});

test('a request that is refused before it was read ends its connection', { timeout: 60_000 }, async () => {
  const url = await start({ maxBodyBytes: 2000 });
  const refused: [string, string, number][] = [
    ['Content-Length: 5000', '{', 413],
    ['Transfer-Encoding: chunked', `bb8\r\n${' '.repeat(3000)}\r\n`, 413],
    ['Content-Encoding: gzip\r\nContent-Length: 5', 'xx', 415],
  ];
  for (const [headers, sent, status] of refused) {
    const connection = await RawConnection.open(url);
    connection.send(`POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n\r\n${sent}`);
    await until(() => connection.closed);
    expect(connection.received).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(connection.received).toMatch(/^connection: close\r$/im);
    expect(connection.received).toContain('"invalid_request_error"');
  }
  await until(() => server.live === 0);
});

test('the library refuses by length, too', { timeout: 60_000 }, async () => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const own = await serve('models/tiny-gqa', { adapter, slots: 1, contextLength: 256 });
  expect(() => own.complete('the cat '.repeat(100_000))).toThrow(/at least [\d,]+ tokens > 256 maximum/);
  expect(() => own.complete(Array<number>(300).fill(5))).toThrow(/300 tokens > 256 maximum/);
  await own.dispose();
});
