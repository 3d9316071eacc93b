import { expect, test } from 'vitest';
import type { Completion, CompletionEvent } from '../../index.js';
import { ApiError } from '../api_error.js';
import { parseMessageRequest } from '../messages/message_request.js';
import { MessageWriter } from '../messages/message_writer.js';
import type { AnswerWriter } from '../requests/answer_request.js';
import { parseResponseRequest } from './response_request.js';
import { ResponseStore } from './response_store.js';
import { ResponseWriter } from './response_writer.js';

const completion = {
  promptTokens: 10,
  cachedTokens: 4,
  completionTokens: 7,
  reasoningTokens: 3,
} as unknown as Completion;
const thought: CompletionEvent[] = [
  { index: 0, text: '', reasoning: 'so ', logprobs: [] },
  { index: 0, text: 'Yes', reasoning: 'it is', logprobs: [] },
  { index: 0, text: '.', logprobs: [] },
  { index: 0, text: '', logprobs: [], finish: 'stop_string', stop: 'END' },
];
const whole = {
  text: 'Yes.',
  reasoning: 'so it is',
  toolCalls: [],
  logprobs: undefined,
  finish: 'stop_string' as const,
  stop: 'END',
};
const times = { began: 0, asked: 1, first: 2, end: 3 };
const streamed = (writer: AnswerWriter): Record<string, unknown>[] =>
  [
    ...(writer.opening?.(completion) ?? []),
    ...thought.flatMap((event) => writer.chunks(event)),
    ...writer.closing(completion, times),
  ].map((event) => event as Record<string, unknown>);

