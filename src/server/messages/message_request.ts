/**
 * Room: Anthropic's Messages API over the core that answers chats: what a body means (here), and how an answer, or an
 * error, is told (message_writer.ts).
 */

import * as z from 'zod/mini';
import { isObject } from '../../base/json.js';
import type { ChatMessage, ChatOptions, ContentPart, Prompt, Tool, ToolCall, ToolChoice } from '../../index.js';
import { badRequest } from '../api_error.js';
import {
  chatFields,
  chatOptionsOf,
  checkMessages,
  contentOfParts,
  MESSAGES,
  textAt,
  textOfParts,
} from '../requests/chat_request.js';
import {
  callOf,
  checkLength,
  commonFields,
  type CompletionCall,
  type IgnoredField,
  leftOut,
  MAX_STOPS,
  optionalInteger,
  parseFields,
} from '../requests/fields.js';
import type { TokenizeCall } from '../requests/tokenize_request.js';

const STOPS = `a list of at most ${MAX_STOPS} texts, none of them empty`;
const TOOL = 'a tool such as {"name": "weather", "input_schema": {"type": "object"}}';
const CHOICE = 'an object such as {"type": "auto"}';
const { n: _n, max_tokens: _max, stop: _stop, ...shared } = commonFields;
const FORMAT = 'an object such as {"type": "json_schema", "schema": {"type": "object"}}';
const format = z.nullish(
  z.looseObject(
    { type: z.literal('json_schema', '"json_schema"'), schema: z.custom(isObject, 'a JSON schema') },
    FORMAT,
  ),
);
const conversation = {
  messages: z
    .array(
      z.looseObject(
        { role: z.enum(['user', 'assistant', 'system'], 'user, assistant'), content: z.unknown() },
        'a message',
      ),
      MESSAGES,
    )
    .check(z.minLength(1, MESSAGES)),
  system: z.nullish(z.unknown()),
  ...chatFields,
  tools: z.nullish(z.array(z.looseObject({ name: z.string("a tool's name") }, TOOL), 'a list of tools')),
  tool_choice: z.nullish(
    z.looseObject({ type: z.enum(['auto', 'any', 'tool', 'none'], 'auto, any, tool or none') }, CHOICE),
  ),
  thinking: z.nullish(z.looseObject({ type: z.string('a type') }, 'an object such as {"type": "disabled"}')),
  output_config: z.nullish(
    z.looseObject(
      { effort: z.nullish(z.string('low, medium or high')), format },
      'an object such as {"effort": "low"}',
    ),
  ),
  output_format: format,
};
const schema = z.looseObject({
  ...shared,
  ...conversation,
  max_tokens: optionalInteger(1),
  stop_sequences: z.nullish(
    z.array(z.string(STOPS).check(z.minLength(1, STOPS)), STOPS).check(z.maxLength(MAX_STOPS, STOPS)),
  ),
});
const counted = z.looseObject({ model: commonFields.model, ...conversation });

/**
 * Reads the body of a request to /v1/messages.
 * @param room tokens of the context
 * @throws ApiError 400
 */
export function parseMessageRequest(body: unknown, room: number): CompletionCall {
  checkLists(body, room);
  const { fields, ignored } = parseFields('messages', schema, body);
  const { max_tokens: most, stop_sequences: stop } = fields;
  if (most == null) throw badRequest('max_tokens is missing; expected an integer of at least 1', 'max_tokens');
  const { field: formField, ...form } = formatOf(fields);
  const prompt = promptOf(fields);
  if (formField !== undefined && prompt.ending) {
    throw badRequest(`${formField} holds whole answers: end with a message of the user`, 'messages');
  }
  const call = callOf({ ...fields, ...form, n: 1, stop }, [prompt], {
    promptField: 'messages',
    ignored,
    maxTokens: most,
    logprobs: undefined,
    chat: chatOf(fields, ignored),
  });
  return { ...call, ...(formField !== undefined && { formField }) };
}

/** The schema that an answer is to be of, and the field that says so: the newer one, or the beta's. @throws ApiError 400 */
function formatOf({
  output_config: config,
  output_format: old,
  response_format: other,
}: Pick<z.infer<typeof schema>, 'output_config' | 'output_format' | 'response_format'>) {
  const [first, second] = [
    { field: 'output_config.format', value: config?.format },
    { field: 'output_format', value: old },
    { field: 'response_format', value: other },
  ].filter(({ value }) => value != null);
  if (first && second) throw badRequest(`${first.field} and ${second.field}: give one of them`, first.field);
  if (!first || first.field === 'response_format') return {};
  const wanted = (first.value as NonNullable<typeof old>).schema;
  const response_format = { type: 'json_schema', json_schema: { schema: wanted, strict: true } };
  return { field: first.field, response_format };
}

/** Reads the body of a request to /v1/messages/count_tokens. @throws ApiError 400 */
export function parseCountRequest(body: unknown, room: number): TokenizeCall {
  checkLists(body, room);
  const { fields, ignored } = parseFields('messages', counted, body);
  return {
    model: fields.model ?? undefined,
    ignored,
    prompt: promptOf(fields),
    options: { addGenerationPrompt: true, ...chatOf(fields, ignored) },
  };
}

function checkLists(body: unknown, room: number): void {
  if (!isObject(body)) return;
  if (Array.isArray(body.messages)) checkMessages(body.messages, room);
  if (Array.isArray(body.stop_sequences)) checkLength(body.stop_sequences, MAX_STOPS, 'stop_sequences', STOPS);
}

