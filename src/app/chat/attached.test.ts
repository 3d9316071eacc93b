import { expect, test } from 'vitest';
import { contentOf, isAttached, promptOf } from './attached.js';
import { keptText, readKept } from './kept.js';
import { checkMessages, type ShownMessage } from './session.js';

const PNG = 'data:image/png;base64,AAAA';
const JPEG = 'data:image/jpeg;base64,BBBB';
const picture = { name: 'p.png', image: PNG };
const notes = { name: 'n.txt', text: 'one\ntwo' };

test('pictures come first, then texts, then the question', () => {
  const asked = { content: 'What?', attached: [notes, picture] };
  const text = '--- n.txt ---\none\ntwo\n---\n\nWhat?';
  expect(contentOf(asked, true)).toEqual([
    { type: 'image', image: PNG },
    { type: 'text', text },
  ]);
  expect(contentOf(asked, false)).toBe(text);
  expect(promptOf(contentOf(asked, true), '<image>')).toBe(`<image>${text}`);
  expect(contentOf({ content: '', attached: [picture] }, true)).toEqual([{ type: 'image', image: PNG }]);
  expect(contentOf({ content: 'Plain' }, true)).toBe('Plain');
});

test.each([
  [picture, true],
  [notes, true],
  [{ ...picture, small: JPEG, reduced: true }, true],
  [{ name: 'a', image: 'https://a.example/p.png' }, false],
  [{ name: 'a', image: 'data:image/svg+xml;base64,AAAA' }, false],
  [{ name: 'a', image: PNG, small: 'blob:x' }, false],
  [{ name: 1, text: 'x' }, false],
  [{ name: 'a', text: 1 }, false],
  [null, false],
])('%j may come from anywhere: %s', (value, fine) => {
  expect(isAttached(value)).toBe(fine);
});

test('what is kept has copies of large pictures, and goes on with those', () => {
  const large = { ...picture, small: JPEG };
  const messages: ShownMessage[] = [
    { role: 'user', content: 'What?', attached: [large, notes] },
    { role: 'assistant', content: 'x' },
  ];
  const talk = { version: 1, model: 'm', turns: [{ user: 'What?', answer: 'x', tokens: [1] }] };
  const kept = readKept(keptText({ messages, talk }));
  expect(kept.messages[0]!.attached).toEqual([{ name: 'p.png', image: JPEG, reduced: true }, notes]);
  // The model was told of the picture itself.
  expect(kept.talk).toBeUndefined();
  const none = readKept(keptText({ messages, talk }, false));
  expect(none.messages[0]!.attached).toEqual([{ name: 'p.png', reduced: true }, notes]);
  const small = [{ ...messages[0]!, attached: [picture] }, messages[1]!];
  expect(readKept(keptText({ messages: small, talk }))).toMatchObject({ messages: small, talk });
  expect(checkMessages(messages)).toEqual(messages);
});
