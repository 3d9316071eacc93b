import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
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

test("Anthropic's own loop over tools goes on without a thread, with the whole conversation", async () => {
  const bodies: { readonly messages: readonly unknown[]; readonly thread?: unknown; readonly tools?: unknown }[] = [];
  const statuses: number[] = [];
  const client = new Anthropic({
    baseURL: server.url,
    apiKey: 'any',
    maxRetries: 0,
    fetch: async (url, init) => {
      bodies.push(JSON.parse(init?.body as string) as (typeof bodies)[number]);
      const answer = await fetch(url, init);
      statuses.push(answer.status);
      return answer;
    },
  });
  const asked: unknown[] = [];
  const weather = betaZodTool({
    name: 'weather',
    description: 'Weather of a city',
    inputSchema: z.object({ warm: z.boolean(), degrees: z.int().min(0).max(9) }),
    run: (input) => {
      asked.push(input);
      return 'warm';
    },
  });
  const runner = client.beta.messages.toolRunner({
    model: 'tiny',
    max_tokens: 400,
    max_iterations: 3,
    tool_choice: { type: 'any', disable_parallel_tool_use: true },
    tools: [weather],
    messages: [{ role: 'user', content: 'warm ?' }],
  });
  const last = await runner.runUntilDone();
  expect(last.content).toMatchObject([{ type: 'tool_use', name: 'weather' }]);
  expect(asked.length).toBeGreaterThanOrEqual(2);
  // It asks for a thread once.
  expect(statuses).toEqual([400, 200, 200, 200]);
  expect(bodies.map(({ thread }) => thread !== undefined)).toEqual([true, false, false, false]);
  expect(bodies.slice(1).map(({ messages }) => messages.length)).toEqual([1, 3, 5]);
  for (const { tools } of bodies) expect(tools).toHaveLength(1);
});

test("Anthropic's structured outputs, and an answer that has begun", async () => {
  const client = new Anthropic({ baseURL: server.url, apiKey: 'any', maxRetries: 0 });
  const request = { model: 'tiny', max_tokens: 400, messages: [{ role: 'user' as const, content: 'an animal ?' }] };
  // Bounds are left out by the client: it checks them by itself.
  const beast = z.object({ kind: z.enum(['cat', 'dog']), wild: z.boolean() });
  const parsed = await client.messages.parse({ ...request, output_config: { format: zodOutputFormat(beast) } });
  expect(beast.parse(parsed.parsed_output)).toEqual(parsed.parsed_output);
  const format = { type: 'json_schema' as const, schema: z.toJSONSchema(z.object({ a: z.boolean() })) };
  const { content } = await client.beta.messages.create({ ...request, output_format: format });
  expect(JSON.parse((content[0] as { text: string }).text)).toEqual({ a: expect.any(Boolean) as boolean });
  const wrong = client.messages.create({
    ...request,
    output_config: { format: { type: 'json_schema', schema: { type: 'nothing' } } },
  });
  await expect(wrong).rejects.toMatchObject({
    status: 400,
    error: { type: 'error', error: { type: 'invalid_request_error' } },
  });

  const text = async (messages: Anthropic.MessageParam[], max_tokens: number): Promise<string> => {
    const answer = await client.messages.create({ model: 'tiny', max_tokens, messages });
    return answer.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
  };
  const begun = [...request.messages, { role: 'assistant' as const, content: 'the dog sat ' }];
  const prompt = model.tokenize({ messages: begun, ending: 'continue' });
  expect(model.detokenize(prompt)).toMatch(/the dog sat $/);
  const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
  const { choices } = await openai.completions.create({ model: 'tiny', prompt, max_tokens: 9 });
  expect(await text(begun, 9)).toBe(choices[0]!.text);
  expect(await client.messages.countTokens({ model: 'tiny', messages: begun })).toEqual({
    input_tokens: prompt.length,
  });
});

test('a chat goes on with its last message', async () => {
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
  const said = [{ role: 'user' as const, content: 'the cat ?' }];
  const begun = [...said, { role: 'assistant' as const, content: 'the dog sat ' }];
  const [prompt, closed] = [
    model.tokenize({ messages: begun, ending: 'continue' }),
    model.tokenize({ messages: begun }),
  ];
  expect(prompt).not.toEqual(closed);
  const expected = await client.completions.create({ model: 'tiny', prompt, max_tokens: 12 });
  const ask = { model: 'tiny', messages: begun, max_tokens: 12, continue_final_message: true };
  const whole = await client.chat.completions.create(ask as never as OpenAI.ChatCompletionCreateParamsNonStreaming);
  expect(whole.choices[0]!.message.content).toBe(expected.choices[0]!.text);
  expect(whole.usage!.prompt_tokens).toBe(prompt.length);
  // Bodies that a thread reads.
  const long = [{ role: 'system', content: 'the cat sat on the mat '.repeat(200) }, ...begun];
  const more = { ...ask, messages: long, add_generation_prompt: false };
  const { usage } = await client.chat.completions.create(
    more as never as OpenAI.ChatCompletionCreateParamsNonStreaming,
  );
  expect(usage!.prompt_tokens).toBe(model.tokenize({ messages: long as typeof begun, ending: 'continue' }).length);
});
