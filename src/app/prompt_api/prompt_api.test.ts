import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { randomFiles } from '../../engine/testing/random_source.js';
import { load, type LoadOptions, type Model } from '../../index.js';
import { type LanguageModelClass, type LanguageModelImage, type LanguageModelMessage, promptApi } from './index.js';

const adapter = (await testAdapters()).at(-1)!.name;
const CONTEXT = 512;
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: CONTEXT } });
const user = (content: string): LanguageModelMessage => ({ role: 'user', content });
const assistant = (content: string): LanguageModelMessage => ({ role: 'assistant', content });
/** Random models end no answer by themselves. */
const few = /[a-z]{3,6}/;

describe('LanguageModel over a model', () => {
  let model: Model;
  let LanguageModel: LanguageModelClass;
  beforeAll(async () => {
    model = await load(files, { adapter, requests: 2 });
    LanguageModel = promptApi(model);
  });
  afterAll(() => model.dispose());

  /** A conversation's answer, with these turns before it. */
  const expected = async (
    question: string,
    system?: string,
    turns: readonly [string, string][] = [],
  ): Promise<string> => {
    const saved = model.conversation(system === undefined ? {} : { system }).save();
    const restore = { ...saved, turns: turns.map(([asked, answer]) => ({ user: asked, answer, tokens: [] })) };
    return (await model.conversation({ restore }).send(question, { regex: few.source }).result).text;
  };
  const tokens = (messages: readonly LanguageModelMessage[]): number =>
    model.tokenize({ messages: messages as never }, { addGenerationPrompt: false }).length;

  test('sessions hold what was said: prompts, streams, appended messages, clones', async () => {
    const first = { role: 'system' as const, content: 'say little' };
    const session = await LanguageModel.create({ initialPrompts: [first, user('a'), assistant('b'), user('c')] });
    expect(session.contextUsage).toBe(tokens([first, user('a'), assistant('b'), user('c')]));
    await session.append([{ role: 'user', content: [{ type: 'text', value: 'd' }] }]);
    const asked = [first, user('a'), assistant('b'), user('c\n\nd\n\nwho ?')];
    const grows = await session.measureContextUsage('who ?');
    expect(session.contextUsage + grows).toBe(tokens(asked));
    const answer = await session.prompt('who ?', { responseConstraint: few });
    expect(answer).toBe(await expected('c\n\nd\n\nwho ?', first.content, [['a', 'b']]));
    const other = await session.clone();
    const said = [...asked, assistant(answer)];
    expect(session.contextUsage).toBeGreaterThanOrEqual(tokens(said) - 4);
    let streamed = '';
    const reader = session.promptStreaming('why ?', { responseConstraint: few }).getReader();
    for (let next = await reader.read(); !next.done; next = await reader.read()) streamed += next.value;
    expect(streamed).toMatch(/^[a-z]{3,6}$/);
    // The clone knows nothing of it; what is asked at once is answered in turn.
    const [again, third] = await Promise.all([
      other.prompt('why ?', { responseConstraint: few }),
      other.prompt('when ?', {
        responseConstraint: { type: 'array', items: { type: 'boolean' }, minItems: 1, maxItems: 3 },
      }),
    ]);
    expect(again).toBe(streamed);
    expect((JSON.parse(third) as unknown[]).length).toBeGreaterThan(0);
  });

  test('an answer goes on from a beginning that is given', async () => {
    const begun = { ...assistant('it is '), prefix: true };
    const session = await LanguageModel.create({ initialPrompts: [user('a'), assistant('b')] });
    const rest = await session.prompt([user('what ?'), begun], { responseConstraint: /it is [a-z]{3,6}/ });
    expect(rest).toMatch(/^[a-z]{3,6}$/);
    const told = [user('a'), assistant('b'), user('what ?'), assistant(`it is ${rest}`)];
    // The beginning is tokens of its own.
    expect(Math.abs(session.contextUsage - tokens(told))).toBeLessThan(8);
    expect(await session.prompt('why ?', { responseConstraint: few })).toMatch(/^[a-z]{3,6}$/);
    await expect(session.append([begun])).rejects.toMatchObject({ name: 'NotSupportedError' });
  });

  test('what fails, is aborted or left has not been said', async () => {
    const session = await LanguageModel.create({ topK: 1, temperature: 0 });
    const { contextUsage } = session;
    const leaving = new AbortController();
    const aborted = session.prompt('tell me', { signal: leaving.signal });
    const waiting = session.prompt('x', { signal: leaving.signal });
    setTimeout(() => leaving.abort(new Error('enough')), 30);
    await expect(aborted).rejects.toThrow('enough');
    await expect(waiting).rejects.toThrow('enough');
    const stream = session.promptStreaming('tell me').getReader();
    await stream.read();
    await stream.cancel();
    expect(session.contextUsage).toBe(contextUsage);
    expect(await session.prompt('who ?', { responseConstraint: few })).toBe(await expected('who ?'));
    const wrong: [unknown, object, object][] = [
      [[{ role: 'system', content: 'x' }], {}, { name: 'TypeError' }],
      [[{ role: 'user', content: [{ type: 'image', value: new Blob() }] }], {}, { name: 'NotSupportedError' }],
      [[{ role: 'user', content: 'x', prefix: true }], {}, { name: 'SyntaxError' }],
      [[{ role: 'assistant', content: 'x', prefix: true }, user('y')], {}, { name: 'SyntaxError' }],
      [[assistant('x')], {}, { name: 'TypeError' }],
      [[{ role: 'tool', content: 'x' }], {}, { name: 'TypeError' }],
      ['x', { responseConstraint: /a/i }, { name: 'NotSupportedError' }],
      ['x', { responseConstraint: { type: 'string', contentSchema: {} } }, { name: 'NotSupportedError' }],
      ['x '.repeat(CONTEXT), {}, { name: 'QuotaExceededError', quota: CONTEXT }],
    ];
    for (const [input, options, told] of wrong) {
      await expect(session.prompt(input as string, options), JSON.stringify(told)).rejects.toMatchObject(told);
    }
    await expect(session.append('x '.repeat(CONTEXT))).rejects.toMatchObject({ name: 'QuotaExceededError' });
    const running = session.prompt('tell me');
    setTimeout(() => session.destroy(), 30);
    await expect(running).rejects.toMatchObject({ name: 'InvalidStateError' });
    await expect(session.prompt('x')).rejects.toMatchObject({ name: 'InvalidStateError' });
    await expect(LanguageModel.create({ initialPrompts: [user('x '.repeat(CONTEXT))] })).rejects.toMatchObject({
      name: 'QuotaExceededError',
    });
    await expect(
      LanguageModel.create({ initialPrompts: [user('x'), { role: 'system', content: 'x' }] }),
    ).rejects.toThrow(TypeError);
    await expect(LanguageModel.create({ expectedInputs: [{ type: 'image' }] })).rejects.toMatchObject({
      name: 'NotSupportedError',
    });
    await expect(LanguageModel.create({ temperature: -1, topK: 1 })).rejects.toThrow(RangeError);
    await expect(LanguageModel.create({ signal: AbortSignal.abort(new Error('no')) })).rejects.toThrow('no');
  });

  test('a full context: the oldest turns go, and the session tells', async () => {
    const session = await LanguageModel.create({ initialPrompts: [{ role: 'system', content: 'say little' }] });
    const told: string[] = [];
    session.oncontextoverflow = ({ type }) => told.push(type);
    session.addEventListener('quotaoverflow', ({ type }) => told.push(type));
    for (let turn = 0; turn < 4; turn++) {
      await session.prompt(`${turn} `.repeat(70), { responseConstraint: few });
      expect(session.contextUsage).toBeLessThanOrEqual(session.contextWindow);
    }
    expect(told.slice(0, 2)).toEqual(['contextoverflow', 'quotaoverflow']);
    session.oncontextoverflow = null;
    expect(session.oncontextoverflow).toBeNull();
  });
});

