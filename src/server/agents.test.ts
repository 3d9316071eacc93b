import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { ServingModel } from '../index.js';
import type { ApiServer } from './api_server.js';
import { parseMessageRequest } from './messages/message_request.js';
import { parseResponseRequest } from './responses/response_request.js';
import { openTestModel, startTestServer } from './testing/test_server.js';
import { until } from './testing/until.js';

/** Requests as agents, editors and chats send them, shortened. The model is random: what is checked is that they are taken. */
let model: ServingModel;
let server: ApiServer;
beforeAll(async () => {
  model = await openTestModel();
  server = await startTestServer(model);
});
afterEach(() => until(() => model.metrics.unfinished === 0 && server.live === 0));
afterAll(async () => {
  await server.close();
  await model.dispose();
});

const ask = (path: string, body: object, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body), headers });

const parameters = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] };
const PATCH = { type: 'custom', name: 'apply_patch', description: 'Edits files.' };
const grammar = { type: 'grammar', syntax: 'lark', definition: 'start: "*** Begin Patch"' };
const said = (role: string, text: string): object => ({
  role,
  content: [{ type: 'text', text, cache_control: { type: 'ephemeral' } }],
});

const CODEX = {
  model: 'tiny',
  instructions: 'You are Codex.',
  input: [
    { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'sandbox: read-only' }] },
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'fix it' }] },
    { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'a patch' }], encrypted_content: null },
    { type: 'custom_tool_call', call_id: 'call_1', name: 'apply_patch', input: '*** Begin Patch', status: 'completed' },
    { type: 'custom_tool_call_output', call_id: 'call_1', output: 'done' },
  ],
  tools: [
    { type: 'function', name: 'shell', strict: false, parameters },
    { ...PATCH, format: grammar },
    { type: 'web_search' },
  ],
  tool_choice: 'auto',
  parallel_tool_calls: false,
  reasoning: { effort: 'low', summary: 'auto' },
  store: false,
  include: ['reasoning.encrypted_content'],
  prompt_cache_key: 'a',
  max_output_tokens: 4,
};

test.each<[string, string, object, Record<string, string>, string | null]>([
  [
    'Claude Code',
    '/v1/messages?beta=true',
    {
      model: 'tiny',
      max_tokens: 4,
      system: [{ type: 'text', text: 'You are Claude Code.', cache_control: { type: 'ephemeral' } }],
      messages: [
        said('user', 'list files'),
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'ls', signature: '' },
            { type: 'tool_use', id: 'toolu_1', name: 'Bash', input: { command: 'ls' } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'a.ts', is_error: false }] },
      ],
      tools: [
        {
          name: 'Bash',
          description: 'Runs.',
          input_schema: { ...parameters, $schema: 'http://json-schema.org/draft-07/schema#' },
        },
        { type: 'web_search_20250305', name: 'web_search', max_uses: 8 },
      ],
      thinking: { type: 'enabled', budget_tokens: 1024 },
      metadata: { user_id: 'a' },
      stream: true,
    },
    { 'anthropic-version': '2023-06-01', 'anthropic-beta': 'interleaved-thinking-2025-05-14', 'x-api-key': 'a' },
    'thinking.budget_tokens, tools[1].web_search_20250305',
  ],
  ['Codex', '/v1/responses', { ...CODEX, stream: true }, {}, 'reasoning.summary, tools[2].web_search, include[0]'],
  [
    'opencode, Cline, aider',
    '/v1/chat/completions',
    {
      model: 'tiny',
      messages: [{ role: 'system', content: 'a' }, said('user', 'b')],
      tools: [{ type: 'function', function: { name: 'bash', parameters } }],
      tool_choice: 'auto',
      max_tokens: 4,
      temperature: 0,
      top_p: 1,
      stream: true,
      stream_options: { include_usage: true },
    },
    {},
    'messages[1].content[0].cache_control',
  ],
  [
    'Continue',
    '/completion',
    { prompt: 'const a', n_predict: 4, stream: true, temperature: 0.01, stop: ['\n\n'], cache_prompt: true },
    {},
    'cache_prompt',
  ],
  [
    'Open WebUI',
    '/api/chat',
    {
      model: 'tiny:latest',
      messages: [{ role: 'user', content: 'hi' }],
      options: { num_predict: 4, num_ctx: 2048 },
      stream: true,
      keep_alive: '5m',
    },
    {},
    null,
  ],
])('%s', async (_name, path, body, headers, ignored) => {
  const response = await ask(path, body, { 'content-type': 'application/json', ...headers });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  expect(text).not.toMatch(/"error":[^n]/);
  if (!ignored?.includes('cache_control')) expect(response.headers.get('x-splitkv-ignored')).toBe(ignored);
});

