import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { isId } from '../engine/serving/prompt_tokens.js';
import { loadTokenizer } from '../tokenizer/testing/load_tokenizer.js';
import { byteLevelTokenizer } from '../tokenizer/testing/tiny_tokenizers.js';
import { ApiError } from './api_error.js';
import { parseChatRequest } from './requests/chat_request.js';
import type { CompletionCall } from './requests/fields.js';
import { readTokenCall } from './requests/read_call.js';
import { parseMessageRequest } from './messages/message_request.js';
import { parseResponseRequest } from './responses/response_request.js';
import { parseTextRequest } from './requests/text_request.js';

const NAMES = (
  'model messages prompt stream stream_options n max_tokens max_completion_tokens temperature top_p seed stop logprobs top_logprobs ' +
  'top_k min_p frequency_penalty presence_penalty stop_token_ids min_tokens repetition_penalty priority ttft_deadline_s speculate ignore_eos tools logit_bias response_format input instructions text metadata include store system stop_sequences user best_of echo __proto__ constructor other'
).split(' ');
const value = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(null, 0, 1, -1, 0.5, 1e300, '', 'x', true, [], ['x'], [1], [[1]], {}, [
    { role: 'user', content: 'x' },
  ]),
);
/** As JSON.parse gives it: `__proto__` may be a key of its own. */
const body = fc
  .array(fc.tuple(fc.constantFrom(...NAMES), value))
  .map(
    (pairs) =>
      JSON.parse(
        `{${pairs.map(([name, given]) => `${JSON.stringify(name)}:${JSON.stringify(given)}`).join()}}`,
      ) as unknown,
  );

function attempt(parse: () => CompletionCall): CompletionCall | undefined {
  try {
    return parse();
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).status).toBe(400);
    expect((error as ApiError).message.length).toBeLessThan(1000);
    return undefined;
  }
}

describe('whatever JSON comes, it is a call within bounds or a 400 that says what is wrong', () => {
  test.each([
    ['chat', { messages: [{ role: 'user', content: 'x' }] }, (json: unknown) => parseChatRequest(json, 100)],
    ['text', { prompt: 'x' }, (json: unknown) => parseTextRequest(json, 100)],
    ['responses', { input: 'x' }, (json: unknown) => parseResponseRequest(json, 100)],
    [
      'messages',
      { messages: [{ role: 'user', content: 'x' }], max_tokens: 5 },
      (json: unknown) => parseMessageRequest(json, 100),
    ],
  ] as const)('%s', (_name, right, parse) => {
    let calls = 0;
    const check = (json: unknown): void => {
      const call = attempt(() => parse(json));
      if (!call) return;
      calls++;
      const { n = 1, maxTokens = 0, temperature = 0, topP = 1, logprobs = 0, seed = 0, priority = 0 } = call.options;
      expect(call.prompts.length).toBeGreaterThan(0);
      expect(Number.isSafeInteger(n) && n >= 1 && n <= 128).toBe(true);
      expect(Number.isSafeInteger(maxTokens) && maxTokens >= (call.options.echo ? 0 : 1)).toBe(true);
      expect(temperature >= 0 && temperature <= 2 && topP > 0 && topP <= 1).toBe(true);
      expect(Number.isSafeInteger(logprobs) && logprobs >= 0 && logprobs <= 20).toBe(true);
      expect(Number.isSafeInteger(seed) && seed >= 0 && Math.abs(priority) <= 100).toBe(true);
      const { minP = 0, frequencyPenalty = 0, presencePenalty = 0, minTokens = 0 } = call.options;
      expect(minP >= 0 && minP <= 1 && Math.max(Math.abs(frequencyPenalty), Math.abs(presencePenalty)) <= 2).toBe(true);
      expect(Number.isSafeInteger(minTokens) && minTokens >= 0).toBe(true);
      const { logitBias = {}, stopTokenIds = [] } = call.options;
      // Others are texts, whose tokens the model tells.
      const ids = Object.keys(logitBias).filter(isId);
      for (const id of [...ids.map(Number), ...stopTokenIds]) {
        expect(Number.isSafeInteger(id) && id >= 0).toBe(true);
      }
      for (const bias of Object.values(logitBias)) expect(Number.isFinite(bias)).toBe(true);
      const { firstTokenSeconds = 0 } = call.options;
      expect(Number.isFinite(firstTokenSeconds) && firstTokenSeconds >= 0).toBe(true);
      for (const option of Object.values(call.options)) expect(option).not.toBeNull();
    };
    fc.assert(fc.property(value, check), { numRuns: 300 });
    fc.assert(fc.property(body, check), { numRuns: 1000 });
    const changed = fc.tuple(fc.constantFrom(...NAMES), value).map(([name, given]) => ({ ...right, [name]: given }));
    fc.assert(fc.property(changed, check), { numRuns: 1000 });
    expect(calls).toBeGreaterThan(0);
  });
});

