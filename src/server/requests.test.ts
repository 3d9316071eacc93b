import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ApiError } from './api_error.js';
import { parseChatRequest } from './chat_request.js';
import type { CompletionCall } from './completion_call.js';
import { parseTextRequest } from './text_request.js';

const NAMES = (
  'model messages prompt stream stream_options n max_tokens max_completion_tokens temperature top_p seed stop logprobs top_logprobs ' +
  'top_k repetition_penalty priority ttft_deadline_s ignore_eos tools logit_bias response_format user best_of __proto__ constructor other'
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
    ['text', { prompt: 'x' }, (json: unknown) => parseTextRequest(json)],
  ] as const)('%s', (_name, right, parse) => {
    let calls = 0;
    const check = (json: unknown): void => {
      const call = attempt(() => parse(json));
      if (!call) return;
      calls++;
      const { n = 1, maxTokens = 0, temperature = 0, topP = 1, logprobs = 0, seed = 0, priority = 0 } = call.options;
      expect(call.prompts.length).toBeGreaterThan(0);
      expect(Number.isSafeInteger(n) && n >= 1 && n <= 128).toBe(true);
      expect(Number.isSafeInteger(maxTokens) && maxTokens >= 1).toBe(true);
      expect(temperature >= 0 && temperature <= 2 && topP > 0 && topP <= 1).toBe(true);
      expect(Number.isSafeInteger(logprobs) && logprobs >= 0 && logprobs <= 20).toBe(true);
      expect(Number.isSafeInteger(seed) && seed >= 0 && Math.abs(priority) <= 100).toBe(true);
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
    () => parseTextRequest(deep),
    () => parseTextRequest({ prompt: deep }),
    () => parseTextRequest({ prompt: 'x', stop: deep }),
    () => parseTextRequest({ prompt: 'x', tools: deep }),
    () => parseChatRequest({ messages: [message] }, 5),
  ]) {
    expect(attempt(parse)).toBeUndefined();
  }
});

test('what a request says reaches the model under its own names', () => {
  const fields = { n: 2, temperature: 0.5, top_p: 0.9, top_k: 4, seed: 7, stop: ['a'], priority: -3, ignore_eos: true };
  const { options, ...call } = parseTextRequest({
    ...fields,
    prompt: [[1, 2], 'x'],
    repetition_penalty: 1.1,
    ttft_deadline_s: 0.25,
    stream: true,
  });
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
    maxTokens: 16,
  });
  expect(call).toEqual({
    model: undefined,
    prompts: [[1, 2], 'x'],
    promptField: 'prompt',
    stream: true,
    includeUsage: false,
  });
  const chat = parseChatRequest(
    { messages: [{ role: 'user', content: 'x' }], logprobs: true, stream_options: { include_usage: true } },
    100,
  );
  expect(chat).toMatchObject({ options: { maxTokens: 100, logprobs: 0 }, includeUsage: true, stream: false });
});
