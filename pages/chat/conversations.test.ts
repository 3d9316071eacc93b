import { expect, test } from 'vitest';
import type { ShownMessage } from '../../src/app/chat/session.js';
import { Conversations, titleOf } from './conversations.js';
import { shareFragment, sharedMessages } from './share.js';

class Memory {
  readonly all = new Map<string, string>();
  getItem = (key: string): string | null => this.all.get(key) ?? null;
  setItem = (key: string, value: string): void => void this.all.set(key, value);
  removeItem = (key: string): void => void this.all.delete(key);
}
const said = (...texts: readonly string[]): ShownMessage[] =>
  texts.map((content, at) => ({ role: at % 2 === 0 ? 'user' : 'assistant', content }));

let time = 1_700_000_000_000;
const open = (memory = new Memory()) => new Conversations(memory, () => time++);

test('the one that was talked in last comes first, and has a title', () => {
  const store = open();
  const bread = store.add({}, said('How do I keep bread fresh?', 'Freeze it.'));
  const soup = store.add({}, said('A soup', 'Leek.'));
  expect(store.list.map(({ title }) => title)).toEqual(['A soup', 'How do I keep bread fresh?']);
  store.touch(bread, store.messages(bread));
  expect(store.list.map(({ id }) => id)).toEqual([bread, soup]);
  store.rename(bread, ' Bread ');
  store.touch(bread, said('Another beginning', 'Yes.'));
  expect(store.find(bread)!.title).toBe('Bread');
  store.rename(bread, '');
  expect(store.find(bread)!.title).toBe('How do I keep bread fresh?');
  // Nothing said: nothing to list.
  store.touch(store.newId(), []);
  expect(store.list).toHaveLength(2);
});

test.each([
  ['short', 'short'],
  ['  two\n\nlines ', 'two lines'],
  [`${'word '.repeat(20)}`, `${'word '.repeat(11)}word…`],
  ['x'.repeat(100), `${'x'.repeat(60)}…`],
  ['', 'New conversation'],
])('the title of %j', (question, title) => {
  expect(titleOf(said(question, 'x'))).toBe(title);
});

test('search finds words in titles and texts, and shows where', () => {
  const store = open();
  store.add({ title: 'Kitchen', isNamed: true }, said('How do I keep bread fresh?', 'In the freezer, cut in slices.'));
  store.add({}, said('Who wrote Emma?', 'Jane Austen.'));
  expect(store.search('FREEZER bread')).toMatchObject([
    { title: 'Kitchen', excerpt: expect.stringContaining('freezer') },
  ]);
  expect(store.search('kitchen').map(({ excerpt }) => excerpt)).toEqual([undefined]);
  expect(store.search('bread Austen')).toEqual([]);
  expect(store.search('  ')).toHaveLength(2);
});

test('what is deleted comes back as it was', () => {
  const memory = new Memory();
  const store = open(memory);
  const id = store.add({ system: 'Be short.' }, said('One', 'Two'));
  const before = new Map(memory.all);
  const back = store.delete(id);
  expect([store.list, store.messages(id), memory.getItem(`splitkv-chat:${id}`)]).toEqual([[], [], null]);
  const again = back();
  expect(again).not.toBe(id); // other tabs have heard that all of that is taken back
  const renamed = [...before].map(([key, text]) => [key.replace(id, again), text.replace(id, again)] as const);
  expect(memory.all).toEqual(new Map(renamed));
});

test('a file brings all to another browser, once', () => {
  const store = open();
  store.add({ title: 'Named', isNamed: true, system: 'Be short.' }, said('One', 'Two'));
  store.add({}, [
    { role: 'user', content: 'What is this?', attached: [{ name: 'a.txt', text: 'A' }] },
    { role: 'assistant', content: 'A text.', reasoning: 'Hm.' },
  ]);
  const other = open();
  const file = store.export();
  expect(other.import(file)).toBe(2);
  expect(other.import(file)).toBe(0);
  const plain = (of: Conversations) => of.list.map(({ id, ...entry }) => ({ ...entry, messages: of.messages(id) }));
  expect(plain(other)).toEqual(plain(store));
  // What the element saves as JSON is one conversation.
  expect(other.import(JSON.stringify(said('Three', 'Four')))).toBe(1);
  expect(other.list).toHaveLength(3);
});

