import Anthropic from '@anthropic-ai/sdk';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { type AIMessageChunk, HumanMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
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

/** Arguments that a random model is held to. */
const city = z.object({ city: z.string().regex(/^[a-z]{2,4}$/) });

test('tools are called, by every client', async () => {
  const name = 'weather';
  const description = 'the weather of a city';
  const isCity = { city: expect.stringMatching(/^[a-z]{2,4}$/) as string };
  const asked: string[] = [];
  const execute = async (input: { readonly city: string }): Promise<string> => {
    asked.push(input.city);
    return 'warm';
  };
  const provider = createOpenAICompatible({ name: 'splitkv', baseURL: `${server.url}/v1`, apiKey: 'any' });
  const given = { model: provider('tiny'), prompt: 'warm ?', maxRetries: 0, toolChoice: 'required' as const };
  const tools = { weather: tool({ description, inputSchema: city, execute }) };
  const whole = await generateText({ ...given, tools, stopWhen: stepCountIs(2) });
  expect(whole.steps.map(({ finishReason }) => finishReason)).toEqual(['tool-calls', 'tool-calls']);
  expect(whole.steps[0]!.toolResults).toMatchObject([{ toolName: name, input: { city: asked[0] }, output: 'warm' }]);
  const stream = streamText({ ...given, tools });
  expect((await stream.toolCalls).map(({ input }) => input)).toEqual([{ city: asked[0] }]);

  const bound = new ChatOpenAI({
    model: 'tiny',
    apiKey: 'any',
    configuration: { baseURL: `${server.url}/v1` },
    maxRetries: 0,
    temperature: 0,
  }).bindTools([{ name, description, schema: city }], { tool_choice: 'required', parallel_tool_calls: false });
  const message = await bound.invoke([new HumanMessage('warm ?')]);
  expect(message.tool_calls).toMatchObject([{ name, args: isCity }]);
  let streamed: AIMessageChunk | undefined;
  for await (const chunk of await bound.stream([new HumanMessage('warm ?')]))
    streamed = streamed ? streamed.concat(chunk) : chunk;
  expect(streamed!.tool_calls).toMatchObject([{ name, args: message.tool_calls![0]!.args }]);

  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
  const parameters = z.toJSONSchema(city);
  const request = {
    model: 'tiny',
    tool_choice: 'required' as const,
    parallel_tool_calls: false,
    tools: [{ type: 'function' as const, name, description, parameters, strict: true }],
  };
  const first = await client.responses.create({ ...request, input: 'warm ?' });
  const [call] = first.output as OpenAI.Responses.ResponseFunctionToolCall[];
  expect(call).toMatchObject({ type: 'function_call', name, status: 'completed' });
  expect(JSON.parse(call!.arguments)).toEqual(isCity);
  const back = { type: 'function_call_output' as const, call_id: call!.call_id, output: 'warm' };
  const second = client.responses.stream({ ...request, input: [back], previous_response_id: first.id });
  const types: string[] = [];
  for await (const { type } of second) types.push(type);
  expect(types).toContain('response.function_call_arguments.delta');
  expect((await second.finalResponse()).output).toMatchObject([{ type: 'function_call', name }]);

  const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'any', maxRetries: 0 });
  const body = {
    model: 'tiny',
    max_tokens: 400,
    tool_choice: { type: 'any' as const, disable_parallel_tool_use: true },
    tools: [{ name, description, input_schema: { ...parameters, type: 'object' as const } }],
  };
  const said = [{ role: 'user' as const, content: 'warm ?' }];
  const answer = await anthropic.messages.create({ ...body, messages: said });
  expect(answer).toMatchObject({
    stop_reason: 'tool_use',
    content: [{ type: 'tool_use', name, input: isCity }],
  });
  const { id } = answer.content[0] as Anthropic.ToolUseBlock;
  const result = { type: 'tool_result' as const, tool_use_id: id, content: 'warm' };
  const final = await anthropic.messages
    .stream({
      ...body,
      messages: [...said, { role: 'assistant', content: answer.content }, { role: 'user', content: [result] }],
    })
    .finalMessage();
  expect(final).toMatchObject({ stop_reason: 'tool_use', content: [{ type: 'tool_use', name }] });
  expect(city.parse((final.content[0] as Anthropic.ToolUseBlock).input)).toBeDefined();
});
