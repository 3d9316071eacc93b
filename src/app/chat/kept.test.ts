import { beforeEach, expect, test, vi } from 'vitest';
import { type Kept, mergeKept, readKept, sameTurns, TurnNames } from './kept.js';
import type { ShownMessage } from './session.js';

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

test('what was kept without names has the same ones in every tab, and what is no conversation is refused', () => {
  const text = JSON.stringify({ messages: [...turn('a'), ...turn('b')] });
  expect(readKept(text).ids).toEqual(readKept(text).ids);
  expect(said(mergeKept(readKept(text), readKept(text)))).toEqual(['a', 'b']);
  expect(() => readKept('[1]')).toThrow();
  expect(() => readKept('{"messages":[{"role":"assistant","content":"x"}]}')).toThrow();
});
