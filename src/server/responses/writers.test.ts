import { expect, test } from 'vitest';
import type { Completion, CompletionEvent } from '../../index.js';
import { ApiError } from '../api_error.js';
import { MessageWriter } from '../messages/message_writer.js';
import type { AnswerWriter } from '../requests/answer_shape.js';
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
const streamed = (writer: AnswerWriter): Record<string, unknown>[] =>
  [
    ...writer.opening(completion),
    ...thought.flatMap((event) => writer.chunks(event)),
    ...writer.closing(completion),
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
  const body = make().whole([whole], completion) as { output: { id: string }[] };
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
  expect(told[1]).toEqual([body, { role: 'assistant', content: 'Yes.' }]);
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
    ['content_block_stop', 0],
    ['content_block_start', 1],
    ['content_block_delta', 1],
    ['content_block_delta', 1],
    ['content_block_stop', 1],
    ['message_delta', undefined],
    ['message_stop', undefined],
  ]);
  expect(events.at(-2)).toMatchObject({ delta: { stop_reason: 'stop_sequence', stop_sequence: 'END' } });
  expect(new MessageWriter('m').whole([whole], completion)).toMatchObject({
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