test('lists nested too deeply for JSON to be written are refused like any other', () => {
  const deep: unknown = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000));
  const message = { role: 'user', content: deep };
  for (const parse of [
    () => parseTextRequest(deep, 5),
    () => parseTextRequest({ prompt: deep }, 5),
    () => parseTextRequest({ prompt: 'x', stop: deep }, 5),
    () => parseTextRequest({ prompt: 'x', tools: deep }, 5),
    () => parseChatRequest({ messages: [message] }, 5),
  ]) {
    expect(attempt(parse)).toBeUndefined();
  }
});

test('what a request says reaches the model under its own names', () => {
  const fields = { n: 2, temperature: 0.5, top_p: 0.9, top_k: 4, seed: 7, stop: ['a'], priority: -3, ignore_eos: true };
  const { options, ...call } = parseTextRequest(
    {
      ...fields,
      prompt: [[1, 2], 'x'],
      repetition_penalty: 1.1,
      ttft_deadline_s: 0.25,
      speculate: 'off',
      stream: true,
    },
    100,
  );
  expect(options).toEqual({
    n: 2,
    temperature: 0.5,
    topP: 0.9,
    topK: 4,
    seed: 7,
    stop: ['a'],
    priority: -3,
    ignoreEos: true,
    repetitionPenalty: 1.1,
    firstTokenSeconds: 0.25,
    speculate: 'off',
    maxTokens: 16,
  });
  expect(call).toEqual({
    model: undefined,
    prompts: [[1, 2], 'x'],
    promptField: 'prompt',
    stream: true,
    includeUsage: false,
    ignored: [],
  });
  const chat = parseChatRequest(
    { messages: [{ role: 'user', content: 'x' }], logprobs: true, stream_options: { include_usage: true } },
    100,
  );
  expect(chat).toMatchObject({ options: { maxTokens: 100, logprobs: 0 }, includeUsage: true, stream: false });
});

describe('lists and names without end: 400 in a few words, before they are looked at one by one', () => {
  const many = 300_001;
  const message = { role: 'user', content: 'x' };
  const part = { type: 'text', text: '' };
  const fields = (count: number): object => Object.fromEntries(Array.from({ length: count }, (_, at) => [`f${at}`, 1]));
  const text = (body: object) => () => parseTextRequest({ prompt: 'x', ...body }, 100);
  const chat = (body: object) => () => parseChatRequest({ messages: [message], ...body }, 100);
  test.each<[string, () => CompletionCall, string, string | undefined]>([
    [
      'messages',
      chat({ messages: Array(many).fill(message) }),
      'messages has 300,001 entries; expected at most 100',
      'messages',
    ],
    ['wrong messages', chat({ messages: Array(many).fill(1) }), 'messages has 300,001 entries', 'messages'],
    ['parts', chat({ messages: [{ role: 'user', content: Array(many).fill(part) }] }), '300,001 parts', 'messages'],
    [
      'fields of a message',
      chat({ messages: [{ ...message, ...fields(many) }] }),
      'messages[0] has 300003 fields',
      undefined,
    ],
    ['ids', text({ prompt: Array(many).fill(1) }), '300001 tokens > 100 maximum', 'prompt'],
    ['ids of one prompt among others', text({ prompt: ['x', Array(many).fill(1)] }), '300001 tokens', 'prompt'],
    ['prompts', text({ prompt: Array(many).fill('x') }), 'prompt has 300,001 entries', 'prompt'],
    [
      'stops',
      text({ stop: Array(many).fill('x') }),
      'stop has 300,001 entries; expected a text, or a list of at most 256',
      'stop',
    ],
    ['fields', text(fields(many)), 'the body has 300002 fields; expected at most 100', undefined],
    ['a value', text({ n: 'x'.repeat(900_000) }), 'n is "xxx', 'n'],
  ])('%s', (_name, parse, told, param) => {
    let error: ApiError | undefined;
    try {
      parse();
    } catch (thrown) {
      error = thrown as ApiError;
    }
    expect(error).toBeInstanceOf(ApiError);
    expect(error!.status).toBe(400);
    expect(error!.message).toContain(told);
    expect(error!.message.length).toBeLessThan(1000);
    if (param !== undefined) expect(error!.details.param).toBe(param);
    expect(JSON.stringify(error!.body).length).toBeLessThan(1200);
  });
});