test('presets of one’s own have names, and go with the file', () => {
  const { presets } = open();
  presets.save({ name: 'Cook', system: 'You cook.' });
  presets.save({ name: 'Poet', system: 'You rhyme.', question: 'A rhyme?' });
  presets.save({ name: 'Cook', system: 'You cook well.' });
  presets.save({ name: 'Chef', system: 'You cook well.' }, 'Cook');
  const own = [
    { name: 'Chef', system: 'You cook well.' },
    { name: 'Poet', system: 'You rhyme.', question: 'A rhyme?' },
  ];
  expect(presets.list).toEqual(own);
  const one = open();
  for (const preset of own) one.presets.save(preset);
  const other = open();
  other.presets.save({ name: 'Poet', system: 'Mine.' });
  expect(other.import(one.export())).toBe(2);
  expect(other.import(one.export())).toBe(0);
  expect(other.presets.list).toEqual([{ name: 'Poet', system: 'Mine.' }, own[0], { ...own[1], name: 'Poet (2)' }]);
  other.presets.delete('Poet');
  expect(other.presets.list.map(({ name }) => name)).toEqual(['Chef', 'Poet (2)']);
  const memory = new Memory();
  memory.setItem('splitkv-presets', '[1, {"name": "a"}, {"name": " b ", "system": "B", "question": 3}]');
  expect(open(memory).presets.list).toEqual([{ name: 'b', system: 'B' }]);
});

test.each([
  ['{}', 'no conversations'],
  ['[1]', 'messages: expected'],
  ['nonsense', 'JSON'],
  [
    JSON.stringify({
      format: 'splitkv-conversations-1',
      conversations: [{ messages: said('a', 'b') }, { messages: said('a') }],
    }),
    'messages: expected',
  ],
  [
    JSON.stringify([
      { role: 'user', content: 'x', attached: [{ name: 'p', image: 'https://a.example/p.png' }] },
      { role: 'assistant', content: 'y' },
    ]),
    'messages: expected',
  ],
])('a file that is none changes nothing: %s', (text, problem) => {
  const store = open();
  expect(() => store.import(text)).toThrow(problem);
  expect(store.list).toEqual([]);
});

test('storage that something else has written is read as empty', () => {
  const memory = new Memory();
  memory.setItem('splitkv-conversations', '{"a": 1}');
  expect(open(memory).list).toEqual([]);
  memory.setItem('splitkv-conversations', '[1, null, {"id": "a"}, {"id": "b", "title": "B", "at": 1}]');
  expect(open(memory).list.map(({ id }) => id)).toEqual(['b']);
  memory.setItem('splitkv-chat:b', 'nonsense');
  expect(open(memory).messages('b')).toEqual([]);
});

test('a link has all that was said, without pictures', async () => {
  const messages: ShownMessage[] = [
    { role: 'user', content: 'Äpfel? 🍎', attached: [{ name: 'p.png', image: 'data:image/png;base64,AAAA' }] },
    { role: 'assistant', content: 'x '.repeat(5000) },
  ];
  const fragment = await shareFragment(messages);
  expect(fragment).toMatch(/^#share=[\w-]+$/);
  expect(fragment.length).toBeLessThan(300);
  expect(await sharedMessages(fragment)).toEqual(said('[p.png]\n\nÄpfel? 🍎', 'x '.repeat(5000)));
  expect(await sharedMessages('#c=abc')).toBeUndefined();
});

test('a link that was cut, changed or unpacks to gigabytes is told', async () => {
  const whole = await shareFragment(said('One', 'Two'));
  const bomb = await shareFragment(said('a'.repeat(5 * 2 ** 20), 'b'));
  const odd = await shareFragment(said('One', 'Two', 'Three'));
  for (const fragment of [whole.slice(0, -4), '#share=%%%', '#share=', bomb, odd]) {
    await expect(sharedMessages(fragment), fragment.slice(0, 30)).rejects.toThrow('no whole conversation');
  }
});
