import { afterAll, beforeAll, expect, test } from 'vitest';
import { drawn } from '../gpu/testing/draw.js';
import type { ServingModel } from '../index.js';
import type { ApiServer } from './api_server.js';
import { RawConnection } from './testing/raw_connection.js';
import { openTestModel, startTestServer } from './testing/test_server.js';
import { until } from './testing/until.js';

// What no client would send, as bytes, and the statuses that come back. Whatever comes, the server answers or hangs up, and goes on.

const KEY = 'a-key-of-this-test';
const KEYED = `Authorization: Bearer ${KEY}\r\n`;
const ORIGIN = 'https://ok.example';

let model: ServingModel;
let server: ApiServer;
beforeAll(async () => {
  model = await openTestModel({ slots: 4 });
  server = await startTestServer(model, { apiKeys: [KEY], origins: [ORIGIN], maxQueue: 4, maxPerClient: 8 });
}, 120_000);
afterAll(async () => {
  await server.close();
  await model.dispose();
});

/** Statuses in the order of answers; [0] is a connection that ends without one. */
async function statuses(bytes: string | Uint8Array): Promise<number[]> {
  const connection = await RawConnection.open(server.url);
  connection.send(bytes);
  await until(() => connection.closed);
  const found = [...connection.received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
  return found.length > 0 ? found : [0];
}

type Row = readonly [name: string, bytes: string | Uint8Array, expected: number | readonly number[]];

const get = (path: string, headers = KEYED, method = 'GET', host = 'Host: localhost\r\n'): string =>
  `${method} ${path} HTTP/1.1\r\n${host}${headers}Connection: close\r\n\r\n`;
const raw = (body: string | Uint8Array, headers = '', path = '/v1/completions'): Uint8Array => {
  const content = Buffer.from(body as string);
  const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\n${KEYED}${headers}Content-Length: ${content.byteLength}\r\nConnection: close\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), content]);
};
const PROMPT = { prompt: 'a', max_tokens: 1 };
/** A prompt's completion of one token, unless fields say otherwise. */
const complete = (fields: object, headers = ''): Uint8Array => raw(JSON.stringify({ ...PROMPT, ...fields }), headers);
const chat = (fields: object): Uint8Array => raw(JSON.stringify(fields), '', '/v1/chat/completions');
/** As `complete`, for values that JSON.stringify would write otherwise. */
const field = (name: string, json: string): Uint8Array => raw(`{"prompt":"a","max_tokens":1,"${name}":${json}}`);
const user = (content: unknown): object => ({ messages: [{ role: 'user', content }], max_tokens: 1 });
const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels);

