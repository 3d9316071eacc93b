import { embed, generateObject, generateText, streamText, tool } from 'ai';
import * as previous from 'ai-6';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { randomFiles } from '../../engine/testing/random_source.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { GenerateResult, Generation, GenerationDelta, Model, Prompt } from '../../index.js';
import { load } from '../../index.js';
import { createSplitkv } from './index.js';

const adapter = (await testAdapters()).at(-1)!.name;
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: 1024 } });
const animal = z.object({ name: z.string().max(5), wild: z.boolean() });

describe('the AI SDK over a model', () => {
  let model: Model;
  let loads = 0;
  const provider = createSplitkv(async () => {
    loads++;
    return model;
  });
  beforeAll(async () => {
    model = await load(files, { adapter, requests: 2 });
  });
  afterAll(() => model.dispose());
  const given = { model: provider('tiny'), prompt: 'the cat sat', seed: 4, temperature: 0.8, maxRetries: 0 };

  test('text, whole and streamed: the options of generate, usage, and why it ended', async () => {
    const messages = [
      { role: 'system' as const, content: 'say little' },
      { role: 'user' as const, content: 'the cat sat' },
    ];
    const expected = await model.generate({ messages }, { seed: 4, temperature: 0.8, topK: 9, maxTokens: 20 }).result;
    const asked = { ...given, instructions: 'say little', topK: 9, maxOutputTokens: 20 };
    const whole = await generateText(asked);
    expect(whole.text).toBe(expected.text);
    expect(whole.finishReason).toBe('length');
    expect(whole.usage).toMatchObject({
      inputTokens: expected.prompt_tokens,
      outputTokens: 20,
      totalTokens: expected.prompt_tokens + 20,
    });
    expect(whole.warnings ?? []).toEqual([]);
    const stream = streamText(asked);
    const pieces: string[] = [];
    for await (const piece of stream.textStream) pieces.push(piece);
    expect(pieces.join('')).toBe(expected.text);
    expect(pieces.length).toBeGreaterThan(1);
    expect(await stream.finishReason).toBe('length');
    expect(await stream.usage).toMatchObject({ outputTokens: 20 });
    const own = { splitkv: { choice: ['yes', 'no'] } };
    expect(['yes', 'no']).toContain((await generateText({ ...given, providerOptions: own })).text);
    expect(loads).toBe(1);
  });

  test('objects of a schema; vectors', async () => {
    const { object } = await generateObject({ ...given, schema: animal });
    expect(animal.parse(object)).toEqual(object);
    const { embedding, usage } = await embed({ model: provider.embeddingModel(), value: 'the cat', maxRetries: 0 });
    const { embeddings, prompt_tokens: tokens } = await model.embed(['the cat']);
    expect(embedding).toEqual([...embeddings[0]!]);
    expect(usage.tokens).toBe(tokens);
    const cut = { splitkv: { pooling: 'last', dimensions: 8 } };
    const short = await embed({ model: provider.embeddingModel(), value: 'the cat', providerOptions: cut });
    expect(short.embedding).toHaveLength(8);
  });

  test('aborting ends the answer; what can’t be read is refused', async () => {
    const long = { ...given, providerOptions: { splitkv: { ignoreEos: true } } };
    const leaving = new AbortController();
    const aborted = generateText({ ...long, abortSignal: leaving.signal });
    setTimeout(() => leaving.abort(), 20);
    await expect(aborted).rejects.toMatchObject({ name: 'AbortError' });
    const ends: string[] = [];
    const stopping = new AbortController();
    const stream = streamText({ ...long, abortSignal: stopping.signal, onAbort: () => void ends.push('abort') });
    for await (const _piece of stream.textStream) stopping.abort();
    expect(ends).toEqual(['abort']);
    const file = { type: 'file' as const, data: new Uint8Array([1]), mediaType: 'image/png' };
    await expect(
      generateText({ ...given, prompt: undefined as never, messages: [{ role: 'user', content: [file] }] }),
    ).rejects.toThrow('loaded for text alone');
    // Nothing of it is left.
    expect((await generateText({ ...given, maxOutputTokens: 2 })).usage.outputTokens).toBe(2);
    expect(() => provider.imageModel('x')).toThrow('no models of images');
  });
});

