import { createElement, StrictMode, type ReactNode } from 'react';
import { renderToString } from 'react-dom/server';
import { beforeAll, expect, test, vi } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { randomFiles } from '../../engine/testing/random_source.js';
import * as library from '../../index.js';
import { conversationStore, modelStore } from '../stores/index.js';
import { type UsedConversation, useConversation, type UsedModel, useModel } from './hooks.js';

vi.mock('../../index.js', async (original) => {
  const all = await original<typeof library>();
  return { ...all, load: vi.fn(all.load) };
});
const load = vi.mocked(library.load);

const adapter = (await testAdapters()).at(-1)!.name;
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: 4096 } });
const few = /[a-z]{3,6}/.source;
const until = (isSo: () => boolean): Promise<void> =>
  vi.waitFor(() => expect(isSo()).toBe(true), { timeout: 60_000, interval: 1 });

/** Of a document as much as React asks of one whose components show nothing. */
class Nothing extends EventTarget {
  readonly nodeType: number = 1;
  readonly nodeName = 'DIV';
  readonly tagName = 'DIV';
  readonly namespaceURI = 'http://www.w3.org/1999/xhtml';
  textContent = '';
  get ownerDocument(): unknown {
    return page;
  }
}
const page = Object.assign(new Nothing(), { nodeType: 9, activeElement: null, defaultView: globalThis });

let createRoot: typeof import('react-dom/client').createRoot;
/** Of React what bundlers use to put a changed component in another's place: of two that are one, the newer. */
interface Refresher {
  setRefreshHandler(familyOf: (type: unknown) => { current: unknown } | undefined): void;
  scheduleRefresh(root: unknown, update: Record<'staleFamilies' | 'updatedFamilies', Set<unknown>>): void;
}
let refresher: Refresher;
let lastRoot: unknown;
beforeAll(async () => {
  vi.stubGlobal('__REACT_DEVTOOLS_GLOBAL_HOOK__', {
    supportsFiber: true,
    inject: (found: Refresher) => void (refresher = found),
    onCommitFiberRoot: (_: unknown, root: unknown) => (lastRoot = root),
    onCommitFiberUnmount: () => {},
    onPostCommitFiberRoot: () => {},
  });
  vi.stubGlobal('window', Object.assign(globalThis, { HTMLIFrameElement: class {} }));
  vi.stubGlobal('document', page);
  ({ createRoot } = await import('react-dom/client'));
});

test('components that ask alike share a load, and the last one frees the model', { timeout: 180_000 }, async () => {
  const seen: UsedModel[] = [];
  const One = ({ at, options = {} }: { at: number; options?: object }): ReactNode => {
    seen[at] = useModel(files, { adapter, ...options, onWarning: () => {} });
    return null;
  };
  const show = (...children: ReactNode[]) => createElement(StrictMode, null, ...children);
  const one = (at: number, options?: object) => createElement(One, { key: at, at, ...(options && { options }) });
  // On a server nothing begins.
  expect(renderToString(show(one(0)))).toBe('');
  expect(seen[0]).toMatchObject({ model: undefined, progress: undefined, error: undefined });
  expect(load).not.toHaveBeenCalled();

  const root = createRoot(new Nothing() as never);
  root.render(show(one(0), one(1, { contextLength: undefined })));
  await until(() => seen[0]!.model !== undefined && seen[1]!.model !== undefined);
  expect(load).toHaveBeenCalledTimes(1);
  expect(seen[0]!.model).toBe(seen[1]!.model);
  expect(seen[0]!.progress).toMatchObject({ phase: 'ready' });
  const model = seen[0]!.model!;
  const dispose = vi.spyOn(model, 'dispose');
  // One leaves, another comes in the same commit.
  root.render(show(one(2)));
  await until(() => seen[2]?.model === model);
  await new Promise((done) => setTimeout(done, 50));
  expect(dispose).not.toHaveBeenCalled();
  // Other options are another model; the old one is gone before.
  root.render(show(one(2, { contextLength: 128 })));
  await until(() => seen[2]!.model !== undefined && seen[2]!.model !== model);
  expect(dispose).toHaveBeenCalledTimes(1);
  expect(dispose.mock.invocationCallOrder[0]!).toBeLessThan(load.mock.invocationCallOrder[1]!);
  expect(seen[2]!.model!.info.contextLength).toBe(128);
  const last = vi.spyOn(seen[2]!.model!, 'dispose');
  root.unmount();
  await until(() => last.mock.calls.length === 1);
  expect(load).toHaveBeenCalledTimes(2);
});

test('a load is aborted by those who wait for it, or leave, and tried again', { timeout: 180_000 }, async () => {
  const before = load.mock.calls.length;
  const store = modelStore(files, { adapter, contextLength: 64 });
  expect(modelStore(files, { contextLength: 64, adapter })).toBe(store);
  expect(modelStore([...files].reverse(), { adapter, contextLength: 64 })).not.toBe(store);
  const leave = store.subscribe(() => {});
  store.abort();
  await until(() => store.get().error !== undefined);
  expect(store.get().model).toBeUndefined();
  store.retry();
  expect(store.get().error).toBeUndefined();
  await until(() => load.mock.calls.length > before);
  const { signal } = load.mock.calls.at(-1)![1]!;
  leave();
  await until(() => signal!.aborted);
  expect(store.get()).toEqual({ model: undefined, progress: undefined, error: undefined });
  const wrong = modelStore(files, { adapter, weihgts: 'q4' } as object);
  const gone = wrong.subscribe(() => {});
  await until(() => wrong.get().error !== undefined);
  expect(String(wrong.get().error)).toMatch(/weihgts/);
  gone();
  // None yet.
  const none = modelStore(undefined);
  none.subscribe(() => {})();
  expect(none.get().progress).toBeUndefined();
});