test('the model is loaded when a session is asked for, once, and its progress told', async () => {
  let loads = 0;
  const LanguageModel = promptApi(async (options) => {
    loads++;
    if (loads === 1) throw new Error('no network');
    return load(files, { adapter, ...options });
  });
  expect(await LanguageModel.availability()).toBe('downloadable');
  expect(await LanguageModel.availability({ expectedOutputs: [{ type: 'audio' }] })).toBe('unavailable');
  expect(await LanguageModel.params()).toBeNull();
  await expect(LanguageModel.create()).rejects.toMatchObject({ name: 'OperationError', message: 'no network' });
  const progress: number[] = [];
  const monitor = (target: EventTarget): void =>
    target.addEventListener('downloadprogress', (event) => progress.push((event as ProgressEvent).loaded));
  const creating = [
    LanguageModel.create({ monitor, samplingMode: 'most-predictable' }),
    LanguageModel.create({ topK: 5, temperature: 9 }),
  ];
  expect(await LanguageModel.availability()).toBe('downloading');
  const [one, two] = await Promise.all(creating);
  expect(loads).toBe(2);
  expect(await LanguageModel.availability()).toBe('available');
  expect([progress[0], progress.at(-1)]).toEqual([0, 1]);
  expect(progress).toEqual(progress.toSorted((a, b) => a - b));
  expect(one).toMatchObject({ temperature: 0, samplingMode: 'most-predictable', contextWindow: CONTEXT });
  expect(two).toMatchObject({ temperature: 2, topK: 5 });
  expect(await LanguageModel.params()).toMatchObject({ maxTemperature: 2 });
});

