import { expect, test } from 'vitest';
import { contentOf, isAttached, isUntaken, promptOf } from './attached.js';
import { keptText, readKept } from './kept.js';
import { checkMessages, type ShownMessage } from './session.js';

const PNG = 'data:image/png;base64,AAAA';
const JPEG = 'data:image/jpeg;base64,BBBB';
const picture = { name: 'p.png', image: PNG };
const sound = { name: 's.wav', audio: 'data:audio/wav;base64,CCCC' };
const all = { images: true, sounds: true };
const none = { images: false, sounds: false };
const notes = { name: 'n.txt', text: 'one\ntwo' };

test('pictures come first, then texts, then the question', () => {
  const asked = { content: 'What?', attached: [notes, picture] };
  const text = '--- n.txt ---\none\ntwo\n---\n\nWhat?';
  expect(contentOf(asked, all)).toEqual([
    { type: 'image', image: PNG },
    { type: 'text', text },
  ]);
  expect(contentOf(asked, none)).toBe(text);
  expect(promptOf(contentOf(asked, all), '<image>')).toBe(`<image>${text}`);
  expect(contentOf({ content: '', attached: [picture] }, all)).toEqual([{ type: 'image', image: PNG }]);
  expect(contentOf({ content: 'Plain' }, all)).toBe('Plain');
});

test('recordings are for models that hear', () => {
  const asked = { content: 'What?', attached: [sound, picture] };
  const audio = { type: 'audio', audio: sound.audio };
  const text = { type: 'text', text: 'What?' };
  expect(contentOf(asked, all)).toEqual([audio, { type: 'image', image: PNG }, text]);
  expect(contentOf(asked, { images: false, sounds: true })).toEqual([audio, text]);
  expect(promptOf(contentOf(asked, all), '<image>', '<|audio|>')).toBe('<|audio|><image>What?');
  expect([all, none, { images: true, sounds: false }].map((takes) => isUntaken(asked.attached, takes))).toEqual([
    false,
    true,
    true,
  ]);
});

test.each([
  [sound, true],
  [{ name: 'a', audio: 'https://a.example/s.wav' }, false],
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
  const without = readKept(keptText({ messages, talk }, false));
  expect(without.messages[0]!.attached).toEqual([{ name: 'p.png', reduced: true }, notes]);
  const heard = readKept(keptText({ messages: [{ ...messages[0]!, attached: [sound] }, messages[1]!], talk }));
  expect(heard.messages[0]!.attached).toEqual([{ name: 's.wav', reduced: true }]);
  expect(heard.talk).toBeUndefined();
  const small = [{ ...messages[0]!, attached: [picture] }, messages[1]!];
  expect(readKept(keptText({ messages: small, talk }))).toMatchObject({ messages: small, talk });
  expect(checkMessages(messages)).toEqual(messages);
});
