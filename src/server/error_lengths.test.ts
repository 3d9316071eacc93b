import { afterAll, beforeAll, expect, test } from 'vitest';
import { range } from '../base/lists.js';
import type { ServingModel } from '../index.js';
import type { ApiServer } from './api_server.js';
import { openTestModel, startTestServer } from './testing/test_server.js';

// Who sends long names and values gets none of them back: an error says what was wrong in a few hundred bytes.

const MOST = 2000;
/** Refusals of one client are told later and later. */
const KEYS = Array.from({ length: 50 }, (_, index) => `key-${index}-of-this-test`);

let model: ServingModel;
let server: ApiServer;
beforeAll(async () => {
  model = await openTestModel({ slots: 2 });
  server = await startTestServer(model, { apiKeys: KEYS, maxPerClient: 8 });
}, 120_000);
afterAll(async () => {
  await server.close();
  await model.dispose();
});

const user = [{ role: 'user', content: 'a' }];
const BASES: Readonly<Record<string, object>> = {
  '/v1/completions': { prompt: 'a', max_tokens: 1 },
  '/v1/chat/completions': { messages: user, max_tokens: 1 },
  '/v1/messages': { messages: user, max_tokens: 1 },
  '/v1/messages/count_tokens': { messages: user },
  '/v1/responses': { input: 'a', max_output_tokens: 1 },
  '/v1/embeddings': { input: 'a' },
  '/v1/rerank': { query: 'a', documents: ['a'] },
  '/tokenize': { prompt: 'a' },
  '/detokenize': { tokens: [1] },
};
const schema = (inner: unknown): object => ({ type: 'json_schema', json_schema: { name: 'x', schema: inner } });
const tool = (of: object): object => ({ type: 'function', function: { name: 'f', parameters: {}, ...of } });
const message = (of: object): object => ({ messages: [...user, of] });

/** Bodies that have a long text, or a deep value of it, somewhere. */
const PLACES: readonly ((long: string) => object)[] = [
  ...'model prompt messages input tokens max_tokens stream stop seed logit_bias stop_token_ids response_format grammar regex choice guided_json guided_grammar guided_regex guided_choice json_schema structured_outputs tools tool_choice system instructions text reasoning reasoning_effort thinking metadata previous_response_id conversation include truncation store user stream_options logprobs echo suffix encoding_format dimensions output_config output_format thread chat_template_kwargs stop_sequences service_tier n priority documents'
    .split(' ')
    .flatMap((name) => [
      (long: string) => ({ [name]: long }),
      (long: string) => ({ [name]: [long] }),
      (long: string) => ({ [name]: { [long]: long } }),
      (long: string) => ({ [name]: { type: long } }),
      (long: string) => ({ [name]: [{ type: long, name: long, role: long }] }),
    ]),
  (long) => ({ [long]: long }),
  (long) => ({ response_format: { type: 'json_schema', json_schema: long } }),
  ...[
    (long: string) => ({ type: long }),
    (long: string) => ({ $ref: long }),
    (long: string) => ({ pattern: long }),
    (long: string) => ({ format: long, type: 'string' }),
    (long: string) => ({ [long]: long }),
    (long: string) => ({ type: 'object', properties: { [long]: { not: {} } } }),
    (long: string) => ({ type: 'object', properties: { [long]: { [long]: long, type: long } }, required: [long] }),
    (long: string) => ({ enum: long }),
    (long: string) => ({ patternProperties: { [long]: {} } }),
    (long: string) => ({ type: 'object', properties: { a: {} }, required: [long], additionalProperties: false }),
  ].map((of) => (long: string) => ({
    response_format: schema(of(long)),
    json_schema: of(long),
    text: { format: { type: 'json_schema', name: 'x', schema: of(long) } },
    output_config: { format: { type: 'json_schema', schema: of(long) } },
    tools: [tool({ name: 'f', parameters: of(long), strict: true })],
    tool_choice: 'required',
  })),
  (long) => ({ structured_outputs: { [long]: 1 } }),
  (long) => ({ structured_outputs: { regex: long } }),
  (long) => ({ structured_outputs: { grammar: long } }),
  (long) => ({ grammar: `root ::= ${long}` }),
  (long) => ({ grammar: `${long} ::= "a"` }),
  (long) => ({ regex: `a(${long}` }),
  (long) => ({ regex: `\\p{${long}}` }),
  (long) => ({ regex: `(?<${long}>a)\\k<${long}` }),
  (long) => ({ choice: [long, 1] }),
  (long) => ({ logit_bias: { [long]: 1 } }),
  (long) => ({ stream_options: { [long]: 1, include_usage: long } }),
  (long) => ({ tools: [tool({ name: long })] }),
  (long) => ({ tools: [tool({ name: 'f' })], tool_choice: { type: 'function', function: { name: long } } }),
  (long) => ({ tools: [{ name: 'f', input_schema: { type: 'object' } }], tool_choice: { type: 'tool', name: long } }),
  (long) => ({
    tools: [{ type: 'function', name: long, parameters: {} }],
    tool_choice: { type: 'function', name: long },
  }),
  (long) => message({ role: long, content: 'a' }),
  (long) => message({ role: 'user', content: [{ type: long }] }),
  (long) => message({ role: 'user', content: [{ type: 'image_url', image_url: { url: long } }] }),
  (long) => message({ role: 'user', content: { [long]: long } }),
  (long) => message({ role: 'assistant', tool_calls: [{ id: long, type: long, function: { name: long } }] }),
  (long) => message({ role: 'tool', tool_call_id: long, content: 'a' }),
  (long) => message({ role: 'user', content: [{ type: 'tool_result', tool_use_id: long, content: [{ type: long }] }] }),
  (long) => ({ input: [{ type: long }] }),
  (long) => ({ input: [{ type: 'function_call_output', call_id: long, output: long }] }),
  (long) => ({ input: [{ role: 'user', content: [{ type: long }] }] }),
];