test('a tool of plain texts is called, whole, streamed and in the next turn', async () => {
  const body = {
    input: 'x',
    tools: [PATCH],
    tool_choice: { type: 'custom', name: 'apply_patch' },
    seed: 3,
    temperature: 0.9,
  };
  type Item = { type: string; name: string; input: string; call_id: string };
  const whole = (await (await ask('/v1/responses', { ...body, max_output_tokens: 400 })).json()) as {
    id: string;
    output: Item[];
  };
  const call = whole.output.at(-1)!;
  expect(call).toMatchObject({
    type: 'custom_tool_call',
    name: 'apply_patch',
    call_id: expect.stringMatching(/./) as string,
  });
  expect(typeof call.input).toBe('string');
  const text = await (await ask('/v1/responses', { ...body, max_output_tokens: 400, stream: true })).text();
  const events = [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as Record<string, unknown>);
  expect(events.map((event) => event['sequence_number'])).toEqual(events.map((_, index) => index));
  const types = events.map((event) => event['type']);
  expect(types).toContain('response.custom_tool_call_input.delta');
  expect(types).not.toContain('response.function_call_arguments.delta');
  expect(events.find(({ type }) => type === 'response.custom_tool_call_input.done')).toMatchObject({
    input: call.input,
  });
  const next = await ask('/v1/responses', {
    previous_response_id: whole.id,
    input: [{ type: 'custom_tool_call_output', call_id: call.call_id, output: 'done' }],
    max_output_tokens: 2,
  });
  expect(next.status).toBe(200);
});

test('tools of namespaces are called by both names, whole, streamed and in the next turn', async () => {
  const none = { type: 'object', properties: {}, additionalProperties: false };
  const tools = ['a', 'b'].map((namespace) => ({
    type: 'namespace',
    name: namespace,
    description: 'Agents.',
    tools: [{ type: 'function', name: 'close', parameters: none }, PATCH],
  }));
  const named = { name: 'close', namespace: 'b' };
  const body = { input: 'x', tools, seed: 3, temperature: 0.9, max_output_tokens: 400 };
  const choosing = { ...body, tool_choice: { type: 'function', ...named } };
  type Item = Readonly<Record<string, string>>;
  const itemsOf = async (asked: object): Promise<Item[]> =>
    ((await (await ask('/v1/responses', asked)).json()) as { output: Item[] }).output;
  const [call] = await itemsOf(choosing);
  expect(call).toMatchObject({ type: 'function_call', ...named });
  expect(JSON.parse(call!['arguments']!)).toEqual({});
  const text = await (await ask('/v1/responses', { ...choosing, stream: true })).text();
  const events = [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!) as Record<string, unknown>);
  expect(events.find(({ type }) => type === 'response.output_item.added')).toMatchObject({ item: named });
  expect(events.find(({ type }) => type === 'response.function_call_arguments.done')).toMatchObject({ name: 'close' });
  const [text2] = await itemsOf({ ...body, tool_choice: { type: 'custom', name: 'apply_patch', namespace: 'a' } });
  expect(text2).toMatchObject({ type: 'custom_tool_call', name: 'apply_patch', namespace: 'a' });
  // What was called may be allowed alone, and is told back.
  const output = { type: 'function_call_output', call_id: call!['call_id'], output: 'done' };
  const allowed = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', ...named }] };
  const input = [{ role: 'user', content: 'x' }, call, output];
  const [next] = await itemsOf({ ...body, input, tool_choice: allowed });
  expect(next).toMatchObject({ type: 'function_call', ...named });
  const { messages } = parseResponseRequest({ ...body, input }, 100).response;
  expect(messages[1]?.tool_calls?.[0]?.function.name).toBe('b.close');
  const beside = await ask('/v1/responses', {
    ...body,
    tools: [...tools, { type: 'web_search' }],
    max_output_tokens: 1,
  });
  expect([beside.status, beside.headers.get('x-splitkv-ignored')]).toEqual([200, 'tools[2].web_search']);
  const search = { type: 'web_search' };
  const mixed = { ...allowed, tools: [search, ...allowed.tools] };
  const [among] = await itemsOf({ ...body, tools: [...tools, search], tool_choice: mixed });
  expect(among).toMatchObject({ type: 'function_call', ...named });
  const absent = await ask('/v1/responses', { ...body, tool_choice: mixed });
  expect([absent.status, await absent.text()]).toEqual([400, expect.stringMatching(/there is no tool/) as string]);
  const wrong = await ask('/v1/responses', { ...body, tools: [{ type: 'namespace', name: 'a' }] });
  expect([wrong.status, await wrong.text()]).toEqual([400, expect.stringMatching(/tools\[0\]: expected/) as string]);
});