test('fields that nobody here knows are named in short, and change nothing', () => {
  const message = { role: 'user', content: 'x' };
  const chat = parseChatRequest(
    {
      messages: [{ ...message, ['y'.repeat(900_000)]: 1, name: 'me' }],
      ['x'.repeat(900_000)]: [[1]],
      temprature: 2,
      cache_salt: 'high',
      user: 'me',
    },
    100,
  );
  expect(chat.ignored.map(({ name }) => name)).toEqual([
    `${'x'.repeat(97)}...`,
    'temprature',
    'cache_salt',
    `messages[0].${'y'.repeat(97)}...`,
  ]);
  expect(chat.ignored[1]!.why).toContain("Did you mean 'temperature'?");
  for (const { why } of chat.ignored) expect(why.length).toBeLessThan(1000);
  const { ignored: _ignored, ...rest } = chat;
  const { ignored: none, ...plain } = parseChatRequest({ messages: [message] }, 100);
  expect(rest).toEqual(plain);
  expect(none).toEqual([]);
});

test('-1 asks for none, and what would change an answer is refused, not ignored', () => {
  const fields = { prompt: 'x', top_k: -1, seed: -1, max_tokens: -1, stop: Array(200).fill('a') };
  expect(parseTextRequest(fields, 100).options).toEqual({ maxTokens: 100, stop: fields.stop });
  expect(parseChatRequest({ messages: [{ role: 'user', content: 'x' }], max_tokens: -1 }, 70).options).toEqual({
    maxTokens: 70,
    separateReasoning: true,
  });
  expect(parseTextRequest({ prompt: 'x', max_tokens: 0, echo: true, logprobs: 0 }, 100).options).toEqual({
    maxTokens: 0,
    echo: true,
    logprobs: 0,
  });
  for (const [field, value, told] of [
    ['max_tokens', 0, 'echo'],
    ['top_k', -2, 'or -1 for none'],
    ['best_of', 21, 'from 1 to 20'],
    ['tools', [{ type: 'function' }], 'not supported'],
  ] as const) {
    expect(() => parseTextRequest({ prompt: 'x', [field]: value }, 100)).toThrow(told);
  }
});

test('a text that is much too long is refused by its beginning: the tokenizer reads no more of it', () => {
  const { json, config } = byteLevelTokenizer();
  const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });
  const encode = vi.spyOn(tokenizer, 'encode');
  const reader = { tokenizer, contextLength: 100 };
  const bytes = (body: object): Uint8Array => new TextEncoder().encode(JSON.stringify(body));
  for (const prompt of ['a', ' ', 'the cat ', '\u{1f408}', '7', '<|user|>'].map((text) => text.repeat(100_000))) {
    let error: unknown;
    try {
      readTokenCall('text', bytes({ prompt }), reader);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({ status: 400, details: { code: 'context_length_exceeded', param: 'prompt' } });
  }
  expect(encode.mock.calls.length).toBeGreaterThan(0);
  for (const [text] of encode.mock.calls) expect(text.length).toBeLessThan(10_000);
  const call = readTokenCall('text', bytes({ prompt: ['the cat', [5, 6]] }), reader);
  expect(call.prompts).toEqual([tokenizer.encode('the cat'), [5, 6]]);
});
