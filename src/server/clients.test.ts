import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embedMany, generateObject, generateText, streamText } from 'ai';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import type { ServingModel } from '../index.js';
import type { ApiServer } from './api_server.js';
import { openTestModel, startTestServer } from './testing/test_server.js';
import { until } from './testing/until.js';

/** Clients as they are, against a server. The model is random: what is checked of its answers is their form. */
let model: ServingModel;
let server: ApiServer;
beforeAll(async () => {
  model = await openTestModel();
  server = await startTestServer(model, {});
});
afterEach(() => until(() => model.metrics.unfinished === 0 && server.live === 0));
afterAll(async () => {
  await server.close();
  await model.dispose();
});

const animal = z.object({ name: z.string().max(5), wild: z.boolean(), legs: z.int().min(0).max(9) });

test("Vercel's AI SDK by its openai-compatible provider", async () => {
  const provider = createOpenAICompatible({
    name: 'splitkv',
    baseURL: `${server.url}/v1`,
    apiKey: 'any',
    supportsStructuredOutputs: true,
    includeUsage: true,
  });
  const given = { model: provider('tiny'), prompt: 'the cat sat', seed: 4, temperature: 0.8, maxRetries: 0 };
  const whole = await generateText({ ...given, maxOutputTokens: 20 });
  expect(whole.finishReason).toBe('length');
  expect(whole.usage).toMatchObject({ outputTokens: 20 });
  expect(whole.usage.inputTokens).toBeGreaterThan(3);
  const stream = streamText({ ...given, maxOutputTokens: 20 });
  let text = '';
  for await (const piece of stream.textStream) text += piece;
  expect(text).toBe(whole.text);
  expect(await stream.finishReason).toBe('length');
  const { object } = await generateObject({ ...given, schema: animal, maxOutputTokens: 400 });
  expect(animal.parse(object)).toEqual(object);
  const { embeddings } = await embedMany({
    model: provider.embeddingModel('tiny'),
    values: ['the cat', 'the dog'],
    maxRetries: 0,
  });
  expect(embeddings).toEqual((await model.embed(['the cat', 'the dog'])).embeddings.map((vector) => [...vector]));
});

test('LangChain', async () => {
  const configuration = { baseURL: `${server.url}/v1` };
  const shared = { model: 'tiny', apiKey: 'any', configuration, maxRetries: 0 };
  const chat = new ChatOpenAI({ ...shared, temperature: 0.8, maxTokens: 400, modelKwargs: { seed: 4 } });
  const asked = [new HumanMessage('the cat sat')];
  const structured = await chat.withStructuredOutput(animal, { method: 'jsonSchema' }).invoke(asked);
  expect(animal.parse(structured)).toEqual(structured);
  const short = new ChatOpenAI({ ...shared, temperature: 0, maxTokens: 20 });
  const whole = await short.invoke(asked);
  expect(whole.usage_metadata).toMatchObject({ output_tokens: 20 });
  let text = '';
  for await (const chunk of await short.stream(asked)) text += chunk.text;
  expect(text).toBe(whole.text);
  const [vector] = await new OpenAIEmbeddings(shared).embedDocuments(['the cat']);
  expect(vector).toEqual([...(await model.embed(['the cat'])).embeddings[0]!]);
});