describe('pictures', () => {
  const picture = async (red: number): Promise<Uint8Array<ArrayBuffer>> => {
    const pixels = Buffer.alloc(96 * 96 * 3, 200).fill(red, 0, 4000);
    return new Uint8Array(
      await sharp(pixels, { raw: { width: 96, height: 96, channels: 3 } })
        .png()
        .toBuffer(),
    );
  };
  const loaded: Model[] = [];
  const source = async (options: LoadOptions): Promise<Model> => {
    const model = await load('models/tiny-vlm', { adapter, contextLength: 256, ...options });
    loaded.push(model);
    return model;
  };
  afterAll(() => Promise.all(loaded.map((model) => model.dispose())));
  const images = { expectedInputs: [{ type: 'image' }] };
  const form = { responseConstraint: /[a-z]{3,6}/ };

  test('are asked about where a session expects them, with the answers of a conversation', async () => {
    const LanguageModel = promptApi(source);
    expect(await LanguageModel.availability(images)).toBe('downloadable');
    const [one, two] = [await picture(10), await picture(250)];
    const shown = (value: LanguageModelImage, text: string): LanguageModelMessage => ({
      role: 'user',
      content: [
        { type: 'image', value },
        { type: 'text', value: text },
      ],
    });
    const parts = (image: Uint8Array, text: string) => [
      { type: 'image' as const, image },
      { type: 'text' as const, text },
    ];
    const session = await LanguageModel.create({ ...images, initialPrompts: [shown(new Blob([one]), 'what ?')] });
    const [model] = loaded;
    const talk = model!.conversation();
    const both = [...parts(one, 'what ?'), { type: 'text' as const, text: '\n\n' }, ...parts(two, 'and here ?')];
    expect(session.contextUsage).toBe(
      (
        await model!.readPrompt(
          { messages: [{ role: 'user', content: parts(one, 'what ?') }] },
          {
            addGenerationPrompt: false,
          },
        )
      ).length,
    );
    expect(await session.measureContextUsage([shown(two, 'and here ?')])).toBeGreaterThan(16);
    const expected = await talk.send(both, { regex: '[a-z]{3,6}' }).result;
    const other = await session.clone();
    expect(await session.prompt([shown(two.buffer, 'and here ?')], form)).toBe(expected.text);
    expect(session.contextUsage).toBe(expected.prompt_tokens + expected.tokens.length);
    const next = (await talk.send('why ?', { regex: '[a-z]{3,6}' }).result).text;
    expect(await session.prompt('why ?', form)).toBe(next);
    // Its clone has seen the first picture alone; what is begun goes on.
    await other.append([{ role: 'assistant', content: 'a ball' }, shown(two, 'and here ?')]);
    const begun = { role: 'assistant' as const, content: 'a ', prefix: true };
    expect(await other.prompt([begun], { responseConstraint: /a [a-z]{3}/ })).toMatch(/^[a-z]{3}$/);
    await expect(other.prompt([shown(Uint8Array.of(1, 2, 3), '?')])).rejects.toMatchObject({
      name: 'NotSupportedError',
    });
    await expect(other.prompt([shown('x' as never, '?')])).rejects.toThrow(TypeError);
    const many = Array.from({ length: 30 }, () => shown(one, 'what ?'));
    await expect(other.prompt(many)).rejects.toMatchObject({ name: 'QuotaExceededError', quota: 256 });
    await expect(other.prompt([{ ...shown(one, 'x'), role: 'assistant' }, shown(one, 'x')])).rejects.toMatchObject({
      name: 'NotSupportedError',
    });
    const plain = await LanguageModel.create();
    await expect(plain.prompt([shown(one, 'what ?')])).rejects.toMatchObject({ name: 'NotSupportedError' });
    await expect(LanguageModel.create({ expectedInputs: [{ type: 'audio' }] })).rejects.toMatchObject({
      name: 'NotSupportedError',
    });
  }, 120_000);

  test('are refused by a model that was loaded without', async () => {
    const LanguageModel = promptApi(await source({}));
    expect(await LanguageModel.availability(images)).toBe('unavailable');
    await expect(LanguageModel.create(images)).rejects.toMatchObject({ name: 'NotSupportedError' });
  });
});
