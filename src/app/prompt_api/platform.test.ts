import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { randomFiles } from '../../engine/testing/random_source.js';
import { type Conversation, load, type Model } from '../../index.js';
import { type LanguageModelClass, type LanguageModelSession, promptApi } from './index.js';

/** What the web platform tests of ai/language-model ask of a browser, file by file, as far as it is text. */

const adapter = (await testAdapters()).at(-1)!.name;
const CONTEXT = 512;
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: CONTEXT } });
/** Random models end no answer by themselves. */
const short = { responseConstraint: /[a-z]{1,4}/ };
const rating = {
  type: 'object',
  required: ['Rating'],
  additionalProperties: false,
  properties: { Rating: { type: 'number', minimum: 0, maximum: 5 } },
};
const system = { role: 'system', content: 'x' };
const user = { role: 'user', content: 'x' };
const beginning = (content: string) => ({ role: 'assistant', content, prefix: true });
const AVAILABILITIES = ['unavailable', 'downloadable', 'downloading', 'available'];

let model: Model;
let LanguageModel: LanguageModelClass;
beforeAll(async () => {
  model = await load(files, { adapter, requests: 2 });
  LanguageModel = promptApi(model);
});
afterAll(() => model.dispose());

const create = (options: object = {}): Promise<LanguageModelSession> => LanguageModel.create(options as never);
const available = (options: object = {}): Promise<string> => LanguageModel.availability(options as never);
const named = (name: string) => expect.objectContaining({ name });
const all = async (stream: ReadableStream<string>): Promise<string> => {
  let text = '';
  for await (const piece of stream as unknown as AsyncIterable<string>) text += piece;
  return text;
};

describe('availability', () => {
  test.each([{}, undefined, { topK: 1.5, temperature: 2 }, { expectedInputs: [] }, { samplingMode: 'creative' }])(
    'available: %j',
    async (options) => expect(await available(options)).toBe('available'),
  );
  test.each([
    { expectedInputs: [{ type: 'text', languages: ['unk'] }] },
    { expectedOutputs: [{ type: 'text', languages: ['unk'] }] },
    { expectedOutputs: [{ type: 'image' }] },
    { expectedOutputs: [{ type: 'audio' }] },
    { topK: 0, temperature: 0.5 },
    { topK: -3, temperature: 0.5 },
    { topK: 3, temperature: -0.5 },
    { topK: 3 },
    { temperature: 0.5 },
  ])('unavailable: %j', async (options) => expect(await available(options)).toBe('unavailable'));
  test.each([
    [{ expectedInputs: [{ type: 'soup' }] }, TypeError],
    [{ samplingMode: 'soup' }, TypeError],
    [{ samplingMode: 'balanced', temperature: 0.8 }, TypeError],
    [{ samplingMode: 'balanced', topK: 10 }, TypeError],
    [{ expectedInputs: [{ type: 'text', languages: ['en-abc-invalid'] }] }, RangeError],
  ])('refused: %j', async (options, error) => expect(available(options)).rejects.toThrow(error));
  test('any options that could be give one of the four words', async () => {
    const expected = [
      undefined,
      [],
      [{ type: 'text' }, { type: 'audio' }],
      [{ type: 'text', languages: ['en', 'ja'] }],
    ];
    for (const topK of [undefined, -2, 0, 1.5, 99])
      for (const temperature of [undefined, -0.5, 0, 7])
        for (const expectedInputs of expected)
          expect(AVAILABILITIES).toContain(
            await available({ topK, temperature, expectedInputs, initialPrompts: [system, system] }),
          );
  });
});

