import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { isObject } from '../../base/json.js';
import { ApiError } from '../api_error.js';
import { parseCountRequest, parseMessageRequest } from '../messages/message_request.js';
import { parseResponseRequest } from '../responses/response_request.js';
import { parseChatRequest } from './chat_request.js';
import { parseEmbeddingRequest, parseTextRequest } from './text_request.js';
import { REFUSED_NAMES } from './field_table.js';
import type { IgnoredField } from './fields.js';

type Parse = (body: unknown) => { readonly ignored: readonly IgnoredField[] };

/** Names of the fields of an interface, as a client's own types have them. */
function fieldsOf(file: string, name: string): string[] {
  const text = readFileSync(new URL(`../../../node_modules/${file}`, import.meta.url), 'utf8');
  const body = new RegExp(`export interface ${name}\\b[^{]*\\{\\n([\\s\\S]*?)\\n\\}`).exec(text)?.[1];
  return [...(body ?? '').matchAll(/^ {4}(\w+)\??:/gm)].map(([, field]) => field!);
}

const OPENAI = 'openai/resources';
const ANTHROPIC = '@anthropic-ai/sdk/resources';
const user = [{ role: 'user', content: 'x' }];
const APIS: readonly [api: string, parse: Parse, right: object, types: readonly (readonly [string, string])[]][] = [
  [
    'chat',
    (body) => parseChatRequest(body, 100),
    { messages: user },
    [[`${OPENAI}/chat/completions/completions.d.ts`, 'ChatCompletionCreateParamsBase']],
  ],
  [
    'completions',
    (body) => parseTextRequest(body, 100),
    { prompt: 'x' },
    [[`${OPENAI}/completions.d.ts`, 'CompletionCreateParamsBase']],
  ],
  [
    'responses',
    (body) => parseResponseRequest(body, 100),
    { input: 'x' },
    [[`${OPENAI}/responses/responses.d.ts`, 'ResponseCreateParamsBase']],
  ],
  [
    'embeddings',
    (body) => parseEmbeddingRequest(body, 100),
    { input: 'x' },
    [[`${OPENAI}/embeddings.d.ts`, 'EmbeddingCreateParams']],
  ],
  [
    'messages',
    (body) => parseMessageRequest(body, 100),
    { messages: user, max_tokens: 5 },
    [
      [`${ANTHROPIC}/messages/messages.d.ts`, 'MessageCreateParamsBase'],
      [`${ANTHROPIC}/beta/messages/messages.d.ts`, 'MessageCreateParamsBase'],
    ],
  ],
  [
    'count_tokens',
    (body) => parseCountRequest(body, 100),
    { messages: user },
    [
      [`${ANTHROPIC}/messages/messages.d.ts`, 'MessageCountTokensParams'],
      [`${ANTHROPIC}/beta/messages/messages.d.ts`, 'MessageCountTokensParams'],
    ],
  ],
];

const DOCS = readFileSync(new URL('../../../docs/serving.md', import.meta.url), 'utf8');

/** What a value of a type that no field has makes of a field; of those that are ignored docs/serving.md names such as were looked at. */
function sortOf(parse: Parse, right: object, name: string): 'done or refused' | 'ignored' | 'silent' | 'unknown' {
  try {
    const { ignored } = parse({ ...right, [name]: { odd: Symbol.iterator.description } });
    if (!ignored.some((each) => each.name === name)) return 'silent';
    return DOCS.includes(`\`${name}\``) ? 'ignored' : 'unknown';
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    return 'done or refused';
  }
}

describe('no field of the official clients is unsorted', () => {
  test.each(APIS)('%s', (_api, parse, right, types) => {
    const names = [...new Set(types.flatMap(([file, name]) => fieldsOf(file, name)))];
    // Types that are written in another way would make this empty.
    expect(names.length).toBeGreaterThan(4);
    const sorts = Object.fromEntries(names.map((name) => [name, sortOf(parse, right, name)]));
    expect(Object.keys(sorts).filter((name) => sorts[name] === 'unknown')).toEqual([]);
    expect(sortOf(parse, right, 'chat_id')).toBe('unknown');
  });
});

