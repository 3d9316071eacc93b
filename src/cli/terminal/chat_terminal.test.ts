import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { converse, type Talk } from './converse.js';
import { joined, type Messages } from './messages.js';
import { WordWrap } from './word_wrap.js';

function wrapped(text: string, columns: number, pieces = 3): string {
  const wrap = new WordWrap(columns);
  let out = '';
  for (let at = 0; at < text.length; at += pieces) out += wrap.push(text.slice(at, at + pieces));
  return out + wrap.end();
}

describe('lines of an answer', () => {
  test.each([1, 3, 7, 100])('break between words, in pieces of %i letters', (pieces) => {
    expect(wrapped('one two three four five', 9, pieces)).toBe('one two\nthree\nfour five');
  });

  test("a long word stays whole, line breaks and spaces stay, and an answer's first spaces go", () => {
    expect(wrapped(' \n a  b\n\nabcdefghijkl m', 6)).toBe('a  b\n\nabcdefghijkl\nm');
  });

  test('code is not broken', () => {
    const code = '```js\nconst one = two + three;\n```';
    expect(wrapped(`${code}\nand words again`, 9)).toBe(`${code}\nand words\nagain`);
  });
});

describe('messages', () => {
  async function* lines(...given: readonly (readonly [wait: number, text: string])[]): AsyncGenerator<string> {
    for (const [wait, text] of given) {
      if (wait > 0) await delay(wait);
      yield text;
    }
  }
  const all = async (messages: AsyncIterable<string>): Promise<string[]> => {
    const told: string[] = [];
    for await (const message of messages) told.push(message);
    return told;
  };

  test('pasted lines are one message, typed ones are several', async () => {
    expect(await all(joined(lines([0, 'a'], [0, 'b'], [0, ''], [0, 'c'], [400, 'd'], [400, 'e']), 100))).toEqual([
      'a\nb\n\nc',
      'd',
      'e',
    ]);
  });

  test('a line that ends with a backslash waits for the next one', async () => {
    expect(await all(joined(lines([0, 'a\\'], [300, 'b\\'], [300, 'c'], [300, 'd\\']), 50))).toEqual([
      'a\nb\nc',
      'd\\',
    ]);
  });
});

describe('a conversation in a terminal', () => {
  /** What the talk was told, and the notes. */
  async function talked(...given: readonly string[]): Promise<{ told: string[]; notes: string[]; code: number }> {
    const told: string[] = [];
    const notes: string[] = [];
    const note = (line: string): void => void notes.push(line);
    const talk: Talk = {
      ask: async (content) => void told.push(`ask ${content}`),
      again: async () => void told.push('again'),
      clear: () => void told.push('clear'),
      system: (text) => (told.push(`system ${text}`), text),
      save: async (path) => void told.push(`save ${path}`),
      load: async (path) => (told.push(`load ${path}`), 3),
      model: async (name) => {
        if (name === 'none') throw new Error('no such model');
        return name ?? 'this one';
      },
    };
    const messages: Messages = {
      prompt: () => {},
      close: () => {},
      async *[Symbol.asyncIterator]() {
        yield* given;
      },
    };
    const { signal } = new AbortController();
    const terminal = { write: async () => {}, note, progress: () => {}, signal };
    return { told, notes, code: await converse(messages, talk, terminal, () => {}) };
  }

  test('commands do what they say, and everything else is asked', async () => {
    const { told, notes, code } = await talked(
      'hello',
      '  ',
      '/clear',
      '/system Be short.',
      '/save a b.json',
      '/load c.json',
      '/model',
      '/model other',
      '/regen',
      '/etc/hosts what is it?',
      '/usr is what?',
      '/exit',
      'unheard',
    );
    expect(code).toBe(0);
    expect(told).toEqual([
      'ask hello',
      'clear',
      'system Be short.',
      'save a b.json',
      'load c.json',
      'again',
      'ask /etc/hosts what is it?',
      'ask /usr is what?',
    ]);
    expect(notes).toEqual([
      'A new conversation.',
      'Be short.',
      'The conversation is in a b.json.',
      'Turns that are back: 3.',
      'this one',
      'other',
    ]);
  });

  test('what goes wrong is told, and the conversation goes on', async () => {
    const { told, notes } = await talked('/save', '/sytem', '/model none', '/system', '/help', 'on');
    expect(told).toEqual(['system undefined', 'ask on']);
    expect(notes[0]).toBe('splitkv: say which file');
    expect(notes[1]).toMatch(/there is no \/sytem\. Did you mean 'system'\? \/help tells/);
    expect(notes[2]).toBe('splitkv: no such model');
    expect(notes[3]).toBe('There is no system message.');
    for (const name of ['help', 'clear', 'system', 'save', 'load', 'model', 'regen', 'exit'])
      expect(notes[4]).toContain(`/${name}`);
  });
});