/** A model of which only the answers exist: tools are called as it is told. */
function answering(answers: readonly (readonly GenerationDelta[])[]): {
  readonly model: Model;
  readonly asked: [Prompt, object][];
} {
  const asked: [Prompt, object][] = [];
  const generate = (prompt: Prompt, options: object): Generation => {
    const deltas = answers[asked.length]!;
    asked.push([prompt, options]);
    const calls = deltas.flatMap(({ toolCalls = [] }) => toolCalls);
    const ids = calls.filter(({ id }) => id !== undefined);
    const result = {
      text: deltas.map(({ text }) => text).join(''),
      reasoning: deltas.map(({ reasoning = '' }) => reasoning).join(''),
      tool_calls: ids.map(({ id, name, index }) => ({
        id: id!,
        type: 'function',
        function: {
          name: name!,
          arguments: calls
            .filter((call) => call.index === index)
            .map((call) => call.arguments)
            .join(''),
        },
      })),
      tokens: [1, 2, 3],
      reasoning_tokens: 1,
      prompt_tokens: 5,
      finish_reason: ids.length > 0 ? 'tool_calls' : 'stop',
      finish_detail: 'eos',
      stats: { cached_tokens: 2 },
    } as unknown as GenerateResult;
    return {
      result: Promise.resolve(result),
      deltas: async function* () {
        yield* deltas;
      },
    } as unknown as Generation;
  };
  return { model: { info: { name: 'told', contextLength: 64, sampling: {} }, generate } as unknown as Model, asked };
}

const calling: GenerationDelta[] = [
  { text: '', reasoning: 'let me ' },
  { text: 'I look.', reasoning: 'see' },
  { text: '', toolCalls: [{ index: 0, id: 'call_a', name: 'weather', arguments: '' }] },
  {
    text: '',
    toolCalls: [
      { index: 0, arguments: '{"city":' },
      { index: 0, arguments: ' "Rome"}' },
    ],
  },
  { text: '', toolCalls: [{ index: 1, id: 'call_b', name: 'weather', arguments: '{"city": "Oslo"}' }] },
];
const tools = {
  weather: tool({
    description: 'of a city',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => ({ city, degrees: city.length }),
  }),
};

