/**
 * Room: OpenAI's Responses API over the core that answers chats: what a body means (here), how an answer is told
 * (response_writer.ts), and what is kept for `previous_response_id` (response_store.ts).
 */

import * as z from 'zod/mini';
import { isObject, shortened, show } from '../../base/json.js';
import type { ChatMessage, Tool, ToolChoice } from '../../index.js';
import { badRequest } from '../api_error.js';
import {
  chatFields,
  chatOptionsOf,
  checkMessages,
  textAt,
  contentOfParts,
  textOfParts,
  textTool,
  withOneSystem,
} from '../requests/chat_request.js';
import {
  callOf,
  commonFields,
  type CompletionCall,
  flag,
  given,
  type IgnoredField,
  leftOut,
  optionalInteger,
  parseFields,
} from '../requests/fields.js';

interface SpacedName {
  readonly namespace: string;
  readonly name: string;
}

interface ResponseRequest {
  readonly instructions: string | null;
  readonly previous: string | undefined;
  readonly store: boolean;
  /** The input as items, and as messages. */
  readonly items: readonly object[];
  readonly messages: readonly ChatMessage[];
  /** Tools whose calls are plain texts. */
  readonly textTools: readonly string[];
  /** Tools that lie in a namespace, by the names that the model knows them by. */
  readonly spaced: ReadonlyMap<string, SpacedName>;
  /** What the response tells of its request, in the API's own names. */
  readonly told: object;
}

/** A request to /v1/responses, checked. Its prompt is without what a previous response was asked and answered. */
export interface ResponseCall extends CompletionCall {
  readonly response: ResponseRequest;
}

const INPUT = 'a text, or a list of items such as {"role": "user", "content": "..."}, at least one';
const TEXT = 'an object such as {"format": {"type": "json_schema", "name": "a", "schema": {}}}';
const TOOL = 'a tool such as {"type": "function", "name": "weather", "parameters": {"type": "object"}}';
const TOOLS = 'a list of tools';
const EFFORT = 'an object such as {"effort": "low"}';
const METADATA = 'an object of at most 16 texts of up to 512 characters, with names of up to 64';
const LOGPROBS = 'message.output_text.logprobs';
const USER = 'a text of at most 512 characters';
const { n: _n, max_tokens: _max, response_format: _format, ...shared } = commonFields;
const schema = z.looseObject({
  ...shared,
  ...chatFields,
  tools: z.nullish(z.array(z.looseObject({ type: z.string('a type such as "function"') }, TOOL), TOOLS)),
  input: z.union(
    [z.string(INPUT).check(z.minLength(1, INPUT)), z.array(z.unknown(), INPUT).check(z.minLength(1, INPUT))],
    INPUT,
  ),
  instructions: z.nullish(z.string('a text')),
  previous_response_id: z.nullish(z.string("a response's id")),
  max_output_tokens: optionalInteger(1),
  store: flag,
  background: z.nullish(z.literal(false, 'false: responses are answered at once')),
  truncation: z.nullish(z.literal('disabled', '"disabled": inputs that are too long are refused')),
  metadata: z.nullish(
    z.custom<Record<string, string>>(
      (value) =>
        isObject(value) &&
        Object.keys(value).length <= 16 &&
        Object.entries(value).every(
          ([key, text]) => key.length <= 64 && typeof text === 'string' && text.length <= 512,
        ),
      METADATA,
    ),
  ),
  text: z.nullish(
    z.looseObject({ format: z.nullish(z.looseObject({ type: z.string('a type such as "json_schema"') }, TEXT)) }, TEXT),
  ),
  include: z.nullish(z.array(z.string('a text'), 'a list of texts')),
  top_logprobs: optionalInteger(0, 20),
  reasoning: z.nullish(z.looseObject({ effort: z.nullish(z.string(EFFORT)) }, EFFORT)),
  user: z.nullish(z.string(USER).check(z.maxLength(512, USER))),
});

/** What a body may say besides, which changes nothing of an answer here. */
const ROLES = ['system', 'developer', 'user', 'assistant'];

/**
 * Reads the body of a request to /v1/responses.
 * @param room tokens of the context
 * @throws ApiError 400
 */