describe('create', () => {
  test('a session has its methods, attributes and defaults', async () => {
    const session = await create();
    expect(session).toBeInstanceOf(LanguageModel);
    for (const method of [
      'prompt',
      'promptStreaming',
      'append',
      'measureContextUsage',
      'measureInputUsage',
      'clone',
      'destroy',
    ])
      expect(session, method).toHaveProperty(method, expect.any(Function));
    for (const value of ['contextUsage', 'contextWindow', 'inputUsage', 'inputQuota', 'topK', 'temperature'])
      expect(session, value).toHaveProperty(value, expect.any(Number));
    expect([session.oncontextoverflow, session.onquotaoverflow]).toEqual([null, null]);
    expect((await create({ topK: 1.5, temperature: 0.5 })).topK).toBe(1);
    expect((await create({ initialPrompts: [] })).contextUsage).toBe(0);
    await create({ expectedInputs: [{ type: 'text', languages: ['EN'] }] });
  });
  test.each([
    [{ topK: 3 }, 'NotSupportedError'],
    [{ temperature: 0.5 }, 'NotSupportedError'],
    [{ expectedOutputs: [{ type: 'audio' }] }, 'NotSupportedError'],
    [{ topK: 3, temperature: -0.5 }, 'RangeError'],
    [{ topK: 0, temperature: 0.5 }, 'RangeError'],
    [{ topK: -2, temperature: 0.5 }, 'RangeError'],
    [{ expectedInputs: [{ type: 'text', languages: ['en-abc-invalid'] }] }, 'RangeError'],
    [{ initialPrompts: [user, system] }, 'TypeError'],
    [{ initialPrompts: [system, system, user] }, 'TypeError'],
    [{ initialPrompts: [{ role: 'user' }] }, 'TypeError'],
    [{ initialPrompts: ['x'] }, 'TypeError'],
  ])('refused: %j', async (options, name) => expect(create(options)).rejects.toEqual(named(name)));
  test('progress goes from 0 to 1 in steps of 1/65536, and none comes once it is there', async () => {
    const seen: number[] = [];
    let created = false;
    const monitor = (target: EventTarget): void =>
      target.addEventListener('downloadprogress', (event) => {
        const { loaded, total, lengthComputable } = event as ProgressEvent;
        expect([created, total, lengthComputable, loaded % (1 / 65_536)]).toEqual([false, 1, true, 0]);
        seen.push(loaded);
      });
    const loading = promptApi(async ({ onProgress }) => {
      for (const loadedBytes of [1, 2, 2, 6]) onProgress?.({ loadedBytes, totalBytes: 7 } as never);
      return model;
    });
    await loading.create({ monitor });
    created = true;
    expect([seen[0], seen.at(-1)]).toEqual([0, 1]);
    expect(seen).toEqual([...new Set(seen)].toSorted((a, b) => a - b));
    expect(seen).toHaveLength(5);
    const error = new Error('no');
    await expect(
      create({
        monitor: () => {
          throw error;
        },
      }),
    ).rejects.toBe(error);
    for (const part of [0, 1]) {
      const control = new AbortController();
      const seeing = (target: EventTarget): void =>
        target.addEventListener('downloadprogress', (event) => {
          if ((event as ProgressEvent).loaded === part) queueMicrotask(() => control.abort(error));
        });
      await expect(create({ monitor: seeing, signal: control.signal })).rejects.toBe(error);
    }
  });
});

