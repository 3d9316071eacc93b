import sharp from 'sharp';
import { afterAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import { Random } from '../base/random.js';
import { makeRandomVision } from '../model/testing/random_vision.js';
import { type ContentPart, serve } from '../index.js';
import type { ApiServer } from './api_server.js';
import { openTestModel, startTestServer } from './testing/test_server.js';

const adapter = (await testAdapters()).at(-1)!.name;
const files = [...makeRandomVision({ seed: 8 }).files].map(([name, bytes]) => new File([bytes], name));
const model = await serve(files, { adapter, images: true, slots: 2, contextLength: 600 });
const server = await startTestServer(model);
const servers: ApiServer[] = [server];
afterAll(async () => {
  for (const each of servers) await each.close();
});

const random = new Random(3);
const pixels = Uint8Array.from({ length: 40 * 20 * 3 }, () => random.integer(256));
const png = await sharp(pixels, { raw: { width: 40, height: 20, channels: 3 } })
  .png()
  .toBuffer();
const data = png.toString('base64');
const url = `data:image/png;base64,${data}`;

async function post(
  path: string,
  body: object,
  to = server,
): Promise<{ status: number; json: Record<string, unknown> }> {
  const response = await fetch(`${to.url}${path}`, { method: 'POST', body: JSON.stringify(body) });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

const CHAT = '/v1/chat/completions';
const user = (...content: unknown[]) => ({ messages: [{ role: 'user', content }] });
const options = { max_tokens: 8, seed: 2, temperature: 0.9 };
const text = { type: 'text', text: 'What is ' } as const;

describe('images over HTTP', () => {
  test('in the words of each API: one answer', async () => {
    const content: ContentPart[] = [text, { type: 'image', image: url }, { type: 'text', text: '?' }];
    const ids = await model.readPrompt({ messages: [{ role: 'user', content }] });
    let expected = '';
    for await (const event of model.complete(ids, { maxTokens: 8, seed: 2, temperature: 0.9 })) expected += event.text;
    const rest = { type: 'text', text: '?' };
    const chat = await post(CHAT, { ...user(text, { type: 'image_url', image_url: { url } }, rest), ...options });
    expect(chat).toMatchObject({
      status: 200,
      json: { choices: [{ message: { content: expected } }], usage: { prompt_tokens: ids.length } },
    });
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data } };
    const { json: message } = await post('/v1/messages', { ...user(text, image, rest), ...options });
    expect(message).toMatchObject({ content: [{ text: expected }] });
    const input = [
      {
        role: 'user',
        content: [
          { type: 'input_text', text: text.text },
          { type: 'input_image', image_url: url },
          { type: 'input_text', text: '?' },
        ],
      },
    ];
    const { json: response } = await post('/v1/responses', { input, max_output_tokens: 8, seed: 2, temperature: 0.9 });
    expect(response).toMatchObject({ output: [{ content: [{ text: expected }] }] });
    // Counted alone, also in the thread that reads large requests.
    const counted = { input_tokens: ids.length };
    const own = user(text, { type: 'image_url', image_url: { url } }, rest);
    expect((await post(`${CHAT}/input_tokens`, own)).json).toEqual(counted);
    expect((await post(`${CHAT}/input_tokens`, { ...own, user: 'x'.repeat(5000) })).json).toEqual(counted);
    expect((await post('/v1/messages/count_tokens', user(text, image, rest))).json).toEqual(counted);
    expect((await post('/v1/responses/input_tokens', { input })).json).toMatchObject(counted);
    const shown = (await post('/apply-template', own)).json['prompt'];
    expect(shown).toContain(`What is ${model.info.imagePlaceholder}?`);
  });

  test("in Ollama's words: before the text", async () => {
    const parts: ContentPart[] = [{ type: 'image', image: url }, text];
    const ids = await model.readPrompt({ messages: [{ role: 'user', content: parts }] });
    let expected = '';
    for await (const event of model.complete(ids, { maxTokens: 8, seed: 2, temperature: 0.9 })) expected += event.text;
    const asked = { stream: false, options: { num_predict: 8, seed: 2, temperature: 0.9 } };
    const own = { role: 'user', content: text.text, images: [data] };
    expect((await post('/api/chat', { ...asked, messages: [own] })).json).toMatchObject({
      message: { content: expected },
      prompt_eval_count: ids.length,
    });
    // Also what a tool gave back.
    const call = { function: { name: 'look', arguments: {} } };
    const result = { role: 'tool', content: text.text, images: [data] };
    const told = [{ role: 'user', content: 'see' }, { role: 'assistant', tool_calls: [call] }, result];
    const counted = async (...messages: object[]) =>
      (await post('/api/chat', { ...asked, messages })).json['prompt_eval_count'] as number;
    const rows = ids.filter((id) => id >= 2 ** 31).length;
    const without = { ...result, images: undefined };
    expect(await counted(...told)).toBeGreaterThanOrEqual((await counted(...told.slice(0, 2), without)) + rows);
    const { json } = await post('/api/generate', { ...asked, prompt: text.text, images: [data] });
    expect(json).toMatchObject({ response: expected });
    const { json: shown } = await post('/api/show', { model: 'tiny' });
    expect(shown['capabilities']).toContain('vision');
    expect(await (await fetch(`${server.url}/props`)).json()).toMatchObject({ modalities: { vision: true } });
    for (const more of [{ raw: true }, { suffix: 'x' }, { images: [5] }])
      expect((await post('/api/generate', { prompt: 'x', images: [data], ...more })).status).toBe(400);
  });

  test('in what a tool gave back, in the words of each API: one answer', async () => {
    const called = { name: 'look', arguments: '{}' };
    const messages = [
      { role: 'user', content: 'see' },
      { role: 'assistant', content: null, tool_calls: [{ id: 'a', type: 'function', function: called }] },
      { role: 'tool', tool_call_id: 'a', content: [{ type: 'image_url', image_url: { url } }] },
    ];
    const { status, json } = await post(CHAT, { messages, ...options });
    expect(status, JSON.stringify(json)).toBe(200);
    const [{ message: told }] = json['choices'] as [{ message: { content: string } }];
    const use = { type: 'tool_use', id: 'a', name: 'look', input: {} };
    const source = { type: 'base64', media_type: 'image/png', data };
    const result = { type: 'tool_result', tool_use_id: 'a', content: [{ type: 'image', source }] };
    const turns = [messages[0], { role: 'assistant', content: [use] }, { role: 'user', content: [result] }];
    expect((await post('/v1/messages', { messages: turns, ...options })).json).toMatchObject({
      content: [{ text: told.content }],
    });
    const input = [
      messages[0],
      { type: 'function_call', call_id: 'a', ...called },
      { type: 'function_call_output', call_id: 'a', output: [{ type: 'input_image', image_url: url }] },
    ];
    expect(
      (await post('/v1/responses', { input, max_output_tokens: 8, seed: 2, temperature: 0.9 })).json,
    ).toMatchObject({ output: [{ content: [{ text: told.content }] }] });
    // Another picture is another answer's prompt.
    const { usage } = json as { usage: { prompt_tokens: number } };
    const without = { ...messages[2], content: 'none' };
    const { json: plain } = await post(CHAT, { messages: [...messages.slice(0, 2), without], ...options });
    expect(usage.prompt_tokens).toBeGreaterThan((plain as typeof json & { usage: typeof usage }).usage.prompt_tokens);
  });

  test("another's image can't be asked about by the ids of its rows", async () => {
    const ids = await model.readPrompt({ messages: [{ role: 'user', content: [{ type: 'image', image: url }] }] });
    expect(ids.some((id) => id >= 2 ** 31)).toBe(true);
    for (const [path, field] of [
      ['/v1/completions', 'prompt'],
      ['/completion', 'prompt'],
      ['/v1/embeddings', 'input'],
      ['/embedding', 'content'],
      ['/api/embed', 'input'],
    ] as const) {
      for (const given of [ids, [[...ids]], ['the', ...ids]]) {
        const { status, json } = await post(path, { model: 'tiny', [field]: given });
        expect([status, JSON.stringify(json)], path).toEqual([400, expect.stringMatching(/of no vocabulary/)]);
      }
    }
  });

  test('what is refused, and why', async () => {
    const asked = async (part: object, to = server) => {
      const { status, json } = await post(CHAT, { ...user(part), ...options }, to);
      return { status, ...(json['error'] as { message: string; param: string | null }) };
    };
    expect(await asked({ type: 'image_url', image_url: { url: 'https://example.org/a.png' } })).toMatchObject({
      status: 400,
      param: 'messages[0].content[0]',
      message: expect.stringMatching(/expected a data: URL: this server reads images from nowhere else/) as string,
    });
    const svg = `data:image/svg+xml;base64,${Buffer.from('<svg/>').toString('base64')}`;
    expect(await asked({ type: 'image_url', image_url: { url: svg } })).toMatchObject({
      status: 400,
      message: expect.stringMatching(/SVG or XML/) as string,
    });
    const broken = `data:image/png;base64,${png.subarray(0, 50).toString('base64')}`;
    const cut = user({ type: 'image_url', image_url: { url: broken } });
    expect(await post(`${CHAT}/input_tokens`, cut)).toMatchObject({
      status: 400,
      json: { error: { param: 'messages' } },
    });
    expect(await asked({ type: 'image_url', image_url: { url: broken } })).toMatchObject({
      status: 400,
      param: 'messages',
      message: expect.stringMatching(/isn't whole/) as string,
    });
    const upper = { type: 'image_url', image_url: { url: url.replace('data:', 'DATA:') } };
    expect(await asked(upper)).toMatchObject({ status: 200 });
    expect(await asked({ type: 'input_audio', input_audio: {} })).toMatchObject({ status: 400 });
    const other = await startTestServer(await openTestModel());
    servers.push(other);
    expect(await asked({ type: 'image_url', image_url: { url } }, other)).toMatchObject({
      status: 400,
      message: expect.stringMatching(/loaded for text alone/) as string,
    });
  });
});