export function parseResponseRequest(body: unknown, room: number): ResponseCall {
  if (isObject(body) && Array.isArray(body.input)) checkMessages(body.input, room, 'input');
  const { fields, ignored } = parseFields('responses', schema, body);
  const { input, instructions = null, text, include, top_logprobs: top, max_output_tokens: most } = fields;
  const items =
    typeof input === 'string'
      ? [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: input }] }]
      : input;
  const messages = items
    .reduce<ChatMessage[]>((all, item, index) => withItem(all, item, `input[${index}]`), [])
    // A thought by itself.
    .filter(({ content, tool_calls: calls }) => content !== null || calls !== undefined);
  if (messages.length === 0) throw badRequest('input says nothing; expected a message at least', 'input');
  const format = text?.format ?? { type: 'text' };
  const all = instructions === null ? messages : [{ role: 'system' as const, content: instructions }, ...messages];
  const effort = fields.reasoning?.effort ?? fields.reasoning_effort ?? null;
  const { tools, spaced } = flatTools(fields.tools ?? []);
  const chat = chatOptionsOf({
    ...fields,
    tools: toolsOf(tools, ignored),
    tool_choice: choiceOf(fields.tool_choice, tools),
    reasoning_effort: effort,
  });
  for (const [index, what] of include?.entries() ?? []) {
    const name = `include[${index}]`;
    if (what !== LOGPROBS)
      ignored.push({ name, why: `${name} is ${show(what)}: responses have nothing of the kind; leave it out` });
  }
  const wantsLogprobs = include?.includes(LOGPROBS) ?? false;
  if (top != null && top > 0 && !wantsLogprobs) {
    throw badRequest(`top_logprobs needs "include": ["${LOGPROBS}"]`, 'top_logprobs');
  }
  const call = callOf(
    { ...fields, n: 1, max_tokens: most, response_format: formatOf(format) },
    [{ messages: withOneSystem(all) }],
    {
      promptField: 'input',
      ignored,
      maxTokens: given(most) ?? room,
      logprobs: wantsLogprobs ? (top ?? 0) : undefined,
      chat,
    },
  );
  return {
    ...call,
    formField: 'text.format',
    response: {
      instructions,
      previous: fields.previous_response_id ?? undefined,
      store: fields.store ?? true,
      textTools: tools.flatMap(({ tool: { type, name } }) => (type === 'custom' ? [String(name)] : [])),
      spaced,
      items: items as readonly object[],
      messages,
      told: {
        background: false,
        instructions,
        max_output_tokens: most ?? null,
        metadata: fields.metadata ?? {},
        parallel_tool_calls: fields.parallel_tool_calls ?? true,
        previous_response_id: fields.previous_response_id ?? null,
        reasoning: { effort, summary: null },
        service_tier: 'default',
        store: fields.store ?? true,
        temperature: fields.temperature ?? 0,
        text: { format },
        tool_choice: fields.tool_choice ?? 'auto',
        tools: fields.tools ?? [],
        top_logprobs: top ?? 0,
        top_p: fields.top_p ?? 1,
        truncation: 'disabled',
        user: fields.user ?? null,
      },
    },
  };
}

/** `text.format` as chats say it. */
function formatOf(format: { readonly type: string }): { readonly type: string } & Record<string, unknown> {
  if (format.type !== 'json_schema') return { ...format };
  const {
    type,
    name,
    schema: wanted,
    strict,
    description,
  } = format as Record<string, unknown> & { readonly type: string };
  return { type, json_schema: { name, schema: wanted, strict, description } };
}

type GivenTool = { readonly type: string } & Record<string, unknown>;

/** What the model calls a tool that lies in a namespace. */
const spacedName = (namespace: unknown, name: unknown): string => `${String(namespace)}.${String(name)}`;

/** A tool, and where the request has it. */
interface FlatTool {
  readonly tool: GivenTool;
  readonly where: string;
}

/** Tools of namespaces side by side with the others. What a namespace is for is said with its first tool. */
function flatTools(given: readonly GivenTool[]) {
  const spaced = new Map<string, SpacedName>();
  const tools = given.flatMap((space, index): FlatTool[] => {
    const where = `tools[${index}]`;
    if (space.type !== 'namespace') return [{ tool: space, where }];
    const { name: namespace, description, tools: own } = space;
    if (typeof namespace !== 'string' || !Array.isArray(own) || !own.every(isObject))
      throw badRequest(`${where}: expected {"type": "namespace", "name": "a", "tools": [...]}`, where);
    return own.map((tool, at) => {
      const name = spacedName(namespace, tool['name']);
      spaced.set(name, { namespace, name: String(tool['name']) });
      const told = [at === 0 && description, tool['description']].filter((text) => typeof text === 'string');
      const flat = { ...tool, type: String(tool['type']), name, description: told.join('\n\n') };
      return { tool: flat, where: `${where}.tools[${at}]` };
    });
  });
  return { tools, spaced };
}

