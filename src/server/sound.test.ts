import { afterAll, expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import { serve } from '../index.js';
import { makeRandomVision } from '../model/testing/random_vision.js';
import { tone, wavOf } from '../sound/testing/wav.js';
import { openTestModel, startTestServer } from './testing/test_server.js';

const adapter = (await testAdapters()).at(-1)!.name;
const made = makeRandomVision({ kind: 'gemma4', seed: 8, sound: { layers: 1 } });
const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
const model = await serve(files, { adapter, sound: true, slots: 2, contextLength: 300 });
const server = await startTestServer(model);
const deaf = await startTestServer(await openTestModel());
afterAll(async () => {
  await server.close();
  await deaf.close();
});

const data = Buffer.from(wavOf(tone(3000))).toString('base64');
async function ask(part: unknown, to = server) {
  const messages = [{ role: 'user', content: [{ type: 'text', text: 'hear ' }, part] }];
  const body = JSON.stringify({ messages, max_tokens: 6, seed: 2, temperature: 0.9 });
  const response = await fetch(`${to.url}/v1/chat/completions`, { method: 'POST', body });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

test('input_audio: the same answer as of the library', { timeout: 120_000 }, async () => {
  const audio = `data:audio/wav;base64,${data}`;
  const content = [{ type: 'text', text: 'hear ' } as const, { type: 'audio', audio } as const];
  const ids = await model.readPrompt({ messages: [{ role: 'user', content }] });
  let expected = '';
  for await (const event of model.complete(ids, { maxTokens: 6, seed: 2, temperature: 0.9 })) expected += event.text;
  expect(await ask({ type: 'input_audio', input_audio: { data, format: 'wav' } })).toMatchObject({
    status: 200,
    json: { choices: [{ message: { content: expected } }], usage: { prompt_tokens: ids.length } },
  });
});

test('what is refused, and why', async () => {
  const refused = async (part: unknown, message: RegExp, to = server) => {
    const { status, json } = await ask(part, to);
    expect(status).toBe(400);
    expect((json['error'] as { message: string }).message).toMatch(message);
  };
  const wav = { data, format: 'wav' };
  await refused(
    { type: 'input_audio', input_audio: { data } },
    /input_audio: expected \{"data": "base64", "format": "wav"\}/,
  );
  await refused({ type: 'input_audio', input_audio: { data: 'a', format: 'wav' } }, /base64 is broken/);
  await refused({ type: 'input_audio', input_audio: { data: data.slice(0, 400), format: 'wav' } }, /it is cut off/);
  await refused({ type: 'input_audio', input_audio: { data: btoa('ID3'), format: 'mp3' } }, /no WAV file/);
  await refused({ type: 'input_audio', input_audio: wav }, /for text alone: load Gemma 4/, deaf);
  await refused({ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }, /loaded without their encoder/);
});
