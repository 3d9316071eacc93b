import * as z from 'zod/mini';
import { isObject, shortened } from '../../base/json.js';
import { grouped } from '../../base/math.js';
import type { ChatMessage } from '../../index.js';
import { badRequest } from '../api_error.js';
import { callOf, type CompletionCall } from './completion_call.js';
import {
  checkFieldCount,
  checkLength,
  commonFields,
  flag,
  given,
  type IgnoredField,
  optionalInteger,
  parseFields,
} from './fields.js';

const ROLES = ['system', 'developer', 'user', 'assistant'] as const;
const MESSAGES = 'a list of messages such as {"role": "user", "content": "..."}, at least one';
const CONTENT = 'a text, or a list of parts {"type": "text", "text": "..."}';
const message = z.looseObject(
  {
    role: z.enum(ROLES, ROLES.join(', ')),
    content: z.union(
      [z.string(), z.array(z.looseObject({ type: z.literal('text'), text: z.string() })).check(z.minLength(1))],
      CONTENT,
    ),
  },
  'a message: an object with role and content',
);
export const messagesField = z.array(message, MESSAGES).check(z.minLength(1, MESSAGES));
const schema = z.looseObject({
  ...commonFields,
  messages: messagesField,
  max_completion_tokens: commonFields.max_tokens,
  logprobs: flag,
  top_logprobs: optionalInteger(0, 20),
});

/** Keys of a message that say nothing of the conversation, or nothing when empty: clients send back what they were sent. */
const IGNORED = ['name', 'annotations', 'refusal'];
const UNSUPPORTED = ['audio', 'function_call', 'tool_calls', 'tool_call_id'];

/**
 * Reads the body of a request to /v1/chat/completions.
 * @param room tokens of the context: those that an answer may have where the request doesn't say, and as many messages as may be
 * @throws ApiError 400
 */
export function parseChatRequest(body: unknown, room: number): CompletionCall {
  if (isObject(body) && Array.isArray(body.messages)) checkMessages(body.messages, room);
  const ignored: IgnoredField[] = [];
  const fields = parseFields(schema, body, ignored);
  const { max_tokens: old, max_completion_tokens: maximum, logprobs, top_logprobs: top } = fields;
  if (old != null && maximum != null && old !== maximum) {
    throw badRequest(`max_tokens is ${old} and max_completion_tokens ${maximum}: give one of them`, 'max_tokens');
  }
  if (top != null && !logprobs) {
    throw badRequest('top_logprobs needs logprobs to be true', 'top_logprobs');
  }
  const messages = messagesOf(fields.messages, ignored);
  const maxTokens = given(maximum ?? old) ?? room;
  if (maxTokens === 0) throw badRequest('max_tokens is 0; expected at least 1, or -1 for none', 'max_tokens');
  return callOf(fields, [{ messages }], {
    promptField: 'messages',
    ignored,
    maxTokens,
    logprobs: logprobs ? (top ?? 0) : undefined,
  });
}

/** What a conversation says. @throws ApiError 400 */
export const messagesOf = (messages: z.infer<typeof messagesField>, ignored: IgnoredField[]): ChatMessage[] =>
  messages.map((each, index) => messageOf(each, `messages[${index}]`, ignored));

function messageOf(each: z.infer<typeof message>, name: string, ignored: IgnoredField[]): ChatMessage {
  const { role, content, ...others } = each;
  for (const [key, value] of Object.entries(others)) {
    if (IGNORED.includes(key) || value === null || (Array.isArray(value) && value.length === 0)) continue;
    const field = `${name}.${shortened(key)}`;
    if (UNSUPPORTED.includes(key)) throw badRequest(`${field} is not supported by this server; leave it out`, field);
    ignored.push({ name: field, why: `${field} is no known field; leave it out` });
  }
  return {
    // OpenAI's newer name of the same role, which templates don't know.
    role: role === 'developer' ? 'system' : role,
    content: typeof content === 'string' ? content : content.map(({ text }) => text).join(''),
  };
}

/** Each message, and each part of one, has a token at least. @throws ApiError 400 for more than `most` */
export function checkMessages(messages: readonly unknown[], most: number, name = 'messages'): void {
  const expected = (what: string): string => `at most ${grouped(most)} ${what}, as many as the context has tokens`;
  checkLength(messages, most, name, expected('messages'));
  let parts = 0;
  for (const [index, given] of messages.entries()) {
    if (!isObject(given)) continue;
    checkFieldCount(given, `${name}[${index}]`);
    if (Array.isArray(given.content)) parts += given.content.length;
  }
  if (parts > most) throw badRequest(`${name} has ${grouped(parts)} parts; expected ${expected('parts')}`, name);
}