describe('abort', () => {
  const ways: [string, (session: LanguageModelSession, signal: AbortSignal) => Promise<unknown>][] = [
    ['create', (_, signal) => create({ signal })],
    ['clone', (session, signal) => session.clone({ signal })],
    ['prompt', (session, signal) => session.prompt('x', { signal })],
    ['promptStreaming', async (session, signal) => all(session.promptStreaming('x', { signal }))],
    ['append', (session, signal) => session.append('x', { signal })],
    ['measureContextUsage', (session, signal) => session.measureContextUsage('x', { signal })],
    ['measureInputUsage', (session, signal) => session.measureInputUsage('x', { signal })],
  ];
  test.each(ways)('%s: in the same task, and by a signal that has fired', async (_, way) => {
    const session = await create();
    for (const reason of [undefined, new Error('mine')]) {
      const control = new AbortController();
      const running = way(session, control.signal);
      control.abort(reason);
      await expect(running).rejects.toBe(control.signal.reason);
      await expect(way(session, control.signal)).rejects.toBe(control.signal.reason);
    }
    expect(session.contextUsage).toBe(0);
  });
  test('promptStreaming throws at once where its signal has fired', async () => {
    const session = await create();
    expect(() => session.promptStreaming('x', { signal: AbortSignal.abort(new Error('gone')) })).toThrow('gone');
  });
  test('the signal of create ends the session, its methods reject with the reason', async () => {
    const control = new AbortController();
    const session = await create({ signal: control.signal });
    const error = new Error('over');
    const calls = ways.slice(1).map(([, way]) => way);
    const never = new AbortController().signal;
    const running = calls.map((call) => call(session, never));
    control.abort(error);
    const later = calls.map((call) => call(session, never));
    for (const promise of [...running, ...later]) await expect(promise).rejects.toBe(error);
  });
  test('destroy', async () => {
    const session = await create();
    const running = session.prompt('x');
    session.destroy();
    await expect(running).rejects.toEqual(named('InvalidStateError'));
    await expect(session.prompt('x')).rejects.toEqual(named('InvalidStateError'));
    expect([typeof session.contextWindow, typeof session.contextUsage]).toEqual(['number', 'number']);
  });
});

