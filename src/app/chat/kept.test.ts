import { beforeEach, expect, test, vi } from 'vitest';
import { type Kept, keptText, mergeKept, readKept, sameTurns, TurnNames } from './kept.js';
import { checkMessages, type ShownMessage, versionsWith, withVersion } from './session.js';

// Nobody says two things in a millisecond.
beforeEach(() => {
  let now = 1_700_000_000_000;
  vi.spyOn(Date, 'now').mockImplementation(() => now++);
});

const turn = (text: string): ShownMessage[] => [
  { role: 'user', content: text },
  { role: 'assistant', content: `${text}!` },
];
const said = (kept: Kept): string[] =>
  kept.messages.filter(({ role }) => role === 'user').map(({ content }) => content);

/** A tab: what it shows, and the store that it shares. */
class Tab {
  readonly names = new TurnNames();
  messages: readonly ShownMessage[] = [];
  #live = false;
  constructor(private readonly store: { text: string }) {
    this.sync();
  }
  /** @param there what it believes to be kept */
  sync(there = this.store.text): void {
    const all = mergeKept(this.names.of(this), readKept(there));
    this.names.take(all, this.#live);
    this.#live = true;
    this.messages = all.messages;
    this.store.text = JSON.stringify(all);
  }
  say(text: string, there?: string): void {
    this.messages = [...this.messages, ...turn(text)];
    this.sync(there);
  }
  set(...texts: string[]): void {
    const after = { messages: texts.flatMap(turn) };
    this.names.replace(this, after);
    this.messages = after.messages;
    this.sync();
  }
}
const none = '{"messages":[]}';

test('two tabs that say things in turn, or at once, lose nothing, and come to the same', () => {
  const store = { text: none };
  const [one, two] = [new Tab(store), new Tab(store)];
  one.say('a');
  two.say('b');
  one.say('c');
  expect(said(readKept(store.text))).toEqual(['a', 'b', 'c']);
  // Neither has seen the other's: the last to write hides the first, which hears of it.
  const before = store.text;
  one.say('d', before);
  two.say('e', before);
  one.sync();
  two.sync();
  expect(said(one).toSorted()).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(said(two)).toEqual(said(one));
  expect(sameTurns(readKept(store.text), mergeKept(one.names.of(one), readKept(store.text)))).toBe(true);
});

test('what one tab takes back stays away', () => {
  const store = { text: none };
  const [one, two] = [new Tab(store), new Tab(store)];
  one.say('a');
  one.say('b');
  two.sync();
  one.messages = one.messages.slice(0, 2);
  one.say('b2');
  two.sync();
  expect(said(two)).toEqual(['a', 'b2']);
  two.names.forget(); // all was deleted
  store.text = none;
  two.say('z');
  one.sync();
  expect(said(one)).toEqual(['z']);
});

test('messages that a page sets take the place of its own, not of what another tab says', () => {
  const store = { text: none };
  const [one, two] = [new Tab(store), new Tab(store)];
  one.set('a');
  two.sync();
  two.set('b');
  one.sync();
  one.set('a', 'c');
  expect(said(one).toSorted()).toEqual(['a', 'b', 'c']);
  two.sync();
  two.set(...said(two), 'd');
  expect(said(two)).toHaveLength(4);
  const alone = new Tab({ text: store.text });
  alone.set('x');
  expect(said(alone)).toEqual(['x']);
});

const contents = (messages: readonly ShownMessage[]): string => messages.map(({ content }) => content).join(' ');
/** Says a question again, or the answer to it, as the session does. */
function again(messages: readonly ShownMessage[], from: number, ...texts: readonly string[]): readonly ShownMessage[] {
  const [first, ...rest] = texts.map((content, at): ShownMessage => ({
    role: (from + at) % 2 === 0 ? 'user' : 'assistant',
    content,
  }));
  const versions = versionsWith(messages, from)!;
  return [...messages.slice(0, from), { ...first!, versions }, ...rest];
}

test('an edited question, and an answer asked for again, stay with what followed them', () => {
  const begun = [...turn('a'), ...turn('b')];
  const answered = again(begun, 1, 'other!');
  const edited = again([...answered, ...turn('c')], 0, 'A', 'A!');
  const third = again(edited, 0, 'Z', 'Z!');
  expect(contents(third)).toBe('Z Z!');
  const shown = [0, 1, 2].map((at) => withVersion(third, 0, at));
  expect(shown.map(contents)).toEqual(['a other! c c!', 'A A!', 'Z Z!']);
  expect(shown.map(([first]) => [first!.versions!.at, first!.versions!.others.length])).toEqual([
    [0, 2],
    [1, 2],
    [2, 2],
  ]);
  // Within a version there are those of before; all of it goes through a file.
  const back = withVersion(checkMessages(JSON.parse(JSON.stringify(shown[0])) as ShownMessage[]), 1, 0);
  expect(contents(back)).toBe('a a! b b!');
  expect(contents(withVersion(withVersion(back, 1, 1), 0, 2))).toBe('Z Z!');
  expect(withVersion(back, 2, 5)).toBe(back);
  for (const versions of [
    { at: 2, others: [turn('x')] },
    { at: 0, others: [[]] },
    { at: 0, others: [begun.slice(1)] },
    { at: 0 },
  ]) {
    const wrong = [{ ...begun[0]!, versions }, begun[1]!] as ShownMessage[];
    expect(() => checkMessages(wrong), JSON.stringify(versions)).toThrow('messages: expected');
  }
});

test('another version takes the place of the one before in every tab, and comes back', () => {
  const store = { text: none };
  const [one, two] = [new Tab(store), new Tab(store)];
  one.say('a');
  one.say('b');
  two.sync();
  one.messages = again(one.messages, 0, 'A', 'A!');
  one.sync();
  two.sync();
  expect(said(two)).toEqual(['A']);
  two.messages = withVersion(two.messages, 0, 0);
  two.sync();
  one.sync();
  expect(said(one)).toEqual(['a', 'b']);
  one.messages = withVersion(one.messages, 0, 1);
  one.sync();
  two.sync();
  expect([said(one), said(two)]).toEqual([['A'], ['A']]);
});

test('of a picture in another version the copy is kept, too', () => {
  const attached = [{ name: 'p', image: 'data:image/png;base64,LARGE', small: 'data:image/png;base64,S' }];
  const [question, answer] = turn('a');
  const messages = again([{ ...question!, attached }, answer!], 0, 'A', 'A!');
  expect(keptText({ messages })).not.toContain('LARGE');
  expect(withVersion(readKept(keptText({ messages })).messages, 0, 0)[0]!.attached).toEqual([
    { name: 'p', image: 'data:image/png;base64,S', reduced: true },
  ]);
});

test('what was kept without names has the same ones in every tab, and what is no conversation is refused', () => {
  const text = JSON.stringify({ messages: [...turn('a'), ...turn('b')] });
  expect(readKept(text).ids).toEqual(readKept(text).ids);
  expect(said(mergeKept(readKept(text), readKept(text)))).toEqual(['a', 'b']);
  expect(() => readKept('[1]')).toThrow();
  expect(() => readKept('{"messages":[{"role":"assistant","content":"x"}]}')).toThrow();
});
