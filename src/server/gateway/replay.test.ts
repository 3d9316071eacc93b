import { expect, test } from 'vitest';
import { breaks, DiffersError, endsWell, EventReader, StreamReplay } from './replay.js';

const streamOf = (id: string, created: number, words: readonly string[], call: string): string =>
  [
    ...words.map((text) => ({ id, created, choices: [{ index: 0, text }] })),
    { id, created, choices: [{ index: 1, text: 'other' }] },
    { id, created, choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: call }] } }] },
    { id, created, choices: [], usage: { prompt_tokens_details: { cached_tokens: created } } },
  ]
    .map((event) => `data: ${JSON.stringify(event)}\n\n`)
    .join('') + 'data: [DONE]\n\n';

const eventsOf = (text: string) => new EventReader().push(new TextEncoder().encode(text));
const WORDS = ['a', 'b', 'c', 'd'];
const first = streamOf('one', 1, WORDS, 'call_1');

test('wherever it breaks off, what follows is what would have been', () => {
  const events = eventsOf(first);
  for (let sent = 0; sent <= events.length; sent++) {
    const replay = new StreamReplay();
    let text = '';
    for (const event of events.slice(0, sent)) text += replay.take(event) ?? '';
    replay.restart();
    for (const event of eventsOf(streamOf('two', 2, WORDS, 'call_2'))) text += replay.take(event) ?? '';
    replay.end();
    // What wasn't said yet is the second's own.
    const expected = sent === 0 ? streamOf('two', 2, WORDS, 'call_2') : first;
    const own = (of: string): string =>
      sent > 5 ? of.replace(/"cached_tokens":\d/, '') : of.replace(/call_\d/, '').replace(/"cached_tokens":\d/, '');
    expect(own(text), `after ${sent}`).toBe(own(expected));
  }
});

test('another text, or a shorter one, is noticed before anything of it is sent', () => {
  const broken = [
    ['a', 'x', 'c', 'd'],
    ['x', 'b', 'c', 'd'],
    ['a', 'b', 'x', 'd'],
  ];
  for (const words of broken) {
    const replay = new StreamReplay();
    for (const event of eventsOf(first).slice(0, 3)) replay.take(event);
    replay.restart();
    let sent = '';
    const again = (): void => {
      for (const event of eventsOf(streamOf('two', 2, words, 'call_2'))) sent += replay.take(event) ?? '';
    };
    expect(again).toThrow(DiffersError);
    expect(sent).toBe('');
  }
  const replay = new StreamReplay();
  for (const event of eventsOf(first).slice(0, 4)) replay.take(event);
  replay.restart();
  for (const event of eventsOf(streamOf('two', 2, ['a', 'b'], 'x')).slice(0, 2)) replay.take(event);
  expect(() => replay.end()).toThrow(DiffersError);
});

test('events in pieces of any size; ends and breaks of every API', () => {
  const bytes = new TextEncoder().encode(first.replace('"a"', '"ä€😀"'));
  const whole = eventsOf(new TextDecoder().decode(bytes)).map(({ text }) => text);
  for (const size of [1, 2, 3, 7, 64]) {
    const reader = new EventReader();
    const texts: string[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      texts.push(...reader.push(bytes.subarray(at, at + size)).map(({ text }) => text));
    }
    expect(texts).toEqual(whole);
  }
  const [done, stop, failed, error, plain] = eventsOf(
    'data: [DONE]\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\ndata: {"type":"response.failed"}\n\n' +
      'data: {"error":{"message":"x"}}\n\ndata: {"type":"response.created","error":null}\n\n',
  );
  expect([done, stop, failed, error, plain].map((event) => endsWell(event!))).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
  expect([done, stop, failed, error, plain].map((event) => breaks(event!))).toEqual([false, false, true, true, false]);
});