describe('prompt', () => {
  const inputs: [string, unknown][] = [
    ['', ''],
    ['undefined', undefined],
    ['null', null],
    ['[object Object]', {}],
    ['5', 5],
    ['', []],
    ['', [{ role: 'user', content: [] }]],
    ['', [{ role: 'user', content: '' }]],
    ['', [{ role: 'user', content: [{ type: 'text', value: '' }] }]],
    ['7', [{ role: 'user', content: [{ type: 'text', value: 7 }] }]],
    ['null', [{ role: 'user', content: null }]],
    ['ab', [{ role: 'user', content: ['a', 'b'].map((value) => ({ type: 'text', value })) }]],
    ['x', new Set([user])],
  ];
  test.each(inputs)('reads %j of %j as a browser does', async (text, input) => {
    const [one, other] = [await create(), await create()];
    const answer = await one.prompt(input as string, short);
    expect(answer).toBe(await other.prompt(text || ' ', short));
    expect(await all((await create()).promptStreaming(input as string, short))).toBe(answer);
    if (text !== '') expect(await one.measureContextUsage(input as string)).toBe(await one.measureContextUsage(text));
  });
  test.each([
    [[user, system], 'TypeError'],
    [[system, system], 'TypeError'],
    [[null], 'TypeError'],
    [[{ role: 'soup', content: 'x' }], 'TypeError'],
    [[{ role: 'user', content: [{ type: 'soup', value: 'x' }] }], 'TypeError'],
    [[{ role: 'user', content: [{ type: 'text' }] }], 'TypeError'],
    [[{ role: 'user', content: [{ type: 'text', value: new Blob([]) }] }], 'TypeError'],
    [[{ role: 'user', content: [{ type: 'image', value: new Blob([]) }] }], 'NotSupportedError'],
    [[{ ...user, prefix: true }], 'SyntaxError'],
    [[beginning('x'), user], 'SyntaxError'],
  ])('refuses %j', async (input, name) => {
    const session = await create();
    await expect(session.prompt(input as never)).rejects.toEqual(named(name));
    await expect(session.append(input as never)).rejects.toEqual(named(name));
  });
  test("a system's message may be the first of an empty session, and of no other", async () => {
    const session = await create();
    const said = session.prompt([system, user] as never, short);
    await expect(session.prompt([system] as never)).rejects.toThrow(TypeError);
    expect(await said).toBe(await (await create({ initialPrompts: [system] })).prompt('x', short));
    const appended = await create();
    await appended.append([system] as never);
    await expect(appended.append([system] as never)).rejects.toThrow(TypeError);
  });
  test('usage: what is appended counts, a prompt and its answer, what begins a session', async () => {
    const session = await create();
    expect(session.contextUsage).toBe(0);
    const usage = await session.measureContextUsage('who was it ?');
    expect(usage).toBeGreaterThan(0);
    await session.append([]);
    expect(session.contextUsage).toBe(0);
    await session.append('who was it ?');
    expect(session.contextUsage).toBe(usage);
    await session.append({} as never);
    expect(session.contextUsage).toBeGreaterThan(usage);
    const asked = await create();
    const answer = await asked.prompt('who was it ?', short);
    expect(Math.abs(asked.contextUsage - usage - (await asked.measureContextUsage(answer)))).toBeLessThanOrEqual(5);
    const begun = await create({ initialPrompts: [system] });
    expect(begun.contextUsage).toBe(await begun.measureContextUsage([system] as never));
    await expect(begun.measureContextUsage('x', { omitResponseConstraintInput: true })).rejects.toThrow(TypeError);
  });
  test('a clone has what the session has, and goes on by itself', async () => {
    const session = await create({ topK: 4, temperature: 0.5 });
    await session.prompt('x', short);
    const clone = await session.clone();
    expect(clone).toBeInstanceOf(LanguageModel);
    for (const key of ['inputUsage', 'inputQuota', 'topK', 'temperature', 'samplingMode'] as const)
      expect(clone[key], key).toBe(session[key]);
    await clone.prompt('x', short);
    expect(clone.inputUsage).toBeGreaterThan(session.inputUsage);
  });
  test('quota: too much is refused with its size, the oldest go where they may', async () => {
    const session = await create();
    const long = 'x '.repeat(CONTEXT);
    const requested = await session.measureContextUsage(long);
    const refused = expect.objectContaining({ name: 'QuotaExceededError', requested, quota: CONTEXT });
    await expect(session.prompt(long)).rejects.toEqual(refused);
    await expect(session.append(long)).rejects.toEqual(refused);
    const told: string[] = [];
    session.oncontextoverflow = ({ type }) => told.push(type);
    const half = 'x '.repeat(CONTEXT / 4);
    await session.prompt(half, short);
    expect(told).toEqual([]);
    await session.append('x '.repeat(CONTEXT / 3));
    expect(told).toEqual(['contextoverflow']);
    expect(session.contextUsage).toBeLessThanOrEqual(CONTEXT);
  });
});

describe('responseConstraint', () => {
  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  test.each([
    [cycle, 'NotSupportedError'],
    [{ type: 'soup' }, 'NotSupportedError'],
    [/a/i, 'NotSupportedError'],
    [null, 'TypeError'],
    ['x', 'TypeError'],
  ])('refused', async (responseConstraint, name) => {
    await expect((await create()).prompt('x', { responseConstraint } as never)).rejects.toEqual(named(name));
  });
  test.each([['{ "Rating": '], ['{'], ['{"Rating":1']])('a beginning %j is part of it', async (begun) => {
    const session = await create();
    const rest = await session.prompt([user, beginning(begun)] as never, { responseConstraint: rating });
    const { Rating } = JSON.parse(begun + rest) as { Rating: number };
    expect(Rating).toBeGreaterThanOrEqual(0);
    expect(Rating).toBeLessThanOrEqual(5);
  });
  test.each([
    [rating, 'prefix'],
    [/hello/, 'x'],
  ])('a beginning that it does not allow is refused', async (form, begun) => {
    const asked = (await create()).prompt([user, beginning(begun)] as never, { responseConstraint: form });
    await expect(asked).rejects.toEqual(named('NotSupportedError'));
  });
  test.each([/hello/, /[0-9]{1,3}\.[0-9]{2}/, /(yes|no)/, /[a-c]{2,3},[x-z]/, /https?:\/\/[a-z]{1,5}\.(com|org)/])(
    'the answer is of %s, also with a beginning',
    async (form) => {
      const session = await create();
      const whole = new RegExp(`^(${form.source})$`);
      const text = await session.prompt('x', { responseConstraint: form });
      expect(text).toMatch(whole);
      const begun = text.slice(0, 2);
      expect(begun + (await session.prompt([user, beginning(begun)] as never, { responseConstraint: form }))).toMatch(
        whole,
      );
    },
  );
});