test.each<[string, string, unknown, string]>([
  ['responses', 'conversation', 'conv_1', 'previous_response_id'],
  ['responses', 'prompt', { id: 'pmpt_1' }, 'instructions'],
  ['responses', 'background', true, 'answered at once'],
  ['responses', 'truncation', 'auto', 'too long'],
  ['responses', 'response_format', { type: 'json_object' }, 'text.format'],
  ['messages', 'thread', { type: 'create' }, 'whole conversation'],
  ['messages', 'mcp_servers', [{ url: 'http://x' }], 'tools'],
  ['messages', 'container', 'c', 'not supported'],
  ['messages', 'compaction', { type: 'auto' }, 'not supported'],
  ['messages', 'output_format', { type: 'xml' }, 'json_schema'],
  ['chat', 'functions', [{ name: 'f' }], 'use tools'],
  ['chat', 'use_beam_search', true, 'send false'],
  ['chat', 'chat_template', '{{ messages }}', 'template'],
  ['chat', 'prompt_logprobs', 1, 'echo'],
  ['chat', 'suffix', 'x', 'not supported'],
  ['completions', 'mirostat', 2, 'top_p'],
  ['completions', 'structured_outputs', { structural_tag: '{}' }, 'grammar'],
  ['embeddings', 'truncate_prompt_tokens', 5, 'context holds'],
  ['embeddings', 'normalize', false, 'length of 1'],
])('%s refuses %s by name, and says what to do', (name, field, value, told) => {
  const [, parse, right] = APIS.find(([api]) => api === name)!;
  let error: unknown;
  try {
    parse({ ...right, [field]: value });
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(ApiError);
  const { message, details } = error as ApiError;
  expect(details.param).toMatch(new RegExp(`^${field}`));
  expect(message).toContain(field);
  expect(message).toContain(told);
  expect(parse({ ...right, [field]: null }).ignored).toEqual([]);
});

test('what is within a field is sorted, too', () => {
  const responses = parseResponseRequest(
    {
      input: 'x',
      text: { verbosity: 'low' },
      reasoning: { effort: 'low', summary: 'auto' },
      include: ['reasoning.encrypted_content', 'message.output_text.logprobs', 'odd'],
      stream_options: { include_obfuscation: false },
    },
    100,
  );
  const names = ['text.verbosity', 'reasoning.summary', 'include[0]', 'include[2]'];
  expect(responses.ignored.map(({ name }) => name).toSorted()).toEqual(names.toSorted());
  const thinking = { type: 'enabled', budget_tokens: 5000 };
  const messages = parseMessageRequest(
    { messages: user, max_tokens: 5, thinking, output_config: { effort: 'max' } },
    9,
  );
  expect(messages.ignored.map(({ name }) => name)).toEqual(['thinking.budget_tokens']);
  expect(messages.options).toMatchObject({ enableThinking: true, chatTemplateKwargs: { reasoning_effort: 'high' } });
});

test('what an answer is to be is read from each of its fields, and named where it is wrong', () => {
  const schema = { type: 'object', properties: { a: { type: 'integer' } } };
  const json = (of: object): object => ({ responseFormat: { type: 'json_schema', json_schema: of } });
  const text = (body: object) => parseTextRequest({ prompt: 'x', ...body }, 9);
  const said = (body: object) => parseMessageRequest({ messages: user, max_tokens: 5, ...body }, 9);
  const forms: [() => ReturnType<typeof text>, object, string][] = [
    [() => text({ json_schema: schema }), json({ schema }), 'json_schema'],
    [() => text({ json_schema: JSON.stringify(schema) }), json({ schema }), 'json_schema'],
    [() => text({ guided_json: schema }), json({ schema }), 'guided_json'],
    [() => text({ structured_outputs: { json: schema } }), json({ schema }), 'structured_outputs.json'],
    [() => text({ structured_outputs: { regex: 'a' } }), { regex: 'a' }, 'structured_outputs.regex'],
    [() => text({ guided_choice: ['a'] }), { choice: ['a'] }, 'guided_choice'],
    [() => text({ response_format: { type: 'json_schema', schema } }), json({ schema }), 'response_format'],
    [
      () => said({ output_config: { format: { type: 'json_schema', schema } } }),
      json({ schema, strict: true }),
      'output_config.format',
    ],
    [() => said({ output_format: { type: 'json_schema', schema } }), json({ schema, strict: true }), 'output_format'],
  ];
  for (const [parse, form, field] of forms) {
    const call = parse();
    expect(call.options).toMatchObject(form);
    expect(call.formField).toBe(field);
    expect(call.ignored).toEqual([]);
  }
  expect(() => text({ json_schema: schema, regex: 'a' })).toThrow('json_schema and regex: give one of them');
  expect(() => text({ json_schema: '{' })).toThrow('json_schema is no JSON');
  expect(() =>
    said({ output_format: { type: 'json_schema', schema }, response_format: { type: 'json_object' } }),
  ).toThrow('output_format and response_format');
});

test('how a prompt ends', () => {
  const begun = [...user, { role: 'assistant', content: 'so' }];
  const ending = (body: object): unknown => {
    const [prompt] = parseChatRequest(body, 100).prompts;
    return isObject(prompt) ? prompt['ending'] : 'no messages';
  };
  expect(ending({ messages: user })).toBeUndefined();
  expect(ending({ messages: begun })).toBeUndefined();
  expect(ending({ messages: user, add_generation_prompt: false })).toBe('none');
  expect(ending({ messages: begun, continue_final_message: true })).toBe('continue');
  expect(ending({ messages: begun, continue_final_message: true, add_generation_prompt: false })).toBe('continue');
  expect(() => ending({ messages: begun, continue_final_message: true, add_generation_prompt: true })).toThrow('both');
  expect(() => ending({ messages: user, continue_final_message: true })).toThrow('of role user');
  expect(parseMessageRequest({ messages: begun, max_tokens: 5 }, 9).prompts[0]).toMatchObject({ ending: 'continue' });
});

test('docs/serving.md names every field that is refused', () => {
  expect(REFUSED_NAMES.filter((name) => !DOCS.includes(`\`${name}\``))).toEqual([]);
});