test('an answer is shown as it is written, stopped and replaced', { timeout: 180_000 }, async () => {
  const model = await library.load(files, { adapter, requests: 2 });
  let talk!: UsedConversation;
  const shown: UsedConversation['messages'][] = [];
  const Chat = ({ of }: { of: library.Model | undefined }): ReactNode => {
    talk = useConversation(of, { system: 'say little' });
    if (shown.at(-1) !== talk.messages) shown.push(talk.messages);
    return null;
  };
  const root = createRoot(new Nothing() as never);
  root.render(createElement(Chat, { of: undefined }));
  await until(() => talk !== undefined);
  await talk.send('hello');
  await until(() => talk.error !== undefined);
  expect(String(talk.error)).toMatch(/no model yet/);
  root.render(createElement(StrictMode, null, createElement(Chat, { of: model })));
  await until(() => talk.conversation !== undefined);
  const asked = { role: 'user', content: 'who ?' } as const;
  await talk.send(asked.content, { regex: few });
  await until(() => talk.messages.length === 2 && !talk.isAnswering);
  const expected = await model.conversation({ system: 'say little' }).send('who ?', { regex: few }).result;
  expect(talk).toMatchObject({ messages: [asked, { role: 'assistant', content: expected.text }], error: undefined });

  shown.length = 0;
  const long = talk.regenerate({ maxTokens: 300, ignoreEos: true });
  await until(() => talk.isAnswering && talk.messages[1]!.content !== '');
  const another = talk.send('meanwhile');
  await long;
  await another;
  await until(() => !talk.isAnswering);
  expect(String(talk.error)).toMatch(/an answer is being written/);
  const texts = shown.map((messages) => messages[1]!.content as string);
  expect(texts.length).toBeGreaterThan(2);
  for (const [at, text] of texts.entries()) expect(text.startsWith(texts[at - 1] ?? '')).toBe(true);
  expect(talk.messages).toEqual(talk.conversation!.messages.slice(1));

  // What is stopped stays as far as it came; what fails is taken back.
  const stopped = talk.send('tell me', { ignoreEos: true, maxTokens: 1000 });
  await until(() => talk.isAnswering && (talk.messages[3]?.content ?? '') !== '');
  talk.stop();
  await stopped;
  await until(() => !talk.isAnswering);
  expect(talk.messages).toEqual(talk.conversation!.messages.slice(1));
  expect(talk.messages).toHaveLength(4);
  await talk.send('x '.repeat(5000));
  await until(() => talk.error !== undefined);
  expect(talk.error).toMatchObject({ code: 'context_full' });
  expect(talk.messages).toHaveLength(4);

  // Who leaves ends the answer.
  const { conversation } = talk;
  const left = talk.send('tell me', { ignoreEos: true, maxTokens: 2000 });
  await until(() => talk.isAnswering && (talk.messages[5]?.content ?? '') !== '');
  root.unmount();
  await left;
  expect(conversation!.messages.at(-1)!.role).toBe('assistant');

  // Calls of tools, and their results.
  const tool = {
    type: 'function',
    function: { name: 'look', parameters: { type: 'object', properties: {} } },
  } as const;
  const store = conversationStore(model);
  const other = conversationStore(model);
  // Changes of a frame are told together.
  const times: number[] = [];
  const leave = other.subscribe(() => times.push(performance.now()));
  await other.send('tell me', { ignoreEos: true, maxTokens: 100 });
  await new Promise((done) => setTimeout(done, 50));
  expect(times.length).toBeGreaterThan(3);
  for (const [at, time] of times.entries()) if (at > 0) expect(time - times[at - 1]!).toBeGreaterThan(14);
  leave();
  await store.send('what is there ?', { tools: [tool], toolChoice: 'required', parallelToolCalls: false });
  expect(store.get().error).toBeUndefined();
  const [call] = store.get().messages.at(-1)!.tool_calls!;
  await store.send([{ role: 'tool', tool_call_id: call!.id, content: 'a cat' }], { regex: few });
  expect(store.get().messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant']);
  await model.dispose();
});

test('a component that changes while it is worked on keeps its conversation', { timeout: 180_000 }, async () => {
  const model = await library.load(files, { adapter });
  let talk!: UsedConversation;
  let version = 0;
  const make =
    (own: number) =>
    ({ of }: { of: library.Model }): ReactNode => {
      talk = useConversation(of, { system: 'say little' });
      version = own;
      return null;
    };
  const [first, second] = [make(1), make(2)];
  const family = { current: first };
  refresher.setRefreshHandler((type) => (type === first || type === second ? family : undefined));
  const root = createRoot(new Nothing() as never);
  root.render(createElement(StrictMode, null, createElement(first, { of: model })));
  await until(() => talk !== undefined);
  await talk.send('who ?', { regex: few });
  await until(() => talk.messages.length === 2 && !talk.isAnswering);
  const { messages, conversation } = talk;
  family.current = second;
  refresher.scheduleRefresh(lastRoot, { staleFamilies: new Set(), updatedFamilies: new Set([family]) });
  await until(() => version === 2);
  expect(talk.messages).toEqual(messages);
  expect(talk.conversation).toBe(conversation);
  // Another model's is another conversation.
  const other = await library.load(files, { adapter });
  root.render(createElement(StrictMode, null, createElement(second, { of: other })));
  await until(() => talk.conversation !== conversation);
  expect(talk.messages).toEqual([]);
  root.unmount();
  await model.dispose();
  await other.dispose();
});