describe('tools', () => {
  const tool = {
    name: 'look',
    description: 'looks',
    inputSchema: { type: 'object', properties: { at: { type: 'boolean' } }, required: ['at'] },
    execute: async () => 'a cat',
  };
  const cyclic: Record<string, unknown> = { type: 'object' };
  cyclic['self'] = cyclic;
  test.each([
    { name: '' },
    { description: '' },
    { inputSchema: undefined },
    { inputSchema: null },
    { inputSchema: 'x' },
    { inputSchema: {} },
    { inputSchema: { type: 'string' } },
    { inputSchema: { type: 'object', properties: 'x' } },
    { inputSchema: { type: 'object', required: 'x' } },
    { inputSchema: cyclic },
    { execute: undefined },
  ])('refused: %#', async (wrong) => {
    await expect(create({ tools: [{ ...tool, ...wrong }] })).rejects.toThrow(TypeError);
  });
  test('two of a name are refused, and what a schema throws is thrown', async () => {
    await expect(create({ tools: [tool, tool] })).rejects.toThrow(TypeError);
    const inputSchema = {
      toJSON() {
        throw new Error('mine');
      },
    };
    await expect(create({ tools: [{ ...tool, inputSchema }] })).rejects.toThrow('mine');
  });
  test('what is called is run, and the answer goes on with what it gives', async () => {
    // Random models call nothing by themselves.
    const sent: unknown[] = [];
    const over = <T extends object>(of: T, own: Partial<T>): T =>
      new Proxy(of, {
        get: (_, key) => {
          const value = own[key as keyof T] ?? of[key as keyof T];
          return typeof value === 'function' ? (value.bind(of) as unknown) : value;
        },
      });
    const forced = (talk: Conversation): Conversation =>
      over(talk, {
        fork: () => forced(talk.fork()),
        send: (content, options) => {
          sent.push(content);
          const asked = { toolChoice: 'required', parallelToolCalls: false } as const;
          return talk.send(content, { ...options, ...(typeof content === 'string' ? asked : { maxTokens: 4 }) });
        },
      });
    const calling = over(model, { conversation: (options) => forced(model.conversation(options)) });
    const given: unknown[] = [];
    const execute = async (args: unknown): Promise<string> => {
      given.push(args);
      if (given.length > 1) throw new Error('broken');
      return 'a cat';
    };
    const text = { type: 'text', languages: ['en'] };
    const [call, response] = ['tool-call', 'tool-response'].map((type) => ({ type }));
    const tools = [{ ...tool, execute }];
    // As the explainer has it.
    const expected = { expectedInputs: [text, response!], expectedOutputs: [text, call!] };
    await expect(create({ tools, expectedInputs: [call!] })).rejects.toMatchObject({ name: 'NotSupportedError' });
    await expect(create({ tools, expectedOutputs: [response!] })).rejects.toMatchObject({ name: 'NotSupportedError' });
    const session = await promptApi(calling).create({ tools, ...expected });
    const answer = await session.prompt('what is there ?');
    expect(given).toEqual([{ at: expect.any(Boolean) }]);
    expect(sent).toEqual(['what is there ?', [expect.objectContaining({ role: 'tool', content: 'a cat' })]]);
    expect(typeof answer).toBe('string');
    expect(session.contextUsage).toBeGreaterThan(0);
    await expect(session.prompt('and now ?')).rejects.toThrow('broken');
  });
});
