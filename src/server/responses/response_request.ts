/**
 * Room: OpenAI's Responses API over the core that answers chats: what a body means (here), how an answer is told
 * (response_writer.ts), and what is kept for `previous_response_id` (response_store.ts).
 */

import * as z from 'zod/mini';
import { isObject, shortened, show } from '../../base/json.js';
import type { ChatMessage } from '../../index.js';
import { badRequest } from '../api_error.js';
import { checkMessages } from '../requests/chat_request.js';
import { callOf, type CompletionCall } from '../requests/completion_call.js';
import { commonFields, flag, given, type IgnoredField, optionalInteger, parseFields } from '../requests/fields.js';
import { textOfParts, withOneSystem } from '../requests/text_parts.js';

/** What a response tells of its request, and what is kept with it. */
export interface ResponseRequest {
  readonly instructions: string | null;
  readonly previous: string | undefined;
  readonly store: boolean;
  readonly metadata: Readonly<Record<string, string>>;
  readonly maxOutputTokens: number | null;
  readonly temperature: number;
  readonly topP: number;
  readonly topLogprobs: number;
  /** As it was asked for. */
  readonly format: object;
  readonly user: string | null;
  /** The input as items, and as messages. */
  readonly items: readonly object[];
  readonly messages: readonly ChatMessage[];
}

/** A request to /v1/responses, checked. Its prompt is without what a previous response was asked and answered. */
export interface ResponseCall extends CompletionCall {
  readonly response: ResponseRequest;
}

const INPUT = 'a text, or a list of items such as {"role": "user", "content": "..."}, at least one';
const TEXT = 'an object such as {"format": {"type": "json_schema", "name": "a", "schema": {}}}';
const METADATA = 'an object of at most 16 texts, of up to 512 characters each';
const LOGPROBS = 'message.output_text.logprobs';
const { n: _n, max_tokens: _max, response_format: _format, ...shared } = commonFields;
const schema = z.looseObject({
  ...shared,
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
        Object.values(value).every((text) => typeof text === 'string' && text.length <= 512),
      METADATA,
    ),
  ),
  text: z.nullish(
    z.looseObject({ format: z.nullish(z.looseObject({ type: z.string('a type such as "json_schema"') }, TEXT)) }, TEXT),
  ),
  include: z.nullish(z.array(z.string('a text'), 'a list of texts')),
  top_logprobs: optionalInteger(0, 20),
  reasoning: z.nullish(z.looseObject({}, 'an object such as {"effort": "low"}')),
  user: z.nullish(z.string('a text')),
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
  const ignored: IgnoredField[] = [];
  const fields = parseFields(schema, body, ignored);
  const { input, instructions = null, text, include, top_logprobs: top, max_output_tokens: most } = fields;
  const items =
    typeof input === 'string'
      ? [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: input }] }]
      : input;
  const messages = items.flatMap((item, index) => messagesOfItem(item, `input[${index}]`));
  if (messages.length === 0) throw badRequest('input says nothing; expected a message at least', 'input');
  const format = text?.format ?? { type: 'text' };
  const all = instructions === null ? messages : [{ role: 'system' as const, content: instructions }, ...messages];
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
    },
  );
  return {
    ...call,
    formField: 'text.format',
    response: {
      instructions,
      previous: fields.previous_response_id ?? undefined,
      store: fields.store ?? true,
      metadata: fields.metadata ?? {},
      maxOutputTokens: most ?? null,
      temperature: fields.temperature ?? 0,
      topP: fields.top_p ?? 1,
      topLogprobs: top ?? 0,
      format,
      user: fields.user ?? null,
      items: items as readonly object[],
      messages,
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

/** What an item says of the conversation: nothing, where it is what a model thought. @throws ApiError 400 */
function messagesOfItem(item: unknown, name: string): ChatMessage[] {
  if (!isObject(item))
    throw badRequest(`${name} is ${show(item)}; expected an item such as {"role": "user", "content": "..."}`, name);
  const { type = 'message', role, content } = item as Record<string, unknown>;
  if (type === 'reasoning') return [];
  if (type !== 'message') {
    const what = typeof type === 'string' ? `'${shortened(type)}'` : show(type);
    throw badRequest(`${name} is of type ${what}; this server takes messages and reasoning`, name);
  }
  if (typeof role !== 'string' || !ROLES.includes(role)) {
    throw badRequest(`${name}.role is ${show(role)}; expected ${ROLES.join(', ')}`, `${name}.role`);
  }
  const text = textOfParts(content, `${name}.content`, {
    types: ['input_text', 'output_text', 'text'],
    left: ['refusal'],
  });
  // OpenAI's newer name of the same role, which templates don't know.
  return [{ role: (role === 'developer' ? 'system' : role) as ChatMessage['role'], content: text }];
}
