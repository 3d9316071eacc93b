import { afterEach, expect, test } from 'vitest';
import type { TextForm } from '../text_form.js';
import { type Form, FormThreads, startHere, startPort } from './form_threads.js';
import type { StartPort } from './form_thread.js';
import type { PackedVocabulary } from '../masks.js';
import { startNodePort } from './node_form_port.js';

/** Each byte is a token; the last one ends a text. */
const vocabulary: PackedVocabulary = {
  bytes: Uint8Array.from({ length: 256 }, (_, byte) => byte),
  ends: Uint32Array.from({ length: 257 }, (_, id) => Math.min(256, id + 1)),
  marks: [],
  markOf: new Map(),
  endIds: [256],
};

let threads: FormThreads | undefined;
afterEach(() => threads?.dispose());
const open = (start?: StartPort): FormThreads => (threads = new FormThreads(() => Promise.resolve(vocabulary), start));
const ids = (allowed: Uint32Array): number[] =>
  Array.from({ length: 257 }, (_, id) => id).filter((id) => ((allowed[id >>> 5]! >>> (id & 31)) & 1) === 1);

/** The text that a form allows, where it allows one at each place. */
async function follow(form: Form): Promise<string> {
  const answer = form.start();
  let text = '';
  for (let next = answer.first; ;) {
    const [id, ...others] = ids(next.allowed);
    expect(others).toEqual([]);
    if (id === 256) break;
    text += String.fromCharCode(id!);
    answer.accept(id!);
    next = (await answer.next())!;
  }
  answer.dispose();
  return text;
}

/** A port whose threads can be ended from without, and that counts them and what they are asked. */
function counted(start: StartPort) {
  const seen = { started: 0, asked: [] as string[], endAll: [] as (() => void)[] };
  const counting: StartPort = async (events) => {
    seen.started++;
    const port = await start(events);
    seen.endAll.push(() => events.ended(new Error('killed') as never));
    return {
      ...port,
      post: (ask) => {
        seen.asked.push(Object.keys(ask).join(' '));
        port.post(ask);
      },
    };
  };
  return { seen, counting };
}

const HOSTILE: readonly [string, TextForm][] = [
  ['a{3990}', { regex: 'a{3990}' }],
  ['(a?){19000}', { regex: '(a?){19000}' }],
  ['nested repetitions', { grammar: 'root ::= (("a"{0,200}){0,200}){0,200}' }],
  ['lookaheads', { regex: `${Array.from('abcdefghijk', (letter) => `(?=.*${letter})`).join('')}.*` }],
  ['a schema 3,000 deep', { responseFormat: { type: 'json_object', schema: nested(3000) } }],
  ['a schema 20,000 deep', { responseFormat: { type: 'json_object', schema: nested(20_000) } }],
];
function nested(depth: number): Record<string, unknown> {
  let schema: Record<string, unknown> = { type: 'string' };
  for (let level = 0; level < depth; level++) schema = { type: 'array', items: schema };
  return schema;
}

test.each(HOSTILE)('%s: refused or ready, and the event loop goes on', { timeout: 120_000 }, async (_, form) => {
  const on = open();
  let turns = 0;
  const turning = setInterval(() => turns++, 5);
  const started = performance.now();
  const outcome = await on.compile(form, undefined).then(
    () => 'ready',
    (error: { code: string; message: string }) => {
      expect(error.message.length).toBeLessThan(500);
      return error.code;
    },
  );
  clearInterval(turning);
  expect(['ready', 'usage', 'unsupported']).toContain(outcome);
  // A turn takes 5 ms and not seconds: a tenth of those there could be is enough.
  expect(turns).toBeGreaterThanOrEqual(Math.floor((performance.now() - started) / 50) - 20);
  expect(await follow((await on.compile({ regex: 'yes' }, undefined))!)).toBe('yes');
});

test('what was refused, or is ready, is known: nobody is asked again', async () => {
  const { seen, counting } = counted(startHere);
  const on = open(counting);
  for (let time = 0; time < 3; time++) {
    await expect(on.compile({ regex: '(' }, undefined)).rejects.toMatchObject({ code: 'usage' });
    await on.compile({ regex: 'a' }, undefined);
  }
  expect(seen).toMatchObject({ started: 1, asked: ['open', 'form', 'form'] });
});

test('one form after the other is one thread; beside an answer there is a second', async () => {
  const { seen, counting } = counted(startHere);
  const on = open(counting);
  for (const regex of ['one', 'two', 'three']) expect(await follow(await on.compile({ regex }, undefined))).toBe(regex);
  expect(seen.started).toBe(1);
  const answer = (await on.compile({ regex: 'one' }, undefined)).start();
  expect(await follow(await on.compile({ regex: 'four' }, undefined))).toBe('four');
  expect(seen.started).toBe(2);
  answer.dispose();
});