describe('tools and thoughts', () => {
  const stopWhen = ({ steps }: { readonly steps: readonly unknown[] }): boolean => steps.length >= 2;

  test('are called, and their results told', async () => {
    const { model, asked } = answering([calling, [{ text: 'Warm.' }]]);
    const whole = await generateText({ model: createSplitkv(model)(), prompt: 'warm ?', tools, stopWhen });
    expect(whole.text).toBe('Warm.');
    expect(whole.steps[0]!.toolCalls).toMatchObject([
      { toolCallId: 'call_a', toolName: 'weather', input: { city: 'Rome' } },
      { toolCallId: 'call_b', toolName: 'weather', input: { city: 'Oslo' } },
    ]);
    expect(whole.steps[0]!.reasoningText).toBe('let me see');
    expect(whole.steps[0]!.finishReason).toBe('tool-calls');
    expect(asked[0]![1]).toMatchObject({
      tools: [
        { type: 'function', function: { name: 'weather', description: 'of a city', parameters: { type: 'object' } } },
      ],
      toolChoice: 'auto',
    });
    const call = (id: string, city: string): object => ({
      id,
      type: 'function',
      function: { name: 'weather', arguments: JSON.stringify({ city }) },
    });
    expect(asked[1]![0]).toMatchObject({
      messages: [
        { role: 'user', content: 'warm ?' },
        {
          role: 'assistant',
          content: 'I look.',
          reasoning_content: 'let me see',
          tool_calls: [call('call_a', 'Rome'), call('call_b', 'Oslo')],
        },
        { role: 'tool', tool_call_id: 'call_a', name: 'weather', content: '{"city":"Rome","degrees":4}' },
        { role: 'tool', tool_call_id: 'call_b', name: 'weather', content: '{"city":"Oslo","degrees":4}' },
      ],
    });
  });

  test('are called by the previous major version of the SDK, too', async () => {
    const { model, asked } = answering([calling, [{ text: 'Warm.' }], [{ text: 'Hot', reasoning: 'so' }]]);
    const own = createSplitkv(model, { specification: 'v3' });
    const whole = await previous.generateText({
      model: own() as previous.LanguageModel,
      prompt: 'warm ?',
      tools: tools as never,
      stopWhen,
    });
    expect(whole.text).toBe('Warm.');
    expect(whole.steps[0]!.toolCalls).toMatchObject([{ toolCallId: 'call_a' }, { input: { city: 'Oslo' } }]);
    expect(whole.totalUsage).toMatchObject({ inputTokens: 10, outputTokens: 6 });
    const stream = previous.streamText({ model: own.languageModel('b') as previous.LanguageModel, prompt: 'warm ?' });
    expect([await stream.text, await stream.reasoningText]).toEqual(['Hot', 'so']);
    expect(asked).toHaveLength(3);
  });

  test('recordings of a question', async () => {
    const { model, asked } = answering([[{ text: 'hello' }]]);
    const file = { type: 'file' as const, data: 'UklGRg==', mediaType: 'audio/wav' };
    await generateText({ model: createSplitkv(model)(), messages: [{ role: 'user', content: [file] }] });
    expect(asked[0]![0]).toMatchObject({
      messages: [{ content: [{ type: 'audio', audio: 'data:audio/wav;base64,UklGRg==' }] }],
    });
  });

  test('images that a tool gave back', async () => {
    const { model, asked } = answering([[{ text: 'a cat' }]]);
    const png = { mediaType: 'image/png', data: 'iVBORw0KGgo=' };
    const text = { type: 'text' as const, text: 'seen' };
    const value = [
      text,
      { type: 'file' as const, mediaType: png.mediaType, data: { type: 'data' as const, data: png.data } },
    ];
    const call = { toolCallId: 'a', toolName: 'look' };
    const told = (...parts: typeof value) =>
      createSplitkv(model)().doGenerate({
        prompt: [
          { role: 'user', content: [text] },
          { role: 'assistant', content: [{ type: 'tool-call', ...call, input: {} }] },
          { role: 'tool', content: [{ type: 'tool-result', ...call, output: { type: 'content', value: parts } }] },
        ],
      });
    await told(...value);
    expect(asked[0]![0]).toMatchObject({
      messages: [
        {},
        {},
        { role: 'tool', content: [text, { type: 'image', image: `data:image/png;base64,${png.data}` }] },
      ],
    });
    await expect(told({ type: 'custom' } as never)).rejects.toThrow("of type 'custom'");
  });

  test('images of a question, in the forms that both versions have', async () => {
    const answers = Array.from({ length: 4 }, () => [{ text: 'a cat' }]);
    const { model, asked } = answering(answers);
    const png = 'iVBORw0KGgo=';
    const bytes = Uint8Array.from(Buffer.from(png, 'base64'));
    const ask = (...given: readonly object[]) => ({
      messages: [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'what?' }, ...given] as never }],
      maxRetries: 0,
    });
    await generateText({ model: createSplitkv(model)(), ...ask({ type: 'image', image: bytes }) });
    await generateText({ model: createSplitkv(model)(), ...ask({ type: 'file', data: png, mediaType: 'image/png' }) });
    const own = createSplitkv(model, { specification: 'v3' })() as previous.LanguageModel;
    await previous.generateText({ model: own, ...ask({ type: 'image', image: bytes }) });
    await previous.generateText({ model: own, ...ask({ type: 'file', data: png, mediaType: 'image/png' }) });
    for (const [prompt] of asked) {
      const { content } = (prompt as unknown as { messages: [{ content: [object, { image: Uint8Array | string }] }] })
        .messages[0];
      expect(content[0]).toMatchObject({ type: 'text', text: 'what?' });
      const { image } = content[1];
      expect(typeof image === 'string' ? image : Buffer.from(image).toString('base64')).toMatch(
        typeof image === 'string' ? `data:image/png;base64,${png}` : png,
      );
    }
    const text = generateText({
      model: createSplitkv(model)(),
      ...ask({ type: 'file', data: 'JVBERi0xLjQ=', mediaType: 'application/pdf' }),
    });
    await expect(text).rejects.toThrow("of type 'file, application/pdf'");
  });

  test('come as parts of a stream that begin and end', async () => {
    const { model } = answering([calling]);
    const { stream } = await createSplitkv(model)().doStream({
      prompt: [{ role: 'user', content: [{ type: 'text', text: 'warm ?' }] }],
      toolChoice: { type: 'tool', toolName: 'weather' },
      tools: [{ type: 'function', name: 'weather', inputSchema: { type: 'object' } }],
      reasoning: 'none',
    });
    const parts: unknown[] = [];
    const reader = stream.getReader();
    for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
    expect(parts.slice(2)).toMatchObject([
      { type: 'reasoning-start', id: 'reasoning-0' },
      { type: 'reasoning-delta', delta: 'let me ' },
      { type: 'reasoning-delta', delta: 'see' },
      { type: 'reasoning-end', id: 'reasoning-0' },
      { type: 'text-start', id: 'text-1' },
      { type: 'text-delta', delta: 'I look.' },
      { type: 'text-end', id: 'text-1' },
      { type: 'tool-input-start', id: 'call_a', toolName: 'weather' },
      { type: 'tool-input-delta', delta: '{"city":' },
      { type: 'tool-input-delta', delta: ' "Rome"}' },
      { type: 'tool-input-end', id: 'call_a' },
      { type: 'tool-call', toolCallId: 'call_a', input: '{"city": "Rome"}' },
      { type: 'tool-input-start', id: 'call_b' },
      { type: 'tool-input-delta', delta: '{"city": "Oslo"}' },
      { type: 'tool-input-end', id: 'call_b' },
      { type: 'tool-call', toolCallId: 'call_b', input: '{"city": "Oslo"}' },
      {
        type: 'finish',
        finishReason: { unified: 'tool-calls', raw: 'eos' },
        usage: {
          inputTokens: { total: 5, cacheRead: 2, noCache: 3 },
          outputTokens: { total: 3, text: 2, reasoning: 1 },
        },
      },
    ]);
  });
});