test('of allowed tools the model may call those alone', async () => {
  const tools = ['one', 'two', 'three'].map((name) => ({ type: 'function', function: { name, parameters } }));
  const only = (mode: string, ...names: string[]): object => ({
    type: 'allowed_tools',
    allowed_tools: { mode, tools: names.map((name) => ({ type: 'function', function: { name } })) },
  });
  const asked = (tool_choice: object, seed = 1): Promise<Response> =>
    ask('/v1/chat/completions', {
      messages: [{ role: 'user', content: 'x' }],
      tools,
      tool_choice,
      seed,
      temperature: 0.9,
      max_tokens: 300,
    });
  type Answer = { choices: { message: { tool_calls: { function: { name: string } }[] } }[] };
  for (const seed of [1, 2, 3]) {
    const { choices } = (await (await asked(only('required', 'two', 'three'), seed)).json()) as Answer;
    for (const { function: of } of choices[0]!.message.tool_calls) expect(['two', 'three']).toContain(of.name);
  }
  for (const [choice, why] of [
    [only('required', 'four'), /there is no tool .+four/],
    [only('none', 'one'), /tool_choice: expected/],
    [only('auto'), /tool_choice: expected/],
    [{ type: 'allowed_tools' }, /tool_choice: expected/],
  ] as const) {
    const response = await asked(choice);
    expect([response.status, await response.text()]).toEqual([400, expect.stringMatching(why) as string]);
  }
});

test('a chat calls a tool of plain texts, whole, streamed and in the next turn', async () => {
  const { type, ...custom } = PATCH;
  const body = {
    messages: [{ role: 'user', content: 'x' }],
    tools: [{ type, custom: { ...custom, format: { type: 'grammar', grammar } } }],
    tool_choice: { type, custom: { name: custom.name } },
    seed: 3,
    temperature: 0.9,
    max_tokens: 400,
  };
  type Called = { id: string; type: string; custom: { name: string; input: string } };
  type Choice = { message: { tool_calls: Called[] }; delta: { tool_calls?: Called[] }; finish_reason: string | null };
  const { choices } = (await (await ask('/v1/chat/completions', body)).json()) as { choices: Choice[] };
  const [call] = choices[0]!.message.tool_calls;
  expect(call).toEqual({
    id: expect.stringMatching(/^call_/),
    type,
    custom: { name: custom.name, input: call!.custom.input },
  });
  expect(typeof call!.custom.input).toBe('string');
  expect(choices[0]!.finish_reason).toBe('tool_calls');
  const text = await (await ask('/v1/chat/completions', { ...body, stream: true })).text();
  const told = [...text.matchAll(/^data: ({.*)$/gm)].map(
    ([, data]) => (JSON.parse(data!) as { choices: Choice[] }).choices[0]!,
  );
  expect(told.flatMap(({ delta }) => delta.tool_calls ?? [])).toEqual([
    { index: 0, id: expect.stringMatching(/^call_/), type, custom: call!.custom },
  ]);
  expect(told.at(-1)!.finish_reason).toBe('tool_calls');
  const next = await ask('/v1/chat/completions', {
    ...body,
    tool_choice: 'none',
    messages: [
      ...body.messages,
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: call!.id, content: 'done' },
    ],
    max_tokens: 2,
  });
  expect(next.status, await next.text()).toBe(200);
  expect((await ask('/v1/chat/completions', { ...body, tools: [{ type }] })).status).toBe(400);
});

test('what was thought between calls goes to the template', () => {
  const codex = parseResponseRequest(CODEX, 1000).response.messages;
  expect(codex.slice(2)).toEqual([
    {
      role: 'assistant',
      content: null,
      reasoning_content: 'a patch',
      tool_calls: [
        { id: 'call_1', type: 'function', function: { name: 'apply_patch', arguments: '{"input":"*** Begin Patch"}' } },
      ],
    },
    { role: 'tool', tool_call_id: 'call_1', content: 'done' },
  ]);
  const thinking = { type: 'thinking', thinking: 'hm', signature: '' };
  const { prompts } = parseMessageRequest(
    {
      max_tokens: 1,
      messages: [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: [thinking, { type: 'text', text: 'b' }] },
        { role: 'user', content: 'c' },
      ],
    },
    100,
  );
  expect(prompts[0]).toMatchObject({ messages: [{}, { content: 'b', reasoning_content: 'hm' }, {}] });
});