/** Tools, and whether the model thinks, as chats say it. @throws ApiError 400 */
function chatOf(
  { tools, tool_choice: choice, thinking, output_config, ...fields }: z.infer<typeof counted>,
  ignored: IgnoredField[],
): ChatOptions {
  const asked = (tools ?? []).flatMap((tool, index): Tool | [] => {
    const { name, description, input_schema: parameters, strict, type = 'custom' } = tool;
    if (type !== 'custom') return leftOut(`tools[${index}]`, type, ignored);
    return { type: 'function', function: { name, description, parameters, strict } as Tool['function'] };
  });
  return chatOptionsOf({
    ...fields,
    ...(asked.length > 0 && { tools: asked }),
    tool_choice: choice ? choiceOf(choice) : undefined,
    ...(choice?.['disable_parallel_tool_use'] === true && { parallel_tool_calls: false }),
    ...(thinking && { enable_thinking: thinking.type !== 'disabled' }),
    reasoning_effort: fields.reasoning_effort ?? effortOf(output_config?.effort),
  });
}

/** As templates know it: none has more than high. */
const effortOf = (effort: string | null | undefined): string | null | undefined =>
  effort === 'xhigh' || effort === 'max' ? 'high' : effort;

function choiceOf({ type, name }: NonNullable<z.infer<typeof counted>['tool_choice']>): ToolChoice {
  if (type === 'tool') return { type: 'function', function: { name: String(name) } };
  return type === 'any' ? 'required' : type;
}

/** What the assistant has begun to say it goes on with. @throws ApiError 400 */
function promptOf(fields: z.infer<typeof counted>): Extract<Prompt, { readonly messages: unknown }> {
  const messages = messagesOf(fields);
  const { role, tool_calls: calls } = messages.at(-1)!;
  if (role !== 'assistant') return { messages };
  if (calls) throw badRequest('the last message uses tools: send their results after it', 'messages');
  if (!messages.some((message) => message.role === 'user')) {
    throw badRequest('messages has none of the user; expected one before what the assistant says', 'messages');
  }
  return { messages, ending: 'continue' };
}

/** The system's text and the turns; neighbours of one role are one turn, as Anthropic reads them. @throws ApiError 400 */
function messagesOf({ system, messages }: z.infer<typeof counted>): ChatMessage[] {
  const all: ChatMessage[] = [];
  if (system != null) all.push({ role: 'system', content: textOfParts(system, 'system', TEXTS) });
  for (const [index, { role, content }] of messages.entries()) {
    for (const message of turnOf(role, content, `messages[${index}].content`)) {
      const last = all.at(-1);
      if (last?.role === message.role && message.role !== 'tool') all[all.length - 1] = joined(last, message);
      else all.push(message);
    }
  }
  return all;
}

const TEXTS = { types: ['text'] };

const joined = (before: ChatMessage, after: ChatMessage): ChatMessage => {
  const contents = [before.content, after.content];
  const texts = contents.filter((text): text is string => typeof text === 'string' && text !== '');
  const parts = contents.some(Array.isArray) ? contents.flatMap(partsOf) : undefined;
  const calls = [...(before.tool_calls ?? []), ...(after.tool_calls ?? [])];
  const thoughts = [before, after].flatMap(({ reasoning_content: thought }) => (thought ? [String(thought)] : []));
  return {
    role: before.role,
    content: parts ?? (texts.length === 0 && calls.length > 0 ? null : texts.join('\n\n')),
    ...(thoughts.length > 0 && { reasoning_content: thoughts.join('\n\n') }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
};

const partsOf = (content: ChatMessage['content']): readonly ContentPart[] =>
  typeof content === 'string' ? (content === '' ? [] : [{ type: 'text', text: content }]) : (content ?? []);

/** A text is what a model wrote that is no JSON. */
const textOfInput = (input: unknown): string => (typeof input === 'string' ? input : JSON.stringify(input ?? {}));

/** What a turn says: results of tools first, each a message. @throws ApiError 400 */
function turnOf(role: 'user' | 'assistant' | 'system', content: unknown, name: string): ChatMessage[] {
  if (!Array.isArray(content)) return [{ role, content: textOfParts(content, name, TEXTS) }];
  const calls: ToolCall[] = [];
  const results: ChatMessage[] = [];
  const thoughts: string[] = [];
  for (const [index, block] of content.entries()) {
    const at = `${name}[${index}]`;
    const { type, ...rest } = (isObject(block) ? block : {}) as Record<string, unknown>;
    const text = (key: string): string => textAt(rest, key, at);
    if (type === 'thinking' && role === 'assistant') thoughts.push(text('thinking'));
    else if (type === 'tool_use' && role === 'assistant') {
      const called = { name: text('name'), arguments: textOfInput(rest['input']) };
      calls.push({ id: text('id'), type: 'function', function: called });
    } else if (type === 'tool_result' && role === 'user') {
      const said = rest['content'] == null ? '' : contentOfParts(rest['content'], `${at}.content`, TEXTS);
      results.push({ role: 'tool', tool_call_id: text('tool_use_id'), content: said });
    }
  }
  const left = role === 'assistant' ? ['thinking', 'redacted_thinking', 'tool_use'] : ['tool_result'];
  const text = (role === 'user' ? contentOfParts : textOfParts)(content, name, { ...TEXTS, left });
  // Templates say which thoughts of earlier turns the model reads again.
  const thought = thoughts.some((each) => each !== '') ? { reasoning_content: thoughts.join('\n\n') } : {};
  if (calls.length > 0) return [{ role, content: text === '' ? null : text, ...thought, tool_calls: calls }];
  return results.length > 0 && text === '' ? results : [...results, { role, content: text, ...thought }];
}