const TEXTS = ['(', 'a', '"', '\\', '[', '\u{1f600}', '\u0000', 'a b', '{"a":', '\u017f', '<|user|>'];
const LENGTHS = [300, 3000, 30_000, 200_000];

test('no error gives back more than a few hundred bytes of what was sent', { timeout: 300_000 }, async () => {
  const far: string[] = [];
  let errors = 0;
  let asked = 0;
  const ask = async (path: string, body: string, headers: Record<string, string> = {}): Promise<void> => {
    const Authorization = `Bearer ${KEYS[asked++ % KEYS.length]!}`;
    const response = await fetch(`${server.url}${path}`, {
      method: 'POST',
      body,
      headers: { ...headers, Authorization },
    });
    const text = await response.text();
    if (response.status < 400) return;
    errors++;
    const told = [...response.headers].map((header) => header.join(': ')).join('\n');
    const bytes = Buffer.byteLength(text) + Buffer.byteLength(told);
    if (bytes > MOST) far.push(`${path} ${body.slice(0, 90)}: ${response.status}, ${bytes} bytes`);
  };
  const paths = Object.keys(BASES);
  // Texts, lengths, paths and places are of numbers without a common factor: each meets each in time.
  const calls = range(0, 3 * PLACES.length).map((index) => async (): Promise<void> => {
    const text = TEXTS[index % TEXTS.length]!;
    const long = text.repeat(Math.ceil(LENGTHS[index % LENGTHS.length]! / text.length));
    const path = paths[index % paths.length]!;
    await ask(path, JSON.stringify({ ...BASES[path], ...PLACES[index % PLACES.length]!(long) }));
  });
  await Promise.all(
    range(0, 8).map(async () => {
      for (let call = calls.pop(); call; call = calls.pop()) await call();
    }),
  );
  const long = 'x'.repeat(9000);
  await ask(`/${long}`, '{}');
  await ask(`/v1/responses/${long}`, '{}');
  await ask('/v1/completions', '{}', { 'content-encoding': long });
  await ask('/v1/completions', '{}', { 'content-type': long });
  await ask('/v1/completions', `{"prompt": ${long}`);
  await ask('/v1/completions', long);
  console.log(JSON.stringify({ asked, errors }));
  expect(errors).toBeGreaterThan(300);
  expect(far).toEqual([]);
});
