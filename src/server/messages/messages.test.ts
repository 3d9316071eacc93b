import Anthropic from '@anthropic-ai/sdk';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ServingModel } from '../../index.js';
import type { ApiServer, ServerOptions } from '../api_server.js';
import { CONTEXT, openTestModel, startTestServer } from '../testing/test_server.js';
import { until } from '../testing/until.js';

let model: ServingModel;
let server: ApiServer;
let client: Anthropic;
beforeAll(async () => {
  model = await openTestModel();
});
afterAll(() => model.dispose());

async function start(options: ServerOptions = {}, apiKey = 'any'): Promise<void> {
  server = await startTestServer(model, options);
  client = new Anthropic({ baseURL: server.url, apiKey, maxRetries: 0 });
}
afterEach(async () => {
  await until(() => model.metrics.unfinished === 0 && server.live === 0);
  await server.close();
});

const user = (content: string): { role: 'user'; content: string } => ({ role: 'user', content });
const request = { model: 'tiny', max_tokens: 24, temperature: 0.8, top_p: 0.9, seed: 4 };

/** What the model says without HTTP. */
async function expected(messages: object[], stop?: string): Promise<string> {
  let all = '';
  const options = { temperature: 0.8, topP: 0.9, seed: 4, maxTokens: 24, ...(stop !== undefined && { stop }) };
  for await (const { text } of model.complete({ messages: messages as never }, options)) all += text;
  return all;
}

describe("Anthropic's client", () => {
  test('messages, whole and streamed: system, blocks, turns, stop texts', async () => {
    await start();
    const text = await expected([user('the cat sat')]);
    const whole = await client.messages.create({ ...request, messages: [user('the cat sat')] });
    expect(whole).toMatchObject({
      type: 'message',
      role: 'assistant',
      model: 'tiny',
      content: [{ type: 'text', text }],
      stop_reason: 'max_tokens',
      stop_sequence: null,
    });
    const { usage } = whole;
    const { input_tokens: counted } = await client.messages.countTokens({
      model: 'tiny',
      messages: [user('the cat sat')],
    });
    expect(usage.input_tokens + usage.cache_read_input_tokens!).toBe(counted);
    expect(usage.output_tokens).toBe(24);

    const types: string[] = [];
    const stream = client.messages.stream({ ...request, messages: [user('the cat sat')] });
    for await (const { type } of stream) types.push(type);
    const final = await stream.finalMessage();
    expect(final.content).toMatchObject(whole.content);
    expect(final).toMatchObject({ stop_reason: 'max_tokens', usage: { output_tokens: 24 } });
    const deltas = types.filter((type) => type === 'content_block_delta');
    expect(deltas.length).toBeGreaterThan(1);
    expect(types).toEqual([
      'message_start',
      'content_block_start',
      ...deltas,
      'content_block_stop',
      'message_delta',
      'message_stop',
    ]);

    const turns = [
      user('the cat'),
      { role: 'assistant' as const, content: [{ type: 'text' as const, text: 'sat' }] },
      user('on'),
      user('what?'),
    ];
    const system = [{ type: 'text' as const, text: 'say little', cache_control: { type: 'ephemeral' as const } }];
    const asked = [
      { role: 'system', content: 'say little' },
      user('the cat'),
      { role: 'assistant', content: 'sat' },
      user('on\n\nwhat?'),
    ];
    const all = await expected(asked);
    const stop = Array.from(all).slice(5, 8).join('');
    const stopped = await client.messages.create({
      ...request,
      system,
      messages: turns,
      stop_sequences: ['never', stop],
    });
    expect(stopped).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: stop });
    expect(stopped.content).toMatchObject([{ type: 'text', text: await expected(asked, stop) }]);
  });

  test("errors become the client's own classes", async () => {
    await start({ apiKeys: ['right'] }, 'right');
    const ask = (more: object): Promise<unknown> =>
      client.messages.create({ ...request, messages: [user('x')], ...more } as never);
    await ask({ max_tokens: 1 });
    await expect(ask({ max_tokens: undefined })).rejects.toThrow('max_tokens is missing');
    await expect(ask({ messages: [{ role: 'assistant', content: 'x' }] })).rejects.toThrow(Anthropic.BadRequestError);
    const image = [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: '' } }];
    await expect(ask({ messages: [{ role: 'user', content: image }] })).rejects.toMatchObject({
      status: 400,
      error: {
        type: 'error',
        error: { type: 'invalid_request_error', message: expect.stringContaining('loaded for text alone') as string },
      },
    });
    await expect(ask({ messages: [user('x '.repeat(CONTEXT))] })).rejects.toThrow(
      /prompt is too long: \d+ tokens > \d+ maximum/,
    );
    await expect(ask({ model: 'other' })).rejects.toThrow(Anthropic.NotFoundError);
    client = new Anthropic({ baseURL: server.url, apiKey: 'wrong', maxRetries: 0 });
    await expect(ask({})).rejects.toThrow(Anthropic.AuthenticationError);
  });
});