test('a response with reasoning: an item before that of the text, in events and whole', () => {
  const call = parseResponseRequest({ input: 'x' }, 100);
  const told: unknown[] = [];
  const make = (): ResponseWriter => new ResponseWriter(call, 'm', (body, answer) => told.push([body, answer]));
  const events = streamed(make());
  expect(events.map(({ type, output_index: at }) => [type, at])).toEqual([
    ['response.created', undefined],
    ['response.in_progress', undefined],
    ['response.output_item.added', 0],
    ['response.content_part.added', 0],
    ['response.reasoning_text.delta', 0],
    ['response.reasoning_text.delta', 0],
    ['response.reasoning_text.done', 0],
    ['response.content_part.done', 0],
    ['response.output_item.done', 0],
    ['response.output_item.added', 1],
    ['response.content_part.added', 1],
    ['response.output_text.delta', 1],
    ['response.output_text.delta', 1],
    ['response.output_text.done', 1],
    ['response.content_part.done', 1],
    ['response.output_item.done', 1],
    ['response.completed', undefined],
  ]);
  const body = make().whole([whole], completion, times) as { output: { id: string }[] };
  expect(body).toMatchObject({
    status: 'completed',
    output: [
      { type: 'reasoning', content: [{ type: 'reasoning_text', text: 'so it is' }] },
      { type: 'message', content: [{ type: 'output_text', text: 'Yes.' }] },
    ],
    usage: {
      input_tokens: 10,
      input_tokens_details: { cached_tokens: 4 },
      output_tokens: 7,
      output_tokens_details: { reasoning_tokens: 3 },
      total_tokens: 17,
    },
  });
  const plain = (given: unknown): unknown =>
    JSON.parse(JSON.stringify(given).replaceAll(/"(id|completed_at|created_at)":("[^"]*"|\d+)/g, '"$1":0'));
  expect(plain(events.at(-1)!['response'])).toEqual(plain(body));
  expect(told).toHaveLength(2);
  expect(told[1]).toEqual([body, { role: 'assistant', content: 'Yes.', reasoning_content: 'so it is' }]);
  const broken = make();
  broken.opening();
  expect(broken.broken(new ApiError(503, 'gone', { code: 'limit' }))).toMatchObject([
    { type: 'error', code: 'limit', message: 'gone', sequence_number: 2 },
    { type: 'response.failed', response: { status: 'failed', error: { message: 'gone' } } },
  ]);
});

test('a message with thinking: a block before that of the text, in events and whole', () => {
  const events = streamed(new MessageWriter('m'));
  expect(events.map(({ type, index }) => [type, index])).toEqual([
    ['message_start', undefined],
    ['content_block_start', 0],
    ['content_block_delta', 0],
    ['content_block_delta', 0],
    ['content_block_delta', 0],
    ['content_block_stop', 0],
    ['content_block_start', 1],
    ['content_block_delta', 1],
    ['content_block_delta', 1],
    ['content_block_stop', 1],
    ['message_delta', undefined],
    ['message_stop', undefined],
  ]);
  // Clients such as the AI SDK keep what was thought only with a signature.
  expect(events[4]).toMatchObject({ delta: { type: 'signature_delta', signature: '' } });
  expect(events.at(-2)).toMatchObject({ delta: { stop_reason: 'stop_sequence', stop_sequence: 'END' } });
  expect(new MessageWriter('m').whole([whole], completion, times)).toMatchObject({
    type: 'message',
    role: 'assistant',
    content: [
      { type: 'thinking', thinking: 'so it is' },
      { type: 'text', text: 'Yes.' },
    ],
    stop_reason: 'stop_sequence',
    stop_sequence: 'END',
    usage: { input_tokens: 6, cache_read_input_tokens: 4, output_tokens: 7 },
  });
});

const called: CompletionEvent[] = [
  { index: 0, text: 'I look.', logprobs: [] },
  { index: 0, text: '', logprobs: [], toolCalls: [{ index: 0, id: 'call_a', name: 'weather', arguments: '' }] },
  {
    index: 0,
    text: '',
    logprobs: [],
    toolCalls: [
      { index: 0, arguments: '{"city": ' },
      { index: 0, arguments: '"Rome"}' },
    ],
  },
  { index: 0, text: '', logprobs: [], toolCalls: [{ index: 1, id: 'call_b', name: 'now', arguments: '{}' }] },
  { index: 0, text: '', logprobs: [], finish: 'eos' },
];
const calls = [
  { id: 'call_a', type: 'function' as const, function: { name: 'weather', arguments: '{"city": "Rome"}' } },
  { id: 'call_b', type: 'function' as const, function: { name: 'now', arguments: '{}' } },
];
const answer = {
  text: 'I look.',
  reasoning: '',
  toolCalls: calls,
  logprobs: undefined,
  finish: 'eos' as const,
  stop: undefined,
};

test('calls of tools: items of a response, blocks of a message', () => {
  const told: unknown[] = [];
  const call = parseResponseRequest(
    { input: 'x', tools: [{ type: 'function', name: 'weather', parameters: { type: 'object' } }], tool_choice: 'auto' },
    100,
  );
  expect(call.options.tools).toEqual([
    { type: 'function', function: { name: 'weather', parameters: { type: 'object' } } },
  ]);
  const make = (): ResponseWriter => new ResponseWriter(call, 'm', (_body, said) => told.push(said));
  const writer = make();
  const events = [...called.flatMap((event) => writer.chunks(event)), ...writer.closing(completion)] as {
    readonly type: string;
    readonly output_index?: number;
    readonly delta?: string;
  }[];
  expect(events.slice(6).map(({ type, output_index: at, delta }) => [type, at, delta])).toEqual([
    ['response.output_item.added', 1, undefined],
    ['response.function_call_arguments.delta', 1, '{"city": '],
    ['response.function_call_arguments.delta', 1, '"Rome"}'],
    ['response.function_call_arguments.done', 1, undefined],
    ['response.output_item.done', 1, undefined],
    ['response.output_item.added', 2, undefined],
    ['response.function_call_arguments.delta', 2, '{}'],
    ['response.function_call_arguments.done', 2, undefined],
    ['response.output_item.done', 2, undefined],
    ['response.completed', undefined, undefined],
  ]);
  const { output } = make().whole([answer], completion, times) as { readonly output: object[] };
  expect(output).toMatchObject([
    { type: 'message', content: [{ text: 'I look.' }] },
    { type: 'function_call', call_id: 'call_a', name: 'weather', arguments: '{"city": "Rome"}', status: 'completed' },
    { type: 'function_call', call_id: 'call_b', name: 'now', arguments: '{}' },
  ]);
  expect(told).toEqual([0, 1].map(() => ({ role: 'assistant', content: 'I look.', tool_calls: calls })));
  // What clients send back says the same.
  const items = [
    { role: 'user', content: 'x' },
    ...output,
    { type: 'function_call_output', call_id: 'call_a', output: 'warm' },
  ];
  expect(parseResponseRequest({ input: items }, 100).response.messages).toEqual([
    { role: 'user', content: 'x' },
    { role: 'assistant', content: 'I look.', tool_calls: calls },
    { role: 'tool', tool_call_id: 'call_a', content: 'warm' },
  ]);

  const message = new MessageWriter('m');
  const blocks = [...called.flatMap((event) => message.chunks(event)), ...message.closing(completion)] as {
    readonly type: string;
    readonly index?: number;
  }[];
  expect(blocks.slice(2).map(({ type, index }) => [type, index])).toEqual([
    ['content_block_stop', 0],
    ['content_block_start', 1],
    ['content_block_delta', 1],
    ['content_block_delta', 1],
    ['content_block_stop', 1],
    ['content_block_start', 2],
    ['content_block_delta', 2],
    ['content_block_stop', 2],
    ['message_delta', undefined],
    ['message_stop', undefined],
  ]);
  expect(blocks.at(-2)).toMatchObject({ delta: { stop_reason: 'tool_use' } });
  const body = new MessageWriter('m').whole([answer], completion, times) as { readonly content: object[] };
  expect(body.content).toMatchObject([
    { type: 'text', text: 'I look.' },
    { type: 'tool_use', id: 'call_a', name: 'weather', input: { city: 'Rome' } },
    { type: 'tool_use', id: 'call_b', name: 'now', input: {} },
  ]);
  const result = { type: 'tool_result', tool_use_id: 'call_a', content: [{ type: 'text', text: 'warm' }] };
  const turns = [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: body.content },
    { role: 'user', content: [result, { type: 'text', text: 'and ?' }] },
  ];
  const tools = [{ name: 'weather', input_schema: { type: 'object' } }];
  const asked = parseMessageRequest(
    {
      messages: turns,
      max_tokens: 5,
      tools,
      tool_choice: { type: 'auto', disable_parallel_tool_use: true },
      thinking: { type: 'disabled' },
    },
    100,
  );
  const spaceless = calls.map((one) => ({
    ...one,
    function: { ...one.function, arguments: one.function.arguments.replace(': ', ':') },
  }));
  expect(asked.prompts[0]).toEqual({
    messages: [
      { role: 'user', content: 'x' },
      { role: 'assistant', content: 'I look.', tool_calls: spaceless },
      { role: 'tool', tool_call_id: 'call_a', content: 'warm' },
      { role: 'user', content: 'and ?' },
    ],
  });
  expect(asked.options).toMatchObject({
    tools: [{ type: 'function', function: { name: 'weather', parameters: { type: 'object' } } }],
    toolChoice: 'auto',
    parallelToolCalls: false,
    enableThinking: false,
  });
});

test('stored responses: each client its own, and the oldest go first', () => {
  const store = new ResponseStore(1000, 3);
  const stored = (id: string, text = '') => ({
    body: { id },
    items: [],
    messages: [{ role: 'user' as const, content: text }],
  });
  for (const id of ['a', 'b', 'c']) store.add('me', stored(id));
  expect(store.get('me', 'a').body.id).toBe('a');
  expect(() => store.get('you', 'a')).toThrow("no response 'a'");
  store.add('me', stored('d'));
  expect(() => store.get('me', 'a')).toThrow("no response 'a'");
  store.delete('me', 'c');
  expect(() => store.delete('me', 'c')).toThrow("no response 'c'");
  store.add('me', stored('e', 'x'.repeat(900)));
  expect(() => store.get('me', 'b')).toThrow("no response 'b'");
  expect(store.get('me', 'e').messages).toHaveLength(1);
  store.add('me', stored('f', 'x'.repeat(2000)));
  expect(() => store.get('me', 'f')).toThrow("no response 'f'");
});

test('stored responses: a client that fills the room loses its own', () => {
  const stored = (id: string, letters = 0) => ({
    body: { id },
    items: [],
    messages: [{ role: 'user' as const, content: 'x'.repeat(letters) }],
  });
  const isKept = (store: ResponseStore, client: string, id: string): boolean =>
    [...store.all()].some(({ client: whose, body }) => whose === client && body.id === id);
  // By bytes, and by number.
  for (const [store, letters] of [
    [new ResponseStore(10_000, 4096), 900],
    [new ResponseStore(1e6, 10), 0],
  ] as const) {
    store.add('polite', stored('p1', letters));
    store.add('other', stored('o1', letters));
    for (let at = 0; at < 1000; at++) store.add('greedy', stored(`g${at}`, letters));
    store.add('polite', stored('p2', letters));
    for (let at = 1000; at < 2000; at++) store.add('greedy', stored(`g${at}`, letters));
    for (const id of ['p1', 'p2']) expect(isKept(store, 'polite', id)).toBe(true);
    expect(isKept(store, 'other', 'o1')).toBe(true);
    expect(isKept(store, 'greedy', 'g1999')).toBe(true);
    expect(isKept(store, 'greedy', 'g1000')).toBe(false);
    expect(store.size).toBeGreaterThan(6);
    // One that is larger than the room takes nobody else's place.
    store.add('greedy', stored('huge', 2e6));
    expect(isKept(store, 'greedy', 'huge')).toBe(false);
    expect(isKept(store, 'polite', 'p1')).toBe(true);
    // What others leave is theirs.
    for (const client of ['polite', 'other', 'greedy']) {
      for (const { body, client: whose } of store.all()) if (whose === client) store.delete(client, body.id);
    }
    expect(store.size).toBe(0);
    for (let at = 0; at < 6; at++) store.add('greedy', stored(`h${at}`, letters));
    expect(store.size).toBe(6);
  }
});