test('an answer whose thread is lost goes on in another', async () => {
  const { seen, counting } = counted(startPort());
  const on = open(counting);
  const answer = (await on.compile({ regex: 'abc|abd' }, undefined)).start();
  answer.accept(97);
  expect(ids((await answer.next())!.allowed)).toEqual([98]);
  for (const end of seen.endAll) end();
  answer.accept(98);
  expect(ids((await answer.next())!.allowed)).toEqual([99, 100]);
  expect(() => answer.accept(97)).toThrow("token 97 was sampled, which the text's form doesn't allow");
  answer.reset();
  answer.accept(97);
  answer.accept(98);
  expect(ids((await answer.next())!.allowed)).toEqual([99, 100]);
  answer.dispose();
});

test('a signal ends the waiting at once; what it waited for is no trouble for the next', async () => {
  const on = open();
  const aborting = new AbortController();
  const waits = on.compile({ regex: 'a{3990}' }, undefined, { signal: aborting.signal });
  aborting.abort();
  await expect(waits).rejects.toMatchObject({ code: 'aborted' });
  expect(await follow(await on.compile({ regex: 'yes' }, undefined))).toBe('yes');
});

test('a form that fills the memory of its thread is refused, and the next one is made ready', async () => {
  const on = open((events) => startNodePort(events, 16));
  const values = Array.from({ length: 30_000 }, (_, i) => `${i}`);
  const form: TextForm = { responseFormat: { type: 'json_object', schema: { enum: values } } };
  await expect(on.compile(form, undefined)).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringMatching(/16 MiB/) as string,
  });
  expect(await follow((await on.compile({ regex: 'yes' }, undefined))!)).toBe('yes');
});

test('without threads the counted steps end what is too much', { timeout: 60_000 }, async () => {
  const on = open(startHere);
  for (const [, form] of HOSTILE)
    await on.compile(form, undefined).catch((error: { code: string }) => expect(error.code).toBe('usage'));
  expect(await follow((await on.compile({ regex: 'yes' }, undefined))!)).toBe('yes');
});

test('what an answer of a form has met is known to the next one: its thread is asked no more', async () => {
  const { seen, counting } = counted(startHere);
  const on = open(counting);
  for (let time = 0; time < 2; time++)
    expect(await follow(await on.compile({ regex: 'abcde' }, undefined))).toBe('abcde');
  expect(seen.asked.filter((ask) => ask.includes('tokens'))).toHaveLength(5);
});

test('a thread that says nothing any more is ended', async () => {
  let ended = 0;
  const silent: StartPort = async (events) => {
    const port = await startHere(events);
    return {
      ...port,
      post: (ask) => {
        if ('open' in ask) port.post(ask);
        else events.ended({ code: 'internal', message: 'gone' } as never);
      },
      end: () => void ended++,
    };
  };
  const on = open(silent);
  await expect(on.compile({ regex: 'a' }, undefined)).rejects.toMatchObject({ message: 'gone' });
  await expect.poll(() => ended).toBe(1);
});

test('what two answers remember of their lists is their own', async () => {
  const on = open();
  const schema = { type: 'array', items: { type: 'string' }, uniqueItems: true };
  const form = (await on.compile({ responseFormat: { type: 'json_schema', json_schema: { schema } } }, undefined))!;
  const [one, other] = ['["a","', '["b","'].map((text) => {
    const answer = form.start();
    for (const letter of text) answer.accept(letter.charCodeAt(0));
    return answer;
  });
  for (const answer of [one!, other!]) answer.accept(97);
  const [quote, b] = [0x22, 98];
  expect(ids((await one!.next())!.allowed)).not.toContain(quote);
  expect(ids((await one!.next())!.allowed)).toContain(b);
  expect(ids((await other!.next())!.allowed)).toContain(quote);
  expect(() => one!.accept(quote)).toThrow("which the text's form doesn't allow");
  one!.reset();
  for (const letter of '["a"') one!.accept(letter.charCodeAt(0));
  one!.dispose();
  other!.dispose();
});

test('what is known of tokens that may come is told without taking them', async () => {
  const on = open(startHere);
  const schema = { type: 'array', items: { type: 'string' }, uniqueItems: true };
  const form = await on.compile({ responseFormat: { type: 'json_object', schema } }, undefined);
  const bytes = (text: string): number[] => [...Buffer.from(text)];
  const masks = async (text: string): Promise<number[][]> => {
    const answer = form.start();
    const found: number[][] = [];
    for (const id of bytes(text)) {
      answer.accept(id);
      found.push(ids((await answer.next())!.allowed));
    }
    return found;
  };
  const first = form.start();
  // Nothing was asked yet.
  expect(first.ahead(bytes('["'))).toEqual([]);
  const known = await masks('["a","b"');
  const ahead = (text: string): number[][] => first.ahead(bytes(text)).map(ids);
  expect(ahead('["a","b"')).toEqual(known);
  // The same item again isn't allowed, so drafts end before its quote, and other items' end is that of this answer.
  expect(ahead('["a","a"]')).toEqual(await masks('["a","a'));
  expect(ahead('[}')).toEqual(known.slice(0, 1));
  first.accept(91);
  expect(ids((await first.next())!.allowed)).toEqual(known[0]);
  expect(ahead('"a"')).toEqual(known.slice(1, 4));
});