const keys: Row[] = [
  ['no key', get('/v1/models', ''), 401],
  ['a wrong key', get('/v1/models', 'Authorization: Bearer nope\r\n'), 401],
  ['the beginning of the key', get('/v1/models', `Authorization: Bearer ${KEY.slice(0, -1)}\r\n`), 401],
  ['the key and more', get('/v1/models', `Authorization: Bearer ${KEY}x\r\n`), 401],
  ['the key for Basic', get('/v1/models', `Authorization: Basic ${KEY}\r\n`), 401],
  ['a key of 15 kB', get('/v1/models', `Authorization: Bearer ${'k'.repeat(15_000)}\r\n`), 401],
  ['the key in the query', get(`/v1/models?api_key=${KEY}`, ''), 401],
  ["Anthropic's header with a wrong key", get('/v1/models', 'x-api-key: nope\r\n'), 401],
  ["Anthropic's header", get('/v1/models', `x-api-key: ${KEY}\r\n`), 200],
  [
    'a wrong key before a body that never comes',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n`,
    401,
  ],
  ['metrics without a key', get('/metrics', ''), 200],
  ['health without a key', get('/health', ''), 200],
];
const origins: Row[] = [
  ['a page elsewhere', get('/v1/models', `${KEYED}Origin: https://evil.example\r\n`), 403],
  ['a page of a file', get('/v1/models', `${KEYED}Origin: null\r\n`), 403],
  ['an origin that begins like one that may', get('/v1/models', `${KEYED}Origin: ${ORIGIN}.evil.example\r\n`), 403],
  ['an origin in capitals', get('/v1/models', `${KEYED}Origin: ${ORIGIN.toUpperCase()}\r\n`), 403],
  ['a page that may ask', get('/v1/models', `${KEYED}Origin: ${ORIGIN}\r\n`), 200],
  ['its preflight', get('/v1/models', `Origin: ${ORIGIN}\r\nAccess-Control-Request-Method: POST\r\n`, 'OPTIONS'), 204],
  [
    'a preflight from elsewhere',
    get('/v1/models', 'Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n', 'OPTIONS'),
    403,
  ],
  ['metrics for a page elsewhere', get('/metrics', 'Origin: https://evil.example\r\n'), 403],
  ['another host', get('/health', '', 'GET', 'Host: evil.example\r\n'), 403],
  ['a host that begins like this one', get('/health', '', 'GET', 'Host: localhost.evil.example\r\n'), 403],
  ['no host', get('/health', '', 'GET', ''), 400],
  ['two hosts', get('/health', '', 'GET', 'Host: localhost\r\nHost: evil.example\r\n'), 400],
  ['this host in capitals, with a port', get('/health', '', 'GET', 'Host: LOCALHOST:1\r\n'), 200],
  ['a form', complete({}, 'Content-Type: text/plain\r\n'), 200],
];
const paths: Row[] = [
  ...(
    [
      '/../../etc/passwd',
      '/%2e%2e/%2e%2e/etc/passwd',
      '/v1/models/../../../etc/passwd',
      '/v1/models/%00',
      '/v1/models/%ff',
      '/v1/models/%',
      '/__proto__',
      '/constructor',
      '/v1/models/{model}',
      '/v1/responses/__proto__',
      '/v1/responses/{id}',
      '//v1/models',
      '/V1/MODELS',
      '/v1/models;x=1',
      'http://evil.example/v1/models',
      `/${'a'.repeat(10_000)}`,
    ] as const
  ).map((path): Row => [`path ${path.slice(0, 60)}`, get(path), 404]),
  ['a path of 20 kB', get(`/${'a'.repeat(20_000)}`), 431],
  ['no path', get(''), 400],
  ['a path with a line break', get('/v1/mod\r\nels'), 400],
];
const methods: Row[] = [
  ...['DELETE', 'PUT', 'PATCH', 'TRACE', 'GET', 'HEAD'].map((method): Row => [
    `${method} of completions`,
    get('/v1/completions', KEYED, method),
    405,
  ]),
  ['POST of models', get('/v1/models', KEYED, 'POST'), 405],
  ['OPTIONS *', get('*', KEYED, 'OPTIONS'), 404],
  ['CONNECT', get('evil.example:443', KEYED, 'CONNECT'), 0],
  ['an upgrade', get('/health', 'Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n'), 200],
  ['a method that there is not', get('/v1/models', KEYED, 'STEAL'), 400],
];
const framing: Row[] = [
  [
    'a body larger than allowed, by its length',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Content-Length: 2000000\r\n\r\n{`,
    413,
  ],
  [
    'a body larger than allowed, in chunks',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Transfer-Encoding: chunked\r\n\r\n${`10000\r\n${'x'.repeat(65_536)}\r\n`.repeat(17)}`,
    413,
  ],
  ['a compressed body', raw('xxxx', 'Content-Encoding: gzip\r\n'), 415],
  [
    'a body that asks first',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Expect: 100-continue\r\nConnection: close\r\nContent-Length: 29\r\n\r\n{"prompt":"a","max_tokens":1}`,
    [100, 200],
  ],
  ['an expectation that there is not', get('/health', 'Expect: the-unexpected\r\n'), 417],
  [
    'both lengths',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n`,
    400,
  ],
  [
    'two lengths',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!`,
    400,
  ],
  [
    'a length that is none',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Content-Length: -5\r\n\r\nhello`,
    400,
  ],
  [
    'an encoding that is none',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`,
    400,
  ],
  [
    'a chunk that is none',
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n${KEYED}Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n`,
    400,
  ],
  ['TLS', Uint8Array.from([22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3, ...Array(190).fill(7)]), 400],
  ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
  ['HTTP/9', 'GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n', 400],
  ['a NUL in a header', get('/health', 'X-A: \0\r\n'), 400],
  ['a header without a name', get('/health', ': x\r\n'), 400],
  ['a folded header', get('/health', 'X-A: b\r\n c: d\r\n'), 400],
  [
    '2500 headers',
    get('/health', Array.from({ length: 2500 }, (_, index) => `a-header-${index}: b\r\n`).join('')),
    431,
  ],
  ['noise', Uint8Array.from({ length: 4000 }, (_, index) => (index * 7919 + 13) % 256), 400],
  [
    'three requests at once',
    `${get('/health', '').replace('close', 'keep-alive').repeat(2)}${get('/health', '')}`,
    [200, 200, 200],
  ],
];
const bodies: Row[] = [
  ...(
    [
      ['nothing', ''],
      ['a brace', '{'],
      ['a list', '[]'],
      ['null', 'null'],
      ['a number', '1'],
      ['a text', '"prompt"'],
      ['half of it', '{"prompt":"a","max_tok'],
      ['something after it', '{"prompt":"a","max_tokens":1}x'],
      ['two of them', '{"prompt":"a"}{"prompt":"a"}'],
      ['single quotes', "{'prompt':'a'}"],
      ['a comment', '{"prompt":"a" /* b */}'],
      ['NaN', '{"prompt":"a","temperature":NaN}'],
      ['a form', 'prompt=a&max_tokens=1'],
      ['XML', '<prompt>a</prompt>'],
      ['a control character in a text', '{"prompt":"a\u0001"}'],
      ['UTF-16', Buffer.from('{"prompt":"a"}', 'utf16le')],
      ['Latin-1', Buffer.from('{"prompt":"\u00e9"}', 'latin1')],
      ['half a character', Buffer.from([...Buffer.from('{"prompt":"'), 0xe4, 0xb8, ...Buffer.from('"}')])],
    ] as const
  ).map(([name, body]): Row => [`body: ${name}`, raw(body), 400]),
  ['body: two of a key, the last of which counts', raw('{"prompt":[],"prompt":"a","max_tokens":1}'), 200],
  ['body: __proto__', raw('{"__proto__":{"prompt":"a"},"max_tokens":1}'), 400],
];
/** Of megabytes and many levels. The server gives such requests their turns, so that they take seconds one after another. */
const large: Row[] = [
  ['body: 100,000 levels', raw(nested(100_000)), 400],
  ...['prompt', 'stop', 'logit_bias', 'stream_options', 'response_format', 'model', 'stop_token_ids', 'n'].map(
    (name): Row => [`${name} 200,000 levels deep`, field(name, nested(200_000)), 400],
  ),
  ...['messages', 'tools', 'tool_choice'].map((name): Row => [
    `${name} 200,000 levels deep`,
    raw(`{"messages":[{"role":"user","content":"a"}],"${name}":${nested(200_000)}}`, '', '/v1/chat/completions'),
    400,
  ]),
  ['300,001 messages that are none', chat({ messages: Array(300_001).fill(1) }), 400],
  ['150,000 empty messages', chat({ messages: Array(150_000).fill({}) }), 400],
  ['200,000 tools that are none', chat({ ...user('a'), tools: Array(200_000).fill(1) }), 400],
  ['100,000 stop texts', complete({ stop: Array(100_000).fill('x') }), 400],
  ['200,000 stop ids that are none', complete({ stop_token_ids: Array(200_000).fill('x') }), 400],
  ['30,000 prompts', complete({ prompt: Array(30_000).fill('x') }), 400],
  ['400,000 token ids', complete({ prompt: Array(400_000).fill(1) }), 400],
  ['a field with a name of 900 kB', complete({ ['x'.repeat(900_000)]: 1 }), 200],
  ['20,000 fields', complete(Object.fromEntries(Array.from({ length: 20_000 }, (_, index) => [`f${index}`, 1]))), 400],
  ['a wrong value of 500 kB', complete({ stream: 'x'.repeat(500_000) }), 400],
  ['a prompt of 1 MB', complete({ prompt: 'a'.repeat(1_000_000) }), 400],
  ['a prompt of 1 MB of blanks', complete({ prompt: ' '.repeat(1_000_000) }), 400],
  ['a prompt of 1 MB of emoji', complete({ prompt: '\u{1f600}'.repeat(250_000) }), 400],
  ['a prompt of 1 MB of digits', complete({ prompt: '7'.repeat(1_000_000) }), 400],
];
/** Values by field that are refused, as JSON. */
const WRONG: Readonly<Record<string, readonly string[]>> = {
  n: ['0', '-1', '1.5', '129', '1000', '1e999', '"2"', 'true', '[]', '9'],
  max_tokens: ['0', '-2', '1.5', '1e999', '"1"', '{}'],
  temperature: ['-0.1', '2.1', '1e999', '"0"', 'true', '[]'],
  top_p: ['0', '1.1', '-1', '"1"', '1e-400'],
  top_k: ['-2', '1.5', '"1"', '1e15', '1e300'],
  min_p: ['-0.1', '1.1', '"0"'],
  seed: ['-2', '1.5', '1e999', '"1"'],
  stop: [
    '""',
    '[""]',
    '[1]',
    '1',
    '{}',
    JSON.stringify(Array(257).fill('x')),
    JSON.stringify(Array(16).fill('x'.repeat(6000))),
  ],
  stop_token_ids: ['[-1]', '[1.5]', '["a"]', '1'],
  logprobs: ['-1', '21', '"1"', 'true'],
  logit_bias: ['5', '[5]', '[["x"]]', '{"x":"y"}', '{"":1}', '{"1":"a"}', '{"-1":1}', '{"999999":1}'],
  frequency_penalty: ['-2.1', '2.1', '"0"'],
  presence_penalty: ['-2.1', '2.1'],
  repetition_penalty: ['0', '-1', '"1"', '1e-7', '1e7'],
  stream: ['"true"', '1', '[]'],
  stream_options: ['1', '"x"', '{"include_usage":"yes"}'],
  model: ['1', '[]', '{}'],
  prompt: ['1', '[]', '[[]]', '[-1]', '[1.5]', '[99999999]', '[4294967296]', '{}', 'true', 'null', '["a",true]'],
  echo: ['"x"'],
  response_format: ['"json"', '{"type":"x"}', '{"type":"json_schema"}'],
};
/** Values that are unusual, and all right. */
const RIGHT: Readonly<Record<string, readonly string[]>> = {
  temperature: ['5e-324', '0', '-0', 'null'],
  top_p: ['1e-45', '1'],
  top_k: ['0', '-1', '1000000'],
  max_tokens: ['1'],
  seed: ['-1', '9007199254740991'],
  stop: ['null', JSON.stringify(Array(16).fill('x'.repeat(4000)))],
  logprobs: ['20', '0'],
  prompt: ['"\\u0000"', '"\\ud800"', '"\\u202e"', '"<|user|>"', '[1]', '["a","b"]'],
  n: ['2'],
};
const values: Row[] = [
  ...Object.entries(WRONG).flatMap(([name, all]) =>
    all.map((json): Row => [`${name} ${json.slice(0, 40)}`, field(name, json), 400]),
  ),
  ...Object.entries(RIGHT).flatMap(([name, all]) =>
    all.map((json): Row => [`${name} ${json.slice(0, 40)}`, field(name, json), 200]),
  ),
  ['a model that there is not', complete({ model: 'gpt-4' }), 404],
  ['no prompt', raw('{"max_tokens":1}'), 400],
  ['no messages', chat({ messages: [] }), 400],
  ['a message of no role', chat({ messages: [{ role: 'root', content: 'a' }] }), 400],
  ['an image', chat(user([{ type: 'image_url', image_url: { url: 'file:///etc/passwd' } }])), 400],
];

const others: Row[] = [
  '/v1/responses',
  '/v1/messages',
  '/v1/messages/count_tokens',
  '/v1/embeddings',
  '/v1/rerank',
  '/tokenize',
  '/detokenize',
].flatMap((path): Row[] => [
  [`${path}: nothing in it`, raw('{}', '', path), 400],
  [`${path}: a list`, raw('[{}]', '', path), 400],
  [`${path}: numbers`, raw('{"input":1,"messages":1,"prompt":1,"tokens":1,"max_tokens":1}', '', path), 400],
  [`${path}: without a key`, get(path, '', 'POST'), 401],
]);
const small = [...others, ...keys, ...origins, ...paths, ...methods, ...framing, ...bodies, ...values];
const rows = [...small, ...drawn(large, 4, 'large requests')];

test(`${rows.length} requests that no client would send`, { timeout: 600_000 }, async () => {
  const golden = { prompt: 'the cat sat', max_tokens: 8, temperature: 0 };
  const ask = async (): Promise<unknown> => {
    const headers = { Authorization: `Bearer ${KEY}` };
    const response = await fetch(`${server.url}/v1/completions`, {
      method: 'POST',
      headers,
      body: JSON.stringify(golden),
    });
    return ((await response.json()) as { choices: unknown }).choices;
  };
  const before = await ask();
  const wrong: string[] = [];
  let slowest = 0;
  for (const [name, bytes, expected] of rows) {
    const start = performance.now();
    const found = await statuses(bytes);
    slowest = Math.max(slowest, performance.now() - start);
    if (String(found) !== String(expected)) wrong.push(`${name}: ${String(found)}, expected ${String(expected)}`);
  }
  console.log(
    JSON.stringify({ requests: rows.length, asExpected: rows.length - wrong.length, slowestMs: Math.round(slowest) }),
  );
  expect(wrong).toEqual([]);
  expect(await ask()).toEqual(before);
  expect(await (await fetch(`${server.url}/health`)).json()).toEqual({ status: 'ok' });
  await until(() => server.live === 0);
  const { metrics } = model;
  expect(metrics).toMatchObject({ running: 0, waiting: 0, unfinished: 0, kvBlocksFree: metrics.kvBlocks });
});
