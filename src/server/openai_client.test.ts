import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import type { ServingModel } from '../index.js';
import type { ApiServer, ServerOptions } from './api_server.js';
import { CONTEXT, openTestModel, startTestServer } from './testing/test_server.js';
import { until } from './testing/until.js';

let model: ServingModel;
let server: ApiServer;
let client: OpenAI;
beforeAll(async () => {
  model = await openTestModel();
});
afterAll(() => model.dispose());

async function start(options: ServerOptions = {}, apiKey = 'any'): Promise<void> {
  server = await startTestServer(model, options);
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
}
afterEach(async () => {
  await until(() => model.metrics.unfinished === 0 && server.live === 0);
  await server.close();
});

const messages = [{ role: 'user' as const, content: 'the cat sat on the mat' }];
const sampling = { model: 'tiny', temperature: 0.8, top_p: 0.9, seed: 4 };

/** What the model says without HTTP. */
async function expected(
  prompt: Parameters<ServingModel['complete']>[0],
  options: Parameters<ServingModel['complete']>[1],
): Promise<string> {
  let all = '';
  for await (const { text } of model.complete(prompt, { temperature: 0.8, topP: 0.9, seed: 4, ...options }))
    all += text;
  return all;
}

describe('the official openai client', () => {
  test('answers parsed by a schema, whole, several and streamed; a schema that can’t be held to is refused', async () => {
    await start();
    const animal = z.object({
      name: z.string().max(5),
      age: z.int().min(0).max(99),
      wild: z.boolean(),
      born: z.iso.date(),
    });
    const request = { ...sampling, messages, response_format: zodResponseFormat(animal, 'animal'), max_tokens: 900 };
    const parsed = await client.chat.completions.parse({ ...request, n: 2 });
    for (const { message, finish_reason: finish } of parsed.choices) {
      expect(finish).toBe('stop');
      expect(animal.parse(message.parsed)).toEqual(JSON.parse(message.content!));
    }
    const stream = client.chat.completions.stream(request);
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]!.message.content).toBe(parsed.choices[0]!.message.content);
    const json = await client.chat.completions.create({
      ...request,
      response_format: { type: 'json_object' },
      max_tokens: 3,
    });
    expect(json.choices[0]).toMatchObject({
      finish_reason: 'length',
      message: { content: expect.stringMatching(/^\{/) as string },
    });
    // As vLLM's clients say it.
    const more = { guided_choice: ['yes', 'no'] };
    const text = await client.completions.create({
      ...more,
      ...sampling,
      prompt: 'the',
      max_tokens: 50,
    });
    expect(['yes', 'no']).toContain(text.choices[0]!.text);
    await expect(
      client.chat.completions.create({
        ...sampling,
        messages,
        response_format: {
          type: 'json_schema',
          json_schema: { name: 'a', schema: { type: 'string', contentSchema: {} } },
        },
      }),
    ).rejects.toMatchObject({ status: 400, message: expect.stringContaining('contentSchema') as string });
  });

  test('chat, whole and streamed', async () => {
    await start();
    const text = await expected({ messages }, { maxTokens: 24 });
    const whole = await client.chat.completions.create({ ...sampling, messages, max_tokens: 24 });
    expect(whole).toMatchObject({
      object: 'chat.completion',
      model: 'tiny',
      choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'length', logprobs: null }],
    });
    expect(whole.id).toMatch(/^chatcmpl-/);
    expect(whole._request_id).toMatch(/^req_/);
    const { usage } = whole;
    expect(usage!.completion_tokens).toBe(24);
    expect(usage!.total_tokens).toBe(usage!.prompt_tokens + 24);

    const stream = await client.chat.completions.create({
      ...sampling,
      messages,
      max_completion_tokens: 24,
      stream: true,
      stream_options: { include_usage: true },
    });
    let streamed = '';
    const chunks = [];
    for await (const chunk of stream) {
      chunks.push(chunk);
      streamed += chunk.choices[0]?.delta.content ?? '';
    }
    expect(streamed).toBe(text);
    expect(chunks[0]!.choices[0]!.delta.role).toBe('assistant');
    expect(chunks.at(-2)!.choices[0]!.finish_reason).toBe('length');
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage });
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
    expect(chunks.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
  });

  test('tools of a chat: required, named, streamed, run, and what they gave told back', async () => {
    await start();
    const parameters = {
      type: 'object',
      properties: { city: { enum: ['Rome', 'Oslo'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
      required: ['city', 'days'],
      additionalProperties: false,
    };
    const weather = { type: 'function' as const, function: { name: 'weather', description: 'of a city', parameters } };
    const none = { type: 'object', properties: {}, additionalProperties: false };
    const clock = { type: 'function' as const, function: { name: 'clock', parameters: none } };
    const request = { ...sampling, messages, tools: [weather, clock], max_tokens: 400 };
    const valid = ({ name, arguments: args }: { name: string; arguments: string }): void => {
      expect(['weather', 'clock']).toContain(name);
      const read = JSON.parse(args) as Record<string, unknown>;
      if (name === 'clock') return expect(read).toEqual({});
      expect(Object.keys(read).toSorted()).toEqual(['city', 'days']);
      expect(['Rome', 'Oslo']).toContain(read['city']);
      expect(read['days']).toBeOneOf([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    };
    const functions = (calls: readonly OpenAI.ChatCompletionMessageToolCall[] | undefined) =>
      calls!.map((call) => (call as OpenAI.ChatCompletionMessageFunctionToolCall).function);
    for (const parallel of [false, true]) {
      const asked = { ...request, tool_choice: 'required' as const, parallel_tool_calls: parallel };
      const { choices, usage } = await client.chat.completions.create(asked);
      const { message, finish_reason: finish } = choices[0]!;
      expect([message.content, finish]).toEqual([null, 'tool_calls']);
      const called = functions(message.tool_calls);
      for (const each of called) valid(each);
      if (!parallel) expect(called).toHaveLength(1);
      expect(usage!.completion_tokens_details?.reasoning_tokens).toBe(0);
      const stream = client.chat.completions.stream(asked);
      const streamed = (await stream.finalChatCompletion()).choices[0]!;
      expect(functions(streamed.message.tool_calls)).toMatchObject(called);
      expect(streamed.finish_reason).toBe('tool_calls');
      // The Python client adds up deltas of the first chunk only where each call has one of them.
      for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
        const told = chunk.choices[0]!.delta.tool_calls?.map(({ index }) => index) ?? [];
        expect(new Set(told).size).toBe(told.length);
      }
    }

    const named = { type: 'function' as const, function: { name: 'weather' } };
    const { choices } = await client.chat.completions.create({ ...request, tool_choice: named });
    const [call] = choices[0]!.message.tool_calls!;
    expect(functions([call!])[0]!.name).toBe('weather');
    const ran: unknown[] = [];
    const runner = client.chat.completions.runTools({
      ...request,
      tool_choice: named,
      tools: [
        {
          type: 'function',
          function: {
            ...weather.function,
            parse: JSON.parse as (text: string) => object,
            function: (args: object) => {
              ran.push(args);
              return 'warm';
            },
          },
        },
      ],
    });
    await runner.done();
    expect(ran).toHaveLength(1);
    valid({ name: 'weather', arguments: JSON.stringify(ran[0]) });

    const told = [...messages, choices[0]!.message, { role: 'tool' as const, tool_call_id: call!.id, content: 'warm' }];
    const after = await client.chat.completions.create({
      ...request,
      messages: told,
      max_tokens: 8,
      tool_choice: 'none',
    });
    expect(after.choices[0]!.message.tool_calls).toBeUndefined();
    expect(after.usage!.prompt_tokens).toBeGreaterThan(20);
    await expect(
      client.chat.completions.create({ ...request, tool_choice: { type: 'function', function: { name: 'nosuch' } } }),
    ).rejects.toMatchObject({ status: 400, message: expect.stringContaining('nosuch') as string });
  });

  test('responses: whole, streamed, parsed, and going on from those before', async () => {
    await start();
    const request = { model: 'tiny', temperature: 0.8, top_p: 0.9, seed: 4, max_output_tokens: 24 };
    const system = { role: 'system' as const, content: 'say little' };
    const text = await expected({ messages }, { maxTokens: 24 });
    const input = messages[0]!.content;
    const whole = await client.responses.create({ ...request, input, metadata: { a: 'b' } });
    expect(whole).toMatchObject({
      object: 'response',
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output_text: text,
      metadata: { a: 'b' },
      previous_response_id: null,
      output: [{ type: 'message', status: 'incomplete', role: 'assistant' }],
      usage: { output_tokens: 24, total_tokens: whole.usage!.input_tokens + 24 },
    });
    const events = [];
    for await (const event of await client.responses.create({ ...request, input, stream: true })) events.push(event);
    const types = events.map(({ type }) => type);
    const deltas = types.filter((type) => type === 'response.output_text.delta');
    expect(deltas.length).toBeGreaterThan(1);
    expect(types).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      ...deltas,
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.incomplete',
    ]);
    expect(events.map((event) => event.sequence_number)).toEqual([...events.keys()]);
    const helped = await client.responses.stream({ ...request, input }).finalResponse();
    expect(helped.output_text).toBe(text);

    // What was said before goes before; instructions count for one response alone.
    const next = { role: 'user' as const, content: 'and then?' };
    const answer = { role: 'assistant' as const, content: text };
    const goesOn = await client.responses.create({
      ...request,
      input: [next],
      instructions: system.content,
      previous_response_id: whole.id,
    });
    const all = [...messages, answer, next];
    expect(goesOn.output_text).toBe(await expected({ messages: [system, ...all] }, { maxTokens: 24 }));
    const third = await client.responses.create({
      ...request,
      input: [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'why?' }] }],
      previous_response_id: goesOn.id,
      store: false,
    });
    const later = [...all, { ...answer, content: goesOn.output_text }, { ...next, content: 'why?' }];
    expect(third.output_text).toBe(await expected({ messages: later }, { maxTokens: 24 }));

    // Long inputs are read in a thread of their own.
    const much = `${input} `.repeat(70);
    const far = await client.responses.create({ ...request, input: much, previous_response_id: whole.id });
    const messagesFar = [...messages, answer, { ...next, content: much }];
    expect(far.output_text).toBe(await expected({ messages: messagesFar }, { maxTokens: 24 }));

    const { _request_id: _, ...stored } = await client.responses.retrieve(goesOn.id);
    expect(stored.output_text).toBe(goesOn.output_text);
    expect((await client.responses.inputItems.list(goesOn.id)).data).toMatchObject([next]);
    await client.responses.delete(goesOn.id);
    await expect(client.responses.retrieve(goesOn.id)).rejects.toThrow(OpenAI.NotFoundError);
    await expect(client.responses.retrieve(third.id)).rejects.toThrow(OpenAI.NotFoundError);
    await expect(client.responses.create({ ...request, input, previous_response_id: goesOn.id })).rejects.toMatchObject(
      { status: 400, code: 'previous_response_not_found', param: 'previous_response_id' },
    );

    const shape = z.object({ yes: z.boolean(), words: z.array(z.string().max(3)).max(2) });
    const parsed = await client.responses.parse({
      ...request,
      max_output_tokens: 200,
      input,
      text: { format: zodTextFormat(shape, 'shape') },
      include: ['message.output_text.logprobs'],
      top_logprobs: 1,
    });
    expect(parsed.status).toBe('completed');
    expect(shape.parse(parsed.output_parsed)).toEqual(JSON.parse(parsed.output_text));
    const [part] = (parsed.output[0] as { content: { logprobs: { bytes: number[] }[] }[] }).content;
    expect(Buffer.from(part!.logprobs.flatMap(({ bytes }) => bytes)).toString()).toBe(parsed.output_text);
    for (const [wrong, told] of [
      [{ input: [] }, { param: 'input' }],
      [
        { input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] },
        { param: 'input[0].content[0]' },
      ],
      [{ input, background: true }, { param: 'background' }],
      [
        {
          input,
          text: { format: { type: 'json_schema', name: 'a', schema: { type: 'string', contentSchema: {} } } },
        },
        { param: 'text.format' },
      ],
      [{ input: 'x '.repeat(CONTEXT) }, { code: 'context_length_exceeded', param: 'input' }],
    ] as const) {
      await expect(client.responses.create({ ...request, ...wrong } as never)).rejects.toMatchObject({
        status: 400,
        ...told,
      });
    }
  });

  test('completions, whole and streamed: several prompts and answers, stop texts, ids', async () => {
    await start();
    const prompts = ['the cat', 'Über die Brücke'];
    const request = { ...sampling, prompt: prompts, n: 2, max_tokens: 20 };
    const whole = await client.completions.create(request);
    const texts = whole.choices.map(({ text }) => text);
    expect(whole.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    expect([texts[0], texts[2]]).toEqual([
      await expected(prompts[0]!, { maxTokens: 20 }),
      await expected(prompts[1]!, { maxTokens: 20 }),
    ]);
    expect(whole.usage!.completion_tokens).toBe(4 * 20);
    const streamed = ['', '', '', ''];
    const reasons: unknown[] = [];
    for await (const { choices } of await client.completions.create({ ...request, stream: true })) {
      for (const { index, text, finish_reason } of choices) {
        streamed[index] += text;
        if (finish_reason) reasons.push(finish_reason);
      }
    }
    expect(streamed).toEqual(texts);
    expect(reasons).toEqual(['length', 'length', 'length', 'length']);

    const stop = Array.from(texts[0]!).slice(5, 8).join('');
    const stopped = await client.completions.create({ ...sampling, prompt: prompts[0]!, max_tokens: 20, stop });
    expect(stopped.choices[0]).toMatchObject({
      text: texts[0]!.slice(0, texts[0]!.indexOf(stop)),
      finish_reason: 'stop',
    });
    const ids = await client.completions.create({ ...sampling, prompt: [1, 70, 71], max_tokens: 4 });
    expect(ids.usage!.prompt_tokens).toBe(3);
  });

  test('probabilities, in both forms', async () => {
    await start();
    const chat = { ...sampling, messages, max_tokens: 6, logprobs: true, top_logprobs: 2 };
    const whole = (await client.chat.completions.create(chat)).choices[0]!;
    const { content } = whole.logprobs!;
    expect(content).toHaveLength(6);
    const bytes = Buffer.from(content!.flatMap((token) => token.bytes!));
    expect(bytes.toString()).toBe(whole.message.content);
    for (const { logprob, top_logprobs } of content!) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(top_logprobs).toHaveLength(2);
      expect(top_logprobs[0]!.logprob).toBeGreaterThanOrEqual(Math.max(logprob, top_logprobs[1]!.logprob));
    }
    const streamed = [];
    for await (const { choices } of await client.chat.completions.create({ ...chat, stream: true })) {
      streamed.push(...(choices[0]?.logprobs?.content ?? []));
    }
    expect(streamed).toEqual(content);

    const text = await client.completions.create({
      ...sampling,
      prompt: 'the cat',
      max_tokens: 6,
      logprobs: 2,
    });
    const { tokens, token_logprobs, top_logprobs, text_offset } = text.choices[0]!.logprobs!;
    expect([tokens, token_logprobs, top_logprobs, text_offset].map((list) => list!.length)).toEqual([6, 6, 6, 6]);
    for (const [at, token] of tokens!.entries()) expect(top_logprobs![at]).toHaveProperty([token]);
    expect(text_offset![0]).toBe(0);
  });

  test('embeddings, of texts and ids, in both forms', async () => {
    await start({ maxPerClient: 2 });
    const input = ['the cat', 'Über die Brücke', 'x', 'the river '.repeat(900)];
    const { embeddings, prompt_tokens: tokens } = await model.embed(input);
    const whole = await client.embeddings.create({ model: 'tiny', input }); // asks for base64
    expect(whole.data.map(({ embedding }) => Float32Array.from(embedding))).toEqual(embeddings);
    expect(whole.usage).toEqual({ prompt_tokens: tokens, total_tokens: tokens });
    expect(whole.data.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    const ids = model.tokenize(input[0]!);
    const few = { model: 'tiny', encoding_format: 'float' as const, dimensions: 8 };
    const [asIds, asText] = await Promise.all([
      client.embeddings.create({ ...few, input: ids }),
      client.embeddings.create({ ...few, input: input[0]! }),
    ]);
    expect(asIds.data).toEqual(asText.data);
    expect(Math.hypot(...asIds.data[0]!.embedding)).toBeCloseTo(1, 6);
    const { embeddings: cut } = await model.embed([ids], { dimensions: 8, pooling: 'last' });
    const last = await client.embeddings.create({ ...few, input: [ids], pooling: 'last' } as never);
    expect(last.data[0]!.embedding).toEqual([...cut[0]!]);
    for (const [request, told] of [
      [{ input: {} }, { param: 'input' }],
      [{ input: [] }, { param: 'input' }],
      [{ input: 'x', dimensions: 4096 }, { status: 400 }],
      [{ input: 'x', encoding_format: 'int8' }, { param: 'encoding_format' }],
      [{ input: ['x', 'y '.repeat(CONTEXT)] }, { param: 'input', code: 'context_length_exceeded' }],
    ] as const) {
      await expect(client.embeddings.create({ model: 'tiny', ...request } as never)).rejects.toMatchObject(told);
    }
  });

  test('scores of documents: what is asked is checked, and a model without any is told', async () => {
    await start();
    const ask = async (
      path: string,
      body: object,
    ): Promise<{ status: number; error: { message: string; param?: string } }> => {
      const response = await fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body) });
      const { error } = (await response.json()) as { error: { message: string } };
      return { status: response.status, error };
    };
    const whole = { model: 'tiny', query: 'a', documents: ['b', { text: 'c' }], top_n: 1, return_documents: true };
    for (const path of ['/v1/rerank', '/rerank'])
      expect(await ask(path, whole)).toMatchObject({
        status: 400,
        error: { message: expect.stringContaining('no score') },
      });
    for (const [changes, param] of [
      [{ documents: [] }, 'documents'],
      [{ documents: [''] }, 'documents[0]'],
      [{ query: '' }, 'query'],
      [{ top_n: 0 }, 'top_n'],
    ] as const)
      expect(await ask('/v1/rerank', { ...whole, ...changes })).toMatchObject({ status: 400, error: { param } });
  });

  test('models', async () => {
    await start();
    const { data } = await client.models.list();
    const created = expect.any(Number) as number;
    expect(data).toEqual([{ id: 'tiny', object: 'model', created, owned_by: 'splitkv', max_model_len: CONTEXT }]);
    expect((await client.models.retrieve('tiny')).id).toBe('tiny');
  });

  test("errors become the client's own classes", async () => {
    await start({ apiKeys: ['right'], maxQueue: 1, maxBodyBytes: 50_000 }, 'right');
    const ask = (request: object): Promise<unknown> =>
      client.chat.completions.create({ model: 'tiny', messages, max_tokens: 2, ...request } as never);
    await expect(ask({ temperature: 9 })).rejects.toThrow(OpenAI.BadRequestError);
    await expect(ask({ temperature: 9 })).rejects.toMatchObject({ status: 400, param: 'temperature' });
    await expect(ask({ messages: [{ role: 'user', content: 'x '.repeat(CONTEXT) }] })).rejects.toMatchObject({
      code: 'context_length_exceeded',
      param: 'messages',
    });
    await expect(ask({ messages: [{ role: 'user', content: 'x'.repeat(60_000) }] })).rejects.toMatchObject({
      status: 413,
    });
    await expect(ask({ model: 'other' })).rejects.toThrow(OpenAI.NotFoundError);
    await expect(client.images.generate({ model: 'tiny', prompt: 'x' })).rejects.toThrow(OpenAI.NotFoundError);
    const stranger = client.withOptions({ apiKey: 'wrong' });
    await expect(stranger.models.list()).rejects.toThrow(OpenAI.AuthenticationError);

    const leaving = new AbortController();
    const running = Array.from({ length: 5 }, () =>
      client.completions
        .create({ ...sampling, prompt: 'x', max_tokens: CONTEXT - 32, ignore_eos: true } as never, {
          signal: leaving.signal,
        })
        .catch((error: unknown) => error),
    );
    await until(() => model.metrics.unfinished === 5);
    await expect(ask({})).rejects.toThrow(OpenAI.RateLimitError);
    leaving.abort();
    for (const error of await Promise.all(running)) expect(error).toBeInstanceOf(OpenAI.APIUserAbortError);
    await server.close();
    await expect(client.models.list()).rejects.toThrow(OpenAI.APIConnectionError);
  });

  test('a client that waits as Retry-After says gets its answer', async () => {
    await start({ maxQueue: 1 });
    const leaving = new AbortController();
    const running = Array.from({ length: 5 }, () =>
      client.completions
        .create({ ...sampling, prompt: 'x', max_tokens: CONTEXT - 32, ignore_eos: true } as never, {
          signal: leaving.signal,
        })
        .catch(() => {}),
    );
    await until(() => model.metrics.unfinished === 5);
    const refused = new Promise<void>((resolve) => {
      const fetching: typeof fetch = async (...request) => {
        const response = await fetch(...request);
        if (response.status === 429) resolve();
        return response;
      };
      client = client.withOptions({ fetch: fetching, maxRetries: 5 });
    });
    const answer = client.completions.create({ ...sampling, prompt: 'x', max_tokens: 2 });
    await refused;
    leaving.abort();
    expect((await answer).usage!.completion_tokens).toBe(2);
    await Promise.all(running);
  });

  test('leaving a stream or aborting a request frees what it held', async () => {
    await start();
    const request = { ...sampling, messages, ignore_eos: true, stream: true as const };
    const left = await client.chat.completions.create(request);
    let chunks = 0;
    for await (const _chunk of left) if (++chunks === 4) break;
    await until(() => model.metrics.unfinished === 0);

    const aborted = await client.chat.completions.create(request);
    let failure: unknown;
    try {
      for await (const _chunk of aborted) aborted.controller.abort();
    } catch (error) {
      failure = error;
    }
    expect(failure).toBeUndefined(); // the client takes its own abort for an end
    await until(() => model.metrics.unfinished === 0);
    const { metrics } = model;
    expect(metrics.kvBlocksFree).toBe(metrics.kvBlocks);
  });

  test('a stream that a shutdown cuts off throws', async () => {
    await start();
    const stream = await client.chat.completions.create({
      ...sampling,
      messages,
      ignore_eos: true,
      stream: true,
    } as never);
    const reading = (async () => {
      for await (const _chunk of stream as unknown as AsyncIterable<unknown>) void server.close(0);
    })();
    await expect(reading).rejects.toThrow('the server shut down before the answer was complete');
  });
});
