import { describe, expect, test } from 'vitest';
import { Clients } from './simulate.js';
import { meanInput, meanOutput, parseTrace, syntheticTrace } from './trace.js';

describe('synthetic trace', () => {
  const options = { requests: 4000, meanInput: 803.1, meanOutput: 3653.8, seed: 3, maxInput: 4166 };

  test('means come out as asked, tails are long, prompts fit; the seed decides', () => {
    const trace = syntheticTrace(options);
    expect(trace).toHaveLength(4000);
    expect(meanInput(trace)).toBeCloseTo(803.1, 0);
    expect(meanOutput(trace)).toBeCloseTo(3653.8, 0);
    expect(Math.max(...trace.map(({ inputTokens }) => inputTokens))).toBeLessThanOrEqual(4166);
    const outputs = trace.map(({ outputTokens }) => outputTokens).sort((a, b) => a - b);
    expect(outputs[2000]!).toBeLessThan(0.95 * 3653.8);
    expect(outputs[3960]!).toBeGreaterThan(2.5 * 3653.8);
    expect(outputs[0]).toBeGreaterThanOrEqual(1);
    expect(syntheticTrace(options)).toEqual(trace);
    expect(syntheticTrace({ ...options, seed: 4 })).not.toEqual(trace);
  });

  test('a mean that prompts cannot have', () => {
    expect(() => syntheticTrace({ ...options, meanInput: 4000 })).toThrow(
      '--mean-in 4000: prompts may have 4166 tokens',
    );
  });
});

describe('trace files', () => {
  test('JSON and CSV of the same trace', () => {
    const json = JSON.stringify({
      requests: [
        { input_tokens: 5, output_tokens: 9 },
        { input_tokens: 7, output_tokens: 1, arrival_s: 1.5, priority: -2, ttft_deadline_s: 0.5 },
      ],
    });
    const csv = 'output_tokens, input_tokens,arrival_s,priority,ttft_deadline_s\r\n9,5,,,\r\n\r\n1,7,1.5,-2,0.5\r\n';
    const expected = [
      { inputTokens: 5, outputTokens: 9, arrivalSeconds: 0, priority: 0, ttftDeadlineSeconds: undefined },
      { inputTokens: 7, outputTokens: 1, arrivalSeconds: 1.5, priority: -2, ttftDeadlineSeconds: 0.5 },
    ];
    expect(parseTrace(json, 'a.json')).toEqual(expected);
    expect(parseTrace(csv, 'a.csv')).toEqual(expected);
    expect(parseTrace(`\uFEFF${JSON.stringify([{ input_tokens: 5, output_tokens: 9 }])}`, 'b')).toEqual([expected[0]]);
  });

  test.each<[string, string, string]>([
    ['nothing', '', 'unknown field ""'],
    ['no requests', '[]', 'no requests'],
    ['a header only', 'input_tokens,output_tokens\n', 'no requests'],
    ['no list', '{"a": 1}', 'expected a list of requests'],
    ['broken JSON', '[{', 'not valid JSON'],
    ['a number for a request', '[3]', 'request 0 is 3'],
    ['an unknown field', '[{"input_token": 3}]', "Did you mean 'input_tokens'?"],
    ['a field twice', 'input_tokens,input_tokens\n1,2', 'a field is named twice'],
    ['a missing field', '[{"input_tokens": 3}]', 'request 0: output_tokens is missing'],
    [
      'a cell that is no number',
      'input_tokens,output_tokens\n1,3k\n',
      'line 2: output_tokens is "3k": expected an integer',
    ],
    ['a number too large', '[{"input_tokens": 1e400, "output_tokens": 1}]', 'input_tokens is Infinity: expected'],
    ['no tokens', '[{"input_tokens": 0, "output_tokens": 1}]', 'input_tokens is 0: expected an integer of at least 1'],
    ['text', 'input_tokens,output_tokens\n1,2\nx,2', 'line 3: input_tokens is "x"'],
    ['a short line', 'input_tokens,output_tokens\n1', 'line 2 has 1 cells; line 1 names 2'],
    ['a negative time', '[{"input_tokens": 1, "output_tokens": 1, "arrival_s": -1}]', 'arrival_s is -1'],
    ['a wild priority', '[{"input_tokens": 1, "output_tokens": 1, "priority": 101}]', 'priority is 101'],
  ])('refused: %s', (_what, text, message) => {
    expect(() => parseTrace(text, 'trace')).toThrow(message);
  });
});

test('clients send in order of arrival, and no more at once than there are', () => {
  const trace = [2, 0, 0, 5].map((arrivalSeconds) => ({
    inputTokens: 1,
    outputTokens: 1,
    arrivalSeconds,
    priority: 0,
    ttftDeadlineSeconds: undefined,
  }));
  const clients = new Clients(trace, 2);
  expect([clients.next(0), clients.next(0), clients.next(0)]).toEqual([1, 2, undefined]);
  expect(clients.next(3)).toBeUndefined(); // both are open
  clients.done();
  expect(clients.next(1)).toBeUndefined();
  expect(clients.nextArrival).toBe(2);
  expect(clients.next(3)).toBe(0);
  clients.done();
  expect(clients.next(5)).toBe(3);
  expect(clients.nextArrival).toBeUndefined();
});