/** Tools as chats say them: those that are called with a plain text take it as `input`. The server's own aren't there, and are left out. */
const toolsOf = (tools: readonly FlatTool[], ignored: IgnoredField[]): Tool[] =>
  tools.flatMap(({ tool, where }) => {
    const { type, name, description, parameters, strict } = tool;
    if (type === 'function') return { type, function: { name, description, parameters, strict } } as Tool;
    return type === 'custom' ? textTool(tool) : leftOut(where, type, ignored);
  });

/** A choice as chats say it. Those that are left out of the tools are left out of it. */
function choiceOf(choice: ToolChoice | null | undefined, given: readonly FlatTool[]): ToolChoice | null | undefined {
  const { type, name, namespace, mode, tools } = (isObject(choice) ? choice : {}) as Readonly<Record<string, unknown>>;
  if (type === 'allowed_tools' && Array.isArray(tools)) {
    const isOut = ({ type: of }: GivenTool): boolean =>
      of !== 'function' && of !== 'custom' && given.some(({ tool }) => tool.type === of);
    const there = (tools as readonly GivenTool[]).filter((tool) => !(isObject(tool) && isOut(tool)));
    const allowed = { mode, tools: there.map((tool) => choiceOf(tool as unknown as ToolChoice, given)) };
    return { type, allowed_tools: allowed } as unknown as ToolChoice;
  }
  const isNamed = (type === 'function' || type === 'custom') && typeof name === 'string';
  if (!isNamed) return choice;
  return { type: 'function', function: { name: namespace == null ? name : spacedName(namespace, name) } };
}

/** With what an item says of the conversation: nothing, where it is what a model thought. @throws ApiError 400 */
function withItem(before: ChatMessage[], item: unknown, name: string): ChatMessage[] {
  if (!isObject(item)) {
    throw badRequest(`${name} is ${show(item)}; expected an item such as {"role": "user", "content": "..."}`, name);
  }
  const { type = 'message', role, content } = item as Record<string, unknown>;
  const text = (key: string): string => textAt(item, key, name);
  const types = ['input_text', 'output_text', 'text'];
  if (type === 'reasoning') {
    const thought = [item['content'], item['summary']].map(thoughtOf).find((said) => said !== '');
    return thought === undefined
      ? before
      : [...before, { role: 'assistant', content: null, reasoning_content: thought }];
  }
  if (type === 'function_call' || type === 'custom_tool_call') {
    const given = type === 'function_call' ? text('arguments') : JSON.stringify({ input: text('input') });
    const name = item['namespace'] == null ? text('name') : spacedName(item['namespace'], text('name'));
    const called = { name, arguments: given };
    const call = { id: text('call_id'), type: 'function' as const, function: called };
    const last = before.at(-1);
    // Calls follow what was said with them, each an item.
    if (last?.role !== 'assistant') return [...before, { role: 'assistant', content: null, tool_calls: [call] }];
    return [...before.slice(0, -1), { ...last, tool_calls: [...(last.tool_calls ?? []), call] }];
  }
  if (type === 'function_call_output' || type === 'custom_tool_call_output') {
    const output = contentOfParts(item['output'], `${name}.output`, { types });
    return [...before, { role: 'tool', tool_call_id: text('call_id'), content: output }];
  }
  if (type !== 'message') {
    const what = typeof type === 'string' ? `'${shortened(type)}'` : show(type);
    throw badRequest(`${name} is of type ${what}; this server takes messages, calls of functions and reasoning`, name);
  }
  if (typeof role !== 'string' || !ROLES.includes(role)) {
    throw badRequest(`${name}.role is ${show(role)}; expected ${ROLES.join(', ')}`, `${name}.role`);
  }
  const said = (role === 'user' ? contentOfParts : textOfParts)(content, `${name}.content`, {
    types,
    left: ['refusal'],
  });
  const last = before.at(-1);
  // What was thought before it.
  if (role === 'assistant' && last?.role === role && last.content === null && !last.tool_calls) {
    return [...before.slice(0, -1), { ...last, content: said }];
  }
  // OpenAI's newer name of the same role, which templates don't know.
  return [...before, { role: (role === 'developer' ? 'system' : role) as ChatMessage['role'], content: said }];
}

/** The texts of a list of parts. */
const thoughtOf = (parts: unknown): string =>
  (Array.isArray(parts) ? parts : [])
    .map((part: unknown) => (isObject(part) && typeof part['text'] === 'string' ? part['text'] : ''))
    .join('');
